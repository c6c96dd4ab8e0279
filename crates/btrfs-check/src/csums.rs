//! Compares checksum items with file extents: each range of data that must have checksums has them, and no other has
//! (the checksum pass). Called by `sweep` and `run`; the file pass records the needs.

use std::io;

use crate::code::Code;
use crate::context::Context;
use crate::finding::Place;
use crate::sort::{Iter, Sorted, Sorter, lock};
use crate::space::without;

/// Ranges of data that have to have checksums: start, end, tree, inode.
pub(crate) type Needs = Sorter<4>;

/// Checks that all data is covered that must be.
///
/// # Errors
/// The host's, where records did not fit into memory.
pub(crate) fn coverage(cx: &Context<'_>, needs: Needs, csums: &Sorted<2>) -> io::Result<()> {
    if cx.lost.has_system() {
        cx.note("csums: not compared, as tree blocks are lost");
        return Ok(());
    }
    let needs = needs.finish()?;
    let mut last_end = 0;
    for [start, end] in csums.iter() {
        if start < last_end {
            cx.findings.add(Code::CsumOverlap, Place::logical(start), format!("a start from {last_end} on"), start);
        }
        last_end = end.max(last_end);
    }
    uncovered(cx, needs.iter(), csums, Code::CsumMissing);
    let (of_log, brought) = {
        let mut log = lock(&cx.log);
        (std::mem::take(&mut log.needs), std::mem::take(&mut log.csums))
    };
    let of_log = apart(of_log);
    let ranges: Vec<(u64, u64)> = of_log.iter().map(|[start, end, ..]| (*start, *end)).collect();
    // The uncovered parts of disjoint ranges lie each inside of one, in the same order.
    let mut whole = of_log.iter().peekable();
    let left = without(&ranges, &brought).into_iter().filter_map(|(start, end)| {
        while whole.next_if(|[_, behind, ..]| *behind <= start).is_some() {}
        whole.peek().map(|[_, _, tree, inode]| [start, end, *tree, *inode])
    });
    uncovered(cx, left, csums, Code::LogCsum);
    Ok(())
}

/// Disjoint ranges in order, overlapping ones joined to the first of them: a damaged log may claim any range
/// repeatedly.
fn apart(mut ranges: Vec<[u64; 4]>) -> Vec<[u64; 4]> {
    ranges.sort_unstable();
    let mut apart: Vec<[u64; 4]> = Vec::new();
    for range in ranges {
        match apart.last_mut() {
            Some(last) if range[0] < last[1] => last[1] = last[1].max(range[1]),
            _ => apart.push(range),
        }
    }
    apart
}

/// Reports the ranges that have no checksums; they come in order.
fn uncovered(cx: &Context<'_>, needs: impl Iterator<Item = [u64; 4]>, csums: &Sorted<2>, code: Code) {
    let mut runs = csums.iter().peekable();
    let mut run = (0, 0);
    let mut known = (0, 0);
    for [start, end, tree, inode] in needs {
        while run.1 <= start || runs.peek().is_some_and(|[next, _]| *next <= run.1) {
            let Some([next, behind]) = runs.next() else { break };
            run = if next <= run.1 && run.1 != 0 { (run.0, behind.max(run.1)) } else { (next, behind) };
        }
        let is_covered = run.0 <= start && end <= run.1;
        if !is_covered && known != (start, end) {
            known = (start, end);
            let place = Place::inode(tree, inode).at(start);
            let found = if run.0 <= start && start < run.1 { "checksums for a part" } else { "none" };
            cx.findings.add(code, place, format!("checksums for {} bytes", end - start), found);
        }
    }
}

/// Finds checksums without a data extent; takes data extents in order.
pub(crate) struct Orphans<'a> {
    cx: &'a Context<'a>,
    csums: Iter<'a, 2>,
    /// The part of a range without an extent so far.
    now: Option<(u64, u64)>,
    found: Vec<(u64, u64)>,
}

/// Ranges that are kept to be reported.
const FOUND_MAX: usize = 1000;

impl<'a> Orphans<'a> {
    pub(crate) fn new(cx: &'a Context<'a>, csums: &'a Sorted<2>) -> Self {
        let mut csums = csums.iter();
        let now = csums.next().map(|[start, end]| (start, end));
        Self { cx, csums, now, found: Vec::new() }
    }

    pub(crate) fn data(&mut self, at: u64, end: u64) {
        while let Some((start, stop)) = self.now.filter(|(start, _)| *start < end) {
            if start < at {
                self.orphan(start, stop.min(at));
            }
            if stop <= end {
                self.now = self.csums.next().map(|[start, end]| (start, end));
            } else {
                self.now = Some((end, stop));
            }
        }
    }

    pub(crate) fn end(&mut self) {
        while let Some((start, stop)) = self.now {
            self.orphan(start, stop);
            self.now = self.csums.next().map(|[start, end]| (start, end));
        }
        // An fsync writes data and checksums before a commit has the extent.
        let of_log: Vec<(u64, u64)> =
            lock(&self.cx.log).extents.iter().map(|[start, end, ..]| (*start, *end)).collect();
        for (start, stop) in without(&self.found, &of_log) {
            let found = format!("checksums for {} bytes", stop.saturating_sub(start));
            self.cx.findings.add(Code::CsumOrphan, Place::logical(start), "none: no data extent is there", found);
        }
    }

    fn orphan(&mut self, start: u64, stop: u64) {
        if let Some((_, end)) = self.found.last_mut().filter(|(_, end)| *end == start) {
            *end = stop;
        } else if self.found.len() < FOUND_MAX {
            self.found.push((start, stop));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_overlap_are_one_of_the_first() {
        let ranges = vec![[8, 20, 1, 3], [0, 4, 1, 2], [4, 8, 1, 2], [10, 12, 1, 4], [19, 30, 1, 5]];
        assert_eq!(apart(ranges), [[0, 4, 1, 2], [4, 8, 1, 2], [8, 30, 1, 3]]);
    }
}
