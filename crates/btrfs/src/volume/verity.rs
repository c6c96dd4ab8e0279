//! Protects files by fs-verity, and reads their digests, by methods of `Volume`. Called by `mkfs`.

use std::path::Path;

use btrfs_disk::flags::InodeFlags;
use codec::verity::{Algorithm, TreeOptions, digest};
use vfs::Result;

use super::Volume;
use crate::error::{CallerError, Error};
use crate::file;
use crate::open_volume::Follow;

/// The name of a file's contents, as `fsverity measure` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerityDigest {
    /// The hash function.
    pub algorithm: Algorithm,
    /// Digest of the descriptor.
    pub bytes: Vec<u8>,
}

impl std::fmt::Display for VerityDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:", self.algorithm)?;
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl VerityDigest {
    fn of(descriptor: &[u8]) -> crate::Result<Self> {
        let (algorithm, bytes) = digest(descriptor).ok_or(CallerError::InvalidArgument)?;
        Ok(Self { algorithm, bytes })
    }
}

impl Volume {
    /// Protects a file by fs-verity: every read compares its contents with a hash tree from here on, and no one writes
    /// to it until it is removed. Linux before 5.15 mounts a volume with such files read-only. The caller has the file
    /// open for writing nowhere.
    ///
    /// # Errors
    /// `EINVAL` for what is no file and for a salt of more than 32 bytes, `EEXIST` for a file that is protected,
    /// `EBUSY` for one that changes meanwhile, `EPERM` for one that is immutable or only appended to; `EROFS`,
    /// `ENOSPC`; damage, I/O.
    ///
    /// # Examples
    /// ```
    /// # use btrfs::{MakeOptions, TreeOptions, Volume};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let make = MakeOptions { size: Some(64 << 20), ..MakeOptions::default() };
    /// # let volume = Volume::make(dir.path().join("disk.img"), &make)?;
    /// volume.write("greeting", "hello\n")?;
    /// let digest = volume.enable_verity("greeting", &TreeOptions::default())?;
    /// assert!(digest.to_string().starts_with("sha256:9c76eecc7b76fcb4"));
    /// assert!(volume.write("greeting", "bye\n").is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn enable_verity(&self, path: impl AsRef<Path>, options: &TreeOptions) -> Result<VerityDigest> {
        let path = path.as_ref();
        let enable = || {
            let inode = self.open.walker().find_then(path, Follow::Last, |inode| self.namespace().hold(inode))?;
            VerityDigest::of(&self.namespace().protect(&inode, options)?)
        };
        Ok(enable().map_err(|error: Error| error.at(path))?)
    }

    /// The digest of a file that fs-verity protects; `None` for another one.
    ///
    /// # Errors
    /// A damaged descriptor; I/O; those of looking up the path.
    pub fn verity_digest(&self, path: impl AsRef<Path>) -> Result<Option<VerityDigest>> {
        let path = path.as_ref();
        let read = || {
            let inode = self.open.walker().find_then(path, Follow::Last, |inode| self.namespace().hold(inode))?;
            let is_protected = inode.state().flags.contains(InodeFlags::RO_VERITY);
            is_protected.then(|| VerityDigest::of(&file::verity_descriptor(&inode)?)).transpose()
        };
        Ok(read().map_err(|error: Error| error.at(path))?)
    }
}
