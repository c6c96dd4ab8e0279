//! Computes how fast a series of measurements grows, and says which grow faster than they may. `growth` calls it, and
//! `chart` draws what it has.
//!
//! Between two neighbouring counts the exponent is `ln(t2 / t1) / ln(n2 / n1)`: 1 is ten times the time at ten times
//! the count. The bound is the exponent of n log n or of log n between the same counts, and a margin. Times below
//! [`SECONDS_MIN`] count as that long: they are mostly the start of what is measured, and vary.

use std::fmt::Write as _;

use serde::Serialize;

use super::step::Growth;
use crate::row::as_float;

/// Shorter times are not compared.
const SECONDS_MIN: f64 = 0.02;
/// Less memory is not compared.
const KIB_MIN: f64 = 32.0 * 1024.0;

/// One measurement.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Point {
    pub(super) count: u64,
    pub(super) seconds: f64,
    pub(super) peak_kib: i64,
}

/// The measurements of a step, in the order of their counts.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) step: &'static str,
    pub(super) growth: Growth,
    pub(super) points: Vec<Point>,
}

/// A series as a line of the history.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    dimension: &'static str,
    step: &'static str,
    bound: Growth,
    points: &'a [Point],
    exponents: Vec<f64>,
    memory_exponents: Vec<f64>,
    grows_too_fast: bool,
}

impl Growth {
    /// The work that the bound permits for a count, up to a factor.
    fn cost(self, count: u64) -> f64 {
        let log = as_float(count.saturating_add(2)).log2();
        if self == Self::Whole { as_float(count) * log } else { log }
    }

    fn name(self) -> &'static str {
        if self == Self::Whole { "n log n" } else { "log n" }
    }
}

impl Series {
    /// The exponents of time between neighbours.
    pub(super) fn exponents(&self) -> Vec<f64> {
        self.between(|point| point.seconds.max(SECONDS_MIN))
    }

    /// The exponents of memory between neighbours.
    fn memory_exponents(&self) -> Vec<f64> {
        self.between(|point| kib(point).max(KIB_MIN))
    }

    fn between(&self, value: impl Fn(&Point) -> f64) -> Vec<f64> {
        let pairs = self.points.iter().zip(self.points.iter().skip(1));
        pairs.map(|(one, next)| (value(next) / value(one)).ln() / ratio(one, next)).collect()
    }

    /// By how much the largest exponent exceeds its bound.
    fn excess(&self) -> f64 {
        let pairs = self.points.iter().zip(self.points.iter().skip(1));
        let bounds = pairs.map(|(one, next)| {
            let cost = |point: &Point| self.growth.cost(point.count);
            (cost(next) / cost(one)).ln() / ratio(one, next)
        });
        self.exponents().iter().zip(bounds).map(|(found, bound)| found - bound).fold(f64::NEG_INFINITY, f64::max)
    }

    /// True if it grows faster than it may.
    pub(super) fn is_worse(&self, margin: f64) -> bool {
        self.excess() > margin
    }

    pub(super) fn line(&self, dimension: &'static str, margin: f64) -> Line<'_> {
        Line {
            dimension,
            step: self.step,
            bound: self.growth,
            points: &self.points,
            exponents: self.exponents(),
            memory_exponents: self.memory_exponents(),
            grows_too_fast: self.is_worse(margin),
        }
    }
}

fn ratio(one: &Point, next: &Point) -> f64 {
    (as_float(next.count) / as_float(one.count)).ln()
}

/// The memory of a point, as a float.
pub(super) fn kib(point: &Point) -> f64 {
    as_float(u64::try_from(point.peak_kib).unwrap_or(0))
}

/// A table: seconds and MiB at each count, the exponents, and the verdict.
pub(super) fn markdown(title: &str, all: &[Series], margin: f64) -> String {
    let counts: Vec<u64> =
        all.first().map_or_else(Vec::new, |one| one.points.iter().map(|point| point.count).collect());
    let mut text = format!("\n| {title} |");
    for count in &counts {
        let _ = write!(text, " {count} |");
    }
    text.push_str(" exponents | bound | MiB | exponents of memory |\n|");
    text.push_str(&"---|".repeat(counts.len() + 5));
    text.push('\n');
    for one in all {
        let _ = write!(text, "| {} |", one.step);
        for count in &counts {
            match one.points.iter().find(|point| point.count == *count) {
                Some(point) => write!(text, " {} |", seconds(point.seconds)),
                None => write!(text, " |"),
            }
            .unwrap_or_default();
        }
        let numbers = |numbers: Vec<f64>| numbers.iter().map(|one| format!("{one:.2}")).collect::<Vec<_>>().join(" ");
        let verdict = if one.is_worse(margin) { "**exceeds** " } else { "" };
        let mib: Vec<String> = one.points.iter().map(|point| (point.peak_kib / 1024).to_string()).collect();
        let _ = writeln!(
            text,
            " {} | {verdict}{} | {} | {} |",
            numbers(one.exponents()),
            one.growth.name(),
            mib.join(" "),
            numbers(one.memory_exponents())
        );
    }
    text
}

fn seconds(seconds: f64) -> String {
    match seconds {
        _ if seconds < 0.001 => format!("{:.1} \u{b5}s", seconds * 1e6),
        _ if seconds < 1.0 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(growth: Growth, cost: impl Fn(f64) -> f64) -> Series {
        let points = [1000_u64, 10_000, 100_000];
        let points = points.map(|count| Point { count, seconds: cost(as_float(count)), peak_kib: 1 << 16 });
        Series { step: "a step", growth, points: points.to_vec() }
    }

    #[test]
    fn squares_exceed_the_bound_and_n_log_n_does_not() {
        assert!(!series(Growth::Whole, |n| n * n.log2() * 1e-5).is_worse(0.1));
        assert!(!series(Growth::Whole, |n| n * 1e-5 + 1.0).is_worse(0.1));
        let square = series(Growth::Whole, |n| n * n * 1e-6);
        assert!(square.is_worse(0.3));
        assert!(square.exponents().iter().all(|exponent| (exponent - 2.0).abs() < 0.01));
        assert!(markdown("files", &[square], 0.3).contains("**exceeds** n log n"));
    }

    #[test]
    fn a_single_operation_may_not_grow_with_the_count() {
        assert!(series(Growth::Single, |n| n * 1e-5).is_worse(0.3));
        assert!(!series(Growth::Single, f64::log2).is_worse(0.1));
        // Too short to be compared.
        assert!(!series(Growth::Single, |n| n * 1e-9).is_worse(0.3));
    }
}
