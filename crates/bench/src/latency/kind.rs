//! Names the kinds of operations, and times the operations of one thread: a histogram for each kind, and the slowest
//! ones. The threads in `work` fill it; `latency` merges and prints it.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::histogram::Histogram;

/// A timed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Create,
    Write,
    Read,
    Rename,
    Unlink,
    Stat,
    List,
    Fsync,
    Syncfs,
    Snapshot,
    Delete,
    /// A whole balance: no program waits for it.
    Balance,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Write => "write",
            Self::Read => "read",
            Self::Rename => "rename",
            Self::Unlink => "unlink",
            Self::Stat => "stat",
            Self::List => "list",
            Self::Fsync => "fsync",
            Self::Syncfs => "syncfs",
            Self::Snapshot => "snapshot",
            Self::Delete => "delete snapshot",
            Self::Balance => "balance, whole",
        }
    }
}

/// One operation that took long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Slow {
    pub(super) kind: Kind,
    /// When it began, since the beginning of the run.
    pub(super) begin_us: u64,
    pub(super) took_us: u64,
}

/// Slow operations that are kept of each thread.
const SLOW_KEPT: usize = 64;

/// Times of one thread, or of all.
#[derive(Debug, Clone)]
pub(super) struct Times {
    begin: Instant,
    by_kind: BTreeMap<Kind, Histogram>,
    slowest: Vec<Slow>,
}

impl Times {
    pub(super) fn new(begin: Instant) -> Self {
        Self { begin, by_kind: BTreeMap::new(), slowest: Vec::new() }
    }

    /// Does it, and notes how long that took, where it succeeds.
    pub(super) fn time<R, E>(&mut self, kind: Kind, operation: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        let from = Instant::now();
        let done = operation()?;
        self.note(kind, from, from.elapsed());
        Ok(done)
    }

    pub(super) fn note(&mut self, kind: Kind, from: Instant, took: Duration) {
        self.by_kind.entry(kind).or_default().add(nanos(took));
        let slow = Slow { kind, begin_us: micros(from - self.begin), took_us: micros(took) };
        let is_slow =
            self.slowest.len() < SLOW_KEPT || self.slowest.last().is_some_and(|fastest| fastest.took_us < slow.took_us);
        if is_slow && kind != Kind::Balance {
            let place = self.slowest.partition_point(|other| other.took_us >= slow.took_us);
            self.slowest.insert(place, slow);
            self.slowest.truncate(SLOW_KEPT);
        }
    }

    /// The slowest keep the time of their own run.
    pub(super) fn merge(&mut self, other: &Self) {
        for (kind, histogram) in &other.by_kind {
            self.by_kind.entry(*kind).or_default().merge(histogram);
        }
        self.slowest.extend(&other.slowest);
        self.slowest.sort_by_key(|slow| std::cmp::Reverse(slow.took_us));
        self.slowest.truncate(SLOW_KEPT);
    }

    pub(super) fn of(&self, kind: Kind) -> Option<&Histogram> {
        self.by_kind.get(&kind)
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = (Kind, &Histogram)> {
        self.by_kind.iter().map(|(kind, histogram)| (*kind, histogram))
    }

    /// The slowest first.
    pub(super) fn slowest(&self) -> &[Slow] {
        &self.slowest
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Adds the kind of the failed operation to its error.
pub(super) fn named(kind: Kind) -> impl FnOnce(io::Error) -> anyhow::Error {
    move |error| anyhow::Error::new(error).context(kind.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_are_kept_and_what_failed_is_not_counted() {
        let begin = Instant::now();
        let (mut one, mut all) = (Times::new(begin), Times::new(begin));
        for ms in 0..200 {
            one.note(Kind::Write, begin, Duration::from_millis(ms));
        }
        one.note(Kind::Balance, begin, Duration::from_secs(9));
        assert!(one.time(Kind::Read, || Err::<(), _>(())).is_err());
        all.note(Kind::Fsync, begin, Duration::from_millis(150));
        all.merge(&one);
        assert_eq!(all.slowest().len(), SLOW_KEPT);
        assert_eq!(all.slowest()[0].took_us, 199_000);
        assert!(all.slowest().iter().any(|slow| slow.kind == Kind::Fsync));
        assert!(all.of(Kind::Read).is_none());
        assert_eq!(all.of(Kind::Write).map(Histogram::count), Some(200));
        assert_eq!(all.kinds().count(), 3);
    }
}
