//! The balance of a volume that is served: begun and stopped by orders, and carried out in the background, as are block
//! groups that have become all but empty; and its size, which changes at once. There is one of these at a time.
//!
//! A step is taken under a lock that orders need, too. Who only asks how far it has come finds that apart, and waits
//! for no step: the threads that answer requests are few. An order takes no step: the server calls the background
//! after each.

use std::thread;
use std::time::{Duration, Instant};

use vfs::Size;

use super::BtrfsFs;
use crate::balance::{self, BalanceProgress, BalanceStatus, Pace, Reclaim, Running};
use crate::error::{CallerError, Error, Result};
use crate::inode::Core;
use crate::locks::{Mutex, Rank};

/// The background goes on with a balance for so long before it looks at what else is due.
const TURN: Duration = Duration::from_millis(200);

/// For so long it looks whether others use the volume.
const LOOK: Duration = Duration::from_millis(1);

/// The longest that it waits for a sync.
const SYNC_MAX: Duration = Duration::from_millis(100);

/// What there is of a balance here.
#[derive(Debug)]
pub(super) struct Balancing {
    place: Mutex<Place>,
    /// As of the last step, or of the last balance that ended here.
    told: Mutex<Told>,
}

/// What is under way.
#[derive(Debug, Default)]
struct Place {
    running: Option<Running>,
    is_resizing: bool,
    /// Of a group that became all but empty.
    reclaiming: Option<Running>,
    reclaim: Reclaim,
}

#[derive(Debug, Clone, Default)]
struct Told {
    is_running: bool,
    progress: BalanceProgress,
    failure: Option<String>,
}

impl Default for Balancing {
    fn default() -> Self {
        Self { place: Mutex::new(Rank::Balancing, Place::default()), told: Mutex::new(Rank::Lists, Told::default()) }
    }
}

impl Balancing {
    fn begin(&self, place: &mut Place, running: Running) {
        *self.told.lock() = Told { is_running: true, progress: *running.progress(), failure: None };
        place.running = Some(running);
    }

    fn end(&self, progress: BalanceProgress, failure: Option<String>) {
        *self.told.lock() = Told { is_running: false, progress, failure };
    }
}

impl Place {
    /// Makes room for a balance, or another size.
    fn clear(&mut self, core: &Core) -> Result<()> {
        if self.running.is_some() || self.is_resizing {
            return Err(CallerError::Busy.into());
        }
        if let Some(reclaiming) = self.reclaiming.take() {
            reclaiming.stop(core);
        }
        Ok(())
    }
}

/// How a step of a balance ended.
enum Stepped {
    More(Duration),
    Ended(BalanceProgress, Result<()>),
}

impl BtrfsFs {
    /// Goes on with the balance that was under way when the volume was last served, as the kernel does.
    pub(super) fn resume_balance(&self) {
        match Running::resume(self.namespace(), Pace::served()) {
            Ok(running) => self.balancing.begin(&mut self.balancing.place.lock(), running),
            Err(error) if error.caller_error() == Some(CallerError::NotFound) => {}
            Err(error) => tracing::warn!("the balance that was cut short is not resumed: {error}"),
        }
    }

