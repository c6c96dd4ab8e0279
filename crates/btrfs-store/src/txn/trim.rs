//! Telling devices what nothing needs any more: after each commit, where a store is opened for that, and all at once.
//!
//! Told is what is free, or was freed by a transaction that is durable: no state that a crash can bring back reads it.
//! While it is told it is not allocated. The oldest roots that a superblock lists may lead to it; they are not
//! promised.
//!
//! Failure: one that a commit meets here is not told to anybody, since nothing depends on it; [`Engine::trim`], which
//! was asked for, tells it.

use std::ops::Range;

use btrfs_disk::Logical;

use crate::space::{BlockGroup, Pinned, Run};
use crate::{Error, Result};

use super::engine::Engine;

/// What is to be told.
#[derive(Clone, Debug)]
pub(crate) struct Trim {
    /// Logical addresses; what no chunk has is told wherever they begin inside the devices' size, as by the kernel.
    pub(crate) range: Range<u64>,
    /// Shorter runs are left out, bytes.
    pub(crate) bytes_min: u64,
}

impl Trim {
    /// The part of a run that is to be told.
    fn part(&self, run: Run) -> Option<Run> {
        let start = run.start.max(self.range.start);
        let len = run.end().min(self.range.end).saturating_sub(start);
        (len >= self.bytes_min.max(1)).then_some(Run { start, len })
    }
}

impl Engine {
    /// Tells the devices what a transaction freed that is durable now, and that nobody can allocate yet.
    pub(super) fn discard_pinned(&self, pinned: &Pinned) {
        for run in pinned.runs() {
            // Advice: what is not taken only keeps room on the host.
            let _ = self.pool().discard(Logical(run.start), run.len);
        }
    }

    /// Gives space that nothing refers to, in no state that a crash could bring back, to what holds
    /// the devices. Returns the bytes.
    pub(super) fn discard_free(&self) -> u64 {
        let discard = |run: Run| self.pool().discard(Logical(run.start), run.len).is_ok();
        self.space.all_groups().iter().map(|group| group.discard_free(discard)).sum()
    }

    /// Tells the devices all that is free, and shows `watch` how many bytes were looked at, of how many. Returns the
    /// bytes that were told, each once however many copies there are.
    pub(crate) fn trim(&self, wanted: &Trim, watch: &mut dyn FnMut(u64, u64)) -> Result<u64> {
        self.health.check()?;
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.agree_on_superblock()?;
        let groups = self.space.all_groups();
        let all: u64 = groups.iter().map(|group| group.range().len).fold(0, u64::saturating_add);
        let (mut seen, mut told) = (0_u64, 0_u64);
        for group in groups {
            if !group.is_read_only() {
                // No commit changes the trees meanwhile.
                let serial = self.gate.serialize();
                self.load_group(&group)?;
                drop(serial);
                told = told.saturating_add(self.trim_group(&group, wanted)?);
            }
            seen = seen.saturating_add(group.range().len);
            watch(seen, all);
        }
        let size = self.pool().devices().iter().map(|device| device.total_bytes()).fold(0, u64::saturating_add);
        if wanted.range.start >= size {
            return Ok(told);
        }
        Ok(told.saturating_add(self.trim_unallocated(wanted.bytes_min)?))
    }

    /// What is free is what this superblock does not lead to: every copy says the same before anything is told. One
    /// that a crash left behind, or that was passed over by an open that asked for another, would lead to nothing.
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
        let mut told = 0_u64;
        let mut from = wanted.range.start;
        while from < wanted.range.end {
            let next = group.for_some_free(from, |run| {
                if let Some(part) = wanted.part(run) {
                    self.pool().discard(Logical(part.start), part.len)?;
                    told = told.saturating_add(part.len);
                }
                Ok(())
            })?;
            let Some(next) = next else { break };
            from = next;
        }
        Ok(told)
    }

    /// Tells what no chunk has. Chunks are never given back, so what has none has none in any state of the volume.
    fn trim_unallocated(&self, bytes_min: u64) -> Result<u64> {
        // Nobody makes a chunk there meanwhile.
        let _one = self.space.lock_growth();
        let mut told = 0_u64;
        for device in self.pool().devices() {
            let runs = self.space.unallocated_runs(device.id());
            for run in runs.into_iter().filter(|run| run.len >= bytes_min.max(1)) {
                device.device().discard(run.start, run.len)?;
                told = told.saturating_add(run.len);
            }
        }
        Ok(told)
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
