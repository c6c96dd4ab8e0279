//! Implements a sink over a directory of a volume. `put`, `cp` and `mkfs` of the program copy to it.
//!
//! A name becomes an inode with all its metadata, and a small file with its contents, in one call of the volume; larger
//! files are streamed, and get their times at the end. [`VolumeSinkOptions`] select further properties kept from
//! another volume: flags, and shared extents if it is the same one.
//!
//! Failure: a file that fails is removed, unless the copied part is to stay.

mod equal;
mod existing;
mod filling;
mod flags;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use portable::OsStrExt as _;
use vfs::file_system::{KnownNode, WholeNode, Xattrs};
use vfs::{Errno, Metadata, Times, Volume};

use self::equal::EqualFiles;
use self::flags::Flags;
use super::{Existing, Item, Made, Sink};
use crate::error::Result;
use crate::observer::Observer;
use crate::rules::joined;
use crate::rules::{FileId, file_id, is_device};

/// Origin of files, which decides the properties that can be kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Origin {
    /// The host, or an archive: flags are not known.
    #[default]
    Elsewhere,
    /// Another volume. Flags are copied; an attribute or flag that this volume does not accept is told as a loss.
    OtherVolume,
    /// This volume. Flags are copied, and extents shared. Directories are not merged, since one may be copied into
    /// itself.
    ThisVolume(Sharing),
}

/// Whether the contents of files share extents with their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// They are copied.
    Never,
    /// They are shared where the file system permits it.
    Auto,
    /// They are shared, or the file fails.
    Always,
}

/// How a volume is written.
#[derive(Debug, Clone, Copy, Default)]
pub struct VolumeSinkOptions {
    /// How a name that exists is treated: the copy fails, or replaces it.
    pub existing: Existing,
    /// The time of the last inode change is copied; otherwise it is the time of the transfer.
    pub keeps_ctime: bool,
    /// The part of a file that could be copied is kept; otherwise it is removed.
    pub keeps_partial: bool,
    /// Where files come from.
    pub origin: Origin,
    /// Files with the bytes of an earlier one share its extents, where the volume can.
    pub shares_equal: bool,
    /// With a user id: existing directories that another user owns keep their owner, mode, times and attributes.
    pub user: Option<u32>,
}

/// A directory of a volume, which exists.
#[derive(Debug)]
pub struct VolumeSink<'a> {
    volume: &'a Volume,
    path: PathBuf,
    options: VolumeSinkOptions,
    /// Existing directories of other users.
    left: Mutex<HashSet<PathBuf>>,
    /// Names that were given to copies before they replaced a file.
    exchanged_count: AtomicU64,
    equal: EqualFiles,
}

impl<'a> VolumeSink<'a> {
    /// The directory at `path`.
    pub fn new(volume: &'a Volume, path: impl Into<PathBuf>, options: VolumeSinkOptions) -> Self {
        let (left, exchanged_count, equal) = Default::default();
        Self { volume, path: path.into(), options, left, exchanged_count, equal }
    }

    fn keeps_flags(&self) -> bool {
        self.options.origin != Origin::Elsewhere
    }

    fn is_source(&self) -> bool {
        matches!(self.options.origin, Origin::ThisVolume(_))
    }

    fn flags<'w>(&'w self, watch: &'w dyn Observer) -> Flags<'w> {
        Flags { volume: self.volume, is_within: self.is_source(), watch }
    }

    fn times(&self, found: &Metadata) -> Times {
        let ctime = self.options.keeps_ctime.then_some(found.ctime);
        Times { atime: Some(found.atime), mtime: Some(found.mtime), ctime, btime: None }
    }

