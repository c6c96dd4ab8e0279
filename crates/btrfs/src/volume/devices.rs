//! Changes the set of devices of a volume in use, by the methods of `Volume`. Called by the command `device`, on images
//! and in the server of a mount.
//!
//! One such change, or balance, runs at a time. It can be killed at any moment: an added device is a member or not, a
//! device that is being removed stays with less on it, and one that is being replaced or brought up to date is a member
//! or not; what was copied until then is copied again.

use std::ops::ControlFlow;
use std::sync::Arc;

use blockdev::Device;
use btrfs_disk::{DevId, Generation, Uuid};
use btrfs_pool::{MemberError, Mode, Profile, members, supers};
use btrfs_store::{DeviceState, GroupState, Rebuild, Store, StoreOptions};

use super::Volume;
use crate::balance::{RemovalProgress, clear_device};
use crate::error::{CallerError, Error};
use crate::inode::Reshaping;
use crate::scrub::{LostRange, files_with};
use crate::writeback;
use vfs::{Errno, Result, Size};

/// Lost ranges that are listed.
const LOST_RANGES_MAX: usize = 1 << 16;

/// The progress and the result of writing a device anew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Number of the device.
    pub id: u64,
    /// Bytes written to the device.
    pub written_bytes: u64,
    /// Bytes that were there already.
    pub same_bytes: u64,
    /// Bytes compared with the other copies afterwards.
    pub compared_bytes: u64,
    /// Of [`Self::total_bytes`], those that were looked at: they are on the device now, or were.
    pub done_bytes: u64,
    /// Bytes that belong on the device; twice as many where it is compared afterwards.
    pub total_bytes: u64,
    /// Logical addresses and lengths, in bytes, of ranges that no device has a good copy of; at most 65,536.
    pub lost: Vec<(u64, u64)>,
    /// The parts of files in these ranges, at most [`crate::ScrubReport::LOST_MAX`].
    pub lost_files: Vec<LostRange>,
    /// The device that was replaced could not be overwritten: it still looks like a device of the volume.
    pub is_old_left: bool,
}

/// Receives the progress, and decides whether to continue.
type Watch<'a> = &'a mut dyn FnMut(&RebuildReport) -> ControlFlow<()>;

