//! Who shares what is on disk, exactly: for reports, not for decisions about writing ([`Store::is_data_shared`] errs on
//! the safe side, and is cheaper).

use btrfs_disk::{Key, Logical};

use super::Store;
use crate::Result;
use crate::extent::{ExtentKind, backrefs, lookup};
use crate::tree::{Scan, Tree};

impl Store {
    /// How many references of their own there are to a data extent: a file that uses it twice at places that fit
    /// together is one, and so are all the trees that share a leaf. Not to be called with an open handle.
    ///
    /// # Errors
    /// What reading the extent tree can fail with.
    pub fn data_holder_count(&self, at: Logical) -> Result<usize> {
        self.while_running(|| Ok(backrefs(&self.0.core.extent, &self.0.pending.refs, at)?.len()))
    }

    /// Whether other trees share the leaf of `tree` in which `key` is, or a block above it; and where the next leaf
    /// begins, up to which the answer holds. Not to be called with an open handle.
    ///
    /// # Errors
    /// What reading the trees can fail with.
    pub fn is_leaf_shared(&self, tree: &Tree, key: &Key) -> Result<(bool, Option<Key>)> {
        let engine = &self.0;
        self.while_running(|| {
            let mut is_shared = false;
            let upper = tree.walk_to(key, |at, level| {
                let kind = ExtentKind::Tree { level };
                let info = lookup(&engine.core.extent, &engine.pending.refs, at, kind, &engine.extent_sizes())?;
                is_shared = info.refs > 1;
                Ok(if is_shared { Scan::Stop } else { Scan::Continue })
            })?;
            Ok((is_shared, upper))
        })
    }
}
