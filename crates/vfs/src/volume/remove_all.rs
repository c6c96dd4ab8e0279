//! Removing a directory with all that is in it.
//!
//! Others may rename and replace what is below it meanwhile. So every directory is held as the node that was found, and
//! names are removed from that node: a symbolic link in the place of a directory leads nowhere.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::held::Held;
use super::{ReadDir, Volume, gone};
use crate::error::{Error, Result};
use crate::file_system::{Errno, Follow};

/// A directory that is to go, below the one at index `above`.
struct Doomed<'a> {
    path: PathBuf,
    /// `None` for the first, whose parent is another's.
    above: Option<usize>,
    /// Once it has its turn.
    dir: Option<Held<'a>>,
}

impl Volume {
    /// Removes a directory and everything below it. A symbolic link is removed itself.
    ///
    /// # Errors
    /// As [`Volume::remove_file`] and [`Volume::remove_dir`]; what was removed before stays so.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let found = self.find(path, Follow::AllButLast)?;
        if !found.attr().kind.is_dir() {
            return self.remove_file(path);
        }
        // What has no name of its own (`/`, `a/..`) cannot go, and nothing below it is touched.
        let (parent, _) = self.find_parent(path)?;
        // A stack instead of recursion: a directory can be deeper than a stack.
        let mut todo = vec![Doomed { path: path.to_owned(), above: None, dir: Some(found) }];
        while let Some(mut doomed) = todo.pop() {
            let above = doomed.above.and_then(|above| Some(todo.get(above)?.dir.as_ref()?.node()));
            let above = above.unwrap_or(parent.node());
            let at = |error: Error| gone(error).at(&doomed.path);
            let name = doomed.path.file_name().unwrap_or_default().as_bytes();
            let dir = match doomed.dir.take() {
                Some(dir) => dir,
                None => Held::new(&*self.fs, self.fs.lookup(above, name).map_err(at)?),
            };
            let inner = self.empty(&dir, &doomed.path, todo.len()).map_err(at)?;
            if inner.is_empty() {
                self.fs.remove_dir(above, name).map_err(at)?;
            } else {
                todo.push(Doomed { dir: Some(dir), ..doomed });
                todo.extend(inner);
            }
        }
        Ok(())
    }

    /// Removes what is in a directory, but for directories that are not empty: those are returned, below `index`.
    fn empty<'a>(&'a self, dir: &Held<'a>, path: &Path, index: usize) -> Result<Vec<Doomed<'a>>> {
        if !dir.attr().kind.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let mut inner = Vec::new();
        for entry in ReadDir::open(self, Held::new(&*self.fs, self.fs.lookup(dir.node(), b".")?))? {
            let entry = entry?;
            let (name, path) = (entry.name_bytes(), path.join(entry.file_name()));
            if !entry.file_type().is_dir() {
                self.fs.unlink(dir.node(), name).map_err(|error| error.at(path))?;
                continue;
            }
            match self.fs.remove_dir(dir.node(), name) {
                Err(error) if error.errno() == Errno::ENOTEMPTY => {
                    inner.push(Doomed { path, above: Some(index), dir: None });
                }
                result => result.map_err(|error| error.at(path))?,
            }
        }
        Ok(inner)
    }
}
