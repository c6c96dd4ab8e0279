//! Removes a directory with all its contents: methods of `Volume`. The command `rm` calls it.
//!
//! Other programs may rename and replace nodes below it meanwhile. So every directory is held as the node that was
//! found, and names are removed from that node: a symbolic link in place of a directory leads nowhere.

use std::path::{Path, PathBuf};

use portable::OsStrExt as _;

use super::node_ref::Held;
use super::{ReadDir, Volume, gone};
use crate::error::{Error, Result};
use crate::file_system::{Errno, Follow, NodeId};

/// A directory to be removed, below the one at index `above` of the stack.
struct Doomed<'a> {
    path: PathBuf,
    /// Index of the parent; `None` for the first directory.
    above: Option<usize>,
    /// `None` until its turn comes.
    dir: Option<Held<'a>>,
    /// True if an entry below could not be removed.
    stays: bool,
}

impl Volume {
    /// Removes a directory and everything below it. A symbolic link is removed itself.
    ///
    /// # Errors
    /// As [`Volume::remove_file`] and [`Volume::remove_dir`]; nodes removed before an error stay removed.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        self.remove_below(path.as_ref(), &mut Err)
    }

    /// As [`Volume::remove_dir_all`], but continues after an entry that cannot be removed: the entry and the
    /// directories above it stay, and `left` receives the error.
    ///
    /// # Errors
    /// If `path` itself cannot be found or has no name.
    pub fn remove_dir_tree(&self, path: impl AsRef<Path>, mut left: impl FnMut(Error)) -> Result<()> {
        self.remove_below(path.as_ref(), &mut |error| {
            left(error);
            Ok(())
        })
    }

    /// `failed` returns an error to stop after a failure.
    fn remove_below(&self, path: &Path, failed: &mut dyn FnMut(Error) -> Result<()>) -> Result<()> {
        let found = self.find(path, Follow::AllButLast)?;
        if !found.attr().kind.is_dir() {
            return self.remove_file(path);
        }
        // A directory without a name of its own (`/`, `a/..`) cannot be removed, and nothing below it is touched.
        let (parent, _) = self.find_parent(path)?;
        // A stack instead of recursion: a directory can be deeper than a stack.
        let mut todo = vec![Doomed { path: path.to_owned(), above: None, dir: Some(found), stays: false }];
        while let Some(mut doomed) = todo.pop() {
            let above = doomed.above.and_then(|above| Some(todo.get(above)?.dir.as_ref()?.node()));
            let above = above.unwrap_or(parent.node());
            let index = todo.len();
            let emptied = match doomed.stays {
                true => Ok(Vec::new()),
                false => self.try_to_empty(&mut doomed, (above, index), failed),
            };
            let inner = match emptied {
                Ok(inner) => inner,
                Err(error) => {
                    failed(gone(error).during("remove_dir_all").at(&doomed.path))?;
                    doomed.stays = true;
                    Vec::new()
                }
            };
            if !inner.is_empty() {
                todo.push(doomed);
                todo.extend(inner);
                continue;
            }
            if !doomed.stays {
                let name = doomed.path.file_name().unwrap_or_default().as_bytes();
                if let Err(error) = self.fs.remove_dir(above, name) {
                    failed(gone(error).during("remove_dir_all").at(&doomed.path))?;
                    doomed.stays = true;
                }
            }
            if doomed.stays
                && let Some(holder) = doomed.above.and_then(|above| todo.get_mut(above))
            {
                holder.stays = true;
            }
        }
        Ok(())
    }

    /// Opens a directory when its turn comes, and empties it.
    fn try_to_empty<'a>(
        &'a self,
        doomed: &mut Doomed<'a>,
        (above, index): (NodeId, usize),
        failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<Doomed<'a>>> {
        let name = doomed.path.file_name().unwrap_or_default().as_bytes();
        let dir = match doomed.dir.take() {
            Some(dir) => dir,
            None => Held::new(&*self.fs, self.fs.lookup(above, name)?),
        };
        let inner = self.empty(&dir, doomed, index, failed);
        doomed.dir = Some(dir);
        inner
    }

    /// Removes the contents of a directory, except directories that are not empty: those are returned, below `index`.
    fn empty<'a>(
        &'a self,
        dir: &Held<'a>,
        doomed: &mut Doomed<'a>,
        index: usize,
        failed: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<Vec<Doomed<'a>>> {
        if !dir.attr().kind.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let mut inner = Vec::new();
        for entry in ReadDir::open(self, Held::new(&*self.fs, self.fs.lookup(dir.node(), b".")?))? {
            let entry = entry?;
            let (name, path) = (entry.name_bytes(), doomed.path.join(entry.file_name()));
            let removed = match entry.file_type().is_dir() {
                true => self.fs.remove_dir(dir.node(), name),
                false => self.fs.unlink(dir.node(), name),
            };
            match removed {
                Err(error) if entry.file_type().is_dir() && error.errno() == Errno::ENOTEMPTY => {
                    inner.push(Doomed { path, above: Some(index), dir: None, stays: false });
                }
                Err(error) => {
                    failed(error.during("remove_dir_all").at(path))?;
                    doomed.stays = true;
                }
                Ok(()) => {}
            }
        }
        Ok(inner)
    }
}
