//! A thread that writes back what is to be compressed before writers have to: it begins at a half of what may be dirty,
//! and they wait for it at the end. So data is compressed and written while more of it is made. (Where nothing is
//! compressed, writers are held up by the memory and the trees that they share with the thread: 4 KiB writes at random
//! places by two and four threads came to 0.8 of the rate without it. There they write back themselves.) It writes,
//! too, what a snapshot left of the transaction before it.
//!
//! A volume whose store has no worker threads has none either: all work is done by who asks for it. What it fails to
//! write stays dirty, and it does nothing more until a writer, who then writes back itself and hears of the failure,
//! has been more lucky.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crate::error::Result;
use crate::inode::{Core, Inode, Step};

use super::{BATCH_FILES_MAX, DIRTY_FILES_MAX, GROWTH_WINDOW_BYTES, flush_batch};

/// It begins when dirty bytes and files are above so many eighths of what may be.
pub(super) const BEGIN_EIGHTHS: usize = 4;
/// It ends when they are not above so many.
const END_EIGHTHS: usize = 3;

/// Where syncs of the volume follow each other, which would have to write it, it begins when so many bytes are dirty,
/// and ends when no more than so many are. It leaves a file to the sync that somebody makes longer ([`is_being_made`]).
const SYNCED_BYTES: (usize, usize) = (1 << 20, 256 << 10);

/// The thread; ended and waited for when dropped.
#[derive(Debug)]
pub(crate) struct Flusher {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    /// Starts the thread. A system that gives no thread leaves the work to the writers.
    pub(crate) fn start(core: &Arc<Core>) -> Self {
        let wanted = !core.store.is_read_only() && core.store.worker_count() > 1;
        let thread = wanted.then(|| {
            core.data.rounds.open();
            let core = Arc::clone(core);
            Builder::new().name("flusher".to_owned()).spawn(move || core.data.rounds.serve(|| step(&core)))
        });
        let thread = thread.and_then(|spawned| spawned.inspect_err(|_| core.data.rounds.end()).ok());
        Self { core: Arc::clone(core), thread }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.core.data.rounds.end();
        if let Some(thread) = self.thread.take() {
            // It has ended in any case; a panic was told when it happened.
            let _ = thread.join();
        }
    }
}

/// True where so much is dirty that it should be written back, whatever it is, before the next sync of the volume asks.
pub(super) fn is_late(core: &Core) -> bool {
    is_above_while_synced(core, SYNCED_BYTES.0)
}

fn is_above_while_synced(core: &Core, bytes: usize) -> bool {
    core.data.synced.is_often() && core.data.budget.used_bytes() > bytes
}

/// True where so much is dirty that it should be written back.
pub(super) fn is_much(core: &Core, eighths: usize) -> bool {
    let budget = &core.data.budget;
    budget.used_bytes() > budget.limit_bytes() / 8 * eighths
        || core.data.dirty_file_count() > super::DIRTY_FILES_MAX / 8 * eighths
}

/// Has what a snapshot left to be written by the thread, so that nobody waits for it. Where there is none, or it is at
/// work, the next sync or commit writes it.
pub(crate) fn write_settled_soon(core: &Core) {
    core.data.rounds.wake();
}

fn write_settled(core: &Core) -> Result<()> {
    match core.store.write_settled() {
        // The next commit tries again, and tells.
        Err(error) if error.is_device_full() => Ok(()),
        written => Ok(written?),
    }
}

/// Writes one batch of the oldest dirty files that nobody is editing.
pub(crate) fn step(core: &Core) -> Result<Step> {
    if core.store.poisoned().is_some() {
        return Ok(Step::Done);
    }
    write_settled(core)?;
    let oldest = if is_much(core, END_EIGHTHS) {
        core.data.dirty_inodes(BATCH_FILES_MAX)
    } else if is_above_while_synced(core, SYNCED_BYTES.1) {
        let mut complete = core.data.dirty_inodes(DIRTY_FILES_MAX);
        complete.retain(|inode| !is_being_made(inode));
        complete.truncate(BATCH_FILES_MAX);
        complete
    } else {
        return Ok(Step::Done);
    };
    let _stay = core.data.stay();
    let (count, busy, result) = flush_batch(core, &oldest);
    result?;
    Ok(if busy.len() < count { Step::More } else { Step::Done })
}

/// True where a program has the file open and wrote behind its end on disk, so that more is likely to follow: what is
/// written of it now would lie apart from the rest. (Half as many runs again, and files beside each other in pieces, is
/// what volumes came to on which files grew while one sync followed the other.) Much of it lies well on its own.
fn is_being_made(inode: &Inode) -> bool {
    let grows = {
        let state = inode.state();
        state.size > state.disk_size
    };
    grows && inode.is_open() && inode.data.dirty_bytes() < GROWTH_WINDOW_BYTES
}
