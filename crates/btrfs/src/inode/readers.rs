//! Counts the running reads of a file's data on disk, so that space is not reused while it is read. `file::read` takes
//! a pin; `DataState` of `data` waits for it after extents were dropped.
//!
//! A reader looks its bytes up under the `inner` lock, takes a [`Pin`] under it, releases the lock and reads. A thread
//! that removes extents from the file changes the items under the sole `inner` lock, calls [`Readers::turn`] under it,
//! releases it, and waits in [`Readers::wait`] for readers that looked up before, while the handle that dropped the
//! extents is still open: a commit, after which the space can be reused, waits for the handle. Later readers find the
//! new items and are not waited for.

#![expect(clippy::indexing_slicing, reason = "there are two ages, and a number of one is 0 or 1")]

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::locks::{Condvar, Mutex, Rank};

/// The running reads of one file, of two ages.
#[derive(Debug)]
pub(crate) struct Readers {
    counts: [AtomicUsize; 2],
    /// Age of reads that begin now: 0 or 1. Changes under the sole `inner` lock.
    age: AtomicUsize,
    /// A thread waits for the reads of one age.
    waiting: Mutex<()>,
    done: Condvar,
}

impl Default for Readers {
    fn default() -> Self {
        Self {
            counts: Default::default(),
            age: AtomicUsize::new(0),
            waiting: Mutex::new(Rank::Readers, ()),
            done: Condvar::new(),
        }
    }
}

/// A running read: the extents that it looked up stay in place.
#[derive(Debug)]
#[must_use = "space may be reused when the pin is dropped"]
pub(crate) struct Pin<'a> {
    readers: &'a Readers,
    age: usize,
}

/// The reads that looked up before a change.
#[derive(Debug)]
#[must_use = "another thread may be reading what was freed"]
pub(crate) struct Former(usize);

impl Readers {
    /// Begins a read. The caller holds the `inner` lock.
    pub(crate) fn pin(&self) -> Pin<'_> {
        let age = self.age.load(Ordering::SeqCst) & 1;
        self.counts[age].fetch_add(1, Ordering::SeqCst);
        Pin { readers: self, age }
    }

    /// Separates present reads from later ones. The caller holds the sole `inner` lock, and the `editing` lock until it
    /// has waited: the two ages are enough for one change at a time.
    pub(crate) fn turn(&self) -> Former {
        let age = self.age.load(Ordering::SeqCst) & 1;
        if self.counts[age].load(Ordering::SeqCst) > 0 {
            self.age.store(1 - age, Ordering::SeqCst);
        }
        Former(age)
    }

    /// Waits until the reads of `former` are done. The caller holds no lock that a reader needs.
    pub(crate) fn wait(&self, former: Former) {
        let Former(age) = former;
        if self.age.load(Ordering::SeqCst) & 1 == age {
            return;
        }
        let mut waiting = self.waiting.lock();
        self.done.wait_while(&mut waiting, |()| self.counts[age].load(Ordering::SeqCst) > 0);
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        let readers = self.readers;
        let is_last = readers.counts[self.age].fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && readers.age.load(Ordering::SeqCst) & 1 != self.age {
            drop(readers.waiting.lock());
            readers.done.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_change_waits_for_earlier_reads_only() {
        let readers = Readers::default();
        readers.wait(readers.turn());
        let (early, over) = (readers.pin(), AtomicBool::new(false));
        let former = readers.turn();
        let late = readers.pin();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                over.store(true, Ordering::SeqCst);
                drop(early);
            });
            readers.wait(former);
            assert!(over.load(Ordering::SeqCst), "the earlier read has ended");
        });
        drop(late);
        let next = readers.pin();
        let former = readers.turn();
        drop(next);
        readers.wait(former);
    }
}
