//! Writes bytes of files to space that was allocated for them, and computes their checksums. Called by `batch`; the
//! other writers use it to give space up after a failure.

use btrfs_disk::Logical;
use btrfs_disk::convert::{to_usize, usize_from};
use btrfs_store::{DataExtent, DataRun};

use crate::error::{Error, Result};
use crate::inode::Core;

/// From this many bytes on, checksums are computed while the device takes the bytes.
const PARALLEL_BYTES: u64 = 256 << 10;

/// Bytes for a place on disk.
#[derive(Clone, Copy)]
pub(super) struct Outbound<'a> {
    pub(super) at: Logical,
    /// Whole sectors each.
    pub(super) parts: &'a [&'a [u8]],
    /// Bytes of the parts together.
    pub(super) len: u64,
    pub(super) wants_csums: bool,
}

/// Writes all outbound bytes, concurrently where the devices have queues, and returns the checksums of each, where
/// wanted.
pub(super) fn write_and_sum(core: &Core, outbound: &[Outbound<'_>]) -> Result<Vec<Vec<u8>>> {
    let write = || {
        let runs: Vec<DataRun<'_>> = outbound.iter().map(|out| DataRun { at: out.at, parts: out.parts }).collect();
        core.store.write_data(&runs)
    };
    let sum_all = || outbound.iter().map(|out| sum(core, out)).collect();
    let to_sum: u64 = outbound.iter().filter(|out| out.wants_csums).map(|out| out.len).sum();
    if to_sum < PARALLEL_BYTES {
        write()?;
        return Ok(sum_all());
    }
    let (csums, written) = core.store.work_beside(sum_all, write);
    written?;
    Ok(csums)
}

/// The checksums of all sectors, if they are wanted.
fn sum(core: &Core, out: &Outbound<'_>) -> Vec<u8> {
    if !out.wants_csums {
        return Vec::new();
    }
    let (kind, sizes) = (core.store.csum_type(), core.store.sizes());
    let sector = usize_from(sizes.sector);
    let mut csums = vec![0; to_usize(out.len) / sector * sizes.csum];
    let mut rest = csums.as_mut_slice();
    for part in out.parts {
        let (now, later) = rest.split_at_mut((part.len() / sector * sizes.csum).min(rest.len()));
        codec::checksum::checksum_many(kind, part, sector, now);
        rest = later;
    }
    debug_assert!(rest.is_empty(), "the parts have as many bytes as the write");
    csums
}

/// True when the bytes lie in one block group: neither an extent nor a write may cross into another.
pub(crate) fn is_in_one_group(core: &Core, at: Logical, len: u64) -> bool {
    core.store.is_in_one_chunk(at, len)
}

/// Frees space that could not be written because of `error`.
pub(crate) fn give_up(core: &Core, extent: DataExtent, error: &Error) {
    if error.is_device_full() {
        core.store.give_back_unused(extent);
    } else {
        core.store.free_unused(extent);
    }
}
