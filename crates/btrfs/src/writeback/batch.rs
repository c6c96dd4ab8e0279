//! Bytes that become adjacent on disk, collected into large writes.

#![expect(
    clippy::indexing_slicing,
    reason = "a batch names its owners by their place in the list of jobs that it is written for"
)]

use btrfs_disk::Logical;
use btrfs_disk::convert::{to_u64, to_usize};
use vfs::{PageCache, Run};

use super::disk::{is_in_one_group, write_and_sum};
use super::job::Job;
use crate::error::Result;
use crate::inode::Core;

/// Bytes after which a write leaves.
const WRITE_BYTES: u64 = 1 << 20;

/// What has its place on disk, and is about to be written there.
#[derive(Default)]
pub(super) struct Batches<'p> {
    /// The one that is being collected.
    last: Batch<'p>,
    /// Those before it.
    full: Vec<Batch<'p>>,
}

/// Bytes that are adjacent on disk.
#[derive(Default)]
struct Batch<'p> {
    at: u64,
    len: u64,
    parts: Vec<Part<'p>>,
    /// Which job each stretch of the batch belongs to, with its length.
    owners: Vec<(usize, u64)>,
    wants_csums: bool,
}

/// Bytes as they will be on disk.
enum Part<'p> {
    Page(&'p [u8]),
    Encoded(Vec<u8>),
}

impl Part<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Page(bytes) => bytes,
            Self::Encoded(bytes) => bytes,
        }
    }
}

impl<'p> Batches<'p> {
    /// Adds the pages of `run`, which belong to the job at `owner` and go to `at`.
    pub(super) fn add_pages(
        &mut self,
        core: &Core,
        jobs: &[Job<'_>],
        pages: &'p PageCache,
        owner: usize,
        (run, at): (Run, Logical),
    ) {
        let mut run = run;
        let mut at = at;
        while run.len > 0 {
            self.make_room(core, at, run.len);
            let len = run.len.min(WRITE_BYTES.saturating_sub(self.last.len));
            self.last.parts.extend(pages.pages(run.start..run.start + len).map(Part::Page));
            self.last.grow(jobs, owner, len);
            run = Run { start: run.start + len, len: run.len - len };
            at = Logical(at.0 + len);
        }
    }

    /// Adds `bytes`, whole sectors, which belong to the job at `owner` and go to `at`.
    pub(super) fn add_encoded(&mut self, core: &Core, jobs: &[Job<'_>], owner: usize, (bytes, at): (Vec<u8>, Logical)) {
        let len = to_u64(bytes.len());
        debug_assert!(len.is_multiple_of(u64::from(core.store.sizes().sector)), "the disk takes whole sectors");
        self.make_room(core, at, len);
        self.last.parts.push(Part::Encoded(bytes));
        self.last.grow(jobs, owner, len);
    }

    /// Begins a new batch, unless the last one is short and `len` bytes at `at` can be written together with it.
    fn make_room(&mut self, core: &Core, at: Logical, len: u64) {
        let Batch { at: start, len: held, .. } = self.last;
        let is_adjacent =
            start.saturating_add(held) == at.0 && is_in_one_group(core, Logical(start), held.saturating_add(len));
        if held >= WRITE_BYTES || !is_adjacent {
            let before = std::mem::replace(&mut self.last, Batch { at: at.0, ..Batch::default() });
            self.full.extend((before.len > 0).then_some(before));
        }
    }

    /// Writes the batches that are full, and gives each job the checksums of its part.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn write_full(&mut self, core: &Core, jobs: &mut [Job<'_>]) -> Result<()> {
        std::mem::take(&mut self.full).into_iter().try_for_each(|batch| batch.write(core, jobs))
    }

    /// As [`Self::write_full`], with the last one.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn write_all(&mut self, core: &Core, jobs: &mut [Job<'_>]) -> Result<()> {
        self.write_full(core, jobs)?;
        std::mem::take(&mut self.last).write(core, jobs)
    }
}

impl Batch<'_> {
    fn grow(&mut self, jobs: &[Job<'_>], owner: usize, len: u64) {
        self.owners.push((owner, len));
        self.len += len;
        self.wants_csums |= jobs[owner].has_csums();
    }

    fn write(self, core: &Core, jobs: &mut [Job<'_>]) -> Result<()> {
        let batch = self;
        if batch.len == 0 {
            return Ok(());
        }
        let parts: Vec<&[u8]> = batch.parts.iter().map(Part::bytes).collect();
        let csums = write_and_sum(core, Logical(batch.at), &parts, batch.len, batch.wants_csums)?;
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
