//! Finds chunks by logical address, and logical addresses by device offset. The pool looks up here for each read and
//! write; allocation and scrub of the store do too.
//!
//! Look-ups are hot and take a read lock for one search of a `BTreeMap`; chunks themselves
//! are immutable and shared, so nothing is copied and no I/O happens under the lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use btrfs_disk::items::STRIPE_LEN;
use btrfs_disk::superblock::{MIRRORS_MAX, mirror_offset};
use btrfs_disk::{At, Corrupt, Detail, DevId, Logical, TreeId};

use super::chunk::{Chunk, Stripe};
use super::devices::Devices;
use super::plan::logical_at;
use crate::error::Result;
use crate::locks::{Rank, RwLock};

/// Logical addresses below this one are never allocated (`cache->start < BTRFS_SUPER_INFO_OFFSET` in the kernel's
/// `exclude_super_stripes`).
const FIRST_LOGICAL: u64 = 64 << 10;

/// The use of a chunk, as its owner counts it.
pub trait Occupancy: std::fmt::Debug + Send + Sync {
    /// Has nothing more allocated in the chunk, if nothing is in it; false otherwise. It takes no lock: a thread that
    /// writes to devices may hold any.
    fn close_if_empty(&self) -> bool;
}

/// All chunks of a pool.
#[derive(Debug)]
pub struct ChunkMap(RwLock<Chunks>);

#[derive(Debug, Default)]
struct Chunks {
    by_start: BTreeMap<Logical, Arc<Chunk>>,
    /// Used ranges of devices: (device, first byte) to (end, start of the chunk).
    by_device: BTreeMap<(DevId, u64), (u64, Logical)>,
    /// The use of chunks by their starts, as far as it is counted.
    occupancy: BTreeMap<Logical, Arc<dyn Occupancy>>,
}

impl ChunkMap {
    /// An empty map.
    #[must_use]
    pub fn new() -> Self {
        Self(RwLock::new(Rank::Device, Chunks::default()))
    }

    /// The chunk that holds all of `at..at + len`.
    ///
    /// # Errors
    /// `Corrupt` if there is none, since addresses come from the file system.
    pub fn lookup(&self, at: Logical, len: u64) -> Result<Arc<Chunk>, Corrupt> {
        match self.get(at) {
            Some(chunk) if chunk.contains(at, len) => Ok(chunk),
            Some(chunk) => {
                let limit = Detail::AtMost(chunk.end().0 - at.0);
                Err(Corrupt::new("length of an extent in its chunk", limit, Detail::Number(len)).at(At::Data(at)))
            }
            None => {
                let expected = Detail::Text("an address inside a chunk");
                Err(Corrupt::new("logical address", expected, Detail::Number(at.0)).at(At::Tree(TreeId::CHUNK)))
            }
        }
    }

    /// The chunk that contains `at`.
    #[must_use]
    pub fn get(&self, at: Logical) -> Option<Arc<Chunk>> {
        let chunks = self.0.read();
        let (_, chunk) = chunks.by_start.range(..=at).next_back()?;
        chunk.contains(at, 1).then(|| Arc::clone(chunk))
    }

    /// All chunks, in logical order.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Chunk>> {
        self.0.read().by_start.values().map(Arc::clone).collect()
    }

    /// Adds a chunk. An equal chunk that exists already is ignored: system chunks come from the superblock and again
    /// from the chunk tree.
    ///
    /// # Errors
    /// `Corrupt` if it overlaps another chunk, or one of its stripes overlaps another, exceeds its device, or refers to
    /// a device that the pool lacks.
    pub fn add(&self, chunk: Chunk, devices: &Devices) -> Result<()> {
        let at = At::Key(TreeId::CHUNK, chunk.key());
        let mut chunks = self.0.write();
        if chunks.by_start.get(&chunk.start()).is_some_and(|old| **old == chunk) {
            return Ok(());
        }
        chunks.check(&chunk, devices).map_err(|error| error.at(at))?;
        chunks.insert(chunk);
        Ok(())
    }

    /// Has the chunk that begins at `start` counted.
    pub fn set_occupancy(&self, start: Logical, occupancy: Arc<dyn Occupancy>) {
        self.0.write().occupancy.insert(start, occupancy);
    }

    /// Has nothing more allocated in the chunk that begins at `start`, if nothing is in it; false otherwise, and for a
    /// chunk that is not counted.
    pub(super) fn close_if_empty(&self, start: Logical) -> bool {
        let occupancy = self.0.read().occupancy.get(&start).map(Arc::clone);
        occupancy.is_some_and(|occupancy| occupancy.close_if_empty())
    }

    /// Removes the empty chunk that begins at `start`.
    pub fn remove(&self, start: Logical) {
        let mut chunks = self.0.write();
        chunks.occupancy.remove(&start);
        let Some(chunk) = chunks.by_start.remove(&start) else { return };
        for stripe in chunk.stripes() {
            chunks.by_device.remove(&(stripe.device, stripe.offset));
        }
    }

    /// The logical address stored at this byte of a device.
    #[must_use]
    pub fn logical_of(&self, device: DevId, offset: u64) -> Option<Logical> {
        let chunk = {
            let chunks = self.0.read();
            let (_, (_, start)) = run_before(&chunks.by_device, device, offset)?;
            chunks.by_start.get(&start).map(Arc::clone)?
        };
        logical_at(&chunk, offset, |id| id == device).first().copied()
    }

    /// Used ranges of a device, as (first byte, length), ascending.
    #[must_use]
    pub fn device_runs(&self, device: DevId) -> Vec<(u64, u64)> {
        let chunks = self.0.read();
        let runs = chunks.by_device.range((device, 0)..=(device, u64::MAX));
        runs.map(|((_, offset), (end, _))| (*offset, end - offset)).collect()
    }
}

