//! Compares extent items with the references that trees hold, in both directions: the extent pass. Called by `sweep`.

use std::collections::BTreeSet;

use btrfs_disk::TreeId;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::items::STRIPE_LEN;

use crate::code::Code;
use crate::collect::Facts;
use crate::context::Context;
use crate::finding::Place;
use crate::records::{About, ExtentRecord, Item, NO_LEVEL, Ref, Side, decode, tree_number};

/// Wrong references of one extent that are reported one by one.
const WRONG_MAX: usize = 16;

/// An extent that has an item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) is_data: bool,
    /// A reference of a tree, for the report.
    pub(crate) holder: Option<Ref>,
}

impl Extent {
    pub(crate) fn end(&self) -> u64 {
        self.at.saturating_add(self.len)
    }
}

/// Compares records in order.
pub(crate) struct Extents<'a> {
    cx: &'a Context<'a>,
    now: Option<Current>,
    /// Where the extents so far end.
    end: u64,
    /// Subvolumes that a balance is moving: it exchanges blocks with a tree of its own, so that for a
    /// while only that tree refers to some of theirs.
    relocated: BTreeSet<u64>,
}

#[derive(Default)]
struct Current {
    at: u64,
    item: Option<Item>,
    block: Option<(u64, u64, u64)>,
    /// The reference of the present records, and its counts on each side.
    open: Option<(Ref, u64, u64)>,
    wrong: Vec<(Ref, u64, u64)>,
    listed: u64,
    walked: u64,
    /// The length of the extent in file extents, where it differs from the item.
    other_len: Option<(Ref, u64)>,
    holder: Option<Ref>,
    owner_refers: bool,
}

impl<'a> Extents<'a> {
    pub(crate) fn new(cx: &'a Context<'a>, facts: &Facts) -> Self {
        let trees = facts.roots.iter().filter(|(key, _)| TreeId(key.objectid) == TreeId::TREE_RELOC);
        Self { cx, now: None, end: 0, relocated: trees.map(|(key, _)| key.offset).collect() }
    }

    pub(crate) fn record(&mut self, record: &ExtentRecord, each: &mut impl FnMut(&Extent)) {
        let at = record[0];
        if self.now.as_ref().is_none_or(|now| now.at != at) {
            self.close(each);
            self.now = Some(Current { at, ..Current::default() });
        }
        let end = self.end;
        let Some(now) = &mut self.now else { return };
        match decode(record) {
            About::Item(item) => {
                if now.item.replace(item).is_some() || at < end {
                    let expected = format!("an extent from {} on", end.max(at));
                    self.cx.findings.add(Code::ExtentOverlap, Place::logical(at), expected, at);
                }
            }
            About::Block { level, owner, generation } => now.block = Some((level, owner, generation)),
            About::Ref { to, side } => now.reference(to, side),
        }
    }

    pub(crate) fn end(&mut self, each: &mut impl FnMut(&Extent)) {
        self.close(each);
    }

    fn close(&mut self, each: &mut impl FnMut(&Extent)) {
        let Some(mut now) = self.now.take() else { return };
        now.close_ref();
        if let Some(item) = now.item {
            let extent = Extent { at: now.at, len: item.len, is_data: item.is_data, holder: now.holder };
            self.end = self.end.max(extent.end());
            each(&extent);
        }
        if self.cx.lost.has_extents() {
            return;
        }
        match now.item {
            Some(item) => self.compare(&now, &item),
            None => self.without_item(&now),
        }
    }

    fn without_item(&self, now: &Current) {
        if now.walked > 0 {
            let what = if now.block.is_some() { "an extent item of a tree block" } else { "an extent item of data" };
            let found = now.holder.map_or_else(|| "none".to_owned(), |holder| format!("none; there is a use {holder}"));
            self.cx.findings.add(Code::ExtentMissing, now.place(now.holder), what, found);
        } else if now.listed > 0 {
            let found = format!("{} references without an extent item", now.listed);
            self.cx.findings.add(Code::ExtentRefExtra, now.place(None), "an extent item", found);
        }
    }

