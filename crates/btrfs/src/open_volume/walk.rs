//! Resolves paths: from a path to an inode, across symlinks, `..` and subvolumes. Called by `volume` and by
//! `vfs_impl::names`.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use btrfs_disk::{InodeNo, TreeId};
use portable::{OsStrExt as _, with_slashes};

use super::OpenVolume;
use super::paths::{self, PathCache};
use crate::dir::{Found, Namespace, has_gone};
use crate::error::{CallerError, Error, Result};
use crate::inode::{EMPTY_SUBVOL_INO, FileType, Inode, ROOT_DIR_INO};

/// Symlinks followed for one path, as Linux has it.
const SYMLINKS_MAX: u32 = 40;

pub(crate) use vfs::file_system::Follow;

/// Attempts to follow a path whose end other threads replace by symlinks and back: each fails because there is a
/// symlink by then.
const ATTEMPTS_MAX: u32 = 1000;

/// The end of a path.
struct End<'p> {
    found: Found,
    /// Its name, unless the path ends in none (`/`, `..`).
    named: Option<LastName<'p>>,
}

/// The last name on the way: of the path, or of a symlink's target.
struct LastName<'p> {
    tree: TreeId,
    dir: InodeNo,
    name: Cow<'p, [u8]>,
}

impl<'p> End<'p> {
    fn unnamed(found: Found) -> Self {
        Self { found, named: None }
    }

    fn named(found: Found, dir: Found, name: Cow<'p, [u8]>) -> Self {
        let (tree, dir) = (dir.tree, dir.ino);
        let named = Some(LastName { tree, dir, name });
        Self { found, named }
    }

    /// The same without the path.
    fn into_owned(self) -> End<'static> {
        let named =
            self.named.map(|LastName { tree, dir, name }| LastName { tree, dir, name: Cow::Owned(name.into_owned()) });
        End { found: self.found, named }
    }
}

