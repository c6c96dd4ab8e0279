//! Writes extents that arrive compressed, as they are on the disk of another volume. Called by receive, through
//! `vfs_impl/data`.

use std::sync::Arc;

use btrfs_disk::convert::{to_u64, usize_from};
use btrfs_store::Need;
use codec::CompressionType;

use super::exchange::{self, Exchange, Old};
use super::truncate::{covered, sector};
use super::write::{Held, bring_tail, is_tail_needed, reserve_for};
use crate::error::Result;
use crate::extents::{COMPRESSED_BYTES_MAX, FILE_BYTES_MAX, FileExtent, Kind, NewExtent};
use crate::inode::{Change, Core, Inode, InodeFlags, Receipt, feature_of};
use crate::writeback;

/// A compressed extent and the part of it that a file gets. The caller has decompressed it, and knows that this works.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoded<'a> {
    /// Where the bytes go in the file.
    pub(crate) at: u64,
    /// Bytes that the file gets.
    pub(crate) len: u64,
    /// Bytes of the whole extent when it is decompressed.
    pub(crate) ram_bytes: u64,
    /// Where in these the bytes of the file begin.
    pub(crate) offset: u64,
    pub(crate) kind: CompressionType,
    pub(crate) data: &'a [u8],
}

impl Encoded<'_> {
    /// Whether an item can describe it: whole sectors, but for the end of the file, and not too long for readers.
    fn fits(&self, unit: u64) -> bool {
        // A size that overflows is too large anyway.
        let round = |bytes: u64| bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        let ram_bytes = round(self.ram_bytes);
        let disk_len = to_u64(self.data.len()).next_multiple_of(unit);
        let end = self.offset.checked_add(self.len).map(round);
        self.at.is_multiple_of(unit)
            && self.offset.is_multiple_of(unit)
            && self.len > 0
            && !self.data.is_empty()
            && ram_bytes <= COMPRESSED_BYTES_MAX
            && disk_len < ram_bytes
            && end.is_some_and(|end| end <= ram_bytes)
    }
}

/// Writes a compressed extent to disk and into a file, in place of the old contents. False, and nothing has changed,
/// where the bytes have to be written decompressed: the file is not compressed, they are not whole sectors, or free
/// space is in pieces.
///
/// # Errors
/// As writing a file.
pub(crate) fn write_encoded(core: &Core, inode: &Arc<Inode>, encoded: &Encoded<'_>) -> Result<bool> {
    let unit = u64::from(sector(core));
    inode.check_writable()?;
    inode.check_permits(Change::WriteAt(encoded.at))?;
    let end = encoded.at.checked_add(encoded.len).filter(|end| *end < FILE_BYTES_MAX - unit);
    let keeps_plain = inode.state().flags.intersects(InodeFlags::NODATACOW | InodeFlags::NODATASUM);
    let Some(end) = end.filter(|_| !keeps_plain && encoded.fits(unit)) else {
        return Ok(false);
    };
    writeback::flush_inode(core, inode)?;
    let _stay = core.data.stay();
    let _editing = inode.data.editing.lock();
    if !end.is_multiple_of(unit) && end < inode.state().size {
        return Ok(false);
    }
    if is_tail_needed(core, inode, &inode.data.inner.read(), encoded.at) {
        bring_tail(core, inode, Held::Editing)?;
        writeback::flush_without_inline(core, inode)?;
    } else {
        writeback::flush_held(core, inode)?;
    }
    let range = encoded.at..covered(core, end);
    if exchange::first_part(core, inode, range.clone())? != range {
        return Ok(false);
    }
    insert(core, inode, encoded, end)
}

/// Writes the extent, and makes it part of the file in one transaction.
fn insert(core: &Core, inode: &Arc<Inode>, encoded: &Encoded<'_>, end: u64) -> Result<bool> {
    let unit = u64::from(sector(core));
    let mut bytes = encoded.data.to_vec();
    bytes.resize(bytes.len().next_multiple_of(usize_from(sector(core))), 0);
    let disk_len = to_u64(bytes.len());
    let need = Need { data: disk_len, ..exchange::need_to_exchange(1) };
    let mut receipt = Receipt::default();
    receipt.add(need, reserve_for(core, inode, need, Held::Editing)?);
    let Some((extent, csums)) = writeback::write_encoded(core, bytes, &mut receipt)? else {
        return Ok(false);
    };
    let txn = match receipt.begin(&core.store) {
        Ok(txn) => txn,
        Err(error) => {
            writeback::give_up(core, extent, &error);
            return Err(error);
        }
    };
    for (at, csums) in &csums {
        txn.put_csums(*at, csums)?;
    }
    if let Some(feature) = feature_of(encoded.kind) {
        txn.add_incompat(feature.bits());
    }
    let range = encoded.at..covered(core, end);
    let whole = FileExtent::whole(encoded.at, Kind::Regular, extent.at, range.end - range.start);
    let item = FileExtent {
        disk_len,
        offset: encoded.offset,
        ram_bytes: encoded.ram_bytes.next_multiple_of(unit),
        compression: encoded.kind.to_raw(),
        generation: txn.generation(),
        ..whole
    };
    let what = Exchange {
        range,
        items: &[NewExtent { extent: item, is_fresh: true }],
        size: end,
        flags: InodeFlags::empty(),
        old: Old::Replaced,
    };
    exchange::exchange(core, inode, txn, &what)?;
    Ok(true)
}
