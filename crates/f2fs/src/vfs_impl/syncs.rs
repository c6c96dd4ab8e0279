//! Makes fsyncs that come at the same time durable together.
//!
//! ```text
//!    fsync -> waits -> one of the waiting threads leads: takes the volume's lock, allocates blocks for all
//!      that wait by then, releases the lock -> writes the batch -> answers all
//! ```
//!
//! While the batch is written, other threads change the volume and queue fsyncs, so that the next leader has all of
//! these. Adjacent data of several files is one request, so are their nodes, and two flushes serve all.
//!
//! Failure: each fsync gets the error that it would have got alone. Caller: `data`.

use std::collections::HashMap;

use f2fs_disk::Nid;
use vfs::file_system::{SyncTicket, SyncWhat};

use crate::change::fsync;
use crate::error::{CallerError, Result};
use crate::locks::{Condvar, Mutex, Rank, RwLock};
use crate::write_volume::WriteVolume;

/// How often a leader yields to threads that are about to fsync too.
const GATHER_ROUNDS_MAX: usize = 4;

/// Waiting fsyncs.
#[derive(Debug)]
pub(super) struct Syncs {
    queue: Mutex<Queue>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// Results not yet fetched, by the number of the fsync.
    answers: HashMap<u64, Result<()>>,
    /// Number of fsyncs so far.
    asked: u64,
    is_led: bool,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    number: u64,
    ino: Nid,
    what: SyncWhat,
}

impl Default for Syncs {
    fn default() -> Self {
        Self { queue: Mutex::new(Rank::Syncs, Queue::default()), answered: Condvar::new() }
    }
}

/// The leading thread's guard; another thread may lead when it is dropped.
struct Lead<'a>(&'a Syncs);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().is_led = false;
        self.0.answered.notify_all();
    }
}

impl Syncs {
    /// Queues an fsync of a file. The ticket has its number, and the inode.
    pub(super) fn begin(&self, ino: Nid, what: SyncWhat) -> SyncTicket {
        let mut queue = self.queue.lock();
        queue.asked = queue.asked.wrapping_add(1);
        let number = queue.asked;
        queue.waiting.push(Waiting { number, ino, what });
        SyncTicket([number, u64::from(ino.0)])
    }

    /// Waits until the fsync is durable, or leads the batch of all waiting ones.
    ///
    /// # Errors
    /// As [`fsync::sync`].
    pub(super) fn end(&self, volume: &RwLock<WriteVolume>, begun: SyncTicket) -> Result<()> {
        let SyncTicket([number, ino]) = begun;
        let mut queue = self.queue.lock();
        self.answered.wait_while(&mut queue, |queue| queue.is_led && !queue.answers.contains_key(&number));
        if let Some(answer) = queue.answers.remove(&number) {
            return answer;
        }
        queue.is_led = true;
        drop(queue);
        let _lead = Lead(self);
        self.gather();
        let waiting = self.lead(volume);
        let mut queue = self.queue.lock();
        queue.answers.extend(waiting);
        let mine = queue.answers.remove(&number);
        drop(queue);
        // Another leader took it, and panicked.
        let ino = u32::try_from(ino).map_err(|_| CallerError::Stale);
        mine.unwrap_or_else(|| fsync::sync(&mut volume.write(), Nid(ino?), SyncWhat::All))
    }

    /// Yields to threads that are about to fsync too: one more costs little.
    fn gather(&self) {
        let mut asked = None;
        for _ in 0..GATHER_ROUNDS_MAX {
            let now = self.queue.lock().asked;
            if asked.replace(now) == Some(now) {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn lead(&self, volume: &RwLock<WriteVolume>) -> Vec<(u64, Result<()>)> {
        let (waiting, wanted, begun) = {
            let mut volume = volume.write();
            let waiting = std::mem::take(&mut self.queue.lock().waiting);
            let wanted = each_once(&waiting);
            let begun = fsync::begin(&mut volume, &wanted);
            (waiting, wanted, begun)
        };
        let together = begun.and_then(|batch| {
            let written = batch.write();
            if written.is_ok() { written } else { volume.write().poison_on_error(written) }
        });
        let is_whole = together.is_ok() || wanted.len() == 1;
        // The failure may concern only one of them. After a device error all writing has ended.
        let answer = |one: &Waiting| match is_whole {
            true => together.clone(),
            false => fsync::sync(&mut volume.write(), one.ino, one.what),
        };
        waiting.iter().map(|one| (one.number, answer(one))).collect()
    }
}

/// Each file once.
fn each_once(waiting: &[Waiting]) -> Vec<(Nid, SyncWhat)> {
    let mut wanted: Vec<(Nid, SyncWhat)> = Vec::with_capacity(waiting.len());
    for one in waiting {
        match wanted.iter_mut().find(|(ino, _)| *ino == one.ino) {
            Some((_, what)) if one.what == SyncWhat::All => *what = SyncWhat::All,
            Some(_) => {}
            None => wanted.push((one.ino, one.what)),
        }
    }
    wanted
}
