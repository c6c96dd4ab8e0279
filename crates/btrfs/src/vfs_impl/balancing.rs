//! The balance of a volume that is served: begun and stopped by orders, and carried out in the background.

use std::time::{Duration, Instant};

use super::BtrfsFs;
use crate::balance::{self, BalanceProgress, BalanceStatus, Running};
use crate::error::{CallerError, Result};
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
}

impl Default for Balancing {
    fn default() -> Self {
        Self(Mutex::new(Rank::Balancing, Known::default()))
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
            "start" | "resume" if known.running.is_some() => return Err(CallerError::Busy.into()),
            "start" => {
                let spec = spec.parse().map_err(|_| CallerError::InvalidArgument)?;
                *known = Known { running: Some(Running::begin(names, spec)?), ..Known::default() };
            }
            "resume" => *known = Known { running: Some(Running::resume(names)?), ..Known::default() },
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
            let Some(running) = &mut known.running else { return false };
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
}
