//! Checks by the extent tree whether space that the free-space tree gave is really free. Called by the engine (for data
//! and log blocks) and by `extent/apply`.
//!
//! The free-space tree and the extent tree agree about every byte, unless the image is damaged or hostile. Writing to
//! space that was not looked up would then overwrite live data, so space for data and blocks of logs is looked up when
//! it is allocated; for other tree blocks when their items are made, which is before any is written.

use btrfs_disk::error::{At, Detail};
use btrfs_disk::key::item_type::{EXTENT_ITEM, METADATA_ITEM};
use btrfs_disk::{Corrupt, Key, Logical};

use super::csum_tree::CsumTree;
use super::item::ExtentSizes;
use crate::Result;
use crate::tree::Tree;

/// Items that are looked at for one extent: its own, its references, and a block group's.
const STEPS_MAX: usize = 4;

/// Refuses space that an extent of the extent tree lies in.
///
/// # Errors
/// [`Corrupt`]; a failure to read the tree.
pub fn check_unused(tree: &Tree, sizes: &ExtentSizes, at: Logical, len: u64) -> Result<()> {
    let mut last = Key::new(at.0.saturating_add(len.saturating_sub(1)), u8::MAX, u64::MAX);
    for _ in 0..STEPS_MAX {
        let Some(key) = tree.at_or_before_with(&last, |key, _| *key)? else {
            return Ok(());
        };
        let extent_len = match key.item_type {
            EXTENT_ITEM => key.offset,
            METADATA_ITEM => u64::from(sizes.nodesize),
            // A reference stands behind its extent; a block group has the address of its first byte.
            _ => {
                last = Key::new(key.objectid, METADATA_ITEM, u64::MAX);
                continue;
            }
        };
        if key.objectid.saturating_add(extent_len) <= at.0 {
            return Ok(());
        }
        let expected = Detail::Text("space that nothing uses");
        return Err(Corrupt::new("free space", expected, key.into()).at(At::Data(at)).into());
    }
    Ok(())
}

/// Refuses space of which sectors have checksums.
///
/// # Errors
/// As [`check_unused`].
pub fn check_no_csums(csums: &CsumTree<'_>, at: Logical, len: u64) -> Result<()> {
    if !csums.any(at, len)? {
        return Ok(());
    }
    let (expected, found) = (Detail::Text("space without checksums"), Detail::Text("checksums of data"));
    Err(Corrupt::new("free space", expected, found).at(At::Data(at)).into())
}
