//! Keeps the executions whose image had a new outcome, as parents of further mutations. Called by `fuzz_images`.

use std::collections::HashMap;

use testkit::Random;

use super::execution::ends::End;
use super::execution::{Execution, Kind};

/// Most images that are kept.
const KEPT_MAX: usize = 20_000;
/// Most outcomes that are remembered.
const WAYS_MAX: usize = 1 << 20;
/// Most numbers of a kept image: after more mutations outcomes no longer differ.
const NUMBERS_MAX: usize = 3;
/// Most images that are kept of one outcome.
const ALIKE_MAX: u32 = 2;

/// Images to be mutated again.
#[derive(Debug, Default)]
pub(super) struct Pool {
    kept: Vec<Vec<u64>>,
    ways: HashMap<(Kind, &'static str, u64), u32>,
}

impl Pool {
    /// The numbers of the ancestors of an execution; half of the executions have none.
    pub(super) fn parents(&self, seed: u64, number: u64) -> Vec<u64> {
        let mut random = Random::new(seed ^ number.rotate_left(32));
        if random.one_in(2) {
            return Vec::new();
        }
        random.pick(&self.kept).cloned().unwrap_or_default()
    }

    /// Keeps an image with a new outcome.
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

    /// Number of different outcomes.
    pub(super) fn ways(&self) -> usize {
        self.ways.len()
    }
}
