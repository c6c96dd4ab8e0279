//! Moves the contents of a block group out of it (relocation); shared blocks and extents stay shared.
//!
//! ```text
//! close   nothing more is allocated from the group
//! copy    data is copied to new places, while other operations continue
//! move    one transaction, of which this is the only handle: `closure` finds the blocks that lead to what moves, up
//!         to the roots of all trees; `rewrite` makes each of them anew, once, with the pointers changed
//! retire  the group is empty after a commit: its chunk is removed
//! ```
//!
//! The kernel moves tree blocks through a tree of its own for each subvolume, which it merges afterwards, and a crash
//! can come in between. Here each step is an ordinary transaction: after a crash the file system is whole, and some of
//! the group has been moved. A block that several trees or several blocks lead to becomes one new block that the same
//! lead to, and keeps its generation, since a generation that is older than a snapshot marks a block as possibly
//! shared.
//!
//! Invariants:
//! - the contents of a block do not change, but for addresses;
//! - the references of a new block are those of the old one, where they name a block that moved by its new address;
//! - each reference to a moved block or extent matches a pointer, and the other way round: otherwise nothing is
//!   changed, and the error names the extent;
//! - readers of old blocks finish before the step ends, and those blocks stay in place until it is durable.
//!
//! Failure: `Corrupt` for references and trees that contradict each other, `NoSpace`, and those of reading; nothing is
//! changed then. A failure in the middle of a rewrite ends all writing.
//!
//! Caller: the store's front (`store/relocation`), for a balance, a conversion, or a volume that is to be smaller.

mod closure;
mod data;
mod reloc_trees;
mod rewrite;

use std::sync::Arc;

use btrfs_disk::Logical;
use btrfs_disk::flags::BlockGroupFlags;

use crate::space::{BlockGroup, Run};

pub(crate) use closure::{Closure, each_use};
pub(crate) use data::copy_extents;
pub(crate) use reloc_trees::{goes_with, leftovers};
pub(crate) use rewrite::{Cost, cost, rewrite};

/// A block group that is being emptied. Where it is dropped, the group stays closed until the next open.
#[derive(Debug)]
#[must_use = "the group stays closed until it is reopened or retired"]
pub struct Emptying {
    pub(crate) group: Arc<BlockGroup>,
    /// The part before this address has been moved.
    pub(crate) from: u64,
    /// The cost of the last step: the next one reserves about as much.
    pub(crate) last_cost: Cost,
}

impl Emptying {
    /// A group of which nothing has been moved.
    pub(crate) fn new(group: Arc<BlockGroup>) -> Self {
        Self { from: group.range().start, group, last_cost: Cost::default() }
    }

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
