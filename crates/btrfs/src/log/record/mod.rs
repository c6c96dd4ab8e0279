//! Writes the log: an fsync without a commit. Called by `vfs_impl` for each fsync and for changes that have to be
//! durable at once.
//!
//! The state to be made durable is copied into the log tree of its subvolume, then the log is synced together with the
//! changes that other threads put into it meanwhile (`Store::sync_asked`).
//!
//! ```text
//! a file           its inode item, names, attributes, and the extents changed since it was logged last
//! a directory      its inode item, names, attributes, the entries it got in this transaction, and the
//!                  range of positions for which the log has all of them: others in it are gone
//! made with it     new ancestors, and new files behind new entries: that they exist, and their names
//!                  (an inode item of generation 0 and size 0; a symbolic link whole); new directories
//!                  behind new entries with their own entries, and so on below
//! ```
//!
//! Names follow rules of their own (`names`). A change that a log cannot record, or only with too many items, is
//! committed instead: a directory of the last commit that was renamed, or lost from a directory that was logged; names
//! of subvolumes, which were made or deleted; files with thousands of changed extents, directories with thousands of
//! new names; names of a file that was synced before it had any; space for the log that had to be added. The
//! transaction's changes are in its notes ([`crate::notes`]).
//!
//! A sync of the data alone writes nothing when neither extents nor size nor names changed since the inode was logged
//! or committed last: data overwritten in place is durable with a flush.
//!
//! Invariants
//! * Items are built completely before the log tree is touched, and copied in at once.
//! * The recording thread holds the inode's `editing` lock (a file), so items and inode agree; and a handle, so no
//!   commit comes in between.
//! * Items of one file in the log never overlap: a changed range takes its neighbours along.
//!
//! Failure: an insertion that fails makes the transaction's log useless, and the next fsync commits.

mod contents;
mod extents;
mod inode;
mod names;
mod plan;
mod recorder;

use std::sync::Arc;

use btrfs_store::ablation::{Mutation, commits_each_sync, mutated};
use btrfs_store::{LogSync, LogTicket, Need, Txn};
use vfs::file_system::SyncWhat;

use crate::dir::Namespace;
use crate::error::Result;
use crate::inode::{Core, Inode, InodeFlags};
use crate::writeback;
use recorder::{Recorder, Stop};

/// Items that one fsync copies at most; a commit is cheaper from about here on.
const ITEMS_MAX: usize = 4096;
/// Items for which one fsync reserves tree blocks.
const RESERVED_ITEMS: u32 = 24;

/// Makes a file or directory durable, with the names that lead to it.
///
/// # Errors
/// `Io`, `NoSpace`, `Poisoned`.
pub(crate) fn sync_inode(names: &Namespace, inode: &Arc<Inode>, what: SyncWhat) -> Result<()> {
    match begin_sync(names, inode, what)? {
        Some(asked) => end_sync(&names.core, inode, asked),
        None => Ok(()),
    }
}

/// Makes a change of an inode durable at once where its flags ask for that: `chattr +S` for any change, `+D` for the
/// names in a directory. To be called after the change, without locks.
///
/// Linux leaves this to the file system where names and attributes are concerned; btrfs of 6.18
/// does it for data alone, ext4 for all of it.
///
/// # Errors
/// As [`sync_inode`]: the change is made, and may be lost in a crash.
pub(crate) fn sync_marked(names: &Namespace, inode: &Arc<Inode>) -> Result<()> {
    let marks = match inode.kind().is_dir() {
        true => InodeFlags::SYNC | InodeFlags::DIRSYNC,
        false => InodeFlags::SYNC,
    };
    if !inode.state().flags.intersects(marks) {
        return Ok(());
    }
    sync_inode(names, inode, SyncWhat::All)
}