/// Walks paths that start at the root directory of one subvolume.
pub(crate) struct Walker<'a> {
    namespace: &'a Namespace,
    top: Found,
    /// The cache of long paths.
    paths: Option<&'a PathCache>,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(namespace: &'a Namespace, top: TreeId) -> Self {
        let top = Found { tree: top, ino: ROOT_DIR_INO, kind: FileType::Directory };
        Self { namespace, top, paths: None }
    }

    /// The inode that `path` leads to.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NameTooLong`, `TooManySymlinks`, with the path.
    pub(crate) fn find(&self, path: &Path, follow: Follow) -> Result<Found> {
        let end = self.find_end(path, follow);
        Ok(end.map_err(|error| error.at(path))?.found)
    }

    /// Calls `then` with the inode that `path` leads to. `then` fails with `Stale` for an inode that is being removed,
    /// and is called again with the inode that has the name by then.
    ///
    /// # Errors
    /// As [`Walker::find`], and those of `then`, with the path.
    pub(crate) fn find_then<R>(
        &self,
        path: &Path,
        follow: Follow,
        then: impl Fn(&Arc<Inode>) -> Result<R>,
    ) -> Result<R> {
        let at_path = |error: Error| error.at(path);
        for _ in 0..ATTEMPTS_MAX {
            let End { found, named } = self.find_end(path, follow).map_err(at_path)?;
            let gone = match self.namespace.inode(found).and_then(|inode| then(&inode)) {
                Err(error) if has_gone(&error) => error,
                answer => return answer.map_err(at_path),
            };
            let Some(LastName { tree, dir, name }) = named else {
                return Err(at_path(gone));
            };
            let again = |found: Found, inode: &Arc<Inode>| {
                let is_link = follow == Follow::Last && found.kind.is_symlink();
                if is_link { Ok(None) } else { then(inode).map(Some) }
            };
            let dir = self.namespace.core.inode(tree, dir).map_err(at_path)?;
            let answer = self.namespace.find_locked_then(&dir, &name, again);
            let answer = answer.map_err(at_path)?;
            if let Some(answer) = answer.ok_or_else(|| at_path(CallerError::NotFound.into()))? {
                return Ok(answer);
            }
        }
        Err(at_path(CallerError::Stale.into()))
    }

    fn find_end<'p>(&self, path: &'p Path, follow: Follow) -> Result<End<'p>> {
        match with_slashes(path.as_os_str().as_bytes()) {
            Cow::Borrowed(bytes) => self.find_end_of(bytes, follow),
            Cow::Owned(bytes) => Ok(self.find_end_of(&bytes, follow)?.into_owned()),
        }
    }

    fn find_end_of<'p>(&self, bytes: &'p [u8], follow: Follow) -> Result<End<'p>> {
        let mut links_left = SYMLINKS_MAX;
        if bytes.is_empty() {
            return Err(CallerError::NotFound.into());
        }
        if let Some(dir) = self.known_dir(bytes, &mut links_left)? {
            return Ok(End::unnamed(dir));
        }
        self.walk_known(bytes, follow, &mut links_left)
    }

    /// Walks `path` from the root, or from the directory of its beginning, if that is cached.
    fn walk_known<'p>(&self, path: &'p [u8], follow: Follow, links_left: &mut u32) -> Result<End<'p>> {
        match paths::split(path).filter(|_| self.paths.is_some()) {
            Some((dir, name)) => {
                let removals = self.namespace.dentries.removals();
                let dir = self.dir_at(dir, removals, links_left)?;
                self.walk(dir, name, follow, links_left)
            }
            None => self.walk(self.top, path, follow, links_left),
        }
    }

    /// The directory part of a long path, given with its last slash, if it is cached.
    fn known_dir(&self, path: &[u8], links_left: &mut u32) -> Result<Option<Found>> {
        let is_long = path.strip_suffix(b"/").is_some_and(|dir| paths::split(dir).is_some());
        if !is_long || self.paths.is_none() {
            return Ok(None);
        }
        let found = self.dir_at(path, self.namespace.dentries.removals(), links_left)?;
        Ok(Some(found).filter(|found| found.kind.is_dir()))
    }

    /// The directory that `path` leads to, which ends in a slash if it is long. `removals` is the count of removals
    /// before.
    fn dir_at(&self, path: &[u8], removals: u64, links_left: &mut u32) -> Result<Found> {
        let trimmed = path.strip_suffix(b"/").unwrap_or(path);
        let (Some(paths), Some((above, name))) = (self.paths, paths::split(trimmed)) else {
            return Ok(self.walk(self.top, path, Follow::Last, links_left)?.found);
        };
        if let Some(found) = paths.get(path, removals) {
            return Ok(found);
        }
        // A walk of a tree visits the directory above first.
        let found = match paths.get(above, removals) {
            Some(above) => self.walk(above, name, Follow::Last, links_left)?.found,
            None => self.walk(self.top, path, Follow::Last, links_left)?.found,
        };
        if !found.kind.is_dir() {
            return Err(CallerError::NotADirectory.into());
        }
        paths.insert(path, found, removals);
        Ok(found)
    }

    /// Walks from `start` along `path`. Recursion is bounded by the symlinks left.
    fn walk<'p>(&self, start: Found, path: &'p [u8], follow: Follow, links_left: &mut u32) -> Result<End<'p>> {
        let mut at = if path.first() == Some(&b'/') { self.top } else { start };
        let mut before = at;
        let mut named = None;
        let mut rest = path;
        loop {
            let begin = rest.iter().position(|byte| *byte != b'/').unwrap_or(rest.len());
            if begin > 0 && !at.kind.is_dir() {
                return Err(CallerError::NotADirectory.into());
            }
            rest = rest.get(begin..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(End { found: at, named });
            }
            let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let (name, behind) = rest.split_at(end);
            rest = behind;
            let follows = follow == Follow::Last || !rest.is_empty();
            let next = match name {
                b"." => End::unnamed(at),
                b".." => End::unnamed(self.above(at, before)?),
                _ => match self.step(at, name)? {
                    found if follows && found.kind.is_symlink() => self.step_along(at, name, links_left)?,
                    found => End::named(found, at, Cow::Borrowed(name)),
                },
            };
            (before, at, named) = (at, next.found, next.named);
        }
    }

    /// One name further.
    fn step(&self, dir: Found, name: &[u8]) -> Result<Found> {
        if !dir.kind.is_dir() {
            return Err(CallerError::NotADirectory.into());
        }
        let found = self.namespace.lookup_in(dir.tree, dir.ino, name)?;
        Ok(found.ok_or(CallerError::NotFound)?)
    }

    /// Follows the symlink that was found by a name in `dir`, or the inode that has replaced it since.
    fn step_along(&self, dir: Found, name: &[u8], links_left: &mut u32) -> Result<End<'static>> {
        let target_of = |found: Found, inode: &Arc<Inode>| {
            if !found.kind.is_symlink() {
                return Ok(Err(found));
            }
            let held = self.namespace.hold(inode)?;
            self.namespace.read_link(&held).map(Ok)
        };
        let now = self.namespace.find_then((dir.tree, dir.ino), name, target_of)?;
        match now.ok_or(CallerError::NotFound)? {
            Err(found) => Ok(End::named(found, dir, Cow::Owned(name.to_vec()))),
            Ok(target) => {
                *links_left = links_left.checked_sub(1).ok_or(CallerError::TooManySymlinks)?;
                let end = self.walk(dir, &target, Follow::Last, links_left)?;
                Ok(end.into_owned())
            }
        }
    }

    /// The directory that holds `at`; the root holds itself. `before` is the directory that the walk came from, needed
    /// for the stand-in of a nested subvolume, which has no back reference.
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
        if let Some(ino) = self.namespace.back_refs.parent_dir(&dir)? {
            return Ok(Found { tree: at.tree, ino, kind });
        }
        let link = self.namespace.root_links.of(at.tree)?;
        Ok(link.map_or(at, |link| Found { tree: link.parent, ino: link.dir, kind }))
    }
}

impl OpenVolume {
    /// Walks paths from the subvolume that they start in.
    pub(crate) fn walker(&self) -> Walker<'_> {
        Walker { paths: Some(&self.paths), ..Walker::new(&self.namespace, self.top) }
    }
}
