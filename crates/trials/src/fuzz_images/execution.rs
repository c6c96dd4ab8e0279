//! Makes one hostile image, and does one operation on it. Called by the threads of `fuzz_images`.

use std::fmt;
use std::sync::Arc;

use anyhow::Result;
use blockdev::Device;
use testkit::Random;
use testkit::hostile::{HostileImage, SmallBase, hostile_image};

use ends::{Depth, End};

#[allow(
    clippy::all,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::expect_used,
    clippy::allow_attributes_without_reason,
    unreachable_pub,
    reason = "it belongs to a crate of its own, with rules of its own"
)]
#[path = "../../../../fuzz/src/ends.rs"]
pub(super) mod ends;

#[allow(
    clippy::all,
    clippy::indexing_slicing,
    clippy::allow_attributes_without_reason,
    reason = "it belongs to a crate of its own, with rules of its own"
)]
#[path = "../../../../fuzz/src/walk.rs"]
mod walk;

/// The operation on an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, clap::ValueEnum)]
pub(super) enum Kind {
    /// All passes of a check.
    Check,
    /// A scrub that only reads, or one that repairs.
    Scrub,
    /// A rescue reads the files; sometimes older states and deleted files too.
    Rescue,
    /// A repair is planned, applied and undone.
    Repair,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Check, Self::Scrub, Self::Rescue, Self::Repair];

    /// Relative frequency: the cheap ones are most frequent.
    fn weight(self) -> usize {
        match self {
            Self::Check => 20,
            Self::Scrub => 10,
            Self::Rescue => 3,
            Self::Repair => 1,
        }
    }
}

/// An operation on the image of some numbers, of which the last is its own.
#[derive(Debug, Clone)]
pub(super) struct Execution {
    pub(super) kind: Kind,
    pub(super) numbers: Vec<u64>,
}

impl Execution {
    /// The last number chooses the operation among `what`.
    pub(super) fn new(what: &[Kind], numbers: &[u64]) -> Self {
        let table: Vec<Kind> = what.iter().flat_map(|kind| std::iter::repeat_n(*kind, kind.weight())).collect();
        let own = numbers.last().copied().unwrap_or(0);
        let kind = Random::new(own).pick(&table).copied().unwrap_or(Kind::Check);
        Self { kind, numbers: numbers.to_vec() }
    }

    pub(super) fn image(&self, bases: &[SmallBase], seed: u64) -> Result<HostileImage> {
        hostile_image(bases, seed, &self.numbers)
    }

    pub(super) fn run(&self, device: &Arc<dyn Device>) -> End {
        let own = self.numbers.last().copied().unwrap_or(0);
        let mut random = Random::new(own ^ 0x5555);
        match self.kind {
            Kind::Check => ends::check(device),
            Kind::Scrub => ends::scrub(device, random.one_in(2)),
            Kind::Rescue => ends::rescue(device, Depth { states: random.one_in(4), undelete: random.one_in(4) }),
            Kind::Repair => ends::repair(device),
        }
    }

    /// The arguments that run it again.
    pub(super) fn again(&self) -> String {
        let numbers: Vec<String> = self.numbers.iter().map(ToString::to_string).collect();
        format!("--what {} --only {}", self.word(), numbers.join(","))
    }

    fn word(&self) -> String {
        format!("{:?}", self.kind).to_lowercase()
    }
}

impl fmt::Display for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} of {:?}", self.word(), self.numbers))
    }
}