impl Volume {
    /// The devices, present or missing.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceState> {
        self.core().store.devices()
    }

    /// Adds an empty device; returns its number. Old contents of the device are lost.
    ///
    /// # Errors
    /// `Members` for a device that is too small, `Busy` during another such change, `ReadOnly`; as
    /// [`vfs::Volume::sync`].
    pub fn add_device(&self, device: &Arc<dyn Device>) -> Result<u64> {
        let _reshaping = self.begin_reshaping()?;
        self.open.sync()?;
        Ok(self.core().store.add_device(device).map_err(crate::Error::from)?.0)
    }

    /// Moves everything from a device to the others, and removes it; its superblocks are overwritten if it is there and
    /// no seed. `watch` may stop it: what was moved stays moved.
    ///
    /// # Errors
    /// `NoSpace` where the others have no room; `FewDevices` where a profile in use needs this many devices; `Busy`
    /// during another such change; `ECANCELED`; `ReadOnly`; as [`vfs::Volume::sync`].
    pub fn remove_device(&self, id: u64, watch: &mut dyn FnMut(&RemovalProgress) -> ControlFlow<()>) -> Result<()> {
        let _reshaping = self.begin_reshaping()?;
        self.open.sync()?;
        let core = self.core();
        if !clear_device(core, DevId(id), watch)? {
            return Err(Errno::ECANCELED.into());
        }
        Ok(core.store.remove_device(DevId(id)).map_err(crate::Error::from)?)
    }

    /// Puts `target` in the place of device `id`, from the copies that are there. It is read back and compared before
    /// the old device, if that is there, is overwritten. After a failure, or if `watch` stops it, all is as before and
    /// the target is empty, as far as it can discard what was written.
    ///
    /// # Errors
    /// `Members` for a target that is too small; `EIO` if the target does not return what was written to it; `Busy`
    /// during another such change; `ECANCELED`; damage, I/O.
    pub fn replace_device(&self, id: u64, target: Arc<dyn Device>, watch: Watch<'_>) -> Result<RebuildReport> {
        let _reshaping = self.begin_reshaping()?;
        self.open.sync()?;
        let uuid = self.devices().iter().find(|device| device.id.0 == id).map(|device| device.uuid);
        let replaced = self.try_replace(id, Arc::clone(&target), watch);
        let is_member = |device: &DeviceState| !device.is_missing && device.name == target.name();
        if replaced.as_ref().is_err_and(|error| !is_refusal(error))
            && has_begun(&*target, uuid)
            && !self.devices().iter().any(is_member)
        {
            // Where that fails, its mark says that it may be overwritten.
            let _ = supers::clear_target(&*target);
        }
        replaced
    }

    fn try_replace(&self, id: u64, target: Arc<dyn Device>, watch: Watch<'_>) -> Result<RebuildReport> {
        let mut report = RebuildReport { id, ..RebuildReport::default() };
        let places = Places::of(&self.core().store, DevId(id));
        report.total_bytes = places.bytes.saturating_mul(2);
        let mut rebuild = self.rebuild(id, target, Generation(0), &places, (&mut report, watch))?;
        report.lost_files = files_with(self.namespace(), &report.lost);
        self.compare(&mut rebuild, &places, &mut report, watch)?;
        if let Some(old) = rebuild.finish().map_err(Error::from)? {
            // It may have failed, which is no reason to keep it.
            report.is_old_left = supers::retire(&*old).is_err();
            old.let_go();
        }
        Ok(report)
    }

    /// Brings a device up to date that missed commits, and makes it a member again. Of what it has not, it gets all;
    /// data without checksums is compared as a whole.
    ///
    /// # Errors
    /// `Members` for a device that the volume does not lack, or that did not miss commits; `Busy` during another such
    /// change; `ECANCELED`; damage, I/O.
    pub fn resync_device(&self, target: Arc<dyn Device>, watch: Watch<'_>) -> Result<RebuildReport> {
        let _reshaping = self.begin_reshaping()?;
        self.open.sync()?;
        let store = &self.core().store;
        let devices = store.devices();
        let present = devices.iter().find(|device| !device.is_missing).map(|device| device.name.as_str());
        let behind = members::read_behind(&*target, &store.superblock(), present.unwrap_or_default());
        let behind = behind.map_err(|error| Error::Members(Box::new(error)))?;
        let item = &behind.fields().dev_item;
        let id = item.devid.get();
        let is_it = |known: &&DeviceState| known.id.0 == id && known.uuid == item.uuid;
        match devices.iter().find(is_it) {
            Some(known) if known.is_missing => {}
            Some(known) => {
                let (id, device, other) = (known.id, target.name().to_owned(), known.name.clone());
                return Err(Error::Members(Box::new(MemberError::Repeated { id, device, other })).into());
            }
            None => {
                let (id, device) = (DevId(id), target.name().to_owned());
                return Err(Error::Members(Box::new(MemberError::Removed { device, id })).into());
            }
        }
        if self.was_written_apart(&target) {
            let (id, device, generation) = (DevId(id), target.name().to_owned(), behind.generation());
            let other = present.unwrap_or_default().to_owned();
            return Err(Error::Members(Box::new(MemberError::Split { device, id, other, generation })).into());
        }
        let mut report = RebuildReport { id, ..RebuildReport::default() };
        let places = Places::of(store, DevId(id));
        report.total_bytes = places.bytes;
        let rebuild = self.rebuild(id, target, behind.generation(), &places, (&mut report, watch))?;
        rebuild.finish().map_err(Error::from)?;
        report.lost_files = files_with(self.namespace(), &report.lost);
        Ok(report)
    }

    /// True for a device whose own state notes that a device of this volume missed writes, which this volume does not
    /// know of: both were written without the other. False if that state cannot be read from the device alone.
    fn was_written_apart(&self, stale: &Arc<dyn Device>) -> bool {
        let store = &self.core().store;
        let options = StoreOptions { read_only: true, mode: Mode::Degraded, ..StoreOptions::default() };
        let Ok(other) = Store::open(vec![Arc::clone(stale)], &options) else { return false };
        let (here, there) = (store.superblock(), other.superblock());
        there.items().iter().any(|noted| {
            let known = here.items().iter().find(|known| known.devid == noted.devid);
            known.is_some_and(|known| noted.generation.get() > known.generation.get())
        })
    }

    /// Sets the size of a device, and of its image file; data beyond the new end is moved before it or to other
    /// devices. Returns the new size.
    ///
    /// # Errors
    /// `NotFound` for a device that the volume does not have; `Busy` during another such change; `NoSpace`, and the
    /// size stays, where there is not enough room for that data; as [`vfs::Volume::resize`].
    pub fn resize_device(&self, id: u64, size: Size) -> Result<u64> {
        let _reshaping = self.begin_reshaping()?;
        Ok(self.open.resize_device(DevId(id), size)?)
    }

    /// How many devices were put aside when the volume was opened, since they missed commits.
    #[must_use]
    pub fn stale_devices(&self) -> usize {
        self.core().data.stale_count()
    }

    /// Brings the next device up to date that was put aside when the volume was opened; `None` where none is left.
    /// After a failure the device stays missing, as it was.
    ///
    /// # Errors
    /// As [`Self::resync_device`].
    pub fn resync_stale_device(&self, watch: Watch<'_>) -> Option<(String, Result<RebuildReport>)> {
        let device = self.core().data.take_stale()?;
        let name = device.name().to_owned();
        Some((name, self.resync_device(device, watch)))
    }

    fn begin_reshaping(&self) -> Result<Reshaping> {
        if self.is_read_only() {
            return Err(Error::from(CallerError::ReadOnly).into());
        }
        Ok(self.core().data.begin_reshaping().ok_or_else(|| Error::from(CallerError::Busy))?)
    }

    /// Writes to `target` what device `id` holds.
    fn rebuild(
        &self,
        id: u64,
        target: Arc<dyn Device>,
        since: Generation,
        places: &Places,
        (report, watch): (&mut RebuildReport, Watch<'_>),
    ) -> Result<Rebuild> {
        let core = self.core();
        let mut rebuild = core.store.rebuild(DevId(id), target, since).map_err(Error::from)?;
        // Data that was being written before the target took part in writes is in the trees after this.
        drop(core.data.move_data());
        writeback::flush_all(core)?;
        rebuild.look().map_err(Error::from)?;
        while let Some(step) = self.step(&mut rebuild)? {
            report.written_bytes = report.written_bytes.saturating_add(step.bytes);
            report.same_bytes = report.same_bytes.saturating_add(step.same_bytes);
            let room = LOST_RANGES_MAX.saturating_sub(report.lost.len());
            report.lost.extend(step.lost.into_iter().take(room).map(|(at, len)| (at.0, len)));
            report.done_bytes = places.before(rebuild.done_until());
            unless_stopped(watch(report))?;
        }
        report.done_bytes = places.bytes;
        unless_stopped(watch(report))?;
        Ok(rebuild)
    }

    /// Reads a device back that was written.
    fn compare(
        &self,
        rebuild: &mut Rebuild,
        places: &Places,
        report: &mut RebuildReport,
        watch: Watch<'_>,
    ) -> Result<()> {
        rebuild.compare().map_err(Error::from)?;
        while let Some(step) = self.step(rebuild)? {
            report.compared_bytes = report.compared_bytes.saturating_add(step.bytes);
            report.done_bytes = places.bytes.saturating_add(places.before(rebuild.done_until()));
            let is_known =
                |at: u64| report.lost.iter().any(|(lost, len)| (*lost..lost.saturating_add(*len)).contains(&at));
            if step.lost.iter().any(|(at, _)| !is_known(at.0)) {
                let text = "the new device does not return what was written to it";
                return Err(vfs::Error::new(Errno::EIO, vfs::Blame::Device, std::io::Error::other(text)));
            }
            unless_stopped(watch(report))?;
        }
        report.done_bytes = report.total_bytes;
        unless_stopped(watch(report))
    }

    fn step(&self, rebuild: &mut Rebuild) -> Result<Option<btrfs_store::RebuildStep>> {
        let mut still = |job: &mut dyn FnMut() -> Result<(), btrfs_store::Error>| {
            let _in_place = writeback::stop_in_place_writes(self.core());
            job()
        };
        Ok(rebuild.step(&mut still).map_err(Error::from)?)
    }
}