    /// Begins, goes on with, stops or forgets a balance.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no order, `Busy` where one is under way; as [`Running::begin`].
    pub(super) fn order_balance(&self, order: &[u8]) -> Result<()> {
        let (names, balancing) = (self.namespace(), &self.balancing);
        let order = std::str::from_utf8(order).map_err(|_| CallerError::InvalidArgument)?;
        let (word, spec) = order.split_once(' ').unwrap_or((order, ""));
        let mut place = balancing.place.lock();
        match word {
            "start" => {
                place.clear(&names.core)?;
                let spec = spec.parse().map_err(|_| CallerError::InvalidArgument)?;
                balancing.begin(&mut place, Running::begin(names, spec, Pace::served())?);
            }
            "resume" => {
                place.clear(&names.core)?;
                balancing.begin(&mut place, Running::resume(names, Pace::served())?);
            }
            "pause" | "cancel" => {
                let running = place.running.take();
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

    /// Gives the volume another size.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no size, `Busy` where a balance or another change of the size is under way; as
    /// [`vfs::Volume::resize`].
    pub(super) fn order_resize(&self, order: &[u8]) -> Result<()> {
        let size = match std::str::from_utf8(order) {
            Ok("min") => Size::Least,
            Ok("max") => Size::Bytes(self.volume.device_bytes()),
            Ok(bytes) => Size::Bytes(bytes.parse().map_err(|_| CallerError::InvalidArgument)?),
            Err(_) => return Err(CallerError::InvalidArgument.into()),
        };
        {
            let mut place = self.balancing.place.lock();
            place.clear(self.core())?;
            place.is_resizing = true;
        }
        let resized = self.volume.resize(size);
        self.balancing.place.lock().is_resizing = false;
        resized.map(drop)
    }

    /// # Errors
    /// Damage, I/O.
    pub(super) fn balance_status(&self) -> Result<BalanceStatus> {
        let Told { is_running, progress, failure } = self.balancing.told.lock().clone();
        Ok(BalanceStatus { spec: balance::status(self.core())?, is_running, progress, failure })
    }

    /// Goes on with a balance, or a group that became all but empty, for a moment; true where that is still under way.
    pub(super) fn balance_a_moment(&self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < TURN {
            // Orders come in between.
            let mut place = self.balancing.place.lock();
            let is_balance = place.running.is_some();
            let running = match is_balance {
                true => &mut place.running,
                false => self.reclaimed(&mut place),
            };
            let Some(stepped) = self.step_of(running) else { return false };
            match stepped {
                Stepped::More(rest) => {
                    drop(place);
                    self.give_way(rest);
                }
                Stepped::Ended(progress, ended) => {
                    if is_balance {
                        self.balancing.end(progress, ended.as_ref().err().map(ToString::to_string));
                    }
                    match ended {
                        // What there is no room for stays where it is.
                        Err(Error::NoSpace(_)) if !is_balance => {}
                        Err(error) => drop(self.faults.errno(&error)),
                        Ok(()) => {}
                    }
                    return false;
                }
            }
        }
        true
    }

    /// Rests where others use the volume, and for a moment lets a sync of all of it end, which would have to wait for
    /// what the next step commits.
    fn give_way(&self, rest: Duration) {
        let core = self.core();
        let begun = core.store.changes_begun();
        thread::sleep(LOOK.min(rest));
        if core.store.changes_begun() == begun && !core.data.synced.is_under_way() {
            return;
        }
        thread::sleep(rest.saturating_sub(LOOK));
        let from = Instant::now();
        while core.data.synced.is_under_way() && from.elapsed() < SYNC_MAX {
            thread::sleep(LOOK);
        }
    }

    /// One step; `None` where there is nothing to be done.
    fn step_of(&self, place: &mut Option<Running>) -> Option<Stepped> {
        let stepped = place.as_mut()?.step(self.core());
        if let (Ok(true), Some(running)) = (&stepped, place.as_ref()) {
            let mut told = self.balancing.told.lock();
            if told.is_running {
                told.progress = *running.progress();
            }
            return Some(Stepped::More(running.rest()));
        }
        let running = place.take()?;
        let progress = *running.progress();
        let ended = match stepped {
            Ok(_) => running.finish(self.namespace()).map(drop),
            Err(error) => {
                running.stop(self.core());
                Err(error)
            }
        };
        Some(Stepped::Ended(progress, ended))
    }

    /// The group that became all but empty and is being moved, if there is one.
    fn reclaimed<'a>(&self, place: &'a mut Place) -> &'a mut Option<Running> {
        let percent = u64::from(self.options.bg_reclaim_threshold);
        if place.reclaiming.is_none() && percent > 0 && !place.is_resizing {
            let found = place.reclaim.next(&self.core().store.groups(), percent);
            place.reclaiming = found.map(Running::of_group);
        }
        &mut place.reclaiming
    }
}
