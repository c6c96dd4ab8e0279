//! Plans dirty runs: inline, in place, or to new space. A pure decision. Called by `job` and `direct_write`.

use btrfs_disk::convert::{to_u64, to_usize};
use vfs::Run;

use crate::extents::FileExtent;

/// Largest extent of data in bytes (`BTRFS_MAX_EXTENT_SIZE`).
pub(crate) const EXTENT_BYTES_MAX: u64 = 128 << 20;
/// Bytes of a leaf beside the data of an inline extent: header, item, and the extent's own head.
const INLINE_OVERHEAD_BYTES: u32 = 101 + 25 + 21;

/// The parameters of the decision besides the runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) size: u64,
    /// Largest inline file, see [`max_inline`]; 0 where nothing may be inline.
    pub(super) max_inline: u64,
    pub(super) sector: u64,
}

/// The decision about some dirty bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The file's `len` bytes go into its item.
    Inline { len: u64 },
    /// The run gets new space on disk.
    Allocate(Run),
    /// The run overwrites its bytes in `old`, which covers it.
    InPlace { run: Run, old: FileExtent },
}

impl Step {
    fn len(&self) -> u64 {
        match self {
            Self::Inline { len } => *len,
            Self::Allocate(run) | Self::InPlace { run, .. } => run.len,
        }
    }
}

/// The largest file that may be inline: less than a sector, and it must fit a leaf.
pub(super) fn max_inline(option: u32, node: u32, sector: u32) -> u64 {
    u64::from(option.min(sector.saturating_sub(1)).min(node.saturating_sub(INLINE_OVERHEAD_BYTES)))
}

/// The steps for `runs`, in file order. `in_place` are the extents, in file order, that may
/// be overwritten on disk.
pub(super) fn plan(request: Request, runs: &[Run], in_place: &[FileExtent]) -> Vec<Step> {
    let Request { size, max_inline, sector } = request;
    let is_first_sector = |run: &Run| (run.start, run.len) == (0, sector);
    if let [run] = runs
        && (1..=max_inline).contains(&size)
        && is_first_sector(run)
    {
        return vec![Step::Inline { len: size }];
    }
    let mut steps = Vec::with_capacity(runs.len());
    for run in runs {
        let mut at = run.start;
        let first = in_place.partition_point(|old| old.end() <= at);
        for old in in_place.iter().skip(first).take_while(|old| old.start < run.end()) {
            let (from, to) = (old.start.max(at), old.end().min(run.end()));
            allocate(&mut steps, at, from);
            steps.push(Step::InPlace { run: Run { start: from, len: to - from }, old: *old });
            at = to;
        }
        allocate(&mut steps, at, run.end());
    }
    debug_assert!(
        steps.iter().map(Step::len).sum::<u64>() == runs.iter().map(|run| run.len).sum(),
        "every dirty byte has one place"
    );
    steps
}

fn allocate(steps: &mut Vec<Step>, start: u64, end: u64) {
    let count = to_usize(end.saturating_sub(start).div_ceil(EXTENT_BYTES_MAX));
    steps.extend((0..count).map(|index| {
        let start = start + to_u64(index) * EXTENT_BYTES_MAX;
        Step::Allocate(Run { start, len: (end - start).min(EXTENT_BYTES_MAX) })
    }));
}

#[cfg(test)]
mod tests {
    use btrfs_disk::Logical;

    use super::*;
    use crate::extents::Kind;

    const K: u64 = 4096;

    fn run(start: u64, len: u64) -> Run {
        Run { start: start * K, len: len * K }
    }

    fn request(size: u64) -> Request {
        Request { size, max_inline: max_inline(2048, 16384, 4096), sector: K }
    }

    #[test]
    fn small_files_go_inline() {
        assert_eq!(plan(request(2048), &[run(0, 1)], &[]), [Step::Inline { len: 2048 }]);
        for (size, runs) in [(2049, vec![run(0, 1)]), (100, vec![run(1, 1)]), (0, vec![run(0, 1)])] {
            let steps = plan(request(size), &runs, &[]);
            assert!(matches!(steps.as_slice(), [Step::Allocate(_)]), "{size}");
        }
        assert_eq!(max_inline(8192, 16384, 4096), 4095);
        assert_eq!(max_inline(8192, 4096, 4096), 3949);
    }

    #[test]
    fn long_runs_are_cut_at_the_largest_extent() {
        let steps = plan(request(1 << 40), &[Run { start: K, len: EXTENT_BYTES_MAX * 2 + K }], &[]);
        let lens: Vec<u64> =
            steps.iter().map(|step| if let Step::Allocate(run) = step { run.len } else { 0 }).collect();
        assert_eq!(lens, [EXTENT_BYTES_MAX, EXTENT_BYTES_MAX, K]);
    }

    #[test]
    fn runs_are_split_where_old_extents_are_reused() {
        let old = FileExtent::whole(2 * K, Kind::Prealloc, Logical(1 << 20), 2 * K);
        let far = FileExtent::whole(20 * K, Kind::Prealloc, Logical(1 << 21), 2 * K);
        let steps = plan(request(1 << 20), &[run(0, 8), run(21, 4)], &[old, far]);
        assert_eq!(
            steps,
            [
                Step::Allocate(run(0, 2)),
                Step::InPlace { run: run(2, 2), old },
                Step::Allocate(run(4, 4)),
                Step::InPlace { run: run(21, 1), old: far },
                Step::Allocate(run(22, 3)),
            ]
        );
    }
}
