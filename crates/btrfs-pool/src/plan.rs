//! Maps logical ranges to device ranges, and back, as pure functions. `read`, `write` and `chunk_map` call it.
//!
//! The parts of one mirror cover the range once, in logical order; parts of different mirrors never overlap on a
//! device, because the chunk map refuses overlapping stripes. A range is cut at the end of its chunk; callers check
//! that it lies inside.

#![expect(
    clippy::indexing_slicing,
    reason = "a profile locates only stripes that its chunk has, which was checked when it was read"
)]

use btrfs_disk::convert::to_usize;
use btrfs_disk::{DevId, Logical};

use super::chunk::Chunk;

/// The access that a plan is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Read one copy, by its index from 0. The ways of [`crate::parity`] are its business: there is one copy.
    Read(u32),
    /// Write every copy.
    Write,
}

/// A device range that holds part of a logical range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Index of the copy, from 0.
    pub mirror: u32,
    /// The device.
    pub device: DevId,
    /// First byte on the device.
    pub device_offset: u64,
    /// Offset in the planned range.
    pub range_offset: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The parts that hold `len` bytes at `at`, mirror by mirror.
#[must_use]
pub fn plan(chunk: &Chunk, at: Logical, len: u64, purpose: Purpose) -> Vec<Part> {
    let mut parts = Vec::new();
    let mirrors = match purpose {
        Purpose::Read(mirror) => mirror..mirror.saturating_add(1),
        Purpose::Write => 0..chunk.profile().mirror_count(),
    };
    let start = at.0.saturating_sub(chunk.start().0);
    let len = len.min(chunk.len_bytes().saturating_sub(start));
    for mirror in mirrors {
        let mut done = 0;
        while done < len {
            let place = chunk.profile().locate(chunk.shape(), start + done, mirror);
            let stripe = &chunk.stripes()[to_usize(place.stripe_index)];
            let run = place.run.min(len - done);
            parts.push(Part {
                mirror,
                device: stripe.device,
                device_offset: stripe.offset + place.offset,
                range_offset: done,
                len: run,
            });
            done += run;
        }
    }
    let mirrors = parts.iter().map(|part| u64::from(part.mirror)).max().map_or(0, |last| last + 1);
    debug_assert!(
        matches!(purpose, Purpose::Read(_)) || parts.iter().map(|part| part.len).sum::<u64>() == len * mirrors,
        "every copy has every byte"
    );
    parts
}

/// The logical addresses stored at `offset` of a device, for every stripe of the chunk that passes the filter;
/// ascending, without duplicates.
#[must_use]
pub fn logical_at(chunk: &Chunk, offset: u64, is_wanted: impl Fn(DevId) -> bool) -> Vec<Logical> {
    let mut found: Vec<_> = (0..)
        .zip(chunk.stripes())
        .filter(|(_, stripe)| is_wanted(stripe.device))
        .filter_map(|(index, stripe)| {
            let in_stripe = offset.checked_sub(stripe.offset)?;
            if in_stripe >= chunk.stripe_bytes() {
                return None;
            }
            let in_chunk = chunk.profile().offset_in_chunk(chunk.shape(), index, in_stripe)?;
            (in_chunk < chunk.len_bytes()).then(|| Logical(chunk.start().0 + in_chunk))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}
