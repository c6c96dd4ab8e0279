//! Dirty bytes of many files, allocated side by side and written in large pieces.

#![expect(
    clippy::indexing_slicing,
    reason = "a batch names its owners by their place in the list of jobs that it is written for"
)]

use std::sync::Arc;

use btrfs_disk::Logical;
use btrfs_disk::convert::to_usize;
use btrfs_store::DataExtent;
use vfs::{PageCache, Run};

use super::finish;
use super::job::Job;
use super::plan::Step;
use crate::error::{Error, Result};
use crate::inode::{Core, Flight, Receipt};

/// Bytes after which a write leaves.
const WRITE_BYTES: u64 = 4 << 20;
/// From this many bytes on, checksums are computed while the device takes the bytes.
const PARALLEL_BYTES: u64 = 256 << 10;

/// Bytes that are adjacent on disk, about to be written.
#[derive(Default)]
struct Batch<'p> {
    at: u64,
    len: u64,
    parts: Vec<&'p [u8]>,
    /// Which job each stretch of the batch belongs to, with its length.
    owners: Vec<(usize, u64)>,
    wants_csums: bool,
}

/// Writes and inserts what the jobs took. A job that is done has given up its flight; after a
/// failure the remaining ones have put everything back.
pub(super) fn run(core: &Core, jobs: &mut [Job<'_>]) -> Result<()> {
    let in_place = core.data.in_place.read();
    let written = jobs.iter_mut().try_for_each(|job| job.plan(core)).and_then(|()| write(core, jobs));
    drop(in_place);
    let mut result = written;
    for job in jobs {
        if result.is_ok() {
            result = finish::finish(core, job);
            if result.is_err() {
                // Items may point at the new extents already: they are not given back.
                job.made.fresh.clear();
            }
        }
        if let Err(error) = &result {
            restore(core, job, error);
        }
    }
    result
}

/// Allocates in file order, job by job, and writes what becomes adjacent on disk together.
fn write(core: &Core, jobs: &mut [Job<'_>]) -> Result<()> {
    let flights: Vec<Arc<Flight>> = jobs.iter().map(|job| Arc::clone(&job.flight)).collect();
    let mut batch = Batch::default();
    let mut hint = None;
    for (index, flight) in flights.iter().enumerate() {
        let Some(pages) = &flight.pages else { continue };
        let steps = std::mem::take(&mut jobs[index].steps);
        for step in steps {
            match step {
                Step::Inline { len } => jobs[index].set_inline(pages, len),
                Step::InPlace { run, old } => {
                    let at = old.disk_at(run.start);
                    jobs[index].add_in_place(run, &old);
                    let wants_csums = jobs[index].has_csums();
                    batch.add(core, jobs, pages, index, (run, at, wants_csums))?;
                }
                Step::Allocate(run) => {
                    let mut rest = run;
                    while rest.len > 0 {
                        let extent = jobs[index].allocate(core, rest, hint)?;
                        hint = Some(Logical(extent.at.0.saturating_add(extent.len)));
                        let part = Run { start: rest.start, len: extent.len };
                        let wants_csums = jobs[index].has_csums();
                        batch.add(core, jobs, pages, index, (part, extent.at, wants_csums))?;
                        rest = Run { start: part.end(), len: rest.len - part.len };
                    }
                }
            }
        }
    }
    batch.write(core, jobs)
}

impl<'p> Batch<'p> {
    /// Adds the pages of `run`, which go to `at`; writes before and after where that is due.
    fn add(
        &mut self,
        core: &Core,
        jobs: &mut [Job<'_>],
        pages: &'p PageCache,
        owner: usize,
        (run, at, wants_csums): (Run, Logical, bool),
    ) -> Result<()> {
        let mut run = run;
        let mut at = at.0;
        while run.len > 0 {
            if self.len >= WRITE_BYTES || !self.is_followed_by(core, at, run.len) {
                self.write(core, jobs)?;
                self.at = at;
            }
            let len = run.len.min(WRITE_BYTES.saturating_sub(self.len));
            self.parts.extend(pages.pages(run.start..run.start + len));
            self.owners.push((owner, len));
            self.len += len;
            self.wants_csums |= wants_csums;
            run = Run { start: run.start + len, len: run.len - len };
            at += len;
        }
        Ok(())
    }

    /// True when `len` bytes at `at` can be written together with the batch.
    fn is_followed_by(&self, core: &Core, at: u64, len: u64) -> bool {
        self.at.saturating_add(self.len) == at && is_in_one_group(core, Logical(self.at), self.len.saturating_add(len))
    }

    fn write(&mut self, core: &Core, jobs: &mut [Job<'_>]) -> Result<()> {
        let batch = std::mem::take(self);
        if batch.len == 0 {
            return Ok(());
        }
        let at = Logical(batch.at);
        let csums = write_and_sum(core, at, &batch.parts, batch.len, batch.wants_csums)?;
        let (sector, csum) = (u64::from(core.store.sizes().sector), core.store.sizes().csum);
        let mut offset = 0;
        for (owner, len) in batch.owners {
            let job = &mut jobs[owner];
            if job.has_csums() {
                let from = to_usize(offset / sector) * csum;
                let to = to_usize((offset + len) / sector) * csum;
                job.add_csums(core, batch.at + offset, csums.get(from..to).unwrap_or_default());
            }
            offset += len;
        }
        Ok(())
    }
}

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

/// Puts back what a job took and could not write: the next flush tries again.
fn restore(core: &Core, job: &mut Job<'_>, error: &Error) {
    let mut layers = job.inode.data.inner.write();
    layers.flight = None;
    for extent in job.made.fresh.drain(..) {
        give_up(core, extent, error);
    }
    let flight = std::mem::take(&mut job.flight);
    let Ok(flight) = Arc::try_unwrap(flight) else {
        return;
    };
    if let Some(pages) = flight.pages {
        let dirty = layers.dirty.get_or_insert_with(|| {
            let sector = core.store.sizes().sector;
            PageCache::new(sector, Arc::clone(&core.data.budget))
        });
        dirty.put_older(pages);
    }
    let newer = std::mem::replace(&mut layers.pending, flight.pending);
    layers.pending.extend(newer);
    job.receipt = Receipt::default();
}
