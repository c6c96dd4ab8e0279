//! Which subvolumes reach an extent: what quotas are counted from.
//!
//! Back references name the tree that an extent was counted for, or the block that leads to it. Whoever shares that
//! block, or one above it, reaches the extent too; so the way goes up, block by block, to the roots of trees. Most
//! extents are younger than the last snapshot of the one tree that refers to them, and then nobody else can reach them.
//!
//! Two states are asked: the last committed one before the commit changes the extent tree, and the one that it leaves.
//! Both are read by address: what the committed state leads to is pinned until the next is durable.
//!
//! Invariants
//! - Nothing is locked from one block to the next: the commit alone asks, while nobody has a handle.
//! - What is remembered of blocks has a limit; what is remembered of who reaches them is one set for each block asked
//!   about.
//!
//! Failure: `Corrupt` where references lead nowhere; the caller marks the quotas inconsistent, and goes on.
//!
//! Caller: the commit (`txn/quotas`).

mod reach;
mod walk;

pub(crate) use reach::Reach;
pub(crate) use walk::State;
