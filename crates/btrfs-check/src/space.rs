//! Compares free space and usage of block groups with the existing extents: the space pass. Called by `sweep`.

use std::iter::Peekable;

use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::CompatRo;
use btrfs_disk::items::BlockGroupItem;

use crate::code::Code;
use crate::collect::{FREE_BITS, FREE_INFO, Facts};
use crate::context::Context;
use crate::extents::Extent;
use crate::finding::Place;
use crate::sort::{Iter, Sorted};

/// Takes extents in order, and compares each block group at its end.
pub(crate) struct Space<'a> {
    cx: &'a Context<'a>,
    groups: std::collections::btree_map::Iter<'a, u64, (u64, BlockGroupItem)>,
    now: Option<Group>,
    free: Peekable<Iter<'a, 4>>,
    has_tree: bool,
    /// Groups of the free-space tree without a block group.
    stale: u64,
    /// Bytes of all extents.
    used: u64,
    /// Used bytes according to all block groups.
    said: u64,
}

struct Group {
    start: u64,
    len: u64,
    said: u64,
    used: u64,
    /// Behind the last extent.
    at: u64,
    /// Free ranges between the extents.
    free: Vec<(u64, u64)>,
}

impl<'a> Space<'a> {
    pub(crate) fn new(cx: &'a Context<'a>, facts: &'a Facts, free: &'a Sorted<4>) -> Self {
        let valid = CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID;
        let has_tree = cx.fields.compat_ro().contains(valid) && !cx.lost.has_system();
        if !cx.fields.compat_ro().contains(valid) {
            cx.note("space: there is no free-space tree; a free space cache in files is not looked at");
        }
        let free = free.iter().peekable();
        let said = facts.groups.values().fold(0u64, |sum, (_, item)| sum.saturating_add(item.used.get()));
        Self { cx, groups: facts.groups.iter(), now: None, free, has_tree, stale: 0, used: 0, said }
    }

    pub(crate) fn extent(&mut self, extent: &Extent) {
        while self.now.as_ref().is_none_or(|group| group.end() <= extent.at) {
            if !self.next_group() {
                return;
            }
        }
        let Some(group) = &mut self.now else { return };
        if extent.at < group.start {
            return;
        }
        let end = extent.end().min(group.end());
        if extent.at > group.at {
            group.free.push((group.at, extent.at));
        }
        group.used = group.used.saturating_add(end.saturating_sub(extent.at));
        group.at = group.at.max(end);
    }

    pub(crate) fn end(&mut self) {
        while self.next_group() {}
        if self.has_tree {
            self.stale += to_u64(self.free.by_ref().filter(|[_, kind, ..]| *kind == FREE_INFO).count());
        }
        if self.stale > 0 {
            self.cx.note(format!(
                "space: the free-space tree has {} entries for block groups that do not exist; mkfs.btrfs up to 6.2 \
                 leaves such, and nothing reads them",
                self.stale
            ));
        }
        if self.cx.fields.bytes_used.get() != self.said {
            self.cx.findings.add(Code::SuperUsed, Place::default(), self.said, self.cx.fields.bytes_used);
        }
    }

    fn next_group(&mut self) -> bool {
        if let Some(group) = self.now.take() {
            self.close(group);
        }
        let Some((start, (len, item))) = self.groups.next() else { return false };
        let said = item.used.get();
        self.now = Some(Group { start: *start, len: *len, said, used: 0, at: *start, free: Vec::new() });
        true
    }

    fn close(&mut self, mut group: Group) {
        self.used = self.used.saturating_add(group.used);
        if group.used != group.said {
            self.cx.findings.add(Code::GroupUsed, Place::logical(group.start), group.used, group.said);
        }
        if group.at < group.end() {
            group.free.push((group.at, group.end()));
        }
        if self.has_tree {
            self.compare(&group);
        }
    }

    fn compare(&mut self, group: &Group) {
        // Entries for space outside of block groups are harmless: mkfs.btrfs up to 6.2 leaves them for the groups it
        // begins with, and the kernel ignores them.
        while let Some([_, kind, ..]) = self.free.next_if(|[start, ..]| *start < group.start) {
            self.stale += u64::from(kind == FREE_INFO);
        }
        let findings = &self.cx.findings;
        let place = Place::logical(group.start);
        let Some([_, _, len, more]) = self.free.next_if(|[at, kind, ..]| *at == group.start && *kind == FREE_INFO)
        else {
            findings.add(Code::FreeSpaceGroup, place, "an entry for the block group", "none");
            return;
        };
        if len != group.len {
            findings.add(Code::FreeSpaceGroup, place.clone(), group.len, len);
        }
        let (count, uses_bitmaps) = (more >> 1, more & 1 == 1);
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut has_other_form = false;
        while let Some([at, kind, len, _]) = self.free.next_if(|[at, ..]| *at < group.end()) {
            if kind == FREE_INFO {
                continue;
            }
            has_other_form |= (kind == FREE_BITS) != uses_bitmaps;
            let end = at.saturating_add(len);
            match ranges.last_mut() {
                Some((_, last)) if *last == at => *last = end,
                _ => ranges.push((at, end)),
            }
        }
        let findings = &self.cx.findings;
        if has_other_form {
            let form = |bits| if bits { "bitmaps" } else { "extents" };
            findings.add(Code::FreeSpaceForm, place.clone(), form(uses_bitmaps), form(!uses_bitmaps));
        }
        if count != to_u64(ranges.len()) {
            findings.add(Code::FreeSpaceCount, place, ranges.len(), count);
        }
        let (missing, used) = (without(&group.free, &ranges), without(&ranges, &group.free));
        for (at, end) in missing {
            findings.add(Code::FreeSpaceMissing, Place::logical(at), format!("{} bytes free", end - at), "not listed");
        }
        for (at, end) in used {
            findings.add(Code::FreeSpaceUsed, Place::logical(at), "space in use", format!("{} bytes free", end - at));
        }
    }
}

impl Group {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

/// The parts of the ranges `all` that no range of `minus` covers.
pub(crate) fn without(all: &[(u64, u64)], minus: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut sorted = minus.to_vec();
    sorted.sort_unstable();
    let mut covered: Vec<(u64, u64)> = Vec::new();
    for (start, end) in sorted {
        match covered.last_mut() {
            Some((_, last)) if *last >= start => *last = end.max(*last),
            _ => covered.push((start, end)),
        }
    }
    let mut left = Vec::new();
    for (start, end) in all {
        let mut at = *start;
        let first = covered.partition_point(|(_, end)| *end <= at);
        for (from, to) in covered.iter().skip(first).take_while(|(from, _)| from < end) {
            if *from > at {
                left.push((at, *from));
            }
            at = at.max(*to);
        }
        if at < *end {
            left.push((at, *end));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_subtracted() {
        assert_eq!(without(&[(0, 10)], &[(2, 4), (6, 12)]), [(0, 2), (4, 6)]);
        assert_eq!(without(&[(5, 10)], &[(0, 7)]), [(7, 10)]);
        assert_eq!(without(&[(5, 10)], &[(0, 20)]), []);
        assert_eq!(without(&[(0, 4), (8, 9)], &[]), [(0, 4), (8, 9)]);
        assert_eq!(without(&[(8, 20)], &[(12, 14), (0, 16), (2, 4)]), [(16, 20)]);
    }
}
