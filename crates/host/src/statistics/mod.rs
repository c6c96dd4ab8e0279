//! Measures how often locks are taken, how long threads wait for them and hold them, and how often they pass between
//! threads.
//!
//! A lock belongs to a [`Class`]: that of its rank, or a narrower one that its owner names. The feature
//! `lock-statistics` builds the statistics in; without it a class has no size, nothing is counted, and [`rows`] is
//! empty. With it nothing is counted either until a call of [`measure`], which chooses the classes.
//!
//! ```text
//! acquisitions   times a lock was taken; a thread that wakes up at a condition variable takes it again
//! shared         those of them that readers made
//! contended      those of them that found the lock taken
//! wait           how long these waited
//! hold           how long guards held the locks
//! transfers      acquisitions by another thread than the one that had the same lock before: on a machine with many
//!                processors, each is a cache line that moves
//! ```
//!
//! Invariants: counts are exact; each time includes some 30 ns for reading the clock, and a measured lock is held
//! longer by that. A transfer is counted for each lock, not for the class as a whole. The list of classes has a lock of
//! its own, taken when the first lock of a class is made, and by [`measure`], [`reset`] and [`rows`]; no other lock is
//! taken under it.
//!
//! Failure: none. Callers: [`crate::locks`]; the space counters of an engine, whose threads share atomics; and the
//! `mount` command and `bench`, which print the table.

#[cfg(feature = "lock-statistics")]
mod counters;
#[cfg(feature = "lock-statistics")]
use counters as kept;
#[cfg(not(feature = "lock-statistics"))]
mod no_counters;
#[cfg(feature = "lock-statistics")]
pub mod trace;
#[cfg(not(feature = "lock-statistics"))]
use no_counters as kept;

use std::fmt::Write as _;

pub use kept::{Class, Watch, measure, reset, rows};
pub(crate) use kept::{Last, Meter, Timed};

/// First words of [`markdown`]. By them the `mount` command recognises a file that it may overwrite with a new table.
pub const MARKDOWN_BEGINS: &str = "| class |";
/// First words of [`json`].
pub const JSON_BEGINS: &str = "{\"locks\":[";

/// Counts of one class of locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub class: &'static str,
    /// Times that one of its locks was taken.
    pub acquisitions: u64,
    /// Those of them that readers made.
    pub shared: u64,
    /// Those of them that found the lock taken.
    pub contended: u64,
    /// Nanoseconds that threads waited, all together.
    pub wait_ns: u64,
    /// Nanoseconds that locks were held, all together; the times of readers that hold a lock together add up.
    pub hold_ns: u64,
    /// Acquisitions by another thread than the one that had that lock before.
    pub transfers: u64,
}

/// How a lock is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Shared,
    Exclusive,
}

/// A locked value, with the lock's counters.
pub struct Slot<T: ?Sized> {
    /// The thread that had the lock last.
    pub(crate) last: Last,
    pub(crate) value: T,
}

impl<T> Slot<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { last: Last::new(), value }
    }
}

/// A table of the rows, times in microseconds.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let mut table =
        format!("{MARKDOWN_BEGINS} acquisitions | shared | contended | wait, \u{b5}s | hold, \u{b5}s | transfers |\n");
    table.push_str("|---|---|---|---|---|---|---|\n");
    for row in rows {
        let Row { class, acquisitions, shared, contended, transfers, .. } = row;
        let (wait, hold) = (row.wait_ns / 1000, row.hold_ns / 1000);
        let _ =
            writeln!(table, "| {class} | {acquisitions} | {shared} | {contended} | {wait} | {hold} | {transfers} |");
    }
    table
}

/// The rows as JSON: `{"locks": [{"class": ..}, ..]}`, with the fields of [`Row`].
#[must_use]
pub fn json(rows: &[Row]) -> String {
    let mut text = String::from(JSON_BEGINS);
    for (number, row) in rows.iter().enumerate() {
        let Row { class, acquisitions, shared, contended, wait_ns, hold_ns, transfers } = row;
        let comma = if number == 0 { "" } else { "," };
        // Names of classes are written in the source: words without quotation marks or control characters.
        let _ = write!(
            text,
            "{comma}{{\"class\":\"{class}\",\"acquisitions\":{acquisitions},\"shared\":{shared},\
             \"contended\":{contended},\"wait_ns\":{wait_ns},\"hold_ns\":{hold_ns},\"transfers\":{transfers}}}"
        );
    }
    text.push_str("]}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_say_what_was_counted() {
        let row = Row {
            class: "Cache",
            acquisitions: 12,
            shared: 5,
            contended: 3,
            wait_ns: 4_999,
            hold_ns: 70_000,
            transfers: 2,
        };
        let table = markdown(std::slice::from_ref(&row));
        assert!(table.starts_with(MARKDOWN_BEGINS));
        assert!(table.ends_with("| Cache | 12 | 5 | 3 | 4 | 70 | 2 |\n"), "{table}");
        let text = json(&[row.clone(), row]);
        assert!(text.starts_with(JSON_BEGINS) && text.ends_with("]}\n"), "{text}");
        assert_eq!(text.matches("},{\"class\":\"Cache\",\"acquisitions\":12,").count(), 1, "{text}");
        assert_eq!(json(&[]), "{\"locks\":[]}\n");
    }

    #[test]
    #[cfg(not(feature = "lock-statistics"))]
    fn without_the_feature_statistics_take_no_room() {
        assert_eq!((size_of::<Class>(), size_of::<Watch>(), size_of::<Meter>()), (0, 0, 0));
        assert_eq!((size_of::<Last>(), size_of::<Timed>()), (0, 0));
        measure(&[]);
        assert!(rows().is_empty());
    }
}
