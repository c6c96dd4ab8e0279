//! Keeps the results of adjacent leaves for other subvolumes that have the same leaves. Called by the file pass
//! (`mod.rs`).
//!
//! A result depends on the leaves, on the one before them (an inode that begins there is not theirs), and on those
//! behind them that their last inode extends into.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use super::scan::{self, Found};
use crate::order::Run;
use crate::sort::lock;

/// Results kept for equal leaves with different leaves behind them.
const KEPT_MAX: usize = 4;
/// Leaves, or runs, with results: about 32 MiB. When there are more, all are forgotten.
const ENTRIES_MAX: usize = 1 << 17;

/// A result, and the leaves behind it that were read.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) behind: Vec<u64>,
    pub(super) found: Arc<Found>,
}

/// Leaves, or a run of them, with the leaf before.
type Key<L> = (Option<u64>, L);

/// Results of leaves, or runs of them.
pub(super) struct Cache<L>(Mutex<HashMap<Key<L>, Vec<Kept>>>);

impl<L> Default for Cache<L> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<L: Eq + Hash> Cache<L> {
    /// The result, if the same leaves are behind.
    pub(super) fn get<I: Iterator<Item = u64>>(&self, key: &Key<L>, behind: impl Fn() -> I) -> Option<Kept> {
        let known = lock(&self.0);
        known.get(key)?.iter().find(|kept| scan::goes_on(&kept.behind, behind())).cloned()
    }

    pub(super) fn put(&self, key: Key<L>, result: Kept) {
        let mut known = lock(&self.0);
        if known.len() >= ENTRIES_MAX {
            known.clear();
        }
        let kept = known.entry(key).or_default();
        if kept.len() >= KEPT_MAX {
            kept.remove(0);
        }
        kept.push(result);
    }
}

/// A run in its tree.
#[derive(Clone, Copy)]
pub(super) struct Stretch<'r> {
    pub(super) run: &'r Run,
    /// The leaf before it.
    pub(super) before: Option<u64>,
    /// The runs behind it.
    behind: &'r [Run],
}

impl<'r> Stretch<'r> {
    pub(super) fn of(runs: &'r [Run], index: usize) -> Option<Self> {
        let before = index.checked_sub(1).and_then(|index| runs.get(index)?.last()).copied();
        let behind = runs.get(index.saturating_add(1)..).unwrap_or_default();
        Some(Self { run: runs.get(index)?, before, behind })
    }

    pub(super) fn key(&self) -> (Option<u64>, Run) {
        (self.before, Arc::clone(self.run))
    }

    /// The leaves behind it.
    pub(super) fn further(&self) -> impl Iterator<Item = u64> + use<'r> {
        self.behind.iter().flat_map(|run| run.iter().copied())
    }
}
