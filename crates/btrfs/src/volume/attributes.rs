//! Metadata and extended attributes by path.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use super::Volume;
use super::walk::Follow;
use crate::dir::XattrMode;
use crate::error::{CallerError, Error, Result};
use crate::inode::{InodeFlags, Metadata, SetAttr, Times};

impl Volume {
    /// Metadata of what `path` leads to.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `TooManySymlinks`.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(self.find(path.as_ref(), Follow::Last)?.metadata())
    }

    /// Metadata of what has the name `path`, also when it is a symlink.
    ///
    /// # Errors
    /// As [`Volume::metadata`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Ok(self.find(path.as_ref(), Follow::AllButLast)?.metadata())
    }

    /// Sets the permission bits, with set-user, set-group and sticky. Follows symlinks.
    ///
    /// # Errors
    /// As [`Volume::metadata`], and `ReadOnly`.
    pub fn set_permissions(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let changes = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.change(path.as_ref(), Follow::Last, &changes)
    }

    /// Sets owner and group, of a symlink itself. The mode stays as it is.
    ///
    /// # Errors
    /// As [`Volume::metadata`], and `ReadOnly`.
    pub fn set_owner(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let changes = SetAttr { uid, gid, ..SetAttr::default() };
        self.change(path.as_ref(), Follow::AllButLast, &changes)
    }

    /// Sets times, of a symlink itself.
    ///
    /// # Errors
    /// As [`Volume::metadata`], `InvalidArgument` for nanoseconds above 999,999,999, `ReadOnly`.
    pub fn set_times(&self, path: impl AsRef<Path>, times: &Times) -> Result<()> {
        let changes = SetAttr { times: *times, ..SetAttr::default() };
        self.change(path.as_ref(), Follow::AllButLast, &changes)
    }

    /// Sets several of these at once, of a symlink itself.
    ///
    /// # Errors
    /// As [`Volume::set_times`].
    pub fn set_attributes(&self, path: impl AsRef<Path>, changes: &SetAttr) -> Result<()> {
        self.change(path.as_ref(), Follow::AllButLast, changes)
    }

    fn change(&self, path: &Path, follow: Follow, changes: &SetAttr) -> Result<()> {
        let inode = self.hold(path, follow)?;
        let Times { atime, mtime, .. } = changes.times;
        if (atime.is_some() || mtime.is_some()) && inode.state().flags.contains(InodeFlags::APPEND) {
            return Err(Error::from(CallerError::NotPermitted).at(path));
        }
        self.namespace()
            .set_attributes(&inode, changes)
            .and_then(|()| self.sync_marked(&inode))
            .map_err(|error| error.at(path))
    }

    /// The value of an extended attribute, ACLs included as the kernel stores them; `None` when
    /// there is none of that name. None of these methods follows a symlink at the end.
    ///
    /// # Errors
    /// As [`Volume::metadata`].
    pub fn get_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let inode = self.hold(path.as_ref(), Follow::AllButLast)?;
        let value = self.namespace().get_xattr(&inode, name.as_ref());
        value.map_err(|error| error.at(path))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `Exists` or `NoAttribute` as `mode` says; `AttributeTooLarge`, `NameTooLong`, `ReadOnly`,
    /// `NoSpace`; and as [`Volume::metadata`].
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let inode = self.hold(path.as_ref(), Follow::AllButLast)?;
        let result = self.namespace().set_xattr(&inode, name.as_ref(), value.as_ref(), mode);
        result.and_then(|()| self.sync_marked(&inode)).map_err(|error| error.at(path))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `ReadOnly`, and as [`Volume::metadata`].
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<()> {
        let inode = self.hold(path.as_ref(), Follow::AllButLast)?;
        self.namespace()
            .remove_xattr(&inode, name.as_ref())
            .and_then(|()| self.sync_marked(&inode))
            .map_err(|error| error.at(path))
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// As [`Volume::metadata`].
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let inode = self.hold(path.as_ref(), Follow::AllButLast)?;
        let names = self.namespace().list_xattrs(&inode).map_err(|error| error.at(path))?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }
}
