//! Reads and writes the resume note: an xattr on the root of an unfinished subvolume that records how far the stream
//! was applied. Used by `leftovers` and `receiver`.

use btrfs_stream::ResumePoint;
use std::sync::Arc;
use vfs::FileSystem;
use vfs::file_system::{Caller, Errno, NodeId, SetAttr, XattrMode};

/// Name of the xattr. A stream can neither set nor remove it.
pub(crate) const NAME: &[u8] = b"user.spinney.unfinished";

/// Values for the command that began the subvolume.
const FROM_NOTHING: &str = "subvol";
const FROM_SNAPSHOT: &str = "snapshot";

/// Limit on the text of a note, in bytes.
const TEXT_BYTES_MAX: usize = 200;

/// How far a stream was applied to the subvolume with this note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) point: ResumePoint,
    /// True if the subvolume began as a snapshot.
    pub(crate) is_snapshot: bool,
}

impl Note {
    /// Reads the note of the root directory `root`; `None` if there is none or it is invalid.
    pub(crate) fn read(fs: &Arc<dyn FileSystem>, root: NodeId) -> vfs::Result<Option<Self>> {
        let text = match fs.get_xattr(root, NAME) {
            Ok(text) => text,
            Err(error) if [Errno::ENODATA, Errno::EOPNOTSUPP].contains(&error.errno()) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Self::parse(&text))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= TEXT_BYTES_MAX)?;
        let mut words = text.split(' ');
        let point = words.next()?.parse().ok()?;
        let is_snapshot = match (words.next()?, words.next()) {
            (FROM_NOTHING, None) => false,
            (FROM_SNAPSHOT, None) => true,
            _ => return None,
        };
        Some(Self { point, is_snapshot })
    }

    /// Writes the note without changing the times of the directory, which the stream sets.
    pub(crate) fn write(&self, fs: &Arc<dyn FileSystem>, root: NodeId) -> vfs::Result<()> {
        let began = if self.is_snapshot { FROM_SNAPSHOT } else { FROM_NOTHING };
        let text = format!("{} {began}", self.point);
        keeping_times(fs, root, || fs.set_xattr(root, NAME, text.as_bytes(), XattrMode::Either, false))
    }
}

/// Removes the note, if there is one.
pub(crate) fn remove(fs: &Arc<dyn FileSystem>, root: NodeId) -> vfs::Result<()> {
    keeping_times(fs, root, || match fs.remove_xattr(root, NAME) {
        Err(error) if error.errno() == Errno::ENODATA => Ok(()),
        result => result,
    })
}

fn keeping_times(fs: &Arc<dyn FileSystem>, root: NodeId, change: impl FnOnce() -> vfs::Result<()>) -> vfs::Result<()> {
    let ctime = fs.attr(root)?.ctime;
    change()?;
    fs.set_attr(&Caller::default(), root, &SetAttr { ctime: Some(ctime), ..SetAttr::default() })?;
    Ok(())
}
