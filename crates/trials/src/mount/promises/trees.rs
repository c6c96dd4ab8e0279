//! Reads files found on a mount, or by the library in an unmounted image. Called by `ledger` to check promises.

use rustix::fs::IFlags;
use std::collections::BTreeMap;
use std::fs::File as Open;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use vfs::file_system::NodeFlags;
use vfs::{Metadata, Volume};

/// The attribute that holds an access control list.
pub(super) const LIST: &str = "system.posix_acl_access";
/// Names of extended attributes.
pub(super) const NAMES: [&str; 3] = ["user.one", "user.two", "trusted.three"];
/// Longest value in bytes: one of each name, with an access list, fit into the 4 KiB that f2fs has for a file.
pub(super) const VALUE_BYTES_MAX: u64 = 1200;
/// Flags without restrictions.
pub(super) const FLAGS: [IFlags; 2] = [IFlags::NODUMP, IFlags::NOATIME];
/// Inode flags, and the flags of `chattr`.
const INODE_FLAGS: [(NodeFlags, IFlags); 2] =
    [(NodeFlags::NODUMP, IFlags::NODUMP), (NodeFlags::NOATIME, IFlags::NOATIME)];

/// A tree to read files from; paths begin at the top of the volume.
pub(in crate::mount) trait Tree {
    /// A file with all compared properties.
    ///
    /// # Errors
    /// `NotFound` if it is missing; read errors.
    fn read(&self, path: &Path) -> io::Result<Found>;

    /// True for a directory.
    fn is_dir(&self, path: &Path) -> bool;
}

/// The mount point of a volume.
pub(in crate::mount) struct Mounted<'a>(pub(in crate::mount) &'a Path);

/// A file as it is found.
#[derive(Debug)]
pub(in crate::mount) struct Found {
    pub(super) bytes: Vec<u8>,
    pub(super) permissions: u32,
    pub(super) owner: (u32, u32),
    pub(super) atime: i64,
    pub(super) mtime: i64,
    pub(super) flags: IFlags,
    pub(super) named: BTreeMap<String, Vec<u8>>,
    pub(super) list: Option<Vec<u8>>,
}

impl Tree for Mounted<'_> {
    fn read(&self, path: &Path) -> io::Result<Found> {
        let path = self.0.join(path);
        let open = Open::open(&path)?;
        let metadata = open.metadata()?;
        let value = |name: &str| {
            let mut value = vec![0; usize::try_from(VALUE_BYTES_MAX).unwrap_or_default()];
            match rustix::fs::fgetxattr(&open, name, value.as_mut_slice()) {
                Ok(len) => {
                    value.truncate(len);
                    Ok(Some(value))
                }
                Err(rustix::io::Errno::NODATA) => Ok(None),
                Err(error) => Err(io::Error::from(error)),
            }
        };
        let known = FLAGS.iter().fold(IFlags::empty(), |all, flag| all | *flag);
        Ok(Found {
            bytes: std::fs::read(path)?,
            permissions: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
            atime: metadata.atime(),
            mtime: metadata.mtime(),
            flags: rustix::fs::ioctl_getflags(&open)? & known,
            named: named(value)?,
            list: value(LIST)?,
        })
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.0.join(path).is_dir()
    }
}

impl Tree for Volume {
    fn read(&self, path: &Path) -> io::Result<Found> {
        let metadata = self.symlink_metadata(path)?;
        let value = |name: &str| Ok(self.get_xattr(path, name)?);
        let set = INODE_FLAGS.iter().filter(|(flag, _)| metadata.flags.contains(*flag));
        Ok(Found {
            bytes: self.read(path)?,
            permissions: metadata.permissions,
            owner: (metadata.uid, metadata.gid),
            atime: metadata.atime.sec,
            mtime: metadata.mtime.sec,
            flags: set.fold(IFlags::empty(), |all, (_, flag)| all | *flag),
            named: named(value)?,
            list: value(LIST)?,
        })
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.metadata(path).as_ref().is_ok_and(Metadata::is_dir)
    }
}

fn named(value: impl Fn(&str) -> io::Result<Option<Vec<u8>>>) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut named = BTreeMap::new();
    for name in NAMES {
        if let Some(value) = value(name)? {
            named.insert(name.to_owned(), value);
        }
    }
    Ok(named)
}
