//! Discards freed space after each commit, where the store is opened with `discard`, and all free space on request.
//! Called by `commit` and `Store::trim`.
//!
//! Only space is discarded that is free, or was freed by a durable transaction: no state that a crash can bring back
//! reads it. It cannot be allocated during the discard. The oldest backup roots of a superblock may lead to it; those
//! are not guaranteed.
//!
//! Failure: a commit ignores failed discards, since nothing depends on them; [`Engine::trim`] returns them.

use std::ops::Range;

use btrfs_disk::Logical;

use crate::space::{BlockGroup, Pinned, Run};
use crate::{Error, Result};

use super::engine::Engine;

/// The parameters of a trim.
#[derive(Clone, Debug)]
pub(crate) struct Trim {
    /// Logical addresses; unallocated ranges of devices are discarded regardless, as by the kernel.
    pub(crate) range: Range<u64>,
    /// Shorter runs are left out, bytes.
    pub(crate) bytes_min: u64,
}

impl Trim {
    /// The part of a run to discard.
    fn part(&self, run: Run) -> Option<Run> {
        let start = run.start.max(self.range.start);
        let len = run.end().min(self.range.end).saturating_sub(start);
        (len >= self.bytes_min.max(1)).then_some(Run { start, len })
    }
}

impl Engine {
    /// Discards the space freed by a transaction that is durable now, before it can be allocated again.
    pub(super) fn discard_pinned(&self, pinned: &Pinned) {
        for run in pinned.runs() {
            // A failed discard only keeps space on the host.
            let _ = self.pool().discard(Logical(run.start), run.len);
        }
    }

    /// Discards free space that no state after a crash refers to, and so returns it to the host. Returns the bytes.
    pub(super) fn discard_free(&self) -> u64 {
        let discard = |run: Run| self.pool().discard(Logical(run.start), run.len).is_ok();
        self.space.all_groups().iter().map(|group| group.discard_free(discard)).sum()
    }

    /// Discards all free space, and reports to `watch` the bytes visited so far, and their total. Returns the discarded
    /// bytes, each once however many copies there are.
    pub(crate) fn trim(&self, wanted: &Trim, watch: &mut dyn FnMut(u64, u64)) -> Result<u64> {
        self.health.check()?;
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.agree_on_superblock()?;
        let groups = self.space.all_groups();
        let all: u64 = groups.iter().map(|group| group.range().len).fold(0, u64::saturating_add);
        let (mut seen, mut discarded) = (0_u64, 0_u64);
        for group in groups {
            if !group.is_read_only() {
                // With the gate held no commit changes the trees.
                let serial = self.gate.serialize();
                self.load_group(&group)?;
                drop(serial);
                discarded = discarded.saturating_add(self.trim_group(&group, wanted)?);
            }
            seen = seen.saturating_add(group.range().len);
            watch(seen, all);
        }
        let size = self.pool().devices().iter().map(|device| device.total_bytes()).fold(0, u64::saturating_add);
        if wanted.range.start >= size {
            return Ok(discarded);
        }
        Ok(discarded.saturating_add(self.trim_unallocated(wanted.bytes_min)?))
    }

    /// Free is what the current superblock does not reach: every copy has to be the same before anything is discarded.
    /// One that a crash left stale, or that an open with another copy skipped, would lead to nothing.
    fn agree_on_superblock(&self) -> Result<()> {
        let _no_commit = self.gate.serialize();
        let superblock = self.log.lock_superblock();
        let write = || {
            if self.options.superblock.is_some() {
                self.pool().write_superblock(&superblock)?;
            } else {
                self.pool().write_superblock_mirrors(&superblock)?;
            }
            Ok(self.pool().flush()?)
        };
        write().inspect_err(|error| self.health.poison(error))
    }

    fn trim_group(&self, group: &BlockGroup, wanted: &Trim) -> Result<u64> {
        let mut discarded = 0_u64;
        let mut from = wanted.range.start;
        while from < wanted.range.end {
            let next = group.for_some_free(from, |run| {
                if let Some(part) = wanted.part(run) {
                    self.pool().discard(Logical(part.start), part.len)?;
                    discarded = discarded.saturating_add(part.len);
                }
                Ok(())
            })?;
            let Some(next) = next else { break };
            from = next;
        }
        Ok(discarded)
    }

    /// Discards unallocated ranges of devices. A chunk removed since the last commit was empty in that, so it loses
    /// nothing.
    fn trim_unallocated(&self, bytes_min: u64) -> Result<u64> {
        // No thread allocates a chunk there meanwhile.
        let _one = self.space.lock_growth();
        let mut discarded = 0_u64;
        // A missing device cannot be told, and a seed never changes.
        for device in self.pool().devices().iter().filter(|device| device.is_written()) {
            let runs = self.space.unallocated_runs(device.id());
            for run in runs.into_iter().filter(|run| run.len >= bytes_min.max(1)) {
                device.device().discard(run.start, run.len)?;
                discarded = discarded.saturating_add(run.len);
            }
        }
        Ok(discarded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_to_what_is_wanted() {
        let wanted = Trim { range: 1000..5000, bytes_min: 100 };
        assert_eq!(wanted.part(Run { start: 0, len: 9000 }), Some(Run { start: 1000, len: 4000 }));
        assert_eq!(wanted.part(Run { start: 950, len: 149 }), None);
        assert_eq!(wanted.part(Run { start: 4900, len: u64::MAX - 4900 }), Some(Run { start: 4900, len: 100 }));
        assert_eq!(wanted.part(Run { start: 6000, len: 1000 }), None);
    }
}
