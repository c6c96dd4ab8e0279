//! Reads and changes metadata and extended attributes by path: methods of `Volume`. The commands and `transfer` use it.

use std::ffi::OsString;
use std::path::Path;

use portable::OsStringExt as _;

use super::{Metadata, Volume, bytes_of};
use crate::error::Result;
use crate::file_system::{Errno, Follow, NodeFlags, SetAttr, SetTime, Time, XattrMode};

/// Times to set; `None` leaves one as it is, except the change time of the node, which becomes the time of the call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Last access.
    pub atime: Option<Time>,
    /// Last change of the contents.
    pub mtime: Option<Time>,
    /// Last change of the node.
    pub ctime: Option<Time>,
    /// Creation (birth).
    pub btime: Option<Time>,
}

impl From<Times> for SetAttr {
    fn from(times: Times) -> Self {
        let Times { atime, mtime, ctime, btime } = times;
        Self { atime: atime.map(SetTime::To), mtime: mtime.map(SetTime::To), ctime, btime, ..Self::default() }
    }
}

impl Volume {
    /// Metadata of the node that `path` leads to.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ELOOP`.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.attr_at(path.as_ref(), Follow::Last)
    }

    /// Metadata of the node named `path`, even if it is a symbolic link.
    ///
    /// # Errors
    /// As [`Volume::metadata`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.attr_at(path.as_ref(), Follow::AllButLast)
    }

    fn attr_at(&self, path: &Path, follow: Follow) -> Result<Metadata> {
        let found = bytes_of(path).and_then(|bytes| self.fs.attr_at(&bytes, follow));
        found.map_err(|error| error.during("metadata").at(path))
    }

    /// The flags of the node named `path`, in the notation of its format; `none` if there are none.
    ///
    /// # Errors
    /// As [`Volume::metadata`].
    pub fn flag_names(&self, path: impl AsRef<Path>) -> Result<String> {
        let found = self.find(path.as_ref(), Follow::AllButLast)?;
        self.fs.flag_names(found.node()).map_err(|error| error.during("flag_names").at(path))
    }

    /// Sets the flags of a file or directory, those of chattr(1).
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a flag that the format lacks and for other kinds of nodes, `EPERM`, `EROFS`.
    pub fn set_flags(&self, path: impl AsRef<Path>, flags: NodeFlags) -> Result<()> {
        let path = path.as_ref();
        let found = self.find(path, Follow::AllButLast)?;
        self.fs.set_flags(&self.caller, found.node(), flags).map_err(|error| error.during("set_flags").at(path))
    }

    /// Sets the permission bits, with set-user, set-group and sticky. Follows symbolic links.
    ///
    /// # Errors
    /// As [`Volume::metadata`], and `EROFS`.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: u32) -> Result<()> {
        let changes = SetAttr { permissions: Some(permissions), ..SetAttr::default() };
        self.change(path.as_ref(), Follow::Last, &changes)
    }

    /// Sets owner and group, of a symbolic link itself. The mode stays as it is.
    ///
    /// # Errors
    /// As [`Volume::metadata`], and `EROFS`.
    pub fn set_owner(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.change(path.as_ref(), Follow::AllButLast, &SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// Sets times, of a symbolic link itself.
    ///
    /// # Errors
    /// As [`Volume::metadata`], `EINVAL` for nanoseconds above 999,999,999, `EROFS`.
    pub fn set_times(&self, path: impl AsRef<Path>, times: &Times) -> Result<()> {
        self.change(path.as_ref(), Follow::AllButLast, &SetAttr::from(*times))
    }

    /// Sets several of these at once, of a symbolic link itself.
    ///
    /// # Errors
    /// As [`Volume::set_times`].
    pub fn set_attributes(&self, path: impl AsRef<Path>, changes: &SetAttr) -> Result<()> {
        self.change(path.as_ref(), Follow::AllButLast, changes)
    }

    fn change(&self, path: &Path, follow: Follow, changes: &SetAttr) -> Result<()> {
        let found = self.find(path, follow)?;
        let changed = self.fs.set_attr(&self.caller, found.node(), changes);
        changed.map(drop).map_err(|error| error.during("set_attributes").at(path))
    }

    /// The value of an extended attribute, ACLs included as the kernel takes them; `None` when there is none of that
    /// name. None of these methods follows a symbolic link at the end.
    ///
    /// # Errors
    /// As [`Volume::metadata`].
    pub fn get_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let found = self.find(path.as_ref(), Follow::AllButLast)?;
        match self.fs.get_xattr(found.node(), name.as_ref()) {
            Err(error) if error.errno() == Errno::ENODATA => Ok(None),
            result => result.map(Some).map_err(|error| error.during("get_xattr").at(path)),
        }
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `EEXIST` or `ENODATA` as `mode` says; `ENOSPC`, `ERANGE`, `EROFS`; and as [`Volume::metadata`].
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let found = self.find(path.as_ref(), Follow::AllButLast)?;
        let result = self.fs.set_xattr(found.node(), name.as_ref(), value.as_ref(), mode, false);
        result.map_err(|error| error.during("set_xattr").at(path))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`, `EROFS`, and as [`Volume::metadata`].
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<()> {
        let found = self.find(path.as_ref(), Follow::AllButLast)?;
        self.fs.remove_xattr(found.node(), name.as_ref()).map_err(|error| error.during("remove_xattr").at(path))
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// As [`Volume::metadata`].
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let found = self.find(path.as_ref(), Follow::AllButLast)?;
        let names = self.fs.list_xattrs(found.node()).map_err(|error| error.during("list_xattrs").at(path))?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }
}
