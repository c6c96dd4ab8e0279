//! Relocation: what lies in a block group is moved out of it, and what was shared stays shared.
//!
//! ```text
//! close   nothing more is allocated from the group
//! copy    data is copied to new places, while everybody goes on
//! move    one transaction, whose only handle this is: `closure` finds the blocks that lead to what moves, up to the
//!         roots of all trees; `rewrite` makes each of them anew, once, with the pointers changed
//! retire  the group is empty after a commit: its chunk goes
//! ```
//!
//! The kernel moves tree blocks through a tree of its own for each subvolume, which it merges afterwards, and a crash
//! can come in between. Here each step is an ordinary transaction: after a crash the file system is whole, and some of
//! the group has been moved. A block that several trees or several blocks lead to becomes one new block that the same
//! lead to, and stays as old as it was: its generation is what says that it may be shared.
//!
//! Invariants:
//! - what a block holds does not change, but for addresses;
//! - the references of a new block are those of the old one, where they name a block that moved by its new address;
//! - every reference to what moves is met by a pointer that is found, and the other way round: else nothing is changed,
//!   and the error says which extent it is;
//! - readers of old blocks finish before the step ends, and what they read stays in place until it is durable.
//!
//! Failure: `Corrupt` for references and trees that contradict each other, `NoSpace`, and those of reading; nothing is
//! changed then. A failure in the middle of a rewrite ends all writing.
//!
//! Caller: the store's front (`store/relocation`), for a balance, a conversion, or a volume that is to be smaller.

mod closure;
mod data;
mod leftover;
mod rewrite;

use std::sync::Arc;

use btrfs_disk::flags::{BlockGroupFlags, ExtentFlags};
use btrfs_disk::items::ExtentView;
use btrfs_disk::key::item_type::{EXTENT_ITEM, METADATA_ITEM};
use btrfs_disk::{At, Key, Logical};

use crate::Result;
use crate::extent::ExtentKind;
use crate::space::{BlockGroup, Run};
use crate::tree::{Scan, Tree};

pub(crate) use closure::Closure;
pub(crate) use data::copy_extents;
pub(crate) use leftover::{goes_with, leftovers};
pub(crate) use rewrite::{Cost, cost, rewrite};

/// A block group that is being emptied. Where it is dropped, the group stays closed until the next open.
#[derive(Debug)]
#[must_use = "the group stays closed until it is reopened or retired"]
pub struct Emptying {
    pub(crate) group: Arc<BlockGroup>,
    /// What begins before this address has been moved.
    pub(crate) from: u64,
}

impl Emptying {
    /// The range of the group.
    #[must_use]
    pub fn range(&self) -> Run {
        self.group.range()
    }

    /// Use and profile of the group.
    #[must_use]
    pub fn flags(&self) -> BlockGroupFlags {
        self.group.flags()
    }
}

/// A data extent that is copied to another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataMove {
    pub(crate) from: Logical,
    pub(crate) to: Logical,
    pub(crate) len: u64,
}

/// Shows the extents that begin in a range, by address, until told to stop.
///
/// # Errors
/// `Corrupt` for an item that cannot be read; those of `see`.
pub(crate) fn each_extent(
    tree: &Tree,
    range: Run,
    mut see: impl FnMut(Logical, ExtentKind) -> Result<Scan>,
) -> Result<()> {
    let to = Key::new(range.end().saturating_sub(1), u8::MAX, u64::MAX);
    let mut from = Key::new(range.start, 0, 0);
    let mut found = Vec::new();
    loop {
        // `see` may read trees, so it is called without the lock of a leaf.
        found.clear();
        let mut next = None;
        tree.scan(&from, &to, |key, bytes| {
            if found.len() >= SCANNED_TOGETHER {
                next = Some(*key);
                return Ok(Scan::Stop);
            }
            if !matches!(key.item_type, EXTENT_ITEM | METADATA_ITEM) {
                return Ok(Scan::Continue);
            }
            let view = ExtentView::parse(key, bytes).map_err(|error| error.at(At::Key(tree.id(), *key)))?;
            let is_tree = view.item.extent_flags().contains(ExtentFlags::TREE_BLOCK);
            let kind = match (is_tree, key.item_type) {
                (true, METADATA_ITEM) => ExtentKind::Tree { level: u8::try_from(key.offset).unwrap_or(u8::MAX) },
                (true, _) => ExtentKind::Tree { level: view.block_info.map_or(u8::MAX, |info| info.level) },
                (false, _) => ExtentKind::Data { len: key.offset },
            };
            found.push((Logical(key.objectid), kind));
            Ok(Scan::Continue)
        })?;
        for (at, kind) in found.drain(..) {
            if see(at, kind)? == Scan::Stop {
                return Ok(());
            }
        }
        match next {
            Some(key) => from = key,
            None => return Ok(()),
        }
    }
}

/// Extents that are looked up at a time.
const SCANNED_TOGETHER: usize = 256;
