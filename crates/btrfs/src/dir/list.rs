//! Lists the names of a directory in the order of their positions. Called by `vfs_impl/list` and by checks for
//! emptiness.

use btrfs_disk::items::DirEntry as DiskEntry;
use btrfs_disk::key::item_type;
use btrfs_disk::{At, Corrupt, Detail, InodeNo, Key};
use btrfs_store::Scan;

use super::lookup::Stored;
use super::{Namespace, check_is_dir, check_name};
use crate::error::Result;
use crate::inode::{EMPTY_SUBVOL_INO, Inode};

impl Namespace {
    /// Calls `each` with the names of `dir` from position `from` on, until it returns false. Positions only grow and
    /// are never used twice, so a listing that continues after the last position it saw neither repeats nor misses a
    /// name that existed all the time. `each` runs under the lock of a tree block: it must not touch any tree. The
    /// caller holds the directory's `names` lock.
    ///
    /// # Errors
    /// `NotADirectory`, or when the directory cannot be read.
    pub(crate) fn scan_names(
        &self,
        dir: &Inode,
        from: u64,
        mut each: impl FnMut(u64, &[u8], Stored) -> bool,
    ) -> Result<()> {
        check_is_dir(dir)?;
        if dir.ino() == EMPTY_SUBVOL_INO {
            return Ok(());
        }
        let (first, last) = index_keys(dir.ino(), from);
        dir.root.tree.scan(&first, &last, |key, bytes| {
            let (entry, _) = DiskEntry::parse_prefix(bytes)?;
            if check_name(entry.name).is_err() {
                let (expected, found) = (Detail::Text("a valid name"), Detail::bytes(entry.name));
                let corrupt = Corrupt::new("name in a directory", expected, found);
                return Err(corrupt.at(At::Key(dir.tree_id(), *key)).into());
            }
            Ok(if each(key.offset, entry.name, Stored::of(&entry)?) { Scan::Continue } else { Scan::Stop })
        })?;
        Ok(())
    }
}

/// The keys of all names of `dir` from position `from` on.
pub(crate) fn index_keys(dir: InodeNo, from: u64) -> (Key, Key) {
    let key = |index| Key::new(dir.0, item_type::DIR_INDEX, index);
    (key(from), key(u64::MAX))
}
