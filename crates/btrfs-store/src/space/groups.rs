//! Holds all block groups, and finds them by address, and by kind for allocation. Called by `Space` (`space/mod.rs`),
//! which owns them.

#![expect(clippy::indexing_slicing, reason = "accounts are numbered here, below the number of accounts")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::free_map::{Run, Want};
use super::group::BlockGroup;
use crate::error::SpaceKind;
use crate::locks::{Rank, RwLock};

/// Accounts that groups count for ([`super::Accounts::index`]).
pub(crate) const ACCOUNT_COUNT: usize = 3;

/// The block groups of a store.
#[derive(Debug)]
pub(crate) struct Groups {
    index: RwLock<Index>,
    /// Per account: position in the list where the last allocation succeeded.
    current: [AtomicUsize; ACCOUNT_COUNT],
}

#[derive(Debug, Default)]
struct Index {
    by_start: BTreeMap<u64, Arc<BlockGroup>>,
    /// Per account: the groups that are loaded and may be allocated from, by address.
    open: [Vec<Arc<BlockGroup>>; ACCOUNT_COUNT],
}

impl Groups {
    pub(crate) fn new() -> Self {
        Self {
            index: RwLock::new(Rank::Groups, Index::default()),
            current: std::array::from_fn(|_| AtomicUsize::new(0)),
        }
    }

    /// Adds a group; the one it overlaps is returned instead if there is one.
    pub(crate) fn add(&self, group: Arc<BlockGroup>) -> Result<(), Arc<BlockGroup>> {
        let range = group.range();
        let mut index = self.index.write();
        let before = index.by_start.range(..range.end()).next_back();
        if let Some((_, other)) = before
            && other.range().end() > range.start
        {
            return Err(Arc::clone(other));
        }
        index.by_start.insert(range.start, group);
        Ok(())
    }

    /// Forgets the group that begins at this byte.
    pub(crate) fn remove(&self, start: u64) {
        let mut index = self.index.write();
        index.by_start.remove(&start);
        for list in &mut index.open {
            list.retain(|group| group.range().start != start);
        }
    }

    /// Opens the group for allocation, unless it was removed meanwhile.
    pub(crate) fn open(&self, account: usize, group: &Arc<BlockGroup>) {
        let mut index = self.index.write();
        if !index.by_start.get(&group.range().start).is_some_and(|known| Arc::ptr_eq(known, group)) {
            return;
        }
        let list = &mut index.open[account];
        let position = list.partition_point(|other| other.range() < group.range());
        list.insert(position, Arc::clone(group));
    }

    /// Closes the group for allocation, where `give_up` can do without its free bytes.
    pub(crate) fn close(&self, account: usize, group: &BlockGroup, give_up: impl FnOnce(u64) -> bool) -> bool {
        // With the write lock held, no thread searches for a run that it was promised.
        let mut index = self.index.write();
        let closes = group.close(give_up);
        if closes {
            index.open[account].retain(|other| other.range() != group.range());
        }
        closes
    }

    /// The next allocations begin at the first group with room.
    pub(crate) fn start_over(&self) {
        self.current.iter().for_each(|position| position.store(0, Relaxed));
    }

    /// The group that contains all of `range`.
    pub(crate) fn find(&self, range: Run) -> Option<Arc<BlockGroup>> {
        let index = self.index.read();
        let (_, group) = index.by_start.range(..=range.start).next_back()?;
        let end = range.start.checked_add(range.len)?;
        (end <= group.range().end()).then(|| Arc::clone(group))
    }

    /// Every group, by address.
    pub(crate) fn all(&self) -> Vec<Arc<BlockGroup>> {
        self.index.read().by_start.values().map(Arc::clone).collect()
    }

    /// Takes exactly this range, if it is free in a group of the account.
    pub(crate) fn take_at(&self, account: usize, kind: SpaceKind, range: Run, window: u64) -> bool {
        let index = self.index.read();
        let list = &index.open[account];
        let position = list.partition_point(|group| group.range().start <= range.start);
        position
            .checked_sub(1)
            .and_then(|position| list.get(position))
            .is_some_and(|group| range.end() <= group.range().end() && group.take_at(kind, range, window))
    }

    /// Takes a run from the first group that has one, beginning where the last allocation
    /// succeeded. Groups in which another thread is allocating are asked last.
    pub(crate) fn take(&self, account: usize, kind: SpaceKind, want: &Want) -> Option<Run> {
        self.take_from(&self.index.read(), account, kind, want)
    }

    /// Like [`Self::take`], while no other thread takes anything: a run that was promised is found.
    /// A walk among others may miss the last one, when it becomes free in a group that was asked
    /// before and another takes that of a group still to be asked.
    pub(crate) fn take_alone(&self, account: usize, kind: SpaceKind, want: &Want) -> Option<Run> {
        self.take_from(&self.index.write(), account, kind, want)
    }

    fn take_from(&self, index: &Index, account: usize, kind: SpaceKind, want: &Want) -> Option<Run> {
        let list = &index.open[account];
        let current = &self.current[account];
        let first = current.load(Relaxed).min(list.len());
        for wait in [false, true] {
            let positions = (first..list.len()).chain(0..first);
            for (position, group) in positions.filter_map(|p| list.get(p).map(|group| (p, group))) {
                if !group.may_have(want.run_bytes_min()) {
                    continue;
                }
                if let Some(run) = group.take(kind, want, wait) {
                    current.store(position, Relaxed);
                    return Some(run);
                }
            }
        }
        None
    }
}
