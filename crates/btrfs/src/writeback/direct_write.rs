//! Writes large writes straight to disk. Called by `file/write` and `file/encoded_write`.

use btrfs_disk::Logical;
use btrfs_disk::convert::{to_u64, usize_from};
use btrfs_store::{DataExtent, Hint};
use vfs::Run;

use super::batch::Batches;
use super::disk::give_up;
use super::outgoing_data::{Outgoing, Source};
use super::plan::{Request, plan};
use super::run::{tasks_of, write};
use crate::error::Result;
use crate::inode::{Core, Pending, Receipt};

/// Bytes for a file at an offset, both whole sectors but for the end of the bytes.
#[derive(Clone, Copy)]
pub(crate) struct DirectWrite<'a> {
    pub(crate) at: u64,
    pub(crate) data: &'a [u8],
    pub(crate) wants_csums: bool,
    /// Preferred place on disk.
    pub(crate) hint: Hint,
}

/// Writes data to disk, the last sector padded with zeros, in space of `receipt`; returns the new extents, which the
/// caller makes part of the file or frees. After a failure nothing is kept.
///
/// # Errors
/// `NoSpace`, the device's.
pub(crate) fn write_direct(core: &Core, request: DirectWrite<'_>, receipt: &mut Receipt) -> Result<Vec<Pending>> {
    let DirectWrite { at, data, wants_csums, hint } = request;
    let sizes = core.store.sizes();
    let sector = usize_from(sizes.sector);
    let (whole, partial) = data.split_at(data.len() - data.len() % sector);
    let mut last = partial.to_vec();
    last.resize(partial.len().next_multiple_of(sector), 0);
    let run = Run { start: at, len: to_u64(whole.len() + last.len()) };
    let mut out = Outgoing { receipt: std::mem::take(receipt), wants_csums, ..Outgoing::default() };
    // New space for all of it: neither inline nor in place.
    let request = Request { size: run.end(), max_inline: 0, sector: u64::from(sizes.sector) };
    let tasks = tasks_of(0, plan(request, &[run], &[]), out.compression);
    let source = Source::Caller { start: at, whole, last: &last };
    let written = write(core, &[Some(source)], &mut [&mut out], &tasks, hint);
    *receipt = std::mem::take(&mut out.receipt);
    if let Err(error) = written {
        out.made.fresh.into_iter().for_each(|extent| give_up(core, extent, &error));
        return Err(error);
    }
    let pending = out.made.items.iter().map(|new| {
        let (start, len, at) = (new.extent.start, new.extent.len, new.extent.disk);
        Pending { start, len, at, csums: out.made.csums_of(at, len, (sizes.sector, sizes.csum)) }
    });
    Ok(pending.collect())
}

/// An extent that was just written, and the checksums of its sectors.
type Written = (DataExtent, Vec<(Logical, Vec<u8>)>);

/// Writes compressed bytes to disk, whole sectors, in space of `receipt`; returns the new extent, which the caller
/// makes part of a file or frees. `None`, and nothing is kept, where free space is in shorter pieces.
///
/// # Errors
/// `NoSpace`, the device's. Nothing is kept then.
pub(crate) fn write_encoded(core: &Core, bytes: Vec<u8>, receipt: &mut Receipt) -> Result<Option<Written>> {
    let len = to_u64(bytes.len());
    let mut out = Outgoing { receipt: std::mem::take(receipt), wants_csums: true, ..Outgoing::default() };
    let extent = out.allocate(core, len, &mut Hint::default())?;
    *receipt = std::mem::take(&mut out.receipt);
    if extent.len < len {
        out.made.fresh.into_iter().for_each(|extent| core.store.free_unused(extent));
        return Ok(None);
    }
    let mut batches = Batches::default();
    batches.add_encoded(core, &[&mut out], 0, (bytes, extent.at));
    if let Err(error) = batches.write_all(core, &mut [&mut out]) {
        give_up(core, extent, &error);
        return Err(error);
    }
    Ok(Some((extent, out.made.csums)))
}
