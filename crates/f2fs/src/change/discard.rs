//! Discards free blocks: those freed by each checkpoint, if the volume is opened for that, and all of them for a trim.
//! Called by `commit`, and by `vfs_impl/file_system` for a trim.
//!
//! Only blocks are discarded that neither the last checkpoint, which is durable, nor a later fsync refers to, so no
//! state after a crash reads them. The caller holds the volume's lock, so no block is allocated meanwhile.
//!
//! Failure: after a checkpoint it is ignored, since nothing depends on it; [`trim_some`] reports it.

#![expect(clippy::arithmetic_side_effects, reason = "addresses of blocks within the main area")]

use f2fs_disk::{BLOCK_SIZE, BlockAddr};
use vfs::Trim;

use crate::error::Result;
use crate::segments::FreeRun;
use crate::space::Space;

/// Runs of free blocks that are discarded at a time; changes of the volume wait that long.
const RUNS_AT_ONCE: usize = 64;

/// Progress of a trim.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trimmed {
    /// Examined blocks of the main area.
    pub(crate) seen: u32,
    /// Blocks of the main area.
    pub(crate) all: u32,
    /// Discarded bytes.
    pub(crate) bytes: u64,
}

/// Discards blocks freed by a checkpoint that is durable now.
pub(super) fn freed(space: &Space, freed: &[FreeRun]) {
    for run in freed {
        // Without it the blocks only keep taking space on the host.
        let _ = space.blocks.discard(address_of(space, *run), run.count);
    }
}

/// Discards some more free blocks, from the end of the last call; before the first one the caller has made all changes
/// durable. Returns `false` at the end.
///
/// # Errors
/// The device's error.
pub(crate) fn trim_some(space: &Space, wanted: &Trim, done: &mut Trimmed) -> Result<bool> {
    let segments = &space.segments;
    done.all = segments.block_count();
    for _ in 0..RUNS_AT_ONCE {
        let Some(run) = segments.free_run(done.seen) else {
            done.seen = done.all;
            return Ok(false);
        };
        done.seen = run.end();
        if let Some(part) = part_of(run, space.geometry.main, wanted) {
            space.blocks.discard(address_of(space, part), part.count)?;
            done.bytes += u64::from(part.count) * f2fs_disk::convert::to_u64(BLOCK_SIZE);
        }
    }
    Ok(done.seen < done.all)
}

fn address_of(space: &Space, run: FreeRun) -> BlockAddr {
    space.geometry.main.plus(run.start)
}

/// The part of a run to be discarded: whole blocks.
fn part_of(run: FreeRun, main: BlockAddr, wanted: &Trim) -> Option<FreeRun> {
    let block_bytes = f2fs_disk::convert::to_u64(BLOCK_SIZE);
    let block = |byte: u64| u32::try_from((byte / block_bytes).saturating_sub(u64::from(main.0))).unwrap_or(u32::MAX);
    let start = run.start.max(block(wanted.range.start.saturating_add(block_bytes - 1)));
    let count = run.end().min(block(wanted.range.end)).checked_sub(start).filter(|count| *count > 0)?;
    (u64::from(count) * block_bytes >= wanted.bytes_min).then_some(FreeRun { start, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_to_what_is_wanted() {
        const MAIN: u32 = 1000;
        let part = |range: std::ops::Range<u64>, bytes_min, start, count| {
            let wanted = Trim { range, bytes_min };
            part_of(FreeRun { start, count }, BlockAddr(MAIN), &wanted).map(|run| (run.start, run.count))
        };
        let byte = |block: u64| (u64::from(MAIN) + block) * 4096;
        assert_eq!(part(0..u64::MAX, 0, 5, 10), Some((5, 10)));
        assert_eq!(part(byte(7)..byte(9), 0, 5, 10), Some((7, 2)));
        assert_eq!(part(byte(7) - 1..byte(9) + 4095, 8192, 5, 10), Some((7, 2)), "whole blocks alone");
        assert_eq!(part(byte(7)..byte(9), 8193, 5, 10), None);
        assert_eq!(part(byte(15)..u64::MAX, 0, 5, 10), None);
        assert_eq!(part(0..byte(0), 0, 5, 10), None);
    }
}
