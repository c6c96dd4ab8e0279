//! Reads and edits copy-on-write B-trees of items.
//!
//! A tree block stays in memory as its on-disk bytes, under a lock of its own. A reader
//! goes down with read locks, holding the parent until it has the child. A writer first
//! tries the cheap way: down with read locks, a write lock on the leaf only; that is
//! enough when the leaf was copied in this transaction already and has room. Otherwise it
//! goes down with write locks, copies each block once per transaction, and releases the
//! blocks above as soon as nothing below can change them.
//!
//! Invariants:
//! - A block that the running transaction made belongs to it alone and is edited in place; every
//!   other block is never changed, only copied. The transaction knows its blocks by their
//!   addresses: a generation is a claim of the image.
//! - Each access to a block checks it against its parent's pointer: level, generation, owner, and under its lock the
//!   first key.
//! - A parent's key for a child equals the child's first key.
//! - Locks are taken parent before child and, at one level, only under the parent's write
//!   lock, so that no two threads wait for each other.
//! - A block that is dirty is in the cache, because the transaction holds a reference.
//!
//! The effects of a copy elsewhere (an address, references) are left to the [`Host`], which the transaction implements;
//! this module knows no transaction.
//!
//! Failures: reading a block can fail (device, checksum, verification); the edit then
//! changed nothing that matters, though blocks above may have been copied. Called by
//! everything above: space, extent, txn, and the file system.

mod balance;
mod block;
mod cache;
mod compare;
mod cut;
mod edit;
mod edit_run;
mod forest;
mod host;
pub(crate) mod layout;
pub(crate) mod leaf;
pub(crate) mod node;
mod prune;
mod read;
mod relocation;
mod replace;
mod root;
mod share;
mod split;
mod walk;
mod write_path;

pub use block::{Block, BlockSource, BlockView, Bytes, ReadExpect};
pub use compare::{Compare, Difference};
pub(crate) use cut::Cut;
pub use edit::{Edit, EditItem};
pub use forest::{Forest, RootPtr, Tree, TreeKind};
pub use host::Host;
pub(crate) use prune::{Prune, cut_first, prune_last};
pub use read::Scan;
pub(crate) use walk::{children, prepare_for_write};
pub(crate) use write_path::{LEVEL_COUNT_MAX, check_level_max};

#[cfg(test)]
mod tests;