    fn compare(&self, now: &Current, item: &Item) {
        let findings = &self.cx.findings;
        if item.refs != now.listed {
            findings.add(Code::ExtentRefTotal, now.place(None), now.listed, item.refs);
        }
        self.group(now, item);
        let last = now.at.saturating_add(item.len).saturating_sub(1);
        if !item.is_data && now.at / STRIPE_LEN != last / STRIPE_LEN {
            let found = format!("{}..={last}", now.at);
            findings.add(Code::ExtentStripe, now.place(None), format!("one stripe of {STRIPE_LEN} bytes"), found);
        }
        if now.walked == 0 {
            if !self.cx.lost.has_files() {
                let found = format!("{} references to {} bytes", item.refs, item.len);
                findings.add(Code::ExtentUnreferenced, now.place(None), "a use", found);
            }
            return;
        }
        for (to, listed, walked) in &now.wrong {
            let place = now.place(Some(*to));
            match (*listed, *walked) {
                (0, _) => findings.add(Code::ExtentRefMissing, place, format!("a reference {to}"), "none"),
                _ if self.cx.lost.has_files() => {}
                (_, 0) => findings.add(Code::ExtentRefExtra, place, "no such reference", format!("one {to}")),
                (listed, walked) => {
                    findings.add(Code::ExtentRefCount, place, format!("{walked} {to}"), format!("{listed}"));
                }
            }
        }
        if let Some((level, owner, generation)) = now.block {
            self.block(now, item, (level, owner, generation));
        } else if !item.is_data && now.holder.is_some_and(Ref::is_data) {
            findings.add(Code::ExtentKind, now.place(now.holder), "data", "a tree block");
        }
        if let Some((to, len)) = now.other_len.filter(|(_, len)| *len != item.len) {
            findings.add(Code::ExtentLength, now.place(Some(to)), item.len, len);
        }
    }

    fn block(&self, now: &Current, item: &Item, (level, owner, generation): (u64, u64, u64)) {
        let findings = &self.cx.findings;
        let place = now.place(None).of_tree(owner);
        if item.is_data {
            findings.add(Code::ExtentKind, place, "a tree block", "data");
            return;
        }
        if item.level != NO_LEVEL && item.level != level {
            findings.add(Code::ExtentLevel, place.clone(), level, item.level);
        }
        if item.generation != generation {
            findings.add(Code::ExtentGeneration, place.clone(), generation, item.generation);
        }
        if !item.is_full && !now.owner_refers && !self.relocated.contains(&owner) && !self.cx.lost.has_files() {
            let expected = format!("a reference from tree {owner}, or full back references");
            findings.add(Code::ExtentOwner, place, expected, "neither");
        }
    }

    /// Checks that an extent lies in one chunk, of its block group.
    fn group(&self, now: &Current, item: &Item) {
        let findings = &self.cx.findings;
        let Some(chunk) = self.cx.media.chunk(now.at, item.len) else {
            let found = format!("{}..{}", now.at, now.at.saturating_add(item.len));
            findings.add(Code::ExtentOutside, now.place(None), "a range inside one block group", found);
            return;
        };
        let flags = chunk.flags();
        let fits = if item.is_data {
            flags.contains(BlockGroupFlags::DATA)
        } else {
            flags.intersects(BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM)
        };
        if !fits {
            let kind = if item.is_data { "data" } else { "metadata" };
            findings.add(Code::ExtentGroupKind, now.place(None), format!("a block group for {kind}"), flags);
        }
    }
}

impl Current {
    fn reference(&mut self, to: Ref, side: Side) {
        if self.open.is_none_or(|(open, _, _)| open != to) {
            self.close_ref();
            self.open = Some((to, 0, 0));
        }
        let Some((_, listed, walked)) = &mut self.open else { return };
        match side {
            Side::Extent(count) => *listed = listed.saturating_add(count),
            Side::Walked(len) => {
                *walked = walked.saturating_add(1);
                self.holder.get_or_insert(to);
                if to.is_data() && self.item.is_some_and(|item| item.len != len) {
                    self.other_len = Some((to, len));
                }
                self.owner_refers |= matches!((to, self.block), (Ref::Tree(root), Some((_, owner, _)))
                    if tree_number(root) == owner);
            }
        }
    }

    fn close_ref(&mut self) {
        let Some((to, listed, walked)) = self.open.take() else { return };
        self.listed = self.listed.saturating_add(listed);
        self.walked = self.walked.saturating_add(walked);
        if listed != walked && self.wrong.len() < WRONG_MAX {
            self.wrong.push((to, listed, walked));
        }
    }

    fn place(&self, to: Option<Ref>) -> Place {
        let place = Place::logical(self.at);
        match to {
            Some(Ref::Data(root, inode, _)) => Place { tree: Some(tree_number(root)), inode: Some(inode), ..place },
            Some(Ref::Tree(root)) => place.of_tree(tree_number(root)),
            _ => place,
        }
    }
}
