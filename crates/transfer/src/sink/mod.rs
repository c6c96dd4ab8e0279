//! Defines `Sink`, a tree that is copied to; `host` and `volume` implement it, `walk` calls it.
//!
//! A sink makes what the transfer has decided: owner, permissions and attributes of an [`Item`] are those that the copy
//! gets. Names are made by several threads. A directory is finished after all names in it, since each changes its
//! times.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod host;
mod host_options;
mod volume;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use vfs::Metadata;
use vfs::file_system::{KnownNode, Xattrs};

use crate::contents::{Contents, CopyEnd};
use crate::error::Result;
use crate::observer::{Loss, Observer};
use crate::rules::FileId;

#[cfg(not(target_os = "linux"))]
pub use elsewhere::HostSink;
#[cfg(target_os = "linux")]
pub use host::HostSink;
pub use host_options::HostOptions;
pub use volume::{Origin, Sharing, VolumeSink, VolumeSinkOptions};

/// A name that exists already in the target. Directories are merged in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the copy fails.
    #[default]
    Fail,
    /// It is removed first.
    Replace,
    /// In a volume, the copy gets a temporary name and is renamed over it when complete: a failure leaves the old file.
    /// On the host as [`Existing::Replace`].
    Exchange,
}

/// A file or directory to be made.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    /// Name in the directory, which may be hostile.
    pub name: &'a OsStr,
    /// Path in the source.
    pub from: &'a Path,
    /// Path in the sink.
    pub to: &'a Path,
    /// Metadata, attributes, target of a link, and small contents. Whether contents are there: see
    /// [`Item::is_streamed`].
    pub node: &'a KnownNode,
    /// Contents of a file that are not in `node`.
    pub contents: &'a dyn Contents,
    /// Told of progress and losses.
    pub watch: &'a dyn Observer,
}

impl Item<'_> {
    /// The length of the copy of a file whose contents ended at `end`: with the hole at its end, as far as the file
    /// still has it. Reports a file that became shorter than it was when the copy began.
    pub(crate) fn copied_len(&self, end: CopyEnd) -> Result<u64> {
        let (expected, now) = (self.node.attr.size, self.contents.size()?);
        if now < expected {
            self.watch.lost(Loss::Shortened);
        }
        Ok(if end.is_short { end.at } else { end.at.max(expected.min(now)) })
    }

    /// True for a file with contents that are not in `node`.
    #[must_use]
    pub fn is_streamed(&self) -> bool {
        self.node.attr.is_file() && self.node.attr.size > 0 && self.node.data.is_none()
    }
}

/// The result of making a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// It was made.
    Whole,
    /// It was made, and its contents are still to be copied.
    Begun,
    /// It was there already.
    Found,
    /// The target does not permit it.
    Left,
}

/// A tree to copy to. Paths are relative to its root.
///
/// All methods fail with the errors of the host or the volume.
#[expect(clippy::missing_errors_doc, reason = "the trait says it for all")]
pub trait Sink: Sync {
    /// A directory in which names are made.
    type Dir: Send + Sync;

    /// Prepares an existing directory, which gets the metadata of `item`.
    fn begin(&self, item: &Item<'_>) -> Result<()>;

    /// Opens a directory.
    fn open_dir(&self, path: &Path) -> Result<Self::Dir>;

    /// Makes a directory, or merges it into an existing one.
    fn make_dir(&self, dir: &Self::Dir, item: &Item<'_>) -> Result<()>;

    /// Makes anything else.
    fn make(&self, dir: &Self::Dir, item: &Item<'_>, buffer: &mut [u8]) -> Result<Made>;

    /// Makes several small files together; the results are in their order.
    fn make_many(&self, dir: &Self::Dir, items: &[Item<'_>], buffer: &mut [u8]) -> Result<Vec<Result<Made>>> {
        Ok(items.iter().map(|item| self.make(dir, item, buffer)).collect())
    }

    /// How many files [`Sink::make_many`] takes at best.
    fn at_once(&self) -> usize {
        1
    }

    /// Copies the contents of a file that was begun.
    fn fill(&self, item: &Item<'_>, buffer: &mut [u8]) -> Result<()> {
        let _ = (item, buffer);
        Ok(())
    }

    /// Makes one more name of the file at `first`.
    fn link(&self, first: &Path, dir: &Self::Dir, item: &Item<'_>) -> Result<Made>;

    /// Finishes a directory, in which all names were made.
    fn finish_dir(&self, path: &Path, attr: &Metadata, watch: &dyn Observer) -> Result<()>;

    /// Finishes the transfer, also one that failed or was cancelled. `xattrs` reads the attributes of a directory of
    /// the source.
    fn end(&self, watch: &dyn Observer, xattrs: &dyn Fn(&Path) -> Result<Xattrs>) -> Result<()>;

    /// The identity of a directory that was made, if this sink writes to the source: the walk must not enter it.
    fn own_id(&self, path: &Path) -> Result<Option<FileId>> {
        let _ = path;
        Ok(None)
    }

    /// A path for messages; `None` where the errors themselves name it.
    fn display(&self, path: &Path) -> Option<PathBuf>;
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use vfs::Volume;
    use vfs_conformance::MemoryFs;

    use super::*;
    use crate::source::host_metadata;

    /// Counts the files that became shorter.
    #[derive(Default)]
    struct Shortened(AtomicU64);

    impl Observer for Shortened {
        fn lost(&self, what: Loss) {
            assert_eq!(what, Loss::Shortened);
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Both sinks padded or cut a file that becomes shorter while it is copied in ways of their own, and neither said
    /// so. The copy ends where the file ends, and is reported.
    #[test]
    fn a_file_that_becomes_shorter_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        for (now, reports) in [(3 << 20, 0), (1 << 20, 1), (0, 1)] {
            let path = dir.path().join(format!("source-{now}"));
            let mut source = File::create_new(&path).unwrap();
            source.write_all(&vec![7; 3 << 20]).unwrap();
            let attr = host_metadata(&rustix::fs::fstat(&source).unwrap()).unwrap();
            source.set_len(now).unwrap();
            let contents: OwnedFd = File::open(&path).unwrap().into();
            let node = KnownNode { attr, target: None, xattrs: None, data: None };
            let watch = Shortened::default();
            let (name, buffer) = (Path::new("copy"), &mut vec![0; 1 << 20][..]);
            let item =
                Item { name: name.as_os_str(), from: name, to: name, node: &node, contents: &contents, watch: &watch };
            let out = dir.path().join(format!("out-{now}"));
            let host = HostSink::create(&out, HostOptions { keeps_owners: false, ..HostOptions::default() }).unwrap();
            host.make(&host.open_dir(Path::new("")).unwrap(), &item, buffer).unwrap();
            assert_eq!(fs::metadata(out.join("copy")).unwrap().len(), now, "on the host");
            assert_eq!(watch.0.swap(0, Ordering::Relaxed), reports, "on the host, {now} bytes");
            let volume = Volume::new(Arc::new(MemoryFs::default()));
            let sink = VolumeSink::new(&volume, "", VolumeSinkOptions::default());
            sink.make(&PathBuf::new(), &item, &mut []).unwrap();
            sink.fill(&item, buffer).unwrap();
            assert_eq!(volume.metadata("copy").unwrap().size, now, "in a volume");
            assert_eq!(watch.0.swap(0, Ordering::Relaxed), reports, "in a volume, {now} bytes");
        }
    }
}
