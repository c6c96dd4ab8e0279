//! Bytes of files on their way to space that was allocated for them.

use btrfs_disk::Logical;
use btrfs_disk::convert::to_usize;
use btrfs_store::DataExtent;

use crate::error::{Error, Result};
use crate::inode::Core;

/// From this many bytes on, checksums are computed while the device takes the bytes.
const PARALLEL_BYTES: u64 = 256 << 10;

/// Writes `parts` (whole sectors) one after the other, and returns their checksums.
pub(crate) fn write_and_sum(core: &Core, at: Logical, parts: &[&[u8]], len: u64, wants_csums: bool) -> Result<Vec<u8>> {
    if !wants_csums {
        core.store.write_data(at, parts)?;
        return Ok(Vec::new());
    }
    let sum = || {
        let (kind, sizes) = (core.store.csum_type(), core.store.sizes());
        let sector = btrfs_disk::convert::usize_from(sizes.sector);
        let mut csums = vec![0; to_usize(len) / sector * sizes.csum];
        let mut rest = csums.as_mut_slice();
        for part in parts {
            let (now, later) = rest.split_at_mut((part.len() / sector * sizes.csum).min(rest.len()));
            codec::checksum::checksum_many(kind, part, sector, now);
            rest = later;
        }
        debug_assert!(rest.is_empty(), "the parts have as many bytes as the write");
        csums
    };
    if len < PARALLEL_BYTES {
        core.store.write_data(at, parts)?;
        return Ok(sum());
    }
    let (csums, written) = core.store.work_beside(sum, || core.store.write_data(at, parts));
    written?;
    Ok(csums)
}

/// True when the bytes lie in one block group: neither an extent nor a write may cross into another.
pub(crate) fn is_in_one_group(core: &Core, at: Logical, len: u64) -> bool {
    core.store.is_in_one_chunk(at, len)
}

/// Gives back space that was to be written, and was not because of `error`.
pub(crate) fn give_up(core: &Core, extent: DataExtent, error: &Error) {
    if error.is_device_full() {
        core.store.give_back_unused(extent);
    } else {
        core.store.free_unused(extent);
    }
}
