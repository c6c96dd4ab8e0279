//! Updates the quota files: adds the growth of each user, group and project since the last commit. Called by `commit`.
//!
//! If they cannot be updated (one is damaged, or there is no space), the checkpoint marks them as wrong, as the
//! kernel does, and no commit updates them until `fsck.f2fs` has counted again. Files can still be changed.

#![expect(clippy::arithmetic_side_effects, reason = "counts of blocks, bounded by the superblock")]

use std::collections::BTreeMap;
use std::sync::Arc;

use f2fs_disk::convert::{to_u64, u32_len};
use f2fs_disk::quota::{self, QUOTA_BLOCK_SIZE, Quota, QuotaBlock, QuotaFile, QuotaFileMut, QuotaKind};
use f2fs_disk::{BlockAddr, Nid};

use super::addresses;
use super::pages::{self, NODES_PER_WAY};
use crate::charges::Charge;
use crate::error::{CallerError, Error, Result};
use crate::quotas;
use crate::write_volume::WriteVolume;

/// Most pages that one entry may change: the page of its leaf, and pages of new blocks above it in the quota tree.
const PAGES_PER_ENTRY: u64 = 3;

/// Growth of each user, group or project: inodes and blocks.
type Growth = BTreeMap<u32, (i64, i64)>;

/// A quota file being updated.
struct Changing<'a> {
    volume: &'a mut WriteVolume,
    ino: Nid,
}

impl QuotaFile for Changing<'_> {
    type Error = Error;

    fn block(&mut self, number: u32) -> Result<QuotaBlock> {
        quotas::block(self.volume, &self.volume.inode(self.ino)?, number)
    }
}

impl QuotaFileMut for Changing<'_> {
    fn put(&mut self, number: u32, block: &QuotaBlock) -> Result<()> {
        let (volume, ino) = (&mut *self.volume, self.ino);
        let (index, place) = quota::place_of(number);
        let layout = volume.inode(ino)?.inode;
        let is_known = volume.page(ino, index).is_some();
        let node = volume.inode(ino)?;
        if !is_known && crate::map::run(volume, &node, index, 1)?.at == BlockAddr::NULL {
            volume.counters.check(1 + NODES_PER_WAY)?;
        }
        let slot = addresses::make(volume, &layout, index)?;
        let (mut page, is_new) = pages::take(volume, &layout, &slot, index, false)?;
        let (parts, _) = Arc::make_mut(&mut page).as_chunks_mut::<QUOTA_BLOCK_SIZE>();
        if let Some(part) = parts.get_mut(place) {
            *part = *block;
        }
        volume.put_page(ino, index, page);
        volume.count_blocks(ino, i64::from(is_new))?;
        volume.forget_extent(&layout)?;
        let end = (u64::from(number) + 1) * to_u64(QUOTA_BLOCK_SIZE);
        if volume.inode(ino)?.inode.size() < end {
            volume.edit_fields(ino)?.i_size = end.into();
        }
        Ok(())
    }
}

/// Adds the changes since the last commit to the quota files.
///
/// # Errors
/// The device's error. Damage or lack of space is no error here: the checkpoint says that quotas need a repair.
pub(super) fn count(volume: &mut WriteVolume) -> Result<()> {
    let files: Vec<_> = volume.charges.files().collect();
    if files.is_empty() {
        return Ok(());
    }
    let growths = changed_charges(volume)?;
    for (index, kind, ino) in files {
        let more: Growth =
            growths.iter().flat_map(|all| all.get(index)).flatten().map(|(id, more)| (*id, *more)).collect();
        match add_to(volume, kind, ino, &more) {
            Ok(()) => {}
            Err(error @ (Error::Io(_) | Error::Poisoned { .. } | Error::Bug(_))) => return Err(error),
            Err(error) => {
                tracing::warn!("the quota files are not updated until fsck.f2fs has counted again: {error}");
                volume.charges.give_up();
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The growth of each user, group and project since the last commit; `None` if nothing changed.
fn changed_charges(volume: &mut WriteVolume) -> Result<Option<[Growth; 3]>> {
    let before = volume.charges.take();
    let mut growths: [Growth; 3] = Default::default();
    for (ino, was) in before {
        let is = match volume.inode(ino) {
            Ok(node) => Some(Charge::of(&node.inode, volume.features())),
            Err(Error::Caller(CallerError::Stale)) => None,
            Err(error) => return Err(error),
        };
        if was == is {
            continue;
        }
        for (charge, sign) in [(was, -1), (is, 1)] {
            let Some(charge) = charge else { continue };
            let blocks = i64::try_from(charge.blocks).unwrap_or(i64::MAX);
            for (more, owner) in growths.iter_mut().zip(charge.owners) {
                let (inodes, space) = more.entry(owner).or_default();
                (*inodes, *space) = (inodes.saturating_add(sign), space.saturating_add(sign.saturating_mul(blocks)));
            }
        }
    }
    growths.iter_mut().for_each(|more| more.retain(|_, more| *more != (0, 0)));
    Ok(Some(growths).filter(|growths| growths.iter().any(|more| !more.is_empty())))
}

fn add_to(volume: &mut WriteVolume, kind: QuotaKind, ino: Nid, more: &Growth) -> Result<()> {
    if more.is_empty() {
        return Ok(());
    }
    let count = u64::from(u32_len(more.len())) * PAGES_PER_ENTRY + 1 + NODES_PER_WAY;
    volume.check_sections(count, 0)?;
    let node = quotas::inode(volume, ino)?;
    let size = quotas::size(volume, &node);
    let placed = |error| quotas::placed(error, ino);
    let mut quota = Quota::open(Changing { volume, ino }, kind, size).map_err(placed)?;
    for (id, (inodes, blocks)) in more {
        quota.add(*id, *inodes, quotas::bytes_of(*blocks)).map_err(placed)?;
    }
    quota.close().map_err(placed)?;
    Ok(())
}
