//! Names made, removed and changed by path.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::walk::Follow;
use super::{ReadDir, Volume};
use crate::dir::{NewInode, NewNode, NodeKind, OpenInode, Place, RenameFlags, Unlink};
use crate::error::{CallerError, Result};
use crate::file;
use crate::inode::{FileType, Inode, Metadata};

/// Permission bits of a new directory.
const DIRECTORY_PERMISSIONS: u32 = 0o755;
/// Permission bits of a symlink, which nobody reads.
const SYMLINK_PERMISSIONS: u32 = 0o777;

impl Volume {
    /// Makes a directory.
    ///
    /// # Errors
    /// `Exists`, `NotFound` (the directory above), `ReadOnly`, `NoSpace`.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create(path.as_ref(), FileType::Directory, DIRECTORY_PERMISSIONS, 0, &[])
    }

    /// Makes a directory and all those above it that are missing.
    ///
    /// # Errors
    /// `NotADirectory` when something else has one of the names, and as [`Volume::create_dir`].
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut missing = Vec::new();
        let mut at = Some(path);
        while let Some(dir) = at.filter(|dir| !dir.as_os_str().is_empty()) {
            match self.walker().find(dir, Follow::Last) {
                Ok(found) if found.kind.is_dir() => break,
                Ok(_) => return Err(crate::Error::from(CallerError::NotADirectory).at(dir)),
                Err(error) if error.is_not_found() => missing.push(dir),
                Err(error) => return Err(error),
            }
            at = dir.parent();
        }
        for dir in missing.into_iter().rev() {
            match self.create_dir(dir) {
                // Another thread was faster, or the path has a `.` in it.
                Err(error) if error.caller_error() == Some(CallerError::Exists) => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Makes a symlink at `link` that leads to `target`.
    ///
    /// # Errors
    /// `NameTooLong` for a target that does not fit a leaf, and as [`Volume::create_dir`].
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let target = target.as_ref().as_os_str().as_bytes();
        self.create(link.as_ref(), FileType::Symlink, SYMLINK_PERMISSIONS, 0, target)
    }

    /// Makes an empty file or a special file. `rdev` is the device number of a device node, as
    /// `stat` encodes it.
    ///
    /// # Errors
    /// As [`Volume::create_dir`].
    pub fn mknod(&self, path: impl AsRef<Path>, kind: NodeKind, mode: u32, rdev: u64) -> Result<()> {
        self.create(path.as_ref(), kind.into(), mode, rdev, &[])
    }

    fn create(&self, path: &Path, kind: FileType, permissions: u32, rdev: u64, target: &[u8]) -> Result<()> {
        let (dir, name) = self.find_parent(path)?;
        let (uid, gid) = self.inner.owner;
        let new = NewInode { kind, permissions, uid, gid, inherit_group: true, rdev, target, ..NewInode::default() };
        let made = self.namespace().create(&dir, name, &new);
        made.and_then(|_| self.sync_marked(&dir)).map_err(|error| error.at(path))
    }

    /// Makes an inode with all that is known about it in one step: the way to import files.
    /// Nothing is taken over from the directory but its storage flags.
    ///
    /// # Errors
    /// As [`Volume::create_dir`], and for `data` as writing a file.
    pub fn create_node(&self, path: impl AsRef<Path>, node: &NewNode<'_>) -> Result<Metadata> {
        let path = path.as_ref();
        let (dir, name) = self.find_parent(path)?;
        let made = self.create_node_in(&dir, name, node).map_err(|error| error.at(path))?;
        Ok(made.metadata())
    }

    pub(crate) fn create_node_in(&self, dir: &Arc<Inode>, name: &[u8], node: &NewNode<'_>) -> Result<Arc<Inode>> {
        if !node.data.is_empty() && !node.kind.is_file() {
            return Err(CallerError::InvalidArgument.into());
        }
        let is_inline = self.namespace().fits_inline(node.data.len());
        let new = NewInode {
            kind: node.kind,
            permissions: node.mode,
            uid: node.uid,
            gid: node.gid,
            inherit_group: false,
            times: node.times,
            rdev: node.rdev,
            flags: node.flags,
            target: node.target,
            xattrs: node.xattrs,
            inline: if is_inline { node.data } else { &[] },
        };
        let inode = self.namespace().create(dir, name, &new)?;
        if !is_inline {
            // Another thread may flush the data, and with it the times, before this one returns.
            inode.change_in_memory(|state| state.keeps_times = true);
            let written = file::write_back(self.core(), &inode, 0, node.data);
            inode.change_in_memory(|state| state.keeps_times = false);
            written?;
        }
        self.sync_marked(dir)?;
        self.sync_marked(&inode)?;
        Ok(inode)
    }

    /// Gives the file at `original` one more name. A symlink at the end of `original` is linked
    /// itself.
    ///
    /// # Errors
    /// `NotPermitted` for a directory, `CrossSubvolume`, `TooManyLinks`, and as
    /// [`Volume::create_dir`].
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let inode = self.hold(original.as_ref(), Follow::AllButLast)?;
        let (dir, name) = self.find_parent(link.as_ref())?;
        self.namespace()
            .link(&inode, &dir, name)
            .and_then(|()| self.sync_marked(&dir))
            .map_err(|error| error.at(link.as_ref()))
    }

    /// Removes a name that is not a directory's. The contents go with the last name, once nobody
    /// has the file open.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `ReadOnly`.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.remove(path.as_ref(), Unlink::File)
    }

    /// Removes an empty directory, or a subvolume whose root directory is empty.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NotEmpty`, `Busy` (the default subvolume), `ReadOnly`.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        match self.remove(path, Unlink::Directory) {
            Err(error) if error.caller_error() == Some(CallerError::Busy) => {
                let dir = self.find(path, Follow::AllButLast)?;
                if dir.state().size > 0 {
                    return Err(crate::Error::from(CallerError::NotEmpty).at(path));
                }
                self.delete_subvolume(path)
            }
            result => result,
        }
    }

    fn remove(&self, path: &Path, what: Unlink) -> Result<()> {
        let (dir, name) = self.find_parent(path)?;
        self.namespace().unlink(&dir, name, what).and_then(|()| self.sync_marked(&dir)).map_err(|error| error.at(path))
    }

    /// Removes a directory and everything below it, subvolumes included. A symlink is removed
    /// itself.
    ///
    /// # Errors
    /// As [`Volume::remove_file`] and [`Volume::remove_dir`]; what was removed before stays so.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let found = self.walker().find(path, Follow::AllButLast)?;
        if !found.kind.is_dir() {
            return self.remove_file(path);
        }
        // What has no name of its own (`/`, `a/..`) cannot go, and nothing below it is touched.
        self.find_parent(path)?;
        // A stack of paths instead of recursion: a directory can be deeper than a stack.
        let mut todo = vec![path.to_owned()];
        while let Some(dir) = todo.last().cloned() {
            let mut has_dirs = false;
            for entry in self.read_dir(&dir)? {
                let entry = entry?;
                let path = dir.join(entry.file_name());
                if entry.file_type().is_dir() {
                    match self.remove_dir(&path) {
                        Err(error) if error.caller_error() == Some(CallerError::NotEmpty) => {
                            todo.push(path);
                            has_dirs = true;
                        }
                        result => result?,
                    }
                } else {
                    self.remove_file(&path)?;
                }
            }
            if !has_dirs {
                self.remove_dir(&dir)?;
                todo.pop();
            }
        }
        Ok(())
    }

    /// Renames `from` to `to`, replacing what is there. Subvolumes can be moved as a whole.
    ///
    /// # Errors
    /// `NotFound`, `NotEmpty`, `IsADirectory`, `NotADirectory`, `CrossSubvolume`,
    /// `InvalidArgument` (a directory below itself), `ReadOnly`.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameFlags::Replace)
    }

    /// Renames `from` to `to` as `flags` say.
    ///
    /// # Errors
    /// `Exists` or `NotFound` as `flags` say, and as [`Volume::rename`].
    pub fn rename_with(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, flags: RenameFlags) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let (from_dir, from_name) = self.find_parent(from)?;
        let (to_dir, to_name) = self.find_parent(to)?;
        let source = Place { dir: &from_dir, name: from_name };
        let target = Place { dir: &to_dir, name: to_name };
        let (uid, gid) = self.inner.owner;
        self.namespace()
            .rename(source, target, flags, &NewInode::whiteout(uid, gid))
            .and_then(|()| self.sync_marked(&to_dir))
            .and_then(|()| self.sync_marked(&from_dir))
            .map_err(|error| error.at(from))
    }

    /// Where the symlink at `path` leads.
    ///
    /// # Errors
    /// `NotFound`; `InvalidArgument` when it is no symlink.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let inode = self.hold(path, Follow::AllButLast)?;
        let target = self.namespace().read_link(&inode).map_err(|error| error.at(path))?;
        Ok(OsString::from_vec(target).into())
    }

    /// The names in a directory, in the order they were made.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let dir = self.walker().find_then(path, Follow::Last, |inode| match inode.kind().is_dir() {
            true => OpenInode::new(self.namespace(), inode),
            false => Err(CallerError::NotADirectory.into()),
        })?;
        Ok(ReadDir::new(self.clone(), dir))
    }

    /// True when something has this name; symlinks are followed.
    ///
    /// # Errors
    /// Whatever keeps the answer from being known.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.walker().find(path.as_ref(), Follow::Last) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
