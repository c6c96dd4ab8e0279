//! The order in which a stream is made.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;

use btrfs_disk::TreeId;
use btrfs_disk::flags::RootFlags;
use btrfs_disk::items::RootItem;
use btrfs_store::Store;
use btrfs_stream::{Command, Encoder, Uuid, Version};

use super::attributes::{self, Xattrs};
use super::changes::Changes;
use super::clones::Clones;
use super::content::Contents;
use super::names;
use super::places::{Pair, Places};
use super::view::View;
use crate::error::{CallerError, Error, Result as VolumeResult};
use crate::inode::{Core, ROOT_DIR_INO};

/// Directories whose times are set together, behind what changes in them.
const TOUCHED_MAX: usize = 1 << 16;

/// How a stream is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendOptions {
    /// The version of the stream, 1 or 2.
    pub version: u32,
    /// Sends compressed extents as they are on disk. Needs version 2.
    pub compressed_data: bool,
    /// Says which bytes differ, not what they are.
    pub no_data: bool,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self { version: 1, compressed_data: false, no_data: false }
    }
}

/// Why a stream could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The volume, or what was asked of it.
    #[error(transparent)]
    Volume(#[from] Error),
    /// The subvolume can be changed, so that its state would not be one state.
    #[error("the subvolume {path} can be changed: only read-only ones are sent")]
    Writable {
        /// Where it is, from the top level.
        path: String,
    },
    /// The stream cannot be written to where it goes.
    #[error("the stream: {0}")]
    Output(#[source] io::Error),
    /// The stream cannot hold it.
    #[error(transparent)]
    Stream(btrfs_stream::Error),
}

impl From<btrfs_stream::Error> for SendError {
    fn from(error: btrfs_stream::Error) -> Self {
        match error {
            btrfs_stream::Error::Write(source) => Self::Output(source),
            error => Self::Stream(error),
        }
    }
}

impl From<btrfs_store::Error> for SendError {
    fn from(error: btrfs_store::Error) -> Self {
        Self::Volume(error.into())
    }
}

pub(super) type Result<T> = std::result::Result<T, SendError>;

/// A subvolume that a receiver has, or is to have.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(super) id: TreeId,
    pub(super) uuid: Uuid,
    pub(super) ctransid: u64,
}

impl Source {
    /// What a receiver knows the subvolume `id` by. `path` is where it is, for what is said of it.
    ///
    /// # Errors
    /// `NoSuchSubvolume`, [`SendError::Writable`].
    pub(crate) fn of(store: &Store, id: TreeId, path: &str) -> Result<Self> {
        let item: RootItem = match store.root_item(id) {
            Ok(item) if item.refs.get() > 0 && id.is_subvolume() => item,
            Ok(_) | Err(btrfs_store::Error::NoSuchTree(_)) => {
                return Err(Error::from(CallerError::NoSuchSubvolume).into());
            }
            Err(error) => return Err(error.into()),
        };
        if !item.root_flags().contains(RootFlags::SUBVOL_RDONLY) {
            return Err(SendError::Writable { path: path.to_owned() });
        }
        let uuid = if item.received_uuid.is_nil() { item.uuid } else { item.received_uuid };
        Ok(Self { id, uuid: uuid.0, ctransid: item.ctransid.get() })
    }
}

/// What makes a stream.
pub(super) struct Sender<'a> {
    pub(super) core: &'a Core,
    pub(super) pair: Pair,
    pub(super) places: Places,
    pub(super) contents: Contents,
    pub(super) clones: Clones,
    pub(super) options: SendOptions,
    encoder: Encoder<&'a mut dyn Write>,
    /// Directories whose times are not as they have to be.
    touched: BTreeSet<u64>,
    /// What is known of the last directory that something new was made in.
    pub(super) inherited: Option<names::Inherited>,
}

