//! Balances a served volume, and changes its size: commands start and stop a balance, and the background carries it
//! out, as it does the reclaim of almost empty block groups; a change of the size is made at once. Only one of these
//! runs at a time. Called by `file_system` and `xattr` for commands, and by `background`.
//!
//! A step is taken under a lock that commands need, too. A query of the progress uses another lock, and waits for no
//! step: the threads that answer requests are few. A command takes no step: the server calls the background after each.

use std::thread;
use std::time::{Duration, Instant};

use btrfs_disk::DevId;
use vfs::Size;

use super::BtrfsFs;
use crate::balance::{self, BalanceProgress, BalanceStatus, Pace, Reclaim, Running};
use crate::error::{CallerError, Error, Result};
use crate::inode::Core;
use crate::locks::{Mutex, Rank};

/// How long the background works on a balance before it looks at other work.
const TURN: Duration = Duration::from_millis(200);

/// How long it watches whether other operations use the volume.
const LOOK: Duration = Duration::from_millis(1);

/// The longest that it waits for a sync.
const SYNC_MAX: Duration = Duration::from_millis(100);

/// The balance of the volume.
#[derive(Debug)]
pub(super) struct Balancing {
    place: Mutex<Place>,
    /// As of the last step, or of the last balance that ended here.
    report: Mutex<Report>,
}

/// The running operation.
#[derive(Debug, Default)]
struct Place {
    running: Option<Running>,
    is_resizing: bool,
    /// The reclaim of an almost empty group.
    reclaiming: Option<Running>,
    reclaim: Reclaim,
}

#[derive(Debug, Clone, Default)]
struct Report {
    is_running: bool,
    progress: BalanceProgress,
    failure: Option<String>,
}

impl Default for Balancing {
    fn default() -> Self {
        Self {
            place: Mutex::new(Rank::Balancing, Place::default()),
            report: Mutex::new(Rank::Lists, Report::default()),
        }
    }
}

impl Balancing {
    fn begin(&self, place: &mut Place, running: Running) {
        *self.report.lock() = Report { is_running: true, progress: *running.progress(), failure: None };
        place.running = Some(running);
    }

    fn end(&self, progress: BalanceProgress, failure: Option<String>) {
        *self.report.lock() = Report { is_running: false, progress, failure };
    }
}

impl Place {
    /// Prepares for a balance, or a change of size.
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

/// The result of a step of a balance.
enum Stepped {
    More(Duration),
    Ended(BalanceProgress, Result<()>),
}

impl BtrfsFs {
    /// Resumes the balance that was running when the volume was last served, as the kernel does.
    pub(super) fn resume_balance(&self) {
        match Running::resume(self.namespace(), Pace::served()) {
            Ok(running) => self.balancing.begin(&mut self.balancing.place.lock(), running),
            Err(error) if error.caller_error() == Some(CallerError::NotFound) => {}
            Err(error) => tracing::warn!("the balance that was cut short is not resumed: {error}"),
        }
    }

    /// Begins, resumes, stops or cancels a balance.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown command, `Busy` where one is running; as [`Running::begin`].
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

    /// Changes the size of the volume, by that of its default device, or of a device: `ID:SIZE`.
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid size, `NotFound` for an unknown device, `Busy` where a balance or another
    /// change of the size is running; as [`vfs::Volume::resize`].
    pub(super) fn order_resize(&self, order: &[u8]) -> Result<()> {
        let text = std::str::from_utf8(order).map_err(|_| CallerError::InvalidArgument)?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| CallerError::InvalidArgument);
        let (device, size) = match text.split_once(':') {
            Some((id, size)) => (Some(DevId(number(id)?)), size),
            None => (None, text),
        };
        let size = match (size, device) {
            ("min", _) => Size::Least,
            ("max", None) => Size::Bytes(self.volume.device_bytes()),
            ("max", Some(id)) => {
                let devices = self.core().store.devices();
                let device = devices.iter().find(|device| device.id == id).ok_or(CallerError::NotFound)?;
                Size::Bytes(device.device_bytes)
            }
            (bytes, _) => Size::Bytes(number(bytes)?),
        };
        {
            let mut place = self.balancing.place.lock();
            place.clear(self.core())?;
            place.is_resizing = true;
        }
        let reshaping = self.core().data.begin_reshaping();
        if reshaping.is_none() {
            self.balancing.place.lock().is_resizing = false;
            return Err(CallerError::Busy.into());
        }
        let resized = match device {
            Some(id) => self.volume.resize_device(id, size),
            None => self.volume.resize(size),
        };
        self.balancing.place.lock().is_resizing = false;
        resized.map(drop)
    }

    /// # Errors
    /// Damage, I/O.
    pub(super) fn balance_status(&self) -> Result<BalanceStatus> {
        let Report { is_running, progress, failure } = self.balancing.report.lock().clone();
        Ok(BalanceStatus { spec: balance::status(self.core())?, is_running, progress, failure })
    }

    /// Works on a balance, or on the reclaim of a group, for a moment; true where that continues.
    pub(super) fn balance_a_moment(&self) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < TURN {
            // Unlocked between steps, for commands.
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
                        // Groups without room elsewhere stay.
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

    /// Rests where other operations use the volume, and waits briefly for the end of a sync, which would have to wait
    /// for the commit of the next step.
    fn give_way(&self, rest: Duration) {
        let core = self.core();
        let begun = core.store.changes_begun();
        thread::sleep(LOOK.min(rest));
        if core.store.changes_begun() == begun && !core.data.syncs.is_under_way() {
            return;
        }
        thread::sleep(rest.saturating_sub(LOOK));
        let from = Instant::now();
        while core.data.syncs.is_under_way() && from.elapsed() < SYNC_MAX {
            thread::sleep(LOOK);
        }
    }

    /// One step; `None` where there is nothing to be done.
    fn step_of(&self, place: &mut Option<Running>) -> Option<Stepped> {
        let stepped = place.as_mut()?.step(self.core());
        if let (Ok(true), Some(running)) = (&stepped, place.as_ref()) {
            let mut report = self.balancing.report.lock();
            if report.is_running {
                report.progress = *running.progress();
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

    /// The reclaim of a group, if one is almost empty.
    fn reclaimed<'a>(&self, place: &'a mut Place) -> &'a mut Option<Running> {
        let percent = u64::from(self.options.bg_reclaim_threshold);
        if place.reclaiming.is_none() && percent > 0 && !place.is_resizing {
            let found = place.reclaim.next(&self.core().store.movable_groups(), percent);
            let reshaping = || self.core().data.begin_reshaping();
            place.reclaiming = found.and_then(|group| Some(Running::of_group(group, reshaping()?)));
        }
        &mut place.reclaiming
    }
}