/// Begins to make a file or directory durable: puts it into the log, which is then to be synced ([`end_sync`]). `None`
/// where all is done.
///
/// # Errors
/// As [`sync_inode`].
pub(crate) fn begin_sync(names: &Namespace, inode: &Arc<Inode>, what: SyncWhat) -> Result<Option<LogTicket>> {
    let core = &*names.core;
    if core.store.is_read_only() {
        return Ok(None);
    }
    let logged = match commits_each_sync() {
        true => Logged::NeedsCommit,
        false => core.with_room(|| log(names, inode, what))?,
    };
    match logged {
        Logged::Done => Ok(None),
        Logged::Asked(asked) => Ok(Some(asked)),
        Logged::NeedsCommit => commit(core, inode).map(|()| None),
    }
}

/// Completes [`begin_sync`], together with the syncs that other threads request meanwhile.
///
/// # Errors
/// As [`sync_inode`].
pub(crate) fn end_sync(core: &Core, inode: &Arc<Inode>, asked: LogTicket) -> Result<()> {
    match core.store.sync_asked(asked)? {
        LogSync::Done => Ok(()),
        LogSync::NeedsCommit => commit(core, inode),
    }
}

fn commit(core: &Core, inode: &Arc<Inode>) -> Result<()> {
    writeback::flush_inode(core, inode)?;
    core.store.commit()?;
    Ok(())
}

/// The result of the part of a sync that waits for no other thread.
enum Logged {
    Done,
    Asked(LogTicket),
    NeedsCommit,
}

fn log(names: &Namespace, inode: &Arc<Inode>, what: SyncWhat) -> Result<Logged> {
    let core = &*names.core;
    let txn;
    let (join, recorded) = {
        let _names = inode.read_names();
        let _stay = core.data.stay();
        let _editing = inode.data.editing.lock();
        writeback::flush_held(core, inode)?;
        txn = match begin(names)? {
            Some(txn) => txn,
            None => return Ok(Logged::NeedsCommit),
        };
        if inode.root.is_deleted() {
            // Its subvolume cannot be reached after a crash.
            core.store.flush_devices()?;
            return Ok(Logged::Done);
        }
        if inode.state().nlink == 0 {
            // It cannot be reached after a crash, unless it gets a name and that is synced.
            inode.note(&txn, |note| note.is_synced_unnamed = true);
            core.store.flush_devices()?;
            return Ok(Logged::Done);
        }
        let join = txn.join_log();
        let recorded = record(names, &txn, inode, what)?;
        (join, recorded)
    };
    Ok(match recorded {
        Recorded::New => Logged::Asked(txn.ask_sync(join)),
        Recorded::Nothing => match txn.sync_logged(join)? {
            LogSync::Done => Logged::Done,
            LogSync::NeedsCommit => Logged::NeedsCommit,
        },
        Recorded::NeedsCommit => Logged::NeedsCommit,
    })
}

/// A handle to log with; `None` when this transaction has to be committed.
fn begin(names: &Namespace) -> Result<Option<Txn>> {
    let store = &names.core.store;
    let need = Need { items: RESERVED_ITEMS, data: 0 };
    let reservation = match store.reserve(need) {
        Err(btrfs_store::Error::NoSpace { .. }) => return Ok(None),
        reservation => reservation?,
    };
    let txn = store.begin(reservation)?;
    Ok((names.core.notes.ask(&txn) && !txn.needs_commit()).then_some(txn))
}

/// The result of recording an inode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Recorded {
    /// The log has a new item.
    New,
    /// No change: the durable state is the latest.
    Nothing,
    NeedsCommit,
}

fn record(names: &Namespace, txn: &Txn, inode: &Arc<Inode>, what: SyncWhat) -> Result<Recorded> {
    let recorder = Recorder::new(names, txn, inode.tree_id());
    let recorded = match recorder.record(inode, what) {
        Ok(recorded) => recorded,
        Err(Stop::NeedsCommit) => Recorded::NeedsCommit,
        Err(Stop::Failed(error)) => return Err(error),
    };
    if recorded == Recorded::NeedsCommit && mutated(Mutation::FallbackLeftOut) {
        return Ok(Recorded::Nothing);
    }
    if recorded == Recorded::NeedsCommit {
        // Notes may claim that the log has inodes of which it has a part.
        txn.require_commit();
    }
    Ok(recorded)
}
