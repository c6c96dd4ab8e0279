//! A directory of a volume as a sink.
//!
//! A name becomes an inode with all its metadata, and a small file with its contents, in one call of the volume; larger
//! files are streamed, and get their times at the end.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use vfs::file_system::{KnownNode, SetAttr, WholeNode, XattrMode, Xattrs};
use vfs::{Errno, File, FileOptions, Metadata, Times, Volume};

use super::{Existing, Item, Made, Sink};
use crate::beneath::joined;
use crate::contents::copy_data;
use crate::error::Result;
use crate::rules::is_device;
use crate::watch::Watch;

/// How a volume is written.
#[derive(Debug, Clone, Copy, Default)]
pub struct VolumeOptions {
    /// What happens to a name that exists.
    pub existing: Existing,
    /// The time of the last inode change is copied; otherwise it is the time of the transfer.
    pub keeps_ctime: bool,
    /// The part of a file that could be copied is kept; otherwise it is removed.
    pub keeps_partial: bool,
}

/// A directory of a volume, which exists.
#[derive(Debug)]
pub struct VolumeSink<'a> {
    volume: &'a Volume,
    path: PathBuf,
    options: VolumeOptions,
}

impl<'a> VolumeSink<'a> {
    /// The directory at `path`.
    pub fn new(volume: &'a Volume, path: impl Into<PathBuf>, options: VolumeOptions) -> Self {
        Self { volume, path: path.into(), options }
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

    /// Makes the inode of `item`, with contents if they are known.
    fn create(&self, target: &Path, item: &Item<'_>) -> Result<Made> {
        let pairs = pairs(item.node);
        let node = self.whole(item.node, &pairs);
        match self.volume.create_node(target, &node) {
            Err(error) if error.errno() == Errno::EEXIST => {
                let existing = self.volume.symlink_metadata(target)?;
                if existing.is_dir() && node.kind.is_dir() {
                    self.merge(target, item.node)?;
                } else if existing.is_dir() || self.options.existing == Existing::Fail {
                    return Err(error.into());
                } else {
                    self.volume.remove_file(target)?;
                    self.volume.create_node(target, &node)?;
                }
            }
            made => made.map(drop)?,
        }
        item.watch.copied(bytes(node.data));
        Ok(if item.is_streamed() { Made::Begun } else { Made::Whole })
    }

    /// Gives an existing directory the metadata of `node`.
    fn merge(&self, target: &Path, node: &KnownNode) -> Result<()> {
        let found = &node.attr;
        let changes = SetAttr {
            permissions: Some(found.permissions),
            uid: Some(found.uid),
            gid: Some(found.gid),
            ..SetAttr::from(self.times(found))
        };
        self.volume.set_attributes(target, &changes)?;
        for (name, value) in pairs(node) {
            self.volume.set_xattr(target, name, value, XattrMode::Either)?;
        }
        Ok(())
    }

    /// Copies the contents, up to the size that the file had. Of a file that is shorter by now, or never was so long
    /// (files of sysfs), what can be read arrives, without zeros in the place of what cannot.
    fn stream(&self, item: &Item<'_>, file: &File, buffer: &mut [u8]) -> Result<()> {
        let size = item.node.attr.size;
        let end = copy_data(item.contents, size, buffer, |at, part| -> Result<()> {
            file.write_at(part, at)?;
            item.watch.copied(bytes(part));
            Ok(())
        })?;
        // The hole at the end, as far as the file still has it.
        let len = if end.is_short { end.at } else { end.at.max(size.min(item.contents.size()?)) };
        if file.metadata()?.size < len {
            file.set_len(len)?;
        }
        Ok(())
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

    fn begin(&self, _from: &Path, node: &KnownNode) -> Result<()> {
        self.merge(&self.path, node)
    }

    fn open_dir(&self, path: &Path) -> Result<PathBuf> {
        Ok(joined(&self.path, path))
    }

    fn make_dir(&self, dir: &PathBuf, item: &Item<'_>) -> Result<()> {
        self.create(&dir.join(item.name), item).map(drop)
    }

    fn make(&self, dir: &PathBuf, item: &Item<'_>, _buffer: &mut [u8]) -> Result<Made> {
        self.create(&dir.join(item.name), item)
    }

    fn make_many(&self, dir: &PathBuf, items: &[Item<'_>], _buffer: &mut [u8]) -> Result<Vec<Result<Made>>> {
        let all: Vec<Pairs<'_>> = items.iter().map(|item| pairs(item.node)).collect();
        let nodes = items.iter().zip(&all).map(|(item, pairs)| (item.name.as_bytes(), self.whole(item.node, pairs)));
        let made = self.volume.create_nodes(dir, &nodes.collect::<Vec<_>>())?;
        let done = items.iter().zip(made).map(|(item, made)| match made {
            // What is there already decides what becomes of it.
            Err(error) if error.errno() == Errno::EEXIST => self.create(&dir.join(item.name), item),
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
        let target = self.path.join(item.to);
        let file = FileOptions::new().read(true).write(true).open(self.volume, &target)?;
        let filled = self.stream(item, &file, buffer);
        drop(file);
        if filled.is_err() && !self.options.keeps_partial {
            // The caller gets the first failure. If this removal fails too, the part stays.
            let _ = self.volume.remove_file(&target);
        }
        filled?;
        // Writing has changed the times.
        Ok(self.volume.set_times(target, &self.times(&item.node.attr))?)
    }

    fn link(&self, first: &Path, dir: &PathBuf, item: &Item<'_>) -> Result<Made> {
        let (first, target) = (self.path.join(first), dir.join(item.name));
        match self.volume.hard_link(&first, &target) {
            Err(error) if error.errno() == Errno::EEXIST && self.options.existing == Existing::Replace => {
                self.volume.remove_file(&target)?;
                self.volume.hard_link(&first, &target)?;
            }
            linked => linked?,
        }
        Ok(Made::Whole)
    }

    fn finish_dir(&self, path: &Path, attr: &Metadata, _watch: &dyn Watch) -> Result<()> {
        Ok(self.volume.set_times(joined(&self.path, path), &self.times(attr))?)
    }

    fn end(&self, _watch: &dyn Watch, _xattrs: &dyn Fn(&Path) -> Result<Xattrs>) -> Result<()> {
        Ok(())
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
        let sink = VolumeSink::new(&volume, "", VolumeOptions::default());
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
