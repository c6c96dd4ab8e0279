//! Makes, removes and changes names by path: methods of `Volume`. The commands (`mkdir`, `ln`) and `transfer` use it.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use portable::{OsStrExt as _, OsStringExt as _};

use super::{Metadata, ReadDir, Volume, bytes_of, gone};
use crate::error::{Error, Result};
use crate::file_system::{Errno, Follow, NewNode, NodeKind, RenameFlags, WholeNode};

/// Permission bits of a new directory.
const DIRECTORY_PERMISSIONS: u32 = 0o755;
/// Symbolic links in one path, at most, as in Linux.
const LINKS_MAX: u32 = 40;
/// Permission bits of a symbolic link, which Linux ignores.
const SYMLINK_PERMISSIONS: u32 = 0o777;

impl Volume {
    /// Makes a directory.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` (the directory above), `EROFS`, `ENOSPC`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let new = NewNode { kind: NodeKind::Directory, permissions: DIRECTORY_PERMISSIONS, ..NewNode::default() };
        self.create(path.as_ref(), &new)
    }

    /// Makes a directory and all those above it that are missing.
    ///
    /// # Errors
    /// `ENOTDIR` when something else has one of the names, and as [`Volume::create_dir`].
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut missing = Vec::new();
        let mut at = Some(path);
        while let Some(dir) = at.filter(|dir| !dir.as_os_str().is_empty()) {
            match self.find(dir, Follow::Last) {
                Ok(found) if found.attr().kind.is_dir() => break,
                Ok(_) => return Err(Error::from(Errno::ENOTDIR).during("create_dir_all").at(dir)),
                Err(error) if error.is_not_found() => missing.push(dir),
                Err(error) => return Err(error),
            }
            at = dir.parent();
        }
        for dir in missing.into_iter().rev() {
            match self.create_dir(dir) {
                // Another thread was faster, or the path has a `.` in it.
                Err(error) if error.errno() == Errno::EEXIST => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Makes a symbolic link at `link` that leads to `target`.
    ///
    /// # Errors
    /// `ENAMETOOLONG` for a target that does not fit, and as [`Volume::create_dir`].
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let link = link.as_ref();
        let target = &*bytes_of(target.as_ref()).map_err(|error| error.during("symlink").at(link))?;
        let new = NewNode { kind: NodeKind::Symlink, permissions: SYMLINK_PERMISSIONS, target, ..NewNode::default() };
        self.create(link, &new)
    }

    /// Makes an empty file or a special file. `rdev` is the device number of a device node, as `stat` encodes it in
    /// 32 bits.
    ///
    /// # Errors
    /// As [`Volume::create_dir`].
    pub fn mknod(&self, path: impl AsRef<Path>, kind: NodeKind, permissions: u32, rdev: u32) -> Result<()> {
        self.create(path.as_ref(), &NewNode { kind, permissions, rdev, ..NewNode::default() })
    }

    fn create(&self, path: &Path, new: &NewNode<'_>) -> Result<()> {
        let (dir, name) = self.find_parent(path)?;
        let made = self
            .fs
            .create(&self.caller, dir.node(), name, new)
            .map_err(|error| gone(error).during("create").at(path))?;
        self.fs.forget(made.node, 1);
        Ok(())
    }

    /// Makes a node with all its properties in one step: the way to import files. It inherits only storage properties
    /// from the directory.
    ///
    /// # Errors
    /// As [`Volume::create_dir`], and for its data as writing a file.
    pub fn create_node(&self, path: impl AsRef<Path>, node: &WholeNode<'_>) -> Result<Metadata> {
        let path = path.as_ref();
        let (dir, name) = self.find_parent(path)?;
        self.fs.create_whole(dir.node(), name, node).map_err(|error| gone(error).during("create_node").at(path))
    }

    /// Makes several nodes in one directory, each as [`Volume::create_node`] does; the results are in their order.
    ///
    /// # Errors
    /// When the directory cannot be found.
    pub fn create_nodes(
        &self,
        dir: impl AsRef<Path>,
        nodes: &[(&[u8], WholeNode<'_>)],
    ) -> Result<Vec<Result<Metadata>>> {
        let dir = dir.as_ref();
        let parent = bytes_of(dir).and_then(|bytes| self.find_dir(&bytes));
        let parent = parent.map_err(|error| error.during("create_nodes").at(dir))?;
        let made = self.fs.create_many(parent.node(), nodes).into_iter().zip(nodes);
        let named = made.map(|(made, (name, _))| {
            made.map_err(|error| gone(error).during("create_nodes").at(dir.join(OsStr::from_bytes(name))))
        });
        Ok(named.collect())
    }

    /// With how many nodes at once [`Volume::create_nodes`] and [`Volume::read_nodes`] take less time than as many
    /// calls: 1 where they do not.
    #[must_use]
    pub fn at_once(&self) -> usize {
        self.fs.at_once()
    }

    /// Gives the file at `original` one more name. A symbolic link at the end of `original` is linked itself.
    ///
    /// # Errors
    /// `EPERM` for a directory, `EXDEV`, `EMLINK`, and as [`Volume::create_dir`].
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let original = self.find(original.as_ref(), Follow::AllButLast)?;
        let (dir, name) = self.find_parent(link.as_ref())?;
        let made = self
            .fs
            .link(original.node(), dir.node(), name)
            .map_err(|error| gone(error).during("hard_link").at(link.as_ref()))?;
        self.fs.forget(made.node, 1);
        Ok(())
    }

    /// Removes a name that is not a directory's. The contents go with the last name, once the file is not open any
    /// more.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EROFS`.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (dir, name) = self.find_parent(path)?;
        self.fs.unlink(dir.node(), name).map_err(|error| gone(error).during("remove_file").at(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EBUSY`, `EROFS`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (dir, name) = self.find_parent(path)?;
        self.fs.remove_dir(dir.node(), name).map_err(|error| gone(error).during("remove_dir").at(path))
    }

    /// Renames `from` to `to`, replacing an existing file.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTEMPTY`, `EISDIR`, `ENOTDIR`, `EXDEV`, `EINVAL` (a directory below itself), `EROFS`.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameFlags::empty())
    }

    /// Renames `from` to `to` as `flags` say.
    ///
    /// # Errors
    /// `EEXIST` or `ENOENT` as `flags` say, and as [`Volume::rename`].
    pub fn rename_with(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, flags: RenameFlags) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let (from_dir, from_name) = self.find_parent(from)?;
        let (to_dir, to_name) = self.find_parent(to)?;
        let (source, target) = ((from_dir.node(), from_name), (to_dir.node(), to_name));
        let renamed = self.fs.rename(&self.caller, source, target, flags);
        renamed.map_err(|error| gone(error).during("rename_with").at(from))
    }

    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// `ENOENT`; `EINVAL` when it is none.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let link = self.find(path, Follow::AllButLast)?;
        let target = self.fs.read_link(link.node()).map_err(|error| error.during("read_link").at(path))?;
        Ok(OsString::from_vec(target).into())
    }

    /// The names of a directory, in the order of their positions.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let dir = self.find(path, Follow::Last)?;
        if !dir.attr().kind.is_dir() {
            return Err(Error::from(Errno::ENOTDIR).during("read_dir").at(path));
        }
        ReadDir::open(self, dir).map_err(|error| error.during("read_dir").at(path))
    }

    /// The path without symbolic links, `.` and `..`, from the root: `/a/b`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        // Reports a fault of the path as a whole.
        self.metadata(path).map_err(|error| error.during("canonicalize"))?;
        let mut links_left = LINKS_MAX;
        let mut left: Vec<OsString> = parts(path);
        let mut done = PathBuf::from("/");
        while let Some(part) = left.pop() {
            if part == ".." {
                done.pop();
                continue;
            }
            done.push(&part);
            if self.symlink_metadata(&done)?.kind != NodeKind::Symlink {
                continue;
            }
            links_left = match links_left {
                0 => return Err(Error::from(Errno::ELOOP).during("canonicalize").at(path)),
                count => count - 1,
            };
            let target = self.read_link(&done)?;
            done.pop();
            if target.is_absolute() {
                done = PathBuf::from("/");
            }
            left.extend(parts(&target));
        }
        Ok(done)
    }

    /// True when something has this name; symbolic links are followed.
    ///
    /// # Errors
    /// Whatever keeps the answer from being known.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.find(path.as_ref(), Follow::Last) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Names of a path, the last one first; `.` is left out.
fn parts(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    });
    let mut names: Vec<OsString> = names.collect();
    names.reverse();
    names
}
