//! Keeps the views of committed states: space that a view may read is held until the view ends. Called by `view_space`;
//! `store/view` opens views.
//!
//! A view is of the newest durable transaction. Space that is freed after it is held, unless it was allocated after it
//! as well. That is known in memory only: on the device it is free, so a crash leaks nothing.
//!
//! Held space is bounded, by a share of the devices and by reservations: when one would fail, the oldest view is given
//! up, and reads through it fail from then on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use btrfs_disk::{DevId, Generation, Logical};

use crate::locks::{Mutex, Rank};
use crate::space::{Pinned, Run};

/// The part of the devices that views may hold at most.
const HELD_SHARE: u64 = 2;
/// Most extents that are held, and most that are known to be newer than all views.
const EXTENTS_MAX: usize = 1 << 20;

/// The open views, and the space held for them.
#[derive(Debug)]
pub(crate) struct Views {
    /// A view is open. Changes while no commit is running.
    are_open: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The oldest first.
    open: Vec<Arc<View>>,
    /// First bytes of extents allocated since the newest view.
    fresh: BTreeSet<Logical>,
    /// In the order in which they were freed.
    held: Vec<Held>,
}

/// An open view.
#[derive(Debug)]
pub(crate) struct View {
    generation: Generation,
    is_given_up: AtomicBool,
}

/// Space freed by one transaction.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) freed_in: Generation,
    pub(super) extents: Pinned,
    /// The device ranges of removed chunks.
    pub(super) places: Vec<(DevId, Run)>,
}

impl View {
    /// False from the moment at which its state may be overwritten.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_given_up.load(Ordering::SeqCst)
    }
}

impl Views {
    pub(crate) fn none() -> Self {
        Self { are_open: AtomicBool::new(false), state: Mutex::new(Rank::Counters, State::default()) }
    }

    /// Bytes held.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.state.lock().held_bytes()
    }

    /// Notes an extent that was just allocated, so that no view can have it.
    pub(super) fn note_taken(&self, at: Logical) {
        if self.are_open.load(Ordering::Relaxed) {
            let mut state = self.state.lock();
            // An extent that is not noted is held when it is freed.
            if state.fresh.len() < EXTENTS_MAX {
                state.fresh.insert(at);
            }
        }
    }

    /// Takes the extents that views may read out of the freed ones.
    pub(super) fn split_off(&self, freed: &mut Pinned) -> Pinned {
        if !self.are_open.load(Ordering::Relaxed) {
            return Pinned::default();
        }
        let mut state = self.state.lock();
        freed.split_off(|at| !state.fresh.remove(&at))
    }

    /// Holds freed extents for open views; returns those that no view needs.
    pub(super) fn keep(&self, held: Held) -> Vec<Held> {
        let mut state = self.state.lock();
        state.held.push(held);
        // The view may have ended meanwhile.
        state.take_needless()
    }

    pub(super) fn open(&self, generation: Generation) -> Arc<View> {
        let view = Arc::new(View { generation, is_given_up: AtomicBool::new(false) });
        let mut state = self.state.lock();
        state.open.push(Arc::clone(&view));
        state.fresh.clear();
        self.are_open.store(true, Ordering::Relaxed);
        view
    }

    /// Ends a view; returns the space that no view needs any more.
    pub(super) fn close(&self, view: &View) -> Vec<Held> {
        let mut state = self.state.lock();
        state.open.retain(|other| !std::ptr::eq(&raw const **other, view));
        self.are_open.store(!state.open.is_empty(), Ordering::Relaxed);
        state.take_needless()
    }

    /// Gives the oldest view up, if anything is held; returns the space that no view needs any more.
    pub(super) fn give_up_oldest(&self) -> Option<Vec<Held>> {
        let mut state = self.state.lock();
        if state.held_bytes() == 0 || state.open.is_empty() {
            return None;
        }
        let view = state.open.remove(0);
        // Before anything can be overwritten.
        view.is_given_up.store(true, Ordering::SeqCst);
        self.are_open.store(!state.open.is_empty(), Ordering::Relaxed);
        Some(state.take_needless())
    }

    /// Gives all views up; returns the space that was held for them.
    pub(super) fn give_up_all(&self) -> Vec<Held> {
        let mut state = self.state.lock();
        for view in state.open.drain(..) {
            view.is_given_up.store(true, Ordering::SeqCst);
        }
        self.are_open.store(false, Ordering::Relaxed);
        state.take_needless()
    }

    /// Runs `job` while nothing of a view's state can be overwritten; not at all where that may have happened already.
    pub(crate) fn while_whole<R>(&self, view: &View, job: impl FnOnce() -> R) -> Option<R> {
        // A view is given up under this lock.
        let _state = self.state.lock();
        view.is_whole().then(job)
    }

    pub(super) fn is_too_much(&self, device_bytes: u64) -> bool {
        let state = self.state.lock();
        let count: usize = state.held.iter().map(|held| held.extents.count()).sum();
        count > EXTENTS_MAX || state.held_bytes() > device_bytes / HELD_SHARE
    }
}

impl State {
    fn held_bytes(&self) -> u64 {
        let places = |held: &Held| held.places.iter().map(|(_, run)| run.len).sum::<u64>();
        self.held.iter().map(|held| held.extents.bytes().saturating_add(places(held))).fold(0, u64::saturating_add)
    }

    /// Takes the space freed before the oldest view.
    fn take_needless(&mut self) -> Vec<Held> {
        let oldest = self.open.iter().map(|view| view.generation).min();
        if oldest.is_none() {
            self.fresh.clear();
        }
        let is_needed = |held: &Held| oldest.is_some_and(|oldest| oldest < held.freed_in);
        let (needed, needless) = std::mem::take(&mut self.held).into_iter().partition(is_needed);
        self.held = needed;
        needless
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn freed(generation: u64) -> Held {
        let places = vec![(DevId(1), Run { start: generation << 20, len: 1 << 20 })];
        Held { freed_in: Generation(generation), extents: Pinned::default(), places }
    }

    fn generations(needless: &[Held]) -> Vec<u64> {
        needless.iter().map(|held| held.freed_in.0).collect()
    }

    #[test]
    fn what_was_freed_before_the_oldest_view_is_needless() {
        let views = Views::none();
        assert_eq!(generations(&views.keep(freed(5))), [5], "no view reads an earlier state");
        let first = views.open(Generation(5));
        assert!(views.keep(freed(6)).is_empty());
        let second = views.open(Generation(6));
        assert!(views.keep(freed(7)).is_empty());
        assert_eq!(views.held_bytes(), 2 << 20);
        assert_eq!(generations(&views.close(&first)), [6]);
        assert_eq!(generations(&views.close(&second)), [7]);
        assert_eq!(views.held_bytes(), 0);
    }

    #[test]
    fn the_oldest_view_is_given_up_first_and_only_where_that_helps() {
        let views = Views::none();
        let (first, second) = (views.open(Generation(5)), views.open(Generation(6)));
        assert!(views.give_up_oldest().is_none(), "nothing is held back");
        assert!(views.keep(freed(7)).is_empty());
        assert_eq!(views.give_up_oldest().unwrap().len(), 0, "the other needs it");
        assert!(!first.is_whole() && second.is_whole());
        assert_eq!(views.give_up_oldest().unwrap().len(), 1);
        assert!(!second.is_whole());
        assert!(views.give_up_oldest().is_none());
    }
}
