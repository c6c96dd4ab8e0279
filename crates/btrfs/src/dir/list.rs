//! The names of a directory in the order of their positions.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use btrfs_disk::items::DirEntry as DiskEntry;
use btrfs_disk::key::item_type;
use btrfs_disk::{At, Corrupt, Detail, InodeNo, Key};
use btrfs_store::Scan;

use super::lookup::Stored;
use super::{DirEntry, Namespace, check_is_dir, check_name};
use crate::error::Result;
use crate::inode::{EMPTY_SUBVOL_INO, Inode};

/// Names read with one search.
const BATCH_NAMES: usize = 256;

impl Namespace {
    /// Up to a bounded count of names of `dir`, from position `from` on; none at the end.
    ///
    /// Positions only grow and are never used twice, so a listing that goes on behind the last
    /// position it saw neither repeats nor misses a name that was there all the time.
    ///
    /// # Errors
    /// `NotADirectory`, or when the directory cannot be read.
    pub(crate) fn list(&self, dir: &Inode, from: u64) -> Result<Vec<DirEntry>> {
        check_is_dir(dir)?;
        if dir.ino() == EMPTY_SUBVOL_INO {
            return Ok(Vec::new());
        }
        let mut names: Vec<(u64, OsString, Stored)> = Vec::new();
        // A rename takes a name out and puts it back elsewhere: not between the two.
        let unchanging = dir.read_names();
        self.scan_names(dir, from, |index, name, stored| {
            names.push((index, OsString::from_vec(name.to_vec()), stored));
            names.len() < BATCH_NAMES
        })?;
        drop(unchanging);
        names.into_iter().map(|name| self.dir_entry(dir, name)).collect()
    }

    /// Calls `each` with the names of `dir` from position `from` on, until it says false. It runs
    /// under the lock of a tree block: it must not touch any tree. The caller holds the directory's
    /// `names` lock.
    ///
    /// # Errors
    /// As [`Namespace::list`].
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

    fn dir_entry(&self, dir: &Inode, (index, name, stored): (u64, OsString, Stored)) -> Result<DirEntry> {
        let found = self.resolve(dir, name.as_encoded_bytes(), stored)?;
        Ok(DirEntry { name, ino: found.ino, tree: found.tree, kind: found.kind, index })
    }
}

/// The keys of all names of `dir` from position `from` on.
pub(crate) fn index_keys(dir: InodeNo, from: u64) -> (Key, Key) {
    let key = |index| Key::new(dir.0, item_type::DIR_INDEX, index);
    (key(from), key(u64::MAX))
}