impl Default for ChunkMap {
    fn default() -> Self {
        Self::new()
    }
}

/// The ranges of `chunk` that hold superblock copies, as (first logical byte, length), ascending: they are never
/// allocated. Each takes 64 KiB, on the device of its stripe, and the first 64 KiB of the logical space are excluded
/// too, as in the kernel's `exclude_super_stripes`.
#[must_use]
pub fn superblock_runs(chunk: &Chunk) -> Vec<(Logical, u64)> {
    let mut runs = Vec::new();
    if chunk.start().0 < FIRST_LOGICAL {
        runs.push((chunk.start(), FIRST_LOGICAL.min(chunk.end().0) - chunk.start().0));
    }
    for offset in (0..MIRRORS_MAX).filter_map(mirror_offset) {
        if chunk.is_parity() {
            runs.extend(rows_at(chunk, offset));
            continue;
        }
        for at in logical_at(chunk, offset, |_| true) {
            runs.push((at, STRIPE_LEN.min(chunk.end().0 - at.0)));
        }
    }
    runs.sort_unstable();
    merge(runs)
}

/// The rows of a chunk with parity that lie at this byte of a device, whole: in each, one column is not written.
fn rows_at(chunk: &Chunk, offset: u64) -> impl Iterator<Item = (Logical, u64)> + '_ {
    let in_stripes = chunk.stripes().iter().filter_map(move |stripe| offset.checked_sub(stripe.offset));
    in_stripes.filter(|in_stripe| *in_stripe < chunk.stripe_bytes()).filter_map(|in_stripe| {
        let start = (in_stripe / STRIPE_LEN).checked_mul(chunk.row_bytes())?;
        let len = chunk.row_bytes().min(chunk.len_bytes().checked_sub(start)?);
        Some((Logical(chunk.start().0 + start), len))
    })
}

/// Joins ranges that touch or overlap.
fn merge(runs: Vec<(Logical, u64)>) -> Vec<(Logical, u64)> {
    let mut merged: Vec<(Logical, u64)> = Vec::with_capacity(runs.len());
    for (at, len) in runs {
        match merged.last_mut() {
            Some((last, last_len)) if at.0 <= last.0 + *last_len => {
                *last_len = (*last_len).max(at.0 + len - last.0);
            }
            _ => merged.push((at, len)),
        }
    }
    merged
}

impl Chunks {
    fn check(&self, chunk: &Chunk, devices: &Devices) -> Result<(), Corrupt> {
        let before = self.by_start.range(..chunk.end()).next_back();
        if let Some((_, other)) = before.filter(|(_, other)| other.end() > chunk.start()) {
            let expected = Detail::AtLeast(other.end().0);
            return Err(Corrupt::new("start of a chunk", expected, Detail::Number(chunk.start().0)));
        }
        for (index, stripe) in chunk.stripes().iter().enumerate() {
            check_device(chunk, stripe, devices)?;
            self.check_free(stripe, chunk.stripe_bytes())?;
            let earlier = chunk.stripes().iter().take(index);
            for other in earlier.filter(|other| other.device == stripe.device) {
                if other.offset.abs_diff(stripe.offset) < chunk.stripe_bytes() {
                    return Err(overlap(stripe.offset, other.offset + chunk.stripe_bytes()));
                }
            }
        }
        Ok(())
    }

    /// Checks that no chunk overlaps this stripe.
    fn check_free(&self, stripe: &Stripe, len: u64) -> Result<(), Corrupt> {
        let last = stripe.offset + (len - 1);
        let range = (stripe.device, 0)..=(stripe.device, last);
        match self.by_device.range(range).next_back() {
            Some((_, (end, _))) if *end > stripe.offset => Err(overlap(stripe.offset, *end)),
            _ => Ok(()),
        }
    }

    fn insert(&mut self, chunk: Chunk) {
        let (start, len) = (chunk.start(), chunk.stripe_bytes());
        for stripe in chunk.stripes() {
            let run = (stripe.offset + len, start);
            self.by_device.insert((stripe.device, stripe.offset), run);
        }
        self.by_start.insert(start, Arc::new(chunk));
    }
}

fn check_device(chunk: &Chunk, stripe: &Stripe, devices: &Devices) -> Result<(), Corrupt> {
    let Some(device) = devices.get(stripe.device) else {
        let expected = Detail::Text("a device of this file system");
        return Err(Corrupt::new("device of a chunk", expected, Detail::Number(stripe.device.0)));
    };
    if device.uuid() != stripe.device_uuid {
        let (expected, found) = (Detail::Uuid(device.uuid().0), Detail::Uuid(stripe.device_uuid.0));
        return Err(Corrupt::new("device UUID of a chunk", expected, found));
    }
    let end = stripe.offset + chunk.stripe_bytes();
    if end > device.total_bytes() {
        let limit = Detail::AtMost(device.total_bytes());
        return Err(Corrupt::new("end of a chunk on its device", limit, Detail::Number(end)));
    }
    Ok(())
}

fn overlap(found: u64, free_from: u64) -> Corrupt {
    let expected = Detail::AtLeast(free_from);
    Corrupt::new("device offset of a chunk", expected, Detail::Number(found))
}

/// The used range of `device` at or before `offset`.
fn run_before(
    runs: &BTreeMap<(DevId, u64), (u64, Logical)>,
    device: DevId,
    offset: u64,
) -> Option<(u64, (u64, Logical))> {
    let ((_, start), run) = runs.range((device, 0)..=(device, offset)).next_back()?;
    (run.0 > offset).then_some((*start, *run))
}
