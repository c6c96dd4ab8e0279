//! From a path to an inode: across symlinks, `..` and subvolumes.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use btrfs_disk::TreeId;

use super::Volume;
use super::paths::{self, PathCache};
use crate::dir::{Found, Namespace};
use crate::error::{CallerError, Error, Result};
use crate::inode::{EMPTY_SUBVOL_INO, FileType, Inode, ROOT_DIR_INO};

/// Symlinks followed for one path, as Linux has it.
const SYMLINKS_MAX: u32 = 40;

/// What to do with a symlink at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    /// Go where it leads.
    Last,
    /// Stop at it.
    AllButLast,
}

/// Walks paths that start at the root directory of one subvolume.
pub(crate) struct Walker<'a> {
    namespace: &'a Namespace,
    top: Found,
    /// Where long paths led before.
    paths: Option<&'a PathCache>,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(namespace: &'a Namespace, top: TreeId) -> Self {
        let top = Found {
            tree: top,
            ino: ROOT_DIR_INO,
            kind: FileType::Directory,
        };
        Self {
            namespace,
            top,
            paths: None,
        }
    }

    /// What `path` leads to.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NameTooLong`, `TooManySymlinks`, with the path.
    pub(crate) fn find(&self, path: &Path, follow: Follow) -> Result<Found> {
        let mut links_left = SYMLINKS_MAX;
        let bytes = path.as_os_str().as_bytes();
        let found = if bytes.is_empty() {
            Err(CallerError::NotFound.into())
        } else {
            self.walk_known(bytes, follow, &mut links_left)
        };
        found.map_err(|error: Error| error.at(path))
    }

    /// The directory that `path` is in, and the name in it.
    ///
    /// # Errors
    /// As [`Walker::find`]; `InvalidArgument` for a path that ends in no name.
    pub(crate) fn find_parent<'p>(&self, path: &'p Path) -> Result<(Found, &'p [u8])> {
        let bytes = path.as_os_str().as_bytes();
        let end = bytes
            .iter()
            .rposition(|byte| *byte != b'/')
            .map_or(0, |last| last + 1);
        let start = bytes[..end]
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |at| at + 1);
        let (dir, name) = (&bytes[..start], &bytes[start..end]);
        if name.is_empty() || name == b"." || name == b".." {
            let what = if bytes.is_empty() {
                CallerError::NotFound
            } else {
                CallerError::InvalidArgument
            };
            return Err(Error::from(what).at(path));
        }
        let mut links_left = SYMLINKS_MAX;
        let dir = self
            .dir_at(dir, self.namespace.dentries.removals(), &mut links_left)
            .map_err(|error| error.at(path))?;
        if !dir.kind.is_dir() {
            return Err(Error::from(CallerError::NotADirectory).at(path));
        }
        Ok((dir, name))
    }

    /// Goes along `path` from the root, or from the directory that its long beginning is known to
    /// lead to.
    fn walk_known(&self, path: &[u8], follow: Follow, links_left: &mut u32) -> Result<Found> {
        match paths::split(path).filter(|_| self.paths.is_some()) {
            Some((dir, name)) => {
                let removals = self.namespace.dentries.removals();
                let dir = self.dir_at(dir, removals, links_left)?;
                self.step(dir, name, follow == Follow::Last, links_left)
            }
            None => self.walk(self.top, path, follow, links_left),
        }
    }

    /// What `path` leads to, which ends in a slash if it is long. `removals` is the count of them
    /// before.
    fn dir_at(&self, path: &[u8], removals: u64, links_left: &mut u32) -> Result<Found> {
        let trimmed = path.strip_suffix(b"/").unwrap_or(path);
        let (Some(paths), Some((above, name))) = (self.paths, paths::split(trimmed)) else {
            return self.walk(self.top, path, Follow::Last, links_left);
        };
        if let Some(found) = paths.get(path, removals) {
            return Ok(found);
        }
        // A walk down comes from the directory above.
        let found = match paths.get(above, removals) {
            Some(above) => self.step(above, name, true, links_left)?,
            None => self.walk(self.top, path, Follow::Last, links_left)?,
        };
        if !found.kind.is_dir() {
            return Err(CallerError::NotADirectory.into());
        }
        paths.insert(path, found, removals);
        Ok(found)
    }

    /// Goes from `start` along `path`. Recursion is bounded by the symlinks left.
    fn walk(
        &self,
        start: Found,
        path: &[u8],
        follow: Follow,
        links_left: &mut u32,
    ) -> Result<Found> {
        let mut at = if path.first() == Some(&b'/') {
            self.top
        } else {
            start
        };
        let mut before = at;
        let mut rest = path;
        loop {
            let begin = rest
                .iter()
                .position(|byte| *byte != b'/')
                .unwrap_or(rest.len());
            if begin > 0 && !at.kind.is_dir() {
                return Err(CallerError::NotADirectory.into());
            }
            rest = &rest[begin..];
            if rest.is_empty() {
                return Ok(at);
            }
            let end = rest
                .iter()
                .position(|byte| *byte == b'/')
                .unwrap_or(rest.len());
            let (name, behind) = rest.split_at(end);
            rest = behind;
            let next = match name {
                b"." => at,
                b".." => self.above(at, before)?,
                _ => self.step(
                    at,
                    name,
                    follow == Follow::Last || !rest.is_empty(),
                    links_left,
                )?,
            };
            (before, at) = (at, next);
        }
    }

    /// One name further, and along the symlink if it is one and `follows`.
    fn step(&self, dir: Found, name: &[u8], follows: bool, links_left: &mut u32) -> Result<Found> {
        if !dir.kind.is_dir() {
            return Err(CallerError::NotADirectory.into());
        }
        let found = self.namespace.lookup_in(dir.tree, dir.ino, name)?;
        let found = found.ok_or(CallerError::NotFound)?;
        if !(follows && found.kind.is_symlink()) {
            return Ok(found);
        }
        *links_left = links_left
            .checked_sub(1)
            .ok_or(CallerError::TooManySymlinks)?;
        let target = self.namespace.read_link(&*self.namespace.inode(found)?)?;
        self.walk(dir, &target, Follow::Last, links_left)
    }

    /// The directory that holds `at`; the root holds itself. `before` is where the walk came
    /// from, for the stand-in of a nested subvolume, which does not know what holds it.
    fn above(&self, at: Found, before: Found) -> Result<Found> {
        if !at.kind.is_dir() {
            return Err(CallerError::NotADirectory.into());
        }
        if at == self.top {
            return Ok(at);
        }
        if at.ino == EMPTY_SUBVOL_INO {
            return Ok(before);
        }
        let kind = FileType::Directory;
        let dir = self.namespace.inode(at)?;
        if let Some(ino) = self.namespace.parent_dir(&dir)? {
            return Ok(Found {
                tree: at.tree,
                ino,
                kind,
            });
        }
        let link = self.namespace.root_parent(at.tree)?;
        Ok(link.map_or(at, |link| Found {
            tree: link.parent,
            ino: link.dir,
            kind,
        }))
    }
}

impl Volume {
    pub(crate) fn walker(&self) -> Walker<'_> {
        Walker {
            paths: Some(&self.inner.paths),
            ..Walker::new(self.namespace(), self.inner.top)
        }
    }

    /// The inode at `path`.
    pub(crate) fn find(&self, path: &Path, follow: Follow) -> Result<Arc<Inode>> {
        let found = self.walker().find(path, follow)?;
        self.namespace()
            .inode(found)
            .map_err(|error| error.at(path))
    }

    /// The directory that `path` is in, and the name in it.
    pub(crate) fn find_parent<'p>(&self, path: &'p Path) -> Result<(Arc<Inode>, &'p [u8])> {
        let (dir, name) = self.walker().find_parent(path)?;
        let dir = self
            .namespace()
            .inode(dir)
            .map_err(|error| error.at(path))?;
        Ok((dir, name))
    }
}
