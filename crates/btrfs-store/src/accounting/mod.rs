//! Finds the subvolumes that reach an extent, from which quotas are counted.
//!
//! Back references name the tree that an extent was counted for, or the block that leads to it. A tree that shares that
//! block, or one above it, reaches the extent too; so the search goes up, block by block, to the roots of trees. Most
//! extents are younger than the last snapshot of the one tree that refers to them, and then no other tree can reach
//! them.
//!
//! Two states are searched: the last committed one before the commit changes the extent tree, and the one that it
//! leaves. Both are read by address: blocks of the committed state are pinned until the next is durable.
//!
//! Invariants
//! - No lock is held from one block to the next: only the commit searches, while no handle is open.
//! - Both caches are bounded: copies of blocks by number, sets of subvolumes by one for each block searched.
//!
//! Failure: `Corrupt` where references lead nowhere; the caller marks the quotas inconsistent, and continues.
//!
//! Caller: the commit (`txn/quotas`).

mod reach;
mod walk;

pub(crate) use reach::Reach;
pub(crate) use walk::State;
