//! Formats the table of results: one line for each side of each way and size. Called by `enospc`.

use super::stand::Side;
use super::ways::Way;
use std::fmt;
use std::time::Duration;

/// Figures of one side in all cycles of a way and a size: the worst of each.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) way: Way,
    pub(super) bytes: u64,
    pub(super) side: Side,
    pub(super) cycles: u32,
    /// Bytes available at first, according to `df`.
    pub(super) available: u64,
    /// Bytes, or things, until the first ENOSPC, and after syncs and further rounds.
    pub(super) first: u64,
    pub(super) all: u64,
    /// The kernel's `all`.
    pub(super) kernel: Option<u64>,
    pub(super) filling: Duration,
    pub(super) emptying: Duration,
    /// Returned part of the bytes available at first, per thousand: after one sync, and after background work.
    pub(super) back: u64,
    pub(super) back_later: u64,
    /// Duration of the background work.
    pub(super) waited: Duration,
    /// Bytes that a kernel which mounts the image next takes, and gets back.
    pub(super) next: Option<(u64, u64)>,
    pub(super) failures: Vec<String>,
}

impl Row {
    /// The share of the kernel's figure, per thousand.
    pub(super) fn of_kernel(&self, all: u64) -> Option<u64> {
        self.kernel.and_then(|kernel| share(all, kernel))
    }
}

/// A share per thousand.
pub(super) fn share(part: u64, whole: u64) -> Option<u64> {
    part.saturating_mul(1000).checked_div(whole)
}

/// The first line.
pub(super) const HEAD: &str = "way            MiB side      cycles |     df   first     all  of kernel  of df | \
    fill s empty s | back % later %   in s | kernel next: all  of kernel  back % | verdict";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |number: u64| if self.way.counts_things() { number } else { number >> 20 };
        let percent = |thousandths: Option<u64>| match thousandths {
            Some(number) => format!("{}.{}", number / 10, number % 10),
            None => "-".to_owned(),
        };
        let of_df = if self.way.counts_things() { None } else { share(self.all, self.available) };
        write!(
            f,
            "{:<13} {:>4} {:<9} {:>6} | {:>6} {:>7} {:>7} {:>10} {:>6} | {:>6.1} {:>7.1} | {:>6} {:>7} {:>6.1} |",
            self.way.name(),
            self.bytes >> 20,
            self.side.name(),
            self.cycles,
            self.available >> 20,
            counted(self.first),
            counted(self.all),
            percent(self.of_kernel(self.all)),
            percent(of_df),
            self.filling.as_secs_f32(),
            self.emptying.as_secs_f32(),
            percent(Some(self.back)),
            percent(Some(self.back_later)),
            self.waited.as_secs_f32(),
        )?;
        match self.next {
            Some((all, back)) => {
                let of_kernel = percent(self.of_kernel(all));
                write!(f, " {:>16} {of_kernel:>10} {:>7} |", counted(all), percent(Some(back)))?;
            }
            None => write!(f, " {:>16} {:>10} {:>7} |", "-", "-", "-")?,
        }
        match self.failures.len() {
            0 => f.write_str(" ok"),
            count => write!(f, " {count} wrong"),
        }
    }
}
