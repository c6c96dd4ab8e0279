//! Reads a directory of the host into a tree, so that archives, owners and manifests can be applied to it before an
//! image is made. Callers: `mkfs` and `put` of the program.
//!
//! Invariants
//! * No symbolic link is followed, except the path of the directory itself. Contents are opened when they are needed,
//!   relative to the open directory, and only if the name still is the file that was found.
//! * Names of one inode become hard links of one node. Equal inode numbers of two file systems stay two nodes.
//! * A file that has more names than were found is reported: [`Loss::OtherNames`], and [`Read::partial_links`].
//! * Sockets stay nodes. Owners, modes and devices of fakeroot replace those of the host.
//!
//! Failure: [`Observer::failed`] decides for each file and directory that cannot be read or has vanished.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use transfer::{
    Cause, FileId, Found, HostContents, HostSource, Loss, Name, NewNode, Observer, Source, Stored, Tree, file_id,
};
use vfs::file_system::KnownNode;

use crate::content::HostFile;
use crate::error::Result;
use crate::fakeroot::FakerootState;
use crate::number::to_u64;

/// Most paths in [`Read::partial_links`].
pub const PARTIAL_LINKS_MAX: usize = 1000;

/// How a directory of the host is read.
#[derive(Debug, Clone, Default)]
pub struct HostReadOptions {
    /// The directory of the tree that it becomes; empty for the root.
    pub below: PathBuf,
    /// The saved state of fakeroot.
    pub fakeroot: Option<FakerootState>,
    /// Directories on another file system are made, but stay empty.
    pub one_file_system: bool,
    /// A file to leave out: the image that is written.
    pub skip: Option<FileId>,
}

/// The count of things that were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Read {
    /// Names in the tree, that of the directory itself included.
    pub names: u64,
    /// Files to which the state of fakeroot was applied.
    pub fakeroot_files: u64,
    /// Files that have names outside the directory, by the first name inside: at most [`PARTIAL_LINKS_MAX`].
    pub partial_links: Vec<PathBuf>,
}

/// A file with several names.
struct Linked {
    first: PathBuf,
    /// Names on the host that were not found yet.
    missing: u32,
}

/// A directory that is still to be read, relative to the source.
struct Waiting {
    path: PathBuf,
    /// The directories on the way to it, and itself.
    ids: Vec<FileId>,
}

struct Reader<'a> {
    tree: &'a mut Tree,
    source: Arc<HostSource>,
    options: &'a HostReadOptions,
    watch: &'a dyn Observer,
    linked: HashMap<FileId, Linked>,
    top_device: u64,
    read: Read,
}

/// Reads the directory `dir` of the host into `tree`. Nodes that the tree has already are replaced; a directory over a
/// directory keeps the names in it.
///
/// # Errors
/// Those of the host for `dir` itself; those that `watch` returns from [`Observer::failed`]; no place in the tree.
pub fn read_into(tree: &mut Tree, dir: &Path, options: &HostReadOptions, watch: &dyn Observer) -> Result<Read> {
    let source = Arc::new(HostSource::open(dir)?);
    let top = source.top(Path::new(""))?;
    tree.begin_source(dir);
    let id = file_id(&top.attr);
    let mut reader =
        Reader { tree, source, options, watch, linked: HashMap::new(), top_device: id.0, read: Read::default() };
    reader.put(Path::new(""), top, None)?;
    let mut waiting = vec![Waiting { path: PathBuf::new(), ids: vec![id] }];
    while let Some(next) = waiting.pop() {
        watch.check()?;
        let first = waiting.len();
        if let Err(error) = reader.read_dir(&next, &mut waiting) {
            reader.fail(error, &next.path)?;
        }
        // The next directory in the order of names comes first.
        waiting.get_mut(first..).unwrap_or_default().reverse();
    }
    Ok(reader.finish())
}

