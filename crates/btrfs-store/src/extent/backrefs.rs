//! Finds the holders of an extent from its back references, queued changes included. Called by relocation, quotas and
//! overwrites in place.

use std::collections::BTreeMap;

use btrfs_disk::error::At;
use btrfs_disk::items::{ExtentView, InlineRef};
use btrfs_disk::key::item_type;
use btrfs_disk::{Corrupt, Generation, InodeNo, Key, Logical, TreeId};

use super::ref_change::RefKey;
use super::ref_queue::RefQueue;
use crate::Result;
use crate::tree::{Scan, Tree};

/// A holder of references to an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backref {
    /// The tree, file or block that refers to the extent.
    pub holder: RefKey,
    /// How often; always 1 for tree blocks.
    pub count: u64,
}

/// A file's use of a data extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHolder {
    /// Subvolume.
    pub root: TreeId,
    /// The file.
    pub inode: InodeNo,
    /// File offset minus offset within the extent, wrapping.
    pub offset: u64,
}

/// All holders of references to the extent that starts at `at`, queued changes included, in the order of the format's
/// reference types. Empty when neither the extent tree nor the queue knows the extent.
///
/// # Errors
/// [`Corrupt`] for items that cannot be read; a failure to read the tree.
pub fn backrefs(extent_tree: &Tree, queue: &RefQueue, at: Logical) -> Result<Vec<Backref>> {
    let mut counts = BTreeMap::new();
    each_committed(extent_tree, at, |holder, count| {
        *counts.entry(holder).or_insert(0i64) += i64::from(count);
        Scan::Continue
    })?;
    queue.with_head(at, |head| {
        for (holder, count) in head.into_iter().flat_map(|head| head.deltas()) {
            let sum = counts.entry(holder).or_insert(0i64);
            *sum = sum.saturating_add(count);
        }
    });
    // A drop may be queued before the copy of the shared leaf that adds the reference it drops: the count is negative
    // for a moment, and there is no holder.
    let held = |(holder, count)| {
        let count = u64::try_from(count).ok().filter(|count| *count > 0)?;
        Some(Backref { holder, count })
    };
    Ok(counts.into_iter().filter_map(held).collect())
}

/// An extent as the extent tree records it, without queued changes.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The transaction that allocated it.
    pub(crate) generation: Generation,
    /// Each holder once.
    pub(crate) holders: Vec<RefKey>,
    /// Of a data extent with simple quotas: the tree that allocated it.
    pub(crate) owner: Option<TreeId>,
}

/// The record of the extent that starts at `at`; `None` where the extent tree has none.
///
/// # Errors
/// As [`backrefs`].
pub(crate) fn known(tree: &Tree, at: Logical) -> Result<Option<Known>> {
    let mut known: Option<Known> = None;
    each_part(tree, at, |part| {
        match (part, &mut known) {
            (Part::Item(generation), known) => {
                *known = Some(Known { generation, holders: Vec::new(), owner: None });
            }
            (Part::Entry(InlineRef::Owner { root }), Some(known)) => known.owner = Some(root),
            (Part::Entry(entry), Some(known)) => {
                known.holders.extend(RefKey::split(&entry).map(|(holder, _)| holder));
            }
            (Part::Entry(_), None) => {}
        }
        Scan::Continue
    })?;
    Ok(known)
}

/// True when nothing but `holder` refers to the data extent that starts at `at`, or would after a
/// crash: a reference counts until its removal is durable.
///
/// That does not make the extent private: the file's leaf, or a node above it, may be shared
/// with a snapshot. It is private when its generation is above that of the tree's last
/// snapshot as well.
///
/// # Errors
/// As [`backrefs`].
pub fn is_held_only_by(extent_tree: &Tree, queue: &RefQueue, at: Logical, holder: &DataHolder) -> Result<bool> {
    let DataHolder { root, inode, offset } = *holder;
    let wanted = RefKey::DataRef { root, inode, offset };
    let has_queued =
        queue.with_head(at, |head| head.is_some_and(|head| head.deltas().any(|(holder, _)| holder != wanted)));
    if has_queued || queue.is_withdrawn_by_others(at, wanted) {
        return Ok(false);
    }
    let mut is_shared = false;
    each_committed(extent_tree, at, |holder, _| {
        is_shared = holder != wanted;
        if is_shared { Scan::Stop } else { Scan::Continue }
    })?;
    Ok(!is_shared)
}

/// Shows the holders that the extent tree knows: those inside the extent item, then those
/// with items of their own.
fn each_committed(tree: &Tree, at: Logical, mut see: impl FnMut(RefKey, u32) -> Scan) -> Result<()> {
    each_part(tree, at, |part| match part {
        Part::Item(_) => Scan::Continue,
        Part::Entry(entry) => RefKey::split(&entry).map_or(Scan::Continue, |(holder, count)| see(holder, count)),
    })
}

/// One part of an extent's record.
enum Part {
    /// Its item, and the transaction that allocated it.
    Item(Generation),
    /// A reference inside the item, or one with an item of its own.
    Entry(InlineRef),
}

fn each_part(tree: &Tree, at: Logical, mut see: impl FnMut(Part) -> Scan) -> Result<()> {
    let from = Key::new(at.0, item_type::EXTENT_ITEM, 0);
    let to = Key::new(at.0, item_type::SHARED_DATA_REF, u64::MAX);
    tree.scan(&from, &to, |key, bytes| {
        let place = |error: Corrupt| error.at(At::Key(tree.id(), *key));
        if matches!(key.item_type, item_type::EXTENT_ITEM | item_type::METADATA_ITEM) {
            let view = ExtentView::parse(key, bytes).map_err(place)?;
            if see(Part::Item(Generation(view.item.generation.get()))) == Scan::Stop {
                return Ok(Scan::Stop);
            }
            for entry in view.refs() {
                if see(Part::Entry(entry.map_err(place)?)) == Scan::Stop {
                    return Ok(Scan::Stop);
                }
            }
            return Ok(Scan::Continue);
        }
        if !is_reference(key.item_type) {
            return Ok(Scan::Continue);
        }
        Ok(see(Part::Entry(InlineRef::parse_keyed(key, bytes).map_err(place)?)))
    })
}

fn is_reference(kind: u8) -> bool {
    matches!(
        kind,
        item_type::TREE_BLOCK_REF
            | item_type::SHARED_BLOCK_REF
            | item_type::EXTENT_DATA_REF
            | item_type::SHARED_DATA_REF
    )
}
