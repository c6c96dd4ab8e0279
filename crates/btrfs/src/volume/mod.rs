//! The front door of the library: a volume with methods that mirror `std::fs`.

mod file;
mod options;
mod types;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockdev::Device;
use btrfs_disk::TreeId;

use crate::dir::{DirEntry, NewNode, NodeKind, RenameFlags, XattrMode};
use crate::error::{Error, Result};
use crate::inode::{Metadata, SetAttr, Times};
use crate::subvol::{SnapshotMode, SubvolumeInfo};

pub use file::{AllocateMode, ExtentInfo, File, FileOptions};
pub use options::VolumeOptions;
pub use types::{DeviceInfo, VolumeInfo};

/// An open btrfs image or device. Clones share it; all methods take `&self` and may be called
/// from many threads at once.
#[derive(Debug, Clone)]
pub struct Volume {
    _inner: Arc<()>,
}

/// The names of a directory, in their stable order.
#[derive(Debug)]
pub struct ReadDir {}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;
    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}

fn skeleton<T>() -> Result<T> {
    Err(Error::Unsupported("being built".into()))
}

macro_rules! skeleton_methods {
    ($($(#[$doc:meta])* fn $name:ident(&self $(, $arg:ident: $ty:ty)*) -> $ret:ty;)*) => {
        impl Volume {
            $($(#[$doc])* pub fn $name(&self $(, $arg: $ty)*) -> Result<$ret> {
                $(let _ = $arg;)*
                skeleton()
            })*
        }
    };
}

impl Volume {
    /// Opens an image or device read-write.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }
    /// Options to open with.
    pub fn options() -> VolumeOptions {
        VolumeOptions::new()
    }
}

impl VolumeOptions {
    /// Opens an image or device.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let _ = path;
        skeleton()
    }
    /// Opens a device.
    pub fn open_device(&self, device: Arc<dyn Device>) -> Result<Volume> {
        let _ = device;
        skeleton()
    }
}

skeleton_methods! {
    /// All data and metadata changed before the call are durable after it.
    fn sync(&self) -> ();
    /// What the volume says about itself.
    fn info(&self) -> VolumeInfo;
    /// Follows symlinks.
    fn metadata(&self, path: impl AsRef<Path>) -> Metadata;
    /// Does not follow the last component.
    fn symlink_metadata(&self, path: impl AsRef<Path>) -> Metadata;
    /// Makes a directory.
    fn create_dir(&self, path: impl AsRef<Path>) -> ();
    /// Makes a directory and those above it.
    fn create_dir_all(&self, path: impl AsRef<Path>) -> ();
    /// Removes a name that is not a directory.
    fn remove_file(&self, path: impl AsRef<Path>) -> ();
    /// Removes an empty directory.
    fn remove_dir(&self, path: impl AsRef<Path>) -> ();
    /// Removes a directory and all below.
    fn remove_dir_all(&self, path: impl AsRef<Path>) -> ();
    /// Renames, replacing the target.
    fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> ();
    /// Renames.
    fn rename_with(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, flags: RenameFlags) -> ();
    /// Gives a file one more name.
    fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> ();
    /// Makes a symlink.
    fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> ();
    /// Target of a symlink.
    fn read_link(&self, path: impl AsRef<Path>) -> PathBuf;
    /// Makes a special file; `rdev` is the device number, as `stat` encodes it.
    fn mknod(&self, path: impl AsRef<Path>, kind: NodeKind, mode: u32, rdev: u64) -> ();
    /// Makes an inode with all its metadata.
    fn create_node(&self, path: impl AsRef<Path>, node: &NewNode<'_>) -> Metadata;
    /// Permission bits.
    fn set_permissions(&self, path: impl AsRef<Path>, mode: u32) -> ();
    /// Owner and group; does not follow the last component.
    fn set_owner(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> ();
    /// Times; does not follow the last component.
    fn set_times(&self, path: impl AsRef<Path>, times: &Times) -> ();
    /// Several of the above at once; does not follow the last component.
    fn set_attributes(&self, path: impl AsRef<Path>, changes: &SetAttr) -> ();
    /// Value of an attribute; none of the xattr methods follows the last component.
    fn get_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Option<Vec<u8>>;
    /// Sets an attribute.
    fn set_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>, value: &[u8], mode: XattrMode) -> ();
    /// Removes an attribute.
    fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> ();
    /// Names of all attributes.
    fn list_xattrs(&self, path: impl AsRef<Path>) -> Vec<OsString>;
    /// Names in a directory.
    fn read_dir(&self, path: impl AsRef<Path>) -> ReadDir;
    /// A whole file.
    fn read(&self, path: impl AsRef<Path>) -> Vec<u8>;
    /// Replaces a whole file.
    fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> ();
    /// All subvolumes.
    fn subvolumes(&self) -> Vec<SubvolumeInfo>;
    /// Makes an empty subvolume.
    fn create_subvolume(&self, path: impl AsRef<Path>) -> TreeId;
    /// Makes a snapshot of the subvolume at `source`.
    fn snapshot(&self, source: impl AsRef<Path>, target: impl AsRef<Path>, mode: SnapshotMode) -> TreeId;
    /// Deletes a subvolume.
    fn delete_subvolume(&self, path: impl AsRef<Path>) -> ();
    /// The subvolume that is mounted when none is named.
    fn set_default_subvolume(&self, path: impl AsRef<Path>) -> ();
    /// The default subvolume's number.
    fn default_subvolume(&self) -> TreeId;
}

impl Volume {
    /// Syncs, and closes this handle.
    pub fn close(self) -> Result<()> {
        self.sync()
    }
}