fn unless_stopped(flow: ControlFlow<()>) -> Result<()> {
    if flow.is_break() { Err(Errno::ECANCELED.into()) } else { Ok(()) }
}

/// True for an error of devices that do not fit: nothing was written.
fn is_refusal(error: &vfs::Error) -> bool {
    matches!(error.cause::<Error>(), Some(Error::Members(_)))
}

/// True for a target that was written to, to take the place of the device with this UUID.
fn has_begun(target: &dyn Device, uuid: Option<Uuid>) -> bool {
    let superblock = || supers::read_one(target, 0).ok().map(|superblock| superblock.fields().dev_item.uuid);
    uuid.is_some() && (supers::marked_target(target) == uuid || superblock() == uuid)
}

/// The bytes of a device that are in use, by logical address: a rebuild goes through these.
#[derive(Debug, Default)]
struct Places {
    /// Start and length of each block group, and the bytes of it on the device.
    groups: Vec<(u64, u64, u64)>,
    bytes: u64,
}

impl Places {
    fn of(store: &Store, id: DevId) -> Self {
        let on_device = |group: &GroupState| {
            let parts = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
            let here = parts(group.stripes.iter().filter(|stripe| stripe.device == id).count());
            let copies = Profile::from_flags(group.flags).map_or(1, Profile::mirror_count);
            let all = parts(group.stripes.len()).max(1);
            let bytes = group.used.saturating_mul(u64::from(copies)).saturating_mul(here) / all;
            (group.start.0, group.len, bytes)
        };
        let groups: Vec<_> = store.groups().iter().map(on_device).filter(|(.., bytes)| *bytes > 0).collect();
        let bytes = groups.iter().map(|(.., bytes)| *bytes).fold(0, u64::saturating_add);
        Self { groups, bytes }
    }

    /// The bytes below a logical address, about.
    fn before(&self, at: u64) -> u64 {
        let below = |&(start, len, bytes): &(u64, u64, u64)| {
            let part = u128::from(at.saturating_sub(start).min(len));
            let below = part.saturating_mul(bytes.into()).checked_div(len.into()).unwrap_or(0);
            u64::try_from(below).unwrap_or(bytes)
        };
        self.groups.iter().map(below).fold(0, u64::saturating_add)
    }
}
