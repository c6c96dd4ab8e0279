//! Writes and reads log trees: the state that fsyncs made durable between two commits.
//!
//! ```text
//! superblock.log_root --> log root tree --(-6, ROOT_ITEM, subvolume)--> log tree of the subvolume
//! ```
//!
//! A log tree holds copies of items. Its blocks belong to the running transaction, are not in the extent tree, and are
//! freed when the transaction commits: the commit has the same changes in the trees themselves. After a crash the items
//! are replayed into the subvolume.
//!
//! [`edit`] inserts items into log trees, [`sync`] makes a log durable, [`read`] finds and verifies the log that a
//! crash left. The log belongs to the running transaction (`txn::Log`): a commit ends it.
//!
//! Failure: an insertion that fails half-way makes the log useless until the next commit, and every sync
//! of it asks for that commit instead ([`LogSync::NeedsCommit`]).
//!
//! Callers: the file system's log, and its opening of a volume.

mod edit;
mod read;
mod sync;

pub use edit::LogEdit;
pub use read::FoundLog;
pub use sync::{LogJoin, LogSync, LogTicket};
