//! The balance of a volume that is served: begun and stopped by orders, and carried out in the background.
//!
//! A step is taken under a lock that orders need, too. Who only asks how far it has come finds that apart, and waits
//! for no step: the threads that answer requests are few. An order takes no step: the server calls the background
//! after each.

use std::thread;
use std::time::{Duration, Instant};

use super::BtrfsFs;
use crate::balance::{self, BalanceProgress, BalanceStatus, Pace, Running};
use crate::error::{CallerError, Result};
use crate::locks::{Mutex, MutexGuard, Rank};

/// The background goes on with a balance for so long before it looks at what else is due.
const TURN: Duration = Duration::from_millis(200);

/// What there is of a balance here.
#[derive(Debug)]
pub(super) struct Balancing {
    running: Mutex<Option<Running>>,
    /// As of the last step, or of the last balance that ended here.
    told: Mutex<Told>,
}

#[derive(Debug, Clone, Default)]
struct Told {
    is_running: bool,
    progress: BalanceProgress,
    failure: Option<String>,
}

impl Default for Balancing {
    fn default() -> Self {
        Self { running: Mutex::new(Rank::Balancing, None), told: Mutex::new(Rank::Lists, Told::default()) }
    }
}

impl Balancing {
    fn begin(&self, mut place: MutexGuard<'_, Option<Running>>, running: Running) {
        *self.told.lock() = Told { is_running: true, progress: *running.progress(), failure: None };
        *place = Some(running);
    }

    fn end(&self, progress: BalanceProgress, failure: Option<String>) {
        *self.told.lock() = Told { is_running: false, progress, failure };
    }
}

impl BtrfsFs {
    /// Begins, goes on with, stops or forgets a balance.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no order, `Busy` where one is under way; as [`Running::begin`].
    pub(super) fn order_balance(&self, order: &[u8]) -> Result<()> {
        let (names, balancing) = (self.namespace(), &self.balancing);
        let order = std::str::from_utf8(order).map_err(|_| CallerError::InvalidArgument)?;
        let (word, spec) = order.split_once(' ').unwrap_or((order, ""));
        let mut place = balancing.running.lock();
        match word {
            "start" | "resume" if place.is_some() => return Err(CallerError::Busy.into()),
            "start" => {
                let spec = spec.parse().map_err(|_| CallerError::InvalidArgument)?;
                balancing.begin(place, Running::begin(names, spec, Pace::served())?);
            }
            "resume" => balancing.begin(place, Running::resume(names, Pace::served())?),
            "pause" | "cancel" => {
                let running = place.take();
                if running.is_none() && word == "pause" {
                    return Err(CallerError::NotFound.into());
                }
                if let Some(running) = running {
                    balancing.end(running.stop(&names.core), None);
                    names.core.store.commit()?;
                }
                if word == "cancel" {
                    balance::cancel(names)?;
                }
            }
            _ => return Err(CallerError::InvalidArgument.into()),
        }
        Ok(())
    }

    /// # Errors
    /// Damage, I/O.
    pub(super) fn balance_status(&self) -> Result<BalanceStatus> {
        let Told { is_running, progress, failure } = self.balancing.told.lock().clone();
        Ok(BalanceStatus { spec: balance::status(self.core())?, is_running, progress, failure })
    }

    /// Goes on with a balance for a moment; true where it is still under way.
    pub(super) fn balance_a_moment(&self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < TURN {
            // Orders come in between.
            let mut place = self.balancing.running.lock();
            let Some(running) = place.as_mut() else { return false };
            let stepped = running.step(self.core());
            if matches!(stepped, Ok(true)) {
                self.balancing.told.lock().progress = *running.progress();
                let rest = running.rest();
                drop(place);
                thread::sleep(rest);
                continue;
            }
            let Some(running) = place.take() else { return false };
            let progress = *running.progress();
            let ended = match stepped {
                Ok(_) => running.finish(self.namespace()).map(drop),
                Err(error) => {
                    running.stop(self.core());
                    Err(error)
                }
            };
            self.balancing.end(progress, ended.as_ref().err().map(ToString::to_string));
            if let Err(error) = ended {
                self.faults.errno(&error);
            }
            return false;
        }
        true
    }
}
