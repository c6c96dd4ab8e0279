//! Records the changes of a block group since its items were written, and the device ranges of removed chunks. Filled
//! by `group`, taken by the commit.

use super::free_map::Run;

/// The state of the device ranges of a removed chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Free for the next chunk.
    Free,
    /// Held for views of an earlier state until [`super::Space::give_places`].
    Held,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) run: Run,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Allocated,
    Freed,
}

/// The net changes of one group, for the free-space tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupChanges {
    /// The group.
    pub(crate) group: Run,
    /// No longer free; ascending, disjoint, not touching.
    pub(crate) allocated: Vec<Run>,
    /// Free now; likewise.
    pub(crate) freed: Vec<Run>,
}

/// Bytes of runs.
pub(super) fn bytes_of(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.len).sum()
}

/// Ascending runs with touching ones joined.
pub(super) fn coalesced(runs: &[Run]) -> impl Iterator<Item = Run> + '_ {
    let mut rest = runs;
    std::iter::from_fn(move || {
        let (first, mut after) = rest.split_first()?;
        let mut run = *first;
        while let Some((next, behind)) = after.split_first()
            && next.start == run.end()
        {
            run.len += next.len;
            after = behind;
        }
        rest = after;
        Some(run)
    })
}

/// Sums up changes in the order they were made: an allocation and a free of the same range cancel. Extents come and go
/// as a whole, so only equal ranges can meet.
pub(super) fn net(mut changes: Vec<Change>) -> (Vec<Run>, Vec<Run>) {
    changes.sort_by_key(|change| change.run);
    let (mut allocated, mut freed) = (Vec::new(), Vec::new());
    for same in changes.chunk_by(|a, b| a.run == b.run) {
        // Of changes to one range, which alternate, the last decides unless they cancel.
        if same.len().is_multiple_of(2) {
            continue;
        }
        match same.last() {
            Some(Change { what: What::Allocated, run }) => allocated.push(*run),
            Some(Change { what: What::Freed, run }) => freed.push(*run),
            None => {}
        }
    }
    (coalesced(&allocated).collect(), coalesced(&freed).collect())
}
