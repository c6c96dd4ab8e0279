//! Images that ended in a new way.

use std::collections::HashMap;

use testkit::Random;

use super::execution::ends::End;
use super::execution::{Execution, Kind};

/// Images that are kept.
const KEPT_MAX: usize = 20_000;
/// Ways to end that are remembered.
const WAYS_MAX: usize = 1 << 20;
/// Numbers of an image that is kept: more changes leave nothing that could be told apart.
const NUMBERS_MAX: usize = 3;
/// Images that are kept of one way.
const ALIKE_MAX: u32 = 2;

/// What is kept to be changed again.
#[derive(Debug, Default)]
pub(super) struct Pool {
    kept: Vec<Vec<u64>>,
    ways: HashMap<(Kind, &'static str, u64), u32>,
}

impl Pool {
    /// The numbers that an execution goes on from; half of them begin anew.
    pub(super) fn parents(&self, seed: u64, number: u64) -> Vec<u64> {
        let mut random = Random::new(seed ^ number.rotate_left(32));
        if random.one_in(2) {
            return Vec::new();
        }
        random.pick(&self.kept).cloned().unwrap_or_default()
    }

    /// Keeps an image that ended in a new way.
    pub(super) fn ended(&mut self, execution: &Execution, end: End) {
        let way = (execution.kind, end.word, end.detail);
        if self.ways.len() >= WAYS_MAX && !self.ways.contains_key(&way) {
            return;
        }
        let times = self.ways.entry(way).or_default();
        *times = times.saturating_add(1);
        if *times > ALIKE_MAX || execution.numbers.len() >= NUMBERS_MAX {
            return;
        }
        if self.kept.len() < KEPT_MAX {
            self.kept.push(execution.numbers.clone());
        } else {
            let own = execution.numbers.last().copied().unwrap_or(0);
            let index = Random::new(own).index(KEPT_MAX);
            if let Some(kept) = self.kept.get_mut(index) {
                kept.clone_from(&execution.numbers);
            }
        }
    }

    /// Ways to end that were seen.
    pub(super) fn ways(&self) -> usize {
        self.ways.len()
    }
}