    fn whole<'n>(&self, node: &'n KnownNode, xattrs: &'n Pairs<'n>) -> WholeNode<'n> {
        let found = &node.attr;
        let Times { atime, mtime, ctime, btime } = self.times(found);
        WholeNode {
            kind: found.kind,
            permissions: found.permissions,
            uid: found.uid,
            gid: found.gid,
            atime,
            mtime,
            ctime,
            btime,
            rdev: if is_device(found.kind) { found.rdev } else { 0 },
            target: node.target.as_deref().unwrap_or_default(),
            xattrs,
            data: node.data.as_deref().unwrap_or_default(),
        }
    }

    /// Makes the inode of `item` at `target`, where nothing is, with contents if they are known.
    fn create(&self, target: &Path, item: &Item<'_>) -> Result<Made> {
        let pairs = pairs(item.node);
        let node = self.whole(item.node, &pairs);
        if self.options.shares_equal && bytes(node.data) >= equal::BYTES_MIN && !self.keeps_flags() {
            return self.create_shared(target, item, &node);
        }
        let made = match self.volume.create_node(target, &node) {
            Err(error) if self.is_loss(&error) && !pairs.is_empty() => {
                let made = self.volume.create_node(target, &WholeNode { xattrs: &[], ..node })?;
                self.set_xattrs(target, item)?;
                made
            }
            made => made?,
        };
        if self.keeps_flags() && flags::has_other_storage(&made, &item.node.attr) {
            // The kind of storage is chosen before a file has data.
            if !node.data.is_empty() {
                self.volume.remove_file(target)?;
                self.volume.create_node(target, &WholeNode { xattrs: &[], data: &[], ..node })?;
                self.set_xattrs(target, item)?;
            }
            self.flags(item.watch).set_storage(target, item.node.attr.flags)?;
            return Ok(Made::Begun);
        }
        item.watch.copied(bytes(node.data));
        if item.is_streamed() {
            return Ok(Made::Begun);
        }
        if self.keeps_flags() && !item.node.attr.is_dir() {
            self.flags(item.watch).set(target, &made, item.node.attr.flags)?;
        }
        Ok(Made::Whole)
    }
}

/// Names and values of attributes.
type Pairs<'a> = Vec<(&'a [u8], &'a [u8])>;

fn bytes(data: &[u8]) -> u64 {
    u64::try_from(data.len()).unwrap_or(u64::MAX)
}

fn pairs(node: &KnownNode) -> Pairs<'_> {
    let xattrs = node.xattrs.iter().flatten();
    xattrs.map(|(name, value)| (name.as_slice(), value.as_slice())).collect()
}

