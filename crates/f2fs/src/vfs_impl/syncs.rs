//! Fsyncs that come together are made durable together.
//!
//! ```text
//!    fsync -> waits -> one of those that wait leads: has the volume to itself, takes all that wait by then -> answers
//! ```
//!
//! While one is written others come, so that the next leader has all of these. Data of several files is one request
//! where it lies together, so are their nodes, and two flushes are for all.
//!
//! Failure: each hears what its own fsync would have heard.

use std::sync::{Arc, OnceLock};

use f2fs_disk::Nid;
use vfs::file_system::SyncWhat;

use crate::error::Result;
use crate::locks::{Condvar, Mutex, Rank, RwLock};
use crate::store::Store;

/// Fsyncs that wait.
#[derive(Debug)]
pub(super) struct Syncs {
    queue: Mutex<Queue>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Waiting>,
    is_led: bool,
}

/// One of them.
#[derive(Debug, Clone)]
struct Waiting {
    ino: Nid,
    what: SyncWhat,
    answer: Arc<OnceLock<Result<()>>>,
}

impl Default for Syncs {
    fn default() -> Self {
        Self { queue: Mutex::new(Rank::Syncs, Queue::default()), answered: Condvar::new() }
    }
}

/// Who leads; another may when this is dropped.
struct Lead<'a>(&'a Syncs);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().is_led = false;
        self.0.answered.notify_all();
    }
}

impl Syncs {
    /// Makes a file durable.
    ///
    /// # Errors
    /// As [`Store::sync_file`].
    pub(super) fn sync(&self, store: &RwLock<Store>, ino: Nid, what: SyncWhat) -> Result<()> {
        let mine = Waiting { ino, what, answer: Arc::new(OnceLock::new()) };
        let mut queue = self.queue.lock();
        queue.waiting.push(mine.clone());
        self.answered.wait_while(&mut queue, |queue| queue.is_led && mine.answer.get().is_none());
        if let Some(answer) = mine.answer.get() {
            return answer.clone();
        }
        queue.is_led = true;
        drop(queue);
        let _lead = Lead(self);
        let mut store = store.write();
        let waiting = std::mem::take(&mut self.queue.lock().waiting);
        answer(&mut store, &waiting);
        // Another leader took it along, and ended in the middle.
        mine.answer.get_or_init(|| store.sync_file(ino, what)).clone()
    }
}

fn answer(store: &mut Store, waiting: &[Waiting]) {
    let mut wanted: Vec<(Nid, SyncWhat)> = Vec::with_capacity(waiting.len());
    for one in waiting {
        match wanted.iter_mut().find(|(ino, _)| *ino == one.ino) {
            Some((_, what)) if one.what == SyncWhat::All => *what = SyncWhat::All,
            Some(_) => {}
            None => wanted.push((one.ino, one.what)),
        }
    }
    let together = store.sync_files(&wanted);
    let is_whole = together.is_ok() || wanted.len() == 1;
    for one in waiting {
        // What is wrong may be wrong with one of them alone. Nothing is written any more where it was the device.
        let answer = if is_whole { together.clone() } else { store.sync_file(one.ino, one.what) };
        let _ = one.answer.set(answer);
    }
}
