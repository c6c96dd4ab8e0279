//! Runs the flusher: a thread that writes compressible dirty data back before writers have to. `open_volume` starts it.
//! It begins at half of the dirty limit, and writers wait for it at the limit, so data is compressed and written while
//! more of it is made. (Without compression, writers are slowed down by the memory and the trees that they share with
//! the thread: 4 KiB writes at random places by two and four threads reached 0.8 of the rate without it. There they
//! write back themselves.) It also writes a transaction that a snapshot left settled.
//!
//! A volume whose store has no worker threads has no flusher: each caller does its own work. A reproducible one has
//! none either, since it would write at moments that no caller decides. Data that the flusher
//! fails to write stays dirty, and it stops until a writer, which then writes back itself and gets the error, has
//! succeeded.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crate::error::Result;
use crate::inode::{Core, Inode, Step};

use super::{BATCH_FILES_MAX, DIRTY_FILES_MAX, GROWTH_WINDOW_BYTES, flush_batch};

/// It begins when dirty bytes or files are above this many eighths of the limit.
pub(super) const BEGIN_EIGHTHS: usize = 4;
/// It ends when they are not above this many.
const END_EIGHTHS: usize = 3;

/// Where syncs of the volume are frequent, it begins with this many dirty bytes, which a sync would have to write, and
/// ends with this many. It leaves files that still grow to the sync ([`is_being_made`]).
const SYNCED_BYTES: (usize, usize) = (1 << 20, 256 << 10);

/// The thread; ended and waited for when dropped.
#[derive(Debug)]
pub(crate) struct Flusher {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    /// Starts the thread. If the system refuses a thread, writers do the work.
    pub(crate) fn start(core: &Arc<Core>) -> Self {
        let wanted = !core.store.is_read_only() && core.store.worker_count() > 1 && !core.settings.is_reproducible;
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
            // It has ended in any case; a panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// True where enough is dirty, of any kind, to write it back before the next sync of the volume.
pub(super) fn is_late(core: &Core) -> bool {
    is_above_while_synced(core, SYNCED_BYTES.0)
}

fn is_above_while_synced(core: &Core, bytes: usize) -> bool {
    core.data.syncs.is_often() && core.data.budget.used_bytes() > bytes
}

/// True where enough is dirty to write it back.
pub(super) fn is_much(core: &Core, eighths: usize) -> bool {
    let budget = &core.data.budget;
    budget.used_bytes() > budget.limit_bytes() / 8 * eighths
        || core.data.dirty_file_count() > super::DIRTY_FILES_MAX / 8 * eighths
}

/// Has the thread write a transaction that a snapshot left settled, so that other threads need not. Where there is no
/// thread, or it is busy, the next sync or commit writes it.
pub(crate) fn write_settled_soon(core: &Core) {
    core.data.rounds.wake();
}

fn write_settled(core: &Core) -> Result<()> {
    match core.store.write_settled() {
        // The next commit tries again, and reports.
        Err(error) if error.is_device_full() => Ok(()),
        written => Ok(written?),
    }
}

/// Writes one batch of the oldest dirty files that no other thread is editing.
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

/// True where a program has the file open and wrote behind its end on disk, so that more is likely to follow: data
/// written now would be separate from the rest. (Otherwise volumes with growing files and frequent syncs had half as
/// many runs again, and adjacent files in pieces.) Large amounts are written, since each makes a good extent.
fn is_being_made(inode: &Inode) -> bool {
    let grows = {
        let state = inode.state();
        state.size > state.disk_size
    };
    grows && inode.is_open() && inode.data.dirty_bytes() < GROWTH_WINDOW_BYTES
}
