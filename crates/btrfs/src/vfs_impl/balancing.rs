//! The balance of a volume that is served: begun and stopped by orders, and carried out in the background; and its size,
//! which changes at once. There is one of them at a time.

use std::time::{Duration, Instant};

use vfs::Size;

use super::BtrfsFs;
use crate::balance::{self, BalanceProgress, BalanceStatus, Reclaim, Running};
use crate::error::{CallerError, Error, Result};
use crate::inode::Core;
use crate::locks::{Mutex, Rank};

/// The background goes on with a balance for so long before it looks at what else is due.
const TURN: Duration = Duration::from_millis(200);

/// What there is of a balance here.
#[derive(Debug)]
pub(super) struct Balancing(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    running: Option<Running>,
    /// Of the last one that ended here.
    progress: BalanceProgress,
    failure: Option<String>,
    is_resizing: bool,
    /// Of a group that became all but empty.
    reclaiming: Option<Running>,
    reclaim: Reclaim,
}

impl Default for Balancing {
    fn default() -> Self {
        Self(Mutex::new(Rank::Balancing, Known::default()))
    }
}

impl Known {
    fn begin(&mut self, running: Running) {
        (self.running, self.progress, self.failure) = (Some(running), BalanceProgress::default(), None);
    }

    fn stop_reclaiming(&mut self, core: &Core) {
        if let Some(reclaiming) = self.reclaiming.take() {
            reclaiming.stop(core);
        }
    }

    fn is_busy(&self) -> bool {
        self.running.is_some() || self.is_resizing
    }
}

impl BtrfsFs {
    /// Begins, goes on with, stops or forgets a balance.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no order, `Busy` where one is under way; as [`Running::begin`].
    pub(super) fn order_balance(&self, order: &[u8]) -> Result<()> {
        let names = self.namespace();
        let order = std::str::from_utf8(order).map_err(|_| CallerError::InvalidArgument)?;
        let (word, spec) = order.split_once(' ').unwrap_or((order, ""));
        let mut known = self.balancing.0.lock();
        match word {
            "start" | "resume" if known.is_busy() => return Err(CallerError::Busy.into()),
            "start" => {
                let spec = spec.parse().map_err(|_| CallerError::InvalidArgument)?;
                known.stop_reclaiming(&names.core);
                known.begin(Running::begin(names, spec)?);
            }
            "resume" => {
                known.stop_reclaiming(&names.core);
                known.begin(Running::resume(names)?);
            }
            "pause" | "cancel" => {
                let running = known.running.take();
                if running.is_none() && word == "pause" {
                    return Err(CallerError::NotFound.into());
                }
                if let Some(running) = running {
                    known.progress = running.stop(&names.core);
                    names.core.store.commit()?;
                }
                if word == "cancel" {
                    balance::cancel(names)?;
                }
            }
            _ => return Err(CallerError::InvalidArgument.into()),
        }
        drop(known);
        // Small ones end at once; the background goes on with others when it is its turn.
        self.balance_a_moment();
        Ok(())
    }

    /// Gives the volume another size.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no size, `Busy` where a balance or another change of the size is under way; as
    /// [`vfs::Volume::resize`].
    pub(super) fn order_resize(&self, order: &[u8]) -> Result<()> {
        let size = match std::str::from_utf8(order) {
            Ok("min") => Size::Least,
            Ok("max") => Size::Bytes(self.volume.devices.iter().map(|device| device.size_bytes()).sum()),
            Ok(bytes) => Size::Bytes(bytes.parse().map_err(|_| CallerError::InvalidArgument)?),
            Err(_) => return Err(CallerError::InvalidArgument.into()),
        };
        {
            let mut known = self.balancing.0.lock();
            if known.is_busy() {
                return Err(CallerError::Busy.into());
            }
            known.stop_reclaiming(self.core());
            known.is_resizing = true;
        }
        let resized = self.volume.resize(size);
        self.balancing.0.lock().is_resizing = false;
        resized.map(drop)
    }

    /// # Errors
    /// Damage, I/O.
    pub(super) fn balance_status(&self) -> Result<BalanceStatus> {
        let known = self.balancing.0.lock();
        Ok(BalanceStatus {
            spec: balance::status(self.core())?,
            is_running: known.running.is_some(),
            progress: known.running.as_ref().map_or(known.progress, |running| *running.progress()),
            failure: known.failure.clone(),
        })
    }

    /// Goes on with a balance for a moment; true where it is still under way.
    pub(super) fn balance_a_moment(&self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < TURN {
            // Orders and questions come in between.
            let mut known = self.balancing.0.lock();
            let Some(running) = &mut known.running else { return self.reclaim_a_moment(&mut known) };
            let stepped = running.step(self.core());
            if matches!(stepped, Ok(true)) {
                continue;
            }
            let Some(running) = known.running.take() else { return false };
            known.progress = *running.progress();
            let ended = match stepped {
                Ok(_) => running.finish(self.namespace()).map(drop),
                Err(error) => {
                    running.stop(self.core());
                    Err(error)
                }
            };
            if let Err(error) = ended {
                known.failure = Some(error.to_string());
                self.faults.errno(&error);
            }
            return false;
        }
        true
    }

    /// Moves some of what is in a block group that became all but empty, or finds one; true where there is more to be
    /// done.
    fn reclaim_a_moment(&self, known: &mut Known) -> bool {
        let percent = u64::from(self.options.bg_reclaim_threshold);
        if percent == 0 || known.is_resizing {
            return false;
        }
        let core = self.core();
        let Some(reclaiming) = &mut known.reclaiming else {
            let found = known.reclaim.next(&core.store.groups(), percent);
            known.reclaiming = found.map(Running::of_group);
            return known.reclaiming.is_some();
        };
        let stepped = reclaiming.step(core);
        if matches!(stepped, Ok(true)) {
            return true;
        }
        let Some(reclaiming) = known.reclaiming.take() else { return false };
        let ended = match stepped {
            Ok(_) => reclaiming.finish(self.namespace()).map(drop),
            Err(error) => {
                reclaiming.stop(core);
                Err(error)
            }
        };
        match ended {
            // It stays, with what was not moved.
            Ok(()) | Err(Error::NoSpace) => {}
            Err(error) => drop(self.faults.errno(&error)),
        }
        false
    }
}