/// Writes the stream that makes `to` from `from`, or from nothing. Files are cloned from what `sources` have too, which
/// the receiver must have. `name` is what the subvolume is called. `core` is of a state that does not change.
pub(crate) fn send<'a>(
    core: &'a Core,
    from: Option<&Source>,
    (to, name): (&Source, &[u8]),
    sources: &[Source],
    options: &SendOptions,
    output: &'a mut dyn Write,
) -> Result<()> {
    let version =
        Version::from_raw(options.version).filter(|version| *version >= Version::V2 || !options.compressed_data);
    let version = version.ok_or(Error::from(CallerError::InvalidArgument))?;
    let encoder = Encoder::new(output, version)?;
    let tree = |source: &Source| -> VolumeResult<View> { Ok(View::new(core.store.tree(source.id)?)) };
    let pair = Pair { old: from.map(tree).transpose()?, new: tree(to)? };
    let clones = Clones::new(core, from, to, sources)?;
    let mut sender = Sender {
        core,
        pair,
        places: Places::default(),
        contents: Contents::new(version),
        clones,
        options: options.clone(),
        encoder,
        touched: BTreeSet::new(),
        inherited: None,
    };
    sender.begin(from, to, name)?;
    sender.clear()?;
    sender.place()?;
    sender.touch(ROOT_DIR_INO.0)?;
    sender.set_times_of_touched()?;
    sender.put(&Command::End)
}

impl Sender<'_> {
    fn begin(&mut self, from: Option<&Source>, to: &Source, path: &[u8]) -> Result<()> {
        let Source { uuid, ctransid, .. } = *to;
        self.put(&match from {
            None => Command::Subvol { path, uuid, ctransid },
            Some(from) => {
                let (parent_uuid, parent_ctransid) = (from.uuid, from.ctransid);
                Command::Snapshot { path, uuid, ctransid, parent_uuid, parent_ctransid }
            }
        })
    }

    pub(super) fn put(&mut self, command: &Command<'_>) -> Result<()> {
        Ok(self.encoder.command(command)?)
    }

    fn changes(&self) -> Result<Changes> {
        let old = self.pair.old.as_ref().map(|old| Arc::clone(&old.tree));
        Ok(Changes::new(old, Arc::clone(&self.pair.new.tree), self.core.store.sizes().sector)?)
    }

    /// Sets aside, or removes, what is not to stay where it is.
    fn clear(&mut self) -> Result<()> {
        if self.pair.old.is_none() {
            return Ok(());
        }
        let mut changes = self.changes()?;
        while let Some(changed) = changes.step()? {
            self.places.cleared = changed.ino;
            if changed.item || changed.names {
                names::clear(self, changed.ino)?;
            }
        }
        Ok(())
    }

    /// Gives every inode that differs its names, contents and attributes.
    fn place(&mut self) -> Result<()> {
        let mut changes = self.changes()?;
        while let Some(changed) = changes.step()? {
            let ino = changed.ino;
            let old = self.pair.old_facts(ino)?;
            let new = self.pair.new.facts(ino)?;
            // The root directory is there with the subvolume, also where that has nothing to do with the other.
            let is_root = ino == ROOT_DIR_INO.0;
            let same = old.filter(|old| is_root || new.is_some_and(|new| new.is_same_as(old)));
            if let Some(gone) = old.filter(|old| old.is_dir() && same.is_none()) {
                names::remove_aside(self, ino, &gone)?;
            }
            let Some(new) = new else { continue };
            let Some(path) = names::place(self, ino, &new, same.is_some())? else { continue };
            // An inode that got the number of another may have attributes that do not differ.
            let may_differ = changed.xattrs || (same.is_none() && self.pair.old.is_some());
            let xattrs = if may_differ { Xattrs::of(self, ino, same.is_some())? } else { Xattrs::default() };
            attributes::before_contents(self, &path, &xattrs)?;
            let is_written = self.send_contents(&changed, &path, (same.as_ref(), &new))?;
            attributes::after_contents(self, (ino, &path), (same.as_ref(), &new), (xattrs, is_written))?;
            if new.is_dir() {
                self.touch(ino)?;
            } else {
                attributes::set_times(self, &path, &new)?;
            }
        }
        Ok(())
    }

    /// Notes that the times of a directory have to be set once more.
    pub(super) fn touch(&mut self, dir: u64) -> Result<()> {
        if self.touched.len() >= TOUCHED_MAX && !self.touched.contains(&dir) {
            self.set_times_of_touched()?;
        }
        self.touched.insert(dir);
        Ok(())
    }

    fn set_times_of_touched(&mut self) -> Result<()> {
        for dir in std::mem::take(&mut self.touched) {
            if let Some(facts) = self.pair.new.facts(dir)? {
                let path = self.places.of_dir(&self.pair, dir)?;
                attributes::set_times(self, &path, &facts)?;
            }
        }
        Ok(())
    }
}