impl Reader<'_> {
    fn read_dir(&mut self, dir: &Waiting, waiting: &mut Vec<Waiting>) -> transfer::Result<()> {
        let source = Arc::clone(&self.source);
        let open = source.open_dir(&dir.path)?;
        let shared: Arc<Path> = dir.path.as_path().into();
        let watch = self.watch;
        let names = source.names(&open, &mut |error| watch.failed(error))?;
        for name in names {
            let path = dir.path.join(&name.name);
            watch.check()?;
            watch.tried();
            let found = source.look_at_one(&open, &name);
            let step = found.and_then(|found| self.take(dir, &shared, name, &path, found, waiting));
            match step {
                Ok(()) => watch.done(),
                Err(error) => self.fail(error, &path)?,
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        dir: &Waiting,
        shared: &Arc<Path>,
        name: Name,
        path: &Path,
        mut found: Found<HostContents>,
        waiting: &mut Vec<Waiting>,
    ) -> transfer::Result<()> {
        let id = file_id(&found.node.attr);
        if self.options.skip == Some(id) {
            return Ok(());
        }
        if found.node.attr.is_dir() {
            if dir.ids.contains(&id) {
                return Err(Cause::Cycle.into());
            }
            self.complete(&mut found)?;
            self.put(path, found.node, None)?;
            if id.0 == self.top_device || !self.options.one_file_system {
                let ids = dir.ids.iter().copied().chain([id]).collect();
                waiting.push(Waiting { path: path.to_owned(), ids });
            }
            return Ok(());
        }
        let target = self.options.below.join(path);
        if let Some(known) = self.linked.get_mut(&id) {
            known.missing = known.missing.saturating_sub(1);
            self.tree.link(&known.first, &target)?;
            self.read.names = self.read.names.saturating_add(1);
            return Ok(());
        }
        if found.node.attr.nlink > 1 {
            self.linked.insert(id, Linked { first: target, missing: found.node.attr.nlink.saturating_sub(1) });
        }
        let result = self.complete(&mut found).and_then(|()| {
            let file: Arc<dyn Stored> = Arc::new(HostFile::new(&self.source, shared, name, id));
            self.put(path, found.node, Some(file))
        });
        if result.is_err() {
            self.linked.remove(&id);
        }
        result
    }

    /// Reads attributes and the target of a link, but no contents.
    fn complete(&self, found: &mut Found<HostContents>) -> transfer::Result<()> {
        // The source reads small files whole unless they may have holes, which it sees by the count of blocks.
        let blocks = std::mem::take(&mut found.node.attr.blocks);
        let result = self.source.complete(found);
        found.node.attr.blocks = blocks;
        found.node.data = None;
        result
    }

    fn put(&mut self, path: &Path, node: KnownNode, file: Option<Arc<dyn Stored>>) -> transfer::Result<()> {
        let KnownNode { mut attr, target, xattrs, .. } = node;
        if let Some(state) = &self.options.fakeroot
            && state.apply(file_id(&attr), &mut attr)
        {
            self.read.fakeroot_files = self.read.fakeroot_files.saturating_add(1);
        }
        let contents = file.filter(|_| attr.is_file() && attr.size > 0);
        let node = NewNode { attr, target, xattrs: xattrs.unwrap_or_default(), contents };
        self.tree.put(&self.options.below.join(path), node)?;
        self.read.names = self.read.names.saturating_add(1);
        Ok(())
    }

    fn fail(&self, error: transfer::Error, path: &Path) -> transfer::Result<()> {
        if error.is_cancelled() {
            return Err(error);
        }
        let shown = self.source.display(path);
        self.watch.failed(shown.into_iter().fold(error, transfer::Error::about))
    }

    fn finish(mut self) -> Read {
        let partial: HashSet<&Path> =
            self.linked.values().filter(|file| file.missing > 0).map(|file| file.first.as_path()).collect();
        (0..to_u64(partial.len())).for_each(|_| self.watch.lost(Loss::OtherNames));
        let mut paths: Vec<PathBuf> = partial.into_iter().map(Path::to_owned).collect();
        paths.sort_unstable();
        paths.truncate(PARTIAL_LINKS_MAX);
        self.read.partial_links = paths;
        self.read
    }
}
