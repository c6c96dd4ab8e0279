//! Bytes that become adjacent on disk, collected into one large write.

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
const WRITE_BYTES: u64 = 4 << 20;

/// Bytes that are adjacent on disk, about to be written.
#[derive(Default)]
pub(super) struct Batch<'p> {
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

impl<'p> Batch<'p> {
    /// Adds the pages of `run`, which belong to the job at `owner` and go to `at`; writes before and after where that
    /// is due.
    pub(super) fn add_pages(
        &mut self,
        core: &Core,
        jobs: &mut [Job<'_>],
        pages: &'p PageCache,
        owner: usize,
        (run, at): (Run, Logical),
    ) -> Result<()> {
        let mut run = run;
        let mut at = at;
        while run.len > 0 {
            self.make_room(core, jobs, at, run.len)?;
            let len = run.len.min(WRITE_BYTES.saturating_sub(self.len));
            self.parts.extend(pages.pages(run.start..run.start + len).map(Part::Page));
            self.grow(jobs, owner, len);
            run = Run { start: run.start + len, len: run.len - len };
            at = Logical(at.0 + len);
        }
        Ok(())
    }

    /// Adds `bytes`, whole sectors, which belong to the job at `owner` and go to `at`.
    pub(super) fn add_encoded(
        &mut self,
        core: &Core,
        jobs: &mut [Job<'_>],
        owner: usize,
        (bytes, at): (Vec<u8>, Logical),
    ) -> Result<()> {
        let len = to_u64(bytes.len());
        debug_assert!(len.is_multiple_of(u64::from(core.store.sizes().sector)), "the disk takes whole sectors");
        self.make_room(core, jobs, at, len)?;
        self.parts.push(Part::Encoded(bytes));
        self.grow(jobs, owner, len);
        Ok(())
    }

    /// Writes what there is, unless it is short and `len` bytes at `at` can be written together with it.
    fn make_room(&mut self, core: &Core, jobs: &mut [Job<'_>], at: Logical, len: u64) -> Result<()> {
        let is_adjacent = self.at.saturating_add(self.len) == at.0
            && is_in_one_group(core, Logical(self.at), self.len.saturating_add(len));
        if self.len >= WRITE_BYTES || !is_adjacent {
            self.write(core, jobs)?;
            self.at = at.0;
        }
        Ok(())
    }

    fn grow(&mut self, jobs: &[Job<'_>], owner: usize, len: u64) {
        self.owners.push((owner, len));
        self.len += len;
        self.wants_csums |= jobs[owner].has_csums();
    }

    /// Writes what was added, and gives each job the checksums of its part.
    pub(super) fn write(&mut self, core: &Core, jobs: &mut [Job<'_>]) -> Result<()> {
        let batch = std::mem::take(self);
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
