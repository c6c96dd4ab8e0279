//! Tells members that a power cut left one generation behind from members that were absent at the last commit, and
//! finds members that were written apart. Called by `bootstrap` when a volume on several devices is opened.
//!
//! A commit flushes its tree blocks to all devices before it writes the first superblock. So a member whose superblock
//! a power cut kept from being written has the blocks, and one that was absent has not. Roots of trees suffice: a
//! commit writes the root of each tree that it changes. Where none of them lies on the member, nothing of that commit
//! was to be written there but data, which is found by its checksums.
//!
//! Two members that were written apart by the same number of commits have different blocks of the last one: two valid
//! copies of a root that differ.

use btrfs_disk::items::RootItem;
use btrfs_disk::key::item_type::ROOT_ITEM;
use btrfs_disk::superblock::Superblock;
use btrfs_disk::{DevId, Generation, Key, Logical};
use btrfs_pool::{MemberError, PoolDevice};

use super::{Parts, root_ptr};
use crate::tree::{BlockSource as _, RootPtr, Scan};
use crate::txn::Trees;
use crate::{Error, Result};

/// Refuses members that lack blocks of the last commit, and those that have others than the rest.
///
/// # Errors
/// `Members` for such a member; damage, I/O.
pub(super) fn check(parts: &Parts, trees: &Trees, superblock: &Superblock) -> Result<()> {
    if parts.pool.devices().present().count() < 2 {
        return Ok(());
    }
    for (device, absent) in parts.pool.lagging() {
        let mut found = None;
        visit_roots(trees, superblock, &mut |root| {
            found = has(parts, *device, root)?;
            Ok(if found.is_some() { Scan::Stop } else { Scan::Continue })
        })?;
        if found == Some(false) {
            return Err(Error::Members(Box::new(absent.clone())));
        }
    }
    visit_roots(trees, superblock, &mut |root| same_copies(parts, root).map(|()| Scan::Continue))
}

/// Calls `visit` with the roots of trees that the last commit wrote, until it stops.
fn visit_roots(trees: &Trees, superblock: &Superblock, visit: &mut dyn FnMut(&RootPtr) -> Result<Scan>) -> Result<()> {
    let newest = superblock.generation();
    for root in [superblock.root(), superblock.chunk_root()].map(root_ptr) {
        if root.generation == newest && matches!(visit(&root)?, Scan::Stop) {
            return Ok(());
        }
    }
    trees.root_tree.scan_since(&Key::MIN, &Key::MAX, newest, |_, key, bytes| {
        if key.item_type != ROOT_ITEM {
            return Ok(Scan::Continue);
        }
        let item = RootItem::read(bytes)?;
        let (at, generation) = (Logical(item.bytenr.get()), Generation(item.generation.get()));
        match generation == newest {
            true => visit(&RootPtr { at, level: item.level, generation }),
            false => Ok(Scan::Continue),
        }
    })
}

/// Whether the copy of a root on the device is there; `None` where none lies there.
fn has(parts: &Parts, device: DevId, root: &RootPtr) -> Result<Option<bool>> {
    // The copy first: reading the block may mend it.
    let Some(copy) = parts.pool.block_on(device, root.at) else { return Ok(None) };
    let block = parts.reader.read_block(&root.expect(None))?;
    Ok(Some(copy.is_ok_and(|copy| *copy == *block)))
}

/// Refuses two valid copies of a block that differ.
fn same_copies(parts: &Parts, root: &RootPtr) -> Result<()> {
    let mut first: Option<(&PoolDevice, Vec<u8>)> = None;
    for device in parts.pool.devices().present() {
        let Some(Ok(copy)) = parts.pool.block_on(device.id(), root.at) else { continue };
        if !parts.reader.is_valid(&copy, &root.expect(None)) {
            continue;
        }
        match &first {
            None => first = Some((device, copy)),
            Some((_, other)) if *other == copy => {}
            Some((other, _)) => {
                let name = |device: &PoolDevice| device.device().name().to_owned();
                let (id, generation) = (device.id(), root.generation);
                let split = MemberError::Split { device: name(device), id, other: name(other), generation };
                return Err(Error::Members(Box::new(split)));
            }
        }
    }
    Ok(())
}
