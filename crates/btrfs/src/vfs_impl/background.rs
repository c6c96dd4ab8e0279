//! Does the periodic background work: writes old dirty data, commits, takes deleted subvolumes apart, removes empty
//! block groups. The server of a mount calls it in steps, through `file_system`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{BtrfsFs, FsOptions};
use crate::error::Result;
use crate::inode::Timestamp;
use crate::locks::{Mutex, Rank};
use crate::{subvol, writeback};

/// Steps in one commit interval: data that became dirty in one of them is written in the next, so that the commit at
/// the end has little left to write.
const STEPS_PER_INTERVAL: u32 = 6;
/// Shortest time between two steps.
const STEP_MIN: Duration = Duration::from_millis(100);

/// The schedule of the background work.
#[derive(Debug)]
pub(super) struct Background {
    interval: Duration,
    step: Duration,
    state: Mutex<Due>,
    /// Failed devices that were told of.
    losses: AtomicU64,
}

#[derive(Debug)]
struct Due {
    committed: Timestamp,
    /// Inodes that became dirty before this place are written by the next step.
    written_to: u64,
}

impl Background {
    pub(super) fn new(options: &FsOptions, now: Timestamp) -> Self {
        let interval = options.commit_interval.max(STEP_MIN);
        Self {
            interval,
            step: (interval / STEPS_PER_INTERVAL).max(STEP_MIN),
            losses: AtomicU64::new(0),
            state: Mutex::new(Rank::Background, Due { committed: now, written_to: 0 }),
        }
    }
}

impl BtrfsFs {
    /// Does the work that is due; returns the time until the next.
    pub(super) fn run_step(&self) -> Duration {
        if self.volume.is_read_only() || self.core().store.poisoned().is_some() {
            return self.background.interval;
        }
        self.warn_of_losses();
        // Where the first fails, the next open of the volume continues.
        let namespace = self.namespace();
        let done = subvol::drop_dead_trees(namespace)
            .and_then(|()| subvol::finish_some_leftovers(namespace))
            .and_then(|()| self.write_old());
        if let Err(error) = done {
            self.faults.errno(&error);
        }
        if self.balance_a_moment() {
            return Duration::ZERO;
        }
        self.background.step
    }

    /// Makes everything durable, and frees deleted files and, where no other operation uses the volume, subvolumes that
    /// are not huge.
    pub(super) fn sync_volume(&self) -> Result<()> {
        let _syncing = self.core().data.syncs.begin();
        let may_write = !self.volume.is_read_only() && self.core().store.poisoned().is_none();
        if may_write && let Err(error) = subvol::drop_some_dead_trees(self.namespace()) {
            // The sync does not depend on it: the next open of the volume continues.
            self.faults.errno(&error);
        }
        self.volume.sync_and_gather()
    }

    /// Logs that devices failed since the last call.
    fn warn_of_losses(&self) {
        let losses = self.core().store.lost_devices();
        if self.background.losses.swap(losses, Ordering::Relaxed) < losses {
            let devices = self.core().store.devices();
            let missing = devices.iter().filter(|device| device.is_missing).map(|device| device.id.to_string());
            let missing: Vec<String> = missing.collect();
            tracing::error!(
                "a device failed, and the volume goes on without it; missing now: {}; `spinney device resync` or \
                 `device replace` mends that",
                missing.join(", ")
            );
        }
    }

    fn write_old(&self) -> Result<()> {
        let background = &self.background;
        let mut due = background.state.lock();
        let now = self.core().now();
        if is_past(due.committed, background.interval, now) {
            due.written_to = self.core().data.next_place();
            self.volume.sync_and_gather()?;
            due.committed = now;
            return Ok(());
        }
        let place = std::mem::replace(&mut due.written_to, self.core().data.next_place());
        writeback::flush_before(self.core(), place)
    }
}

/// True when `interval` has passed since `since`, or when the clock was set back.
fn is_past(since: Timestamp, interval: Duration, now: Timestamp) -> bool {
    let nanos = |time: Timestamp| i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec);
    let passed = nanos(now) - nanos(since);
    u128::try_from(passed).map_or(true, |passed| passed >= interval.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_passes() {
        let start = Timestamp::new(10, 900_000_000);
        let second = Duration::from_secs(1);
        assert!(!is_past(start, second, Timestamp::new(11, 899_999_999)));
        assert!(is_past(start, second, Timestamp::new(11, 900_000_000)));
        assert!(is_past(start, second, Timestamp::new(10, 0)));
    }
}
