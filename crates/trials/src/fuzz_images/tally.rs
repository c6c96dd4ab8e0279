//! Counts the executions and outcomes of a thread. `fuzz_images` adds to it, `progress` prints it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::execution::{Execution, Kind};

/// Executions by kind, and the time that making their images took.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) kinds: BTreeMap<Kind, KindTally>,
    pub(super) making: Duration,
}

/// Executions of a kind.
#[derive(Debug, Default)]
pub(super) struct KindTally {
    pub(super) count: u64,
    /// Counts by outcome.
    pub(super) words: BTreeMap<&'static str, u64>,
    /// Time without making images.
    pub(super) time: Duration,
    pub(super) slowest: Option<(Duration, Execution)>,
}

impl Tally {
    /// Adds an execution that took `took`, of which `made` was for its image.
    pub(super) fn add(&mut self, execution: &Execution, word: &'static str, made: Duration, took: Duration) {
        self.making = self.making.saturating_add(made);
        let tally = self.kinds.entry(execution.kind).or_default();
        tally.count = tally.count.saturating_add(1);
        let count = tally.words.entry(word).or_default();
        *count = count.saturating_add(1);
        tally.time = tally.time.saturating_add(took.saturating_sub(made));
        if tally.slowest.as_ref().is_none_or(|(slowest, _)| *slowest < took) {
            tally.slowest = Some((took, execution.clone()));
        }
    }

    /// Adds the counts of another thread.
    pub(super) fn merge(&mut self, other: &Self) {
        self.making = self.making.saturating_add(other.making);
        for (kind, tally) in &other.kinds {
            let sum = self.kinds.entry(*kind).or_default();
            sum.count = sum.count.saturating_add(tally.count);
            sum.time = sum.time.saturating_add(tally.time);
            for (word, count) in &tally.words {
                let sum = sum.words.entry(word).or_default();
                *sum = sum.saturating_add(*count);
            }
            let slowest = tally.slowest.iter().chain(&sum.slowest).max_by_key(|(took, _)| *took);
            sum.slowest = slowest.cloned();
        }
    }

    /// All executions.
    pub(super) fn count(&self) -> u64 {
        self.kinds.values().fold(0, |sum, tally| sum.saturating_add(tally.count))
    }
}
