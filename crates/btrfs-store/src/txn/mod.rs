//! Runs transactions: many handles, one commit.
//!
//! ```text
//! Running(n) --> Closed(n): no handle open --> settled: nothing left to write into trees
//!    ^                                             |
//!    `------------- Running(n+1) <-- gate opens ---+--> blocks of n written, flushed,
//!                                                       superblock written, flushed: durable
//! ```
//!
//! A handle ([`Txn`]) joins the running transaction and keeps it from committing. A commit
//! closes the gate, waits for the handles, and then settles: staged item replacements go
//! into their trees, queued reference changes into the extent tree, moved roots into the
//! root tree, free space into its tree and use into the block group items; each of these
//! changes trees and so may cause more of the others, but a block is copied once per
//! transaction, so the rounds end. Then the next transaction starts, while the blocks of this one, which do not change
//! any more, are written; the superblock that points to them is written last, between two flushes. Only then is space
//! of the old state freed; or, while a reader views an earlier state (`views`), when the view ends.
//!
//! Failure: when a change fails half-way, or a write fails, the store stops writing (`Health`); the device has the last
//! durable state, and reads continue. A write that fails because the host of the image is full is tried again by the
//! next commit.
//!
//! Callers: the store's front, and through it the file system.

mod buffers;
mod commit;
mod dirty_blocks;
mod drain;
mod drop_resume;
mod drop_tree;
pub(crate) mod engine;
mod gate;
mod handle;
mod host;
mod log_state;
mod pending_work;
mod quotas;
pub(crate) mod reader;
mod settled_txn;
mod snapshot;
mod staging;
pub(crate) mod trees;
mod trim;
mod view_space;
mod views;
mod write_out;

pub(crate) use buffers::Buffers;
pub use drop_tree::DropProgress;
pub(crate) use drop_tree::{remove_whole, step as drop_tree_step};
pub(crate) use engine::{CoreTrees, Engine, Health};
pub(crate) use gate::Gate;
pub use handle::Txn;
pub(crate) use host::{FundingSource, TxnHost};
pub(crate) use log_state::{Group, Log};
pub(crate) use pending_work::Pending;
pub(crate) use reader::BlockReader;
pub(crate) use trees::Trees;
pub(crate) use trim::Trim;
pub(crate) use views::{View, Views};
pub(crate) use write_out::Batch;
