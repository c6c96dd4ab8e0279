//! Closes a block group that is being emptied, and gives up the free space of one that has nothing in it. Called by
//! relocation and by the removal of groups.

use std::sync::atomic::Ordering::Relaxed;

use super::{BlockGroup, Free, FreeMap, Place, Space, State};

impl BlockGroup {
    /// Closes the group, where its free space is loaded and `give_up` can do without its free bytes.
    pub(crate) fn close(&self, give_up: impl FnOnce(u64) -> bool) -> bool {
        let state = self.state.lock();
        let Space::Loaded(map) = &state.space else { return false };
        let closes = !self.is_read_only() && give_up(map.bytes());
        self.is_closed.fetch_or(closes, Relaxed);
        closes
    }

    /// Closes an abandoned group, where `give_up` can do without its free bytes; false where it cannot.
    pub(crate) fn close_abandoned(&self, give_up: impl FnOnce(Free) -> bool) -> bool {
        let state = self.state.lock();
        if self.read_only || self.is_closed() || !self.is_abandoned() {
            return true;
        }
        let is_given_up = give_up(match &state.space {
            Space::Loaded(map) => Free::Loaded(map.bytes()),
            Space::Unloaded { counted, .. } => Free::Unloaded(*counted),
        });
        self.is_closed.fetch_or(is_given_up, Relaxed);
        is_given_up
    }

    /// True for a fixed group that has nothing in it: its chunk can be removed.
    pub(crate) fn is_fixed_and_empty(&self) -> bool {
        self.is_fixed() && self.bytes().used == 0 && self.bytes().pinned == 0
    }

    /// Takes back [`Self::close`]; returns the bytes that are free in it.
    pub(crate) fn reopen(&self) -> u64 {
        let state = self.state.lock();
        self.is_closed.store(false, Relaxed);
        match &state.space {
            Space::Loaded(map) => {
                self.len_bound.store(map.len_bound(), Relaxed);
                map.bytes()
            }
            Space::Unloaded { .. } => 0,
        }
    }

    /// True when nothing lies in it, in this transaction and the last durable one, and its items are up to date.
    pub(crate) fn is_empty(&self) -> bool {
        self.free_if_empty(&self.state.lock()).is_some()
    }

    fn free_if_empty(&self, state: &State) -> Option<Free> {
        let is_quiet = state.is_quiet() && !self.is_read_only();
        let free = match &state.space {
            Space::Loaded(map) => (map.bytes() == self.total()).then_some(Free::Loaded(map.bytes())),
            Space::Unloaded { held, counted } => held.is_empty().then_some(Free::Unloaded(*counted)),
        };
        free.filter(|_| is_quiet)
    }

    /// Empties the free space of an unused group, if `give_up` can do without its free bytes. False otherwise.
    pub(crate) fn retire(&self, give_up: impl FnOnce(Free) -> bool) -> bool {
        let mut state = self.state.lock();
        let may_go = self.free_if_empty(&state).is_some_and(give_up);
        if may_go {
            state.space = Space::Loaded(FreeMap::default());
            self.len_bound.store(0, Relaxed);
        }
        may_go
    }

    /// Empties the free space of a closed group that has no extents; held ranges stay. `None` where it has any.
    pub(crate) fn retire_closed(&self) -> Option<Place> {
        let mut state = self.state.lock();
        let held = state.held_bytes;
        let is_full = matches!(&state.space, Space::Loaded(map) if map.bytes() + held == self.total());
        let is_quiet = state.used == 0 && state.pinned_bytes == held && state.is_written();
        if !(self.is_closed() && is_full && is_quiet) {
            return None;
        }
        state.space = Space::Loaded(FreeMap::default());
        Some(if held == 0 { Place::Free } else { Place::Held })
    }
}
