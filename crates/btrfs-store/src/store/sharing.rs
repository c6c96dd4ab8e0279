//! Finds how extents and leaves are shared, exactly: for reports, not for decisions about writing
//! ([`Store::is_data_shared`] errs on the safe side, and is cheaper). Called by `btrfs` (`file/shared_extents`,
//! `send/clones`).

use std::collections::BTreeSet;

use btrfs_disk::{InodeNo, Key, Logical};

use super::Store;
use crate::Result;
use crate::extent::{ExtentKind, RefKey, backrefs, lookup};
use crate::relocate::each_use;
use crate::tree::{Scan, Tree};

impl Store {
    /// How many references of their own there are to a data extent: a file that uses it twice at places that fit
    /// together is one, and so are all the trees that share a leaf. Not to be called with an open handle.
    ///
    /// # Errors
    /// Those of reading the extent tree.
    pub fn data_holder_count(&self, at: Logical) -> Result<usize> {
        self.while_running(|| Ok(backrefs(&self.0.core.extent, &self.0.pending.refs, at)?.len()))
    }

    /// Whether other trees share the leaf of `tree` in which `key` is, or a block above it; and where the next leaf
    /// begins, up to which the answer holds. Not to be called with an open handle.
    ///
    /// # Errors
    /// Those of reading the trees.
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

    /// References to the data extent of `len` bytes at `at`, from whatever tree. Not to be called with an open handle.
    ///
    /// # Errors
    /// Those of reading the extent tree.
    pub fn data_reference_count(&self, at: Logical, len: u64) -> Result<u64> {
        let engine = &self.0;
        let kind = ExtentKind::Data { len };
        self.while_running(|| {
            Ok(lookup(&engine.core.extent, &engine.pending.refs, at, kind, &engine.extent_sizes())?.refs)
        })
    }

    /// Where files use the data extent at `at`: inode numbers, and the place in the file minus that in the extent,
    /// wrapping. Which trees have such a file at such a place is not said: trees that share a leaf all have. Looks at
    /// all references, which [`Self::data_reference_count`] counts. Not to be called with an open handle.
    ///
    /// # Errors
    /// Those of reading the extent tree, and leaves that are named there.
    pub fn data_places(&self, at: Logical) -> Result<BTreeSet<(InodeNo, u64)>> {
        let engine = &self.0;
        let holders = self.while_running(|| backrefs(&engine.core.extent, &engine.pending.refs, at))?;
        let mut places = BTreeSet::new();
        for holder in holders {
            match holder.holder {
                RefKey::DataRef { inode, offset, .. } => {
                    places.insert((inode, offset));
                }
                RefKey::SharedData { parent } => each_use(parent, &engine.reader.read_any(parent, 0)?, |used| {
                    if used.at == at {
                        places.insert((used.inode, used.offset));
                    }
                })?,
                RefKey::TreeRef { .. } | RefKey::SharedTree { .. } => {}
            }
        }
        Ok(places)
    }
}
