//! Tells members that a power cut left one generation behind from members that were absent at the last commit. Called
//! by `bootstrap` when a volume on several devices is opened.
//!
//! A commit flushes its tree blocks to all devices before it writes the first superblock. So a member whose superblock
//! a power cut kept from being written has the blocks, and one that was absent has not. Roots of trees suffice: a
//! commit writes the root of each tree that it changes. Where none of them lies on the member, nothing of that commit
//! was to be written there but data, which is found by its checksums.

use btrfs_disk::items::RootItem;
use btrfs_disk::key::item_type::ROOT_ITEM;
use btrfs_disk::superblock::Superblock;
use btrfs_disk::{DevId, Generation, Key, Logical};

use super::{Parts, root_ptr};
use crate::tree::{BlockSource as _, ReadExpect, RootPtr, Scan};
use crate::txn::Trees;
use crate::{Error, Result};

/// Refuses members that lack blocks of the last commit.
///
/// # Errors
/// `Members` for such a member; damage, I/O.
pub(super) fn check(parts: &Parts, trees: &Trees, superblock: &Superblock) -> Result<()> {
    for (device, absent) in parts.pool.lagging() {
        if !has_roots(parts, trees, superblock, *device)? {
            return Err(Error::Members(Box::new(absent.clone())));
        }
    }
    Ok(())
}

/// False where the first root of the last commit that belongs on the device is not there.
fn has_roots(parts: &Parts, trees: &Trees, superblock: &Superblock, device: DevId) -> Result<bool> {
    let newest = superblock.generation();
    for root in [superblock.root(), superblock.chunk_root()].map(root_ptr) {
        if let Some(is_there) = has(parts, newest, device, &root)? {
            return Ok(is_there);
        }
    }
    let mut found = None;
    trees.root_tree.scan(&Key::MIN, &Key::MAX, |key, bytes| {
        if key.item_type == ROOT_ITEM {
            let item = RootItem::read(bytes)?;
            let generation = Generation(item.generation.get());
            found =
                has(parts, newest, device, &RootPtr { at: Logical(item.bytenr.get()), level: item.level, generation })?;
        }
        Ok(if found.is_some() { Scan::Stop } else { Scan::Continue })
    })?;
    Ok(found.unwrap_or(true))
}

/// Whether the copy of a root on the device is there; `None` for one that is not of the last commit, or has none there.
fn has(parts: &Parts, newest: Generation, device: DevId, root: &RootPtr) -> Result<Option<bool>> {
    if root.generation != newest {
        return Ok(None);
    }
    let expect =
        ReadExpect { at: root.at, level: root.level, generation: root.generation, first_key: None, owner: None };
    // The copy first: reading the block may mend it.
    let Some(copy) = parts.pool.block_on(device, root.at) else { return Ok(None) };
    let block = parts.reader.read_block(&expect)?;
    Ok(Some(copy.is_ok_and(|copy| *copy == *block)))
}