impl Sink for VolumeSink<'_> {
    type Dir = PathBuf;

    fn begin(&self, item: &Item<'_>) -> Result<()> {
        self.merge(&joined(&self.path, item.to), item)
    }

    fn open_dir(&self, path: &Path) -> Result<PathBuf> {
        Ok(joined(&self.path, path))
    }

    fn make_dir(&self, dir: &PathBuf, item: &Item<'_>) -> Result<()> {
        let target = dir.join(item.name);
        match self.create(&target, item) {
            Err(error) if error.is_from(Errno::EEXIST) => self.replace_by_dir(&target, item, error),
            made => made.map(drop),
        }
    }

    fn make(&self, dir: &PathBuf, item: &Item<'_>, buffer: &mut [u8]) -> Result<Made> {
        let target = dir.join(item.name);
        match self.create(&target, item) {
            Err(error) if error.is_from(Errno::EEXIST) => self.replace(&target, item, error, buffer),
            made => made,
        }
    }

    fn make_many(&self, dir: &PathBuf, items: &[Item<'_>], buffer: &mut [u8]) -> Result<Vec<Result<Made>>> {
        if self.keeps_flags() || self.options.shares_equal {
            return Ok(items.iter().map(|item| self.make(dir, item, buffer)).collect());
        }
        let all: Vec<Pairs<'_>> = items.iter().map(|item| pairs(item.node)).collect();
        let nodes = items.iter().zip(&all).map(|(item, pairs)| (item.name.as_bytes(), self.whole(item.node, pairs)));
        let made = self.volume.create_nodes(dir, &nodes.collect::<Vec<_>>())?;
        let done = items.iter().zip(made).map(|(item, made)| match made {
            // The existing file decides.
            Err(error) if error.errno() == Errno::EEXIST => self.make(dir, item, buffer),
            Err(error) => Err(error.into()),
            Ok(_) => {
                item.watch.copied(item.node.data.as_deref().map_or(0, bytes));
                Ok(Made::Whole)
            }
        });
        Ok(done.collect())
    }

    fn at_once(&self) -> usize {
        self.volume.at_once()
    }

    fn fill(&self, item: &Item<'_>, buffer: &mut [u8]) -> Result<()> {
        self.fill_at(&joined(&self.path, item.to), item, buffer)
    }

    fn link(&self, first: &Path, dir: &PathBuf, item: &Item<'_>) -> Result<Made> {
        let (first, target) = (joined(&self.path, first), dir.join(item.name));
        match self.volume.hard_link(&first, &target) {
            Err(error) if error.errno() == Errno::EEXIST => self.link_over(&first, &target, item, error.into()),
            linked => Ok(linked.map(|()| Made::Whole)?),
        }
    }

    fn finish_dir(&self, path: &Path, attr: &Metadata, watch: &dyn Observer) -> Result<()> {
        let target = joined(&self.path, path);
        if self.is_left(&target) {
            return Ok(());
        }
        self.volume.set_times(&target, &self.times(attr))?;
        if self.keeps_flags() {
            self.flags(watch).set(&target, &self.volume.symlink_metadata(&target)?, attr.flags)?;
        }
        Ok(())
    }

    fn end(&self, _watch: &dyn Observer, _xattrs: &dyn Fn(&Path) -> Result<Xattrs>) -> Result<()> {
        Ok(())
    }

    fn own_id(&self, path: &Path) -> Result<Option<FileId>> {
        if !self.is_source() {
            return Ok(None);
        }
        Ok(Some(file_id(&self.volume.symlink_metadata(joined(&self.path, path))?)))
    }

    fn display(&self, _path: &Path) -> Option<PathBuf> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use vfs_conformance::MemoryFs;

    use super::*;
    use crate::source::host_metadata;

    /// Streams a file of the host that had the size of `before` when it was looked at, and is cut to `now` bytes before
    /// it is read. Returns what the volume has afterwards.
    fn streamed(before: &[u8], hole: u64, now: u64) -> Vec<u8> {
        let volume = Volume::new(Arc::new(MemoryFs::default()));
        let dir = tempfile::tempdir().unwrap();
        let mut source = fs::File::create_new(dir.path().join("source")).unwrap();
        source.write_all(before).unwrap();
        source.set_len(bytes(before) + hole).unwrap();
        let attr = host_metadata(&rustix::fs::fstat(&source).unwrap()).unwrap();
        source.set_len(now).unwrap();
        let contents: OwnedFd = fs::File::open(dir.path().join("source")).unwrap().into();
        let node = KnownNode { attr, target: None, xattrs: None, data: None };
        let path = Path::new("copy");
        let item = Item { name: path.as_os_str(), from: path, to: path, node: &node, contents: &contents, watch: &() };
        let sink = VolumeSink::new(&volume, "", VolumeSinkOptions::default());
        assert_eq!(sink.make(&PathBuf::new(), &item, &mut []).unwrap(), Made::Begun);
        sink.fill(&item, &mut vec![0; 1 << 20]).unwrap();
        volume.read("copy").unwrap()
    }

    #[test]
    fn a_file_that_became_shorter_has_no_zeros_at_its_end() {
        let long = vec![7; 3 << 20];
        for now in [0, 1000, 1 << 20, (2 << 20) + 5] {
            let copy = streamed(&long, 0, now);
            assert_eq!(bytes(&copy), now);
            assert!(copy.iter().all(|byte| *byte == 7), "cut to {now}");
        }
    }

    #[test]
    fn holes_at_the_end_arrive_as_far_as_they_are_there() {
        let data = vec![7; 1 << 20];
        for now in [1 << 20, 2 << 20, 3 << 20] {
            let copy = streamed(&data, 2 << 20, now);
            assert_eq!(bytes(&copy), now);
            let (head, tail) = copy.split_at(1 << 20);
            assert!(head == data && tail.iter().all(|byte| *byte == 0), "cut to {now}");
        }
    }
}
