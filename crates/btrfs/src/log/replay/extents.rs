//! Replays file extents: those of the log replace those of the file. Called by the replay for each file.

use std::ops::Range;

use btrfs_disk::flags::Incompat;
use btrfs_disk::{At, InodeNo, Key, Logical};
use btrfs_store::RefChange;

use super::Replay;
use crate::error::Result;
use crate::extents::{BytesDelta, DROPS_PER_ITEM, FileExtent, Kind, Target, drop_items};
use crate::inode::Inode;

/// Items that the insertion of an extent changes: its own, the inode's, checksums.
const EXTENT_ITEMS: usize = 4;
/// Extents dropped with one handle.
const STEP_EXTENTS: usize = 128;
/// Bytes of data whose checksums are copied with one handle.
const CSUM_STEP_BYTES: u64 = 16 << 20;

impl Replay<'_> {
    /// Replays an extent of a file in the log.
    pub(super) fn extent(&mut self, key: &Key, bytes: &[u8]) -> Result<()> {
        let inode = self.inode_of(InodeNo(key.objectid))?;
        let sector = self.namespace.core.store.sizes().sector;
        let extent = FileExtent::decode(key.offset, bytes, sector)
            .map_err(|wrong| wrong.at(At::Key(self.log.tree.id(), *key)))?;
        let is_there = self.root.tree.get_with(key, |old| old == bytes)?;
        if extent.kind != Kind::Inline && is_there == Some(true) {
            return Ok(());
        }
        self.drop_extents(&inode, extent.start..extent.end_in_sectors(sector))?;
        let has_no_holes = self.namespace.core.store.has_incompat(Incompat::NO_HOLES.bits());
        if extent.is_hole() && has_no_holes {
            return Ok(());
        }
        let has_data = extent.kind != Kind::Inline && !extent.is_hole();
        self.change(EXTENT_ITEMS, |txn| {
            txn.insert(&self.root.tree, key, bytes)?;
            if has_data {
                txn.ref_change(self.reference(&inode, &extent))?;
            }
            let delta = BytesDelta { dropped: 0, added: extent.counted_bytes() };
            inode.change(txn, |state| state.nbytes = delta.apply_to(state.nbytes));
            Ok(())
        })?;
        if has_data {
            self.used.insert(extent.disk);
            self.copy_csums(&extent)?;
        }
        Ok(())
    }

    fn reference(&self, inode: &Inode, extent: &FileExtent) -> RefChange {
        RefChange::AddData {
            at: extent.disk,
            len: extent.disk_len,
            root: self.root.id,
            inode: inode.ino(),
            offset: extent.ref_offset(),
            parent: None,
            new: self.found.is_fresh(extent.disk),
        }
    }

    /// Removes the file's extents in a range of whole sectors.
    pub(super) fn drop_extents(&self, inode: &Inode, range: Range<u64>) -> Result<()> {
        let mut end = range.end;
        let items = STEP_EXTENTS / usize::try_from(DROPS_PER_ITEM).unwrap_or(1) + EXTENT_ITEMS;
        loop {
            let step = self.change(items, |txn| {
                let target = Target {
                    txn,
                    tree: &self.root.tree,
                    notes: &self.root.notes,
                    ino: inode.ino(),
                    sector: self.namespace.core.store.sizes().sector,
                };
                let step = drop_items(target, range.start..end, STEP_EXTENTS)?;
                if step.delta != BytesDelta::default() {
                    inode.change(txn, |state| state.nbytes = step.delta.apply_to(state.nbytes));
                }
                Ok(step)
            })?;
            inode.data.forget_map();
            if step.is_done {
                return Ok(());
            }
            end = step.dropped_from;
        }
    }

    /// Copies the checksums of an extent from the log: of all that is on disk where it is compressed, else of the part
    /// that the file has.
    fn copy_csums(&self, extent: &FileExtent) -> Result<()> {
        let store = &self.namespace.core.store;
        let (start, len) = match extent.is_compressed() {
            true => (extent.disk, extent.disk_len),
            false => (extent.disk_at(extent.start), extent.len),
        };
        let sector = u64::from(store.sizes().sector);
        let end = start.0.saturating_add(len);
        let mut at = start.0;
        while at < end {
            let step = (end - at).min(CSUM_STEP_BYTES);
            let csums = store.log_csums(&self.log.tree, Logical(at), step)?;
            let runs = csums.runs();
            if !runs.is_empty() {
                self.change(EXTENT_ITEMS + 2 * runs.len(), |txn| {
                    for (first, bytes) in &runs {
                        let first = u64::try_from(*first).unwrap_or(u64::MAX);
                        let place = at.saturating_add(first.saturating_mul(sector));
                        txn.put_csums(Logical(place), bytes)?;
                    }
                    Ok(())
                })?;
            }
            at += step;
        }
        Ok(())
    }
}
