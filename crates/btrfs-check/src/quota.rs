//! Compares the numbers of quota groups with the extents that their subvolumes reach: the quota pass. Called by `run`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use btrfs_disk::flags::QgroupStatusFlags;
use btrfs_disk::{QgroupId, TreeId};

use crate::code::Code;
use crate::collect::{Collected, Facts};
use crate::context::Context;
use crate::finding::Place;

/// Compares the numbers, where quotas are on and claim to be right.
pub(crate) fn check(cx: &Context<'_>, collected: &mut Collected) {
    let facts = &collected.facts;
    let Some(status) = &facts.quota_status else { return };
    let flags = status.status_flags();
    if !flags.contains(QgroupStatusFlags::ON) {
        return;
    }
    relations(cx, facts);
    for (key, item) in &facts.roots {
        let tree = TreeId(key.objectid);
        if tree.is_subvolume() && item.refs.get() > 0 && !facts.quotas.contains_key(&tree.0) {
            cx.findings.add(Code::QuotaMissing, Place::tree(tree.0), QgroupId::of(tree), "none");
        }
    }
    let is_dying = |key: &btrfs_disk::Key| TreeId(key.objectid).is_subvolume();
    let why = if flags.intersects(QgroupStatusFlags::INCONSISTENT | QgroupStatusFlags::RESCAN) {
        "the file system itself says that they are not right"
    } else if flags.contains(QgroupStatusFlags::SIMPLE_MODE) {
        "simple quotas are not counted"
    } else if facts.roots.iter().any(|(key, item)| is_dying(key) && item.refs.get() == 0) {
        "a subvolume is being deleted"
    } else if cx.lost.has_files() || cx.lost.has_extents() {
        "tree blocks are lost"
    } else {
        return numbers(cx, collected);
    };
    cx.note(format!("quota: numbers were not compared: {why}"));
}

fn relations(cx: &Context<'_>, facts: &Facts) {
    let known: BTreeSet<(u64, u64)> = facts.quota_relations.iter().copied().collect();
    for (a, b) in &known {
        if !known.contains(&(*b, *a)) {
            let expected = format!("a relation of {} and {}", QgroupId(*b), QgroupId(*a));
            cx.findings.add(Code::QuotaRelation, Place::tree(TreeId::QUOTA.0), expected, "only the other side");
        }
    }
}

fn numbers(cx: &Context<'_>, collected: &mut Collected) {
    let mut bytes: HashMap<u32, u64> = std::mem::take(&mut collected.set_bytes);
    let mut now: Option<(u64, u64, u32)> = None;
    let mut add = |extent: Option<(u64, u64, u32)>| {
        if let Some((_, len, set)) = extent {
            let sum = bytes.entry(set).or_default();
            *sum = sum.saturating_add(len);
        }
    };
    for [at, len, set] in collected.holders.iter() {
        let set = u32::try_from(set).unwrap_or(0);
        match &mut now {
            Some((open, _, union)) if *open == at => *union = collected.sets.union([*union, set].into_iter()),
            other => add(other.replace((at, len, set))),
        }
    }
    add(now);
    let sets: Vec<(Vec<u64>, u64)> = bytes.into_iter().map(|(set, bytes)| (collected.sets.of(set), bytes)).collect();
    let facts = &collected.facts;
    let mut below: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (a, b) in &facts.quota_relations {
        if QgroupId(*a).level() < QgroupId(*b).level() {
            below.entry(*b).or_default().push(*a);
        }
    }
    for (group, (referenced, exclusive)) in &facts.quotas {
        let members = members(*group, &below);
        let (mut all, mut alone) = (0u64, 0u64);
        for (set, bytes) in &sets {
            let inside = set.iter().filter(|tree| members.contains(tree)).count();
            if inside > 0 {
                all = all.saturating_add(*bytes);
            }
            if inside > 0 && inside == set.len() {
                alone = alone.saturating_add(*bytes);
            }
        }
        let tree = if QgroupId(*group).level() == 0 { *group } else { TreeId::QUOTA.0 };
        let (place, what) = (Place::tree(tree), QgroupId(*group).to_string());
        if all != *referenced {
            cx.findings.add_what(Code::QuotaReferenced, what.clone(), place.clone(), all, referenced);
        }
        if alone != *exclusive {
            cx.findings.add_what(Code::QuotaExclusive, what, place, alone, exclusive);
        }
    }
}

/// The subvolumes of a group, however deep.
fn members(group: u64, below: &BTreeMap<u64, Vec<u64>>) -> BTreeSet<u64> {
    let (mut todo, mut seen, mut members) = (vec![group], BTreeSet::new(), BTreeSet::new());
    while let Some(group) = todo.pop() {
        if !seen.insert(group) {
            continue;
        }
        if QgroupId(group).level() == 0 {
            members.insert(group);
        }
        todo.extend(below.get(&group).into_iter().flatten());
    }
    members
}
