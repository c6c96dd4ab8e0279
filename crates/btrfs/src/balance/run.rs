//! Runs a balance from its first group to its last, and keeps its item on disk. Called by `volume/balance` and
//! `vfs_impl/balancing`.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::items::{BalanceItem, OnDisk};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::{At, Key, Logical, TreeId};
use btrfs_pool::Profile;
use btrfs_store::{GroupState, SpaceKind};

use super::evacuation::Evacuation;
use super::pace::Pace;
use super::spec::{BalanceSpec, Use};
use super::{BalanceEnd, BalanceProgress};
use crate::dir::Namespace;
use crate::error::{CallerError, Error, Result};
use crate::inode::{Core, Reshaping};

/// Where the balance item is, in the root tree.
const KEY: Key = Key::new(objectid::BALANCE, item_type::TEMPORARY_ITEM, 0);

/// Receives the progress, and decides whether to continue.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(&BalanceProgress) -> ControlFlow<()>;

/// The balance that has not ended, if there is one.
///
/// # Errors
/// Damage, I/O.
pub(crate) fn status(core: &Core) -> Result<Option<BalanceSpec>> {
    let root_tree = core.store.tree(TreeId::ROOT)?;
    let found = root_tree.get_with(&KEY, |bytes| BalanceItem::parse(bytes).copied())?;
    let item = found.transpose().map_err(|error| error.at(At::Key(TreeId::ROOT, KEY)))?;
    Ok(item.map(BalanceSpec))
}

/// A running balance. To be ended with [`Self::stop`], whether it is done or not.
#[derive(Debug)]
#[must_use = "a group may stay closed"]
pub(crate) struct Running {
    /// Groups still to come, and where they begin: the last one first.
    waiting: Vec<Logical>,
    leaving: Option<Evacuation>,
    progress: BalanceProgress,
    pace: Pace,
    /// A balance item on disk describes it.
    is_noted: bool,
    _reshaping: Reshaping,
}

impl Running {
    /// Begins a balance with steps of this pace: writes its item.
    ///
    /// # Errors
    /// `Busy` while another command moves block groups or changes devices; `Exists` where another has not ended;
    /// `FewerCopies` for a conversion to one metadata copy without `force`; `FewDevices` for a profile that needs more
    /// devices; `InvalidArgument` for mixed groups whose uses differ; `ReadOnly`. Damage, I/O.
    pub(crate) fn begin(names: &Namespace, spec: BalanceSpec, pace: Pace) -> Result<Self> {
        let core = &*names.core;
        check_writable(core)?;
        check(&spec, core)?;
        if status(core)?.is_some() {
            return Err(CallerError::Exists.into());
        }
        let reshaping = core.data.begin_reshaping().ok_or(CallerError::Busy)?;
        write(names, Some(&spec.0))?;
        Ok(Self::new(core, spec, pace, reshaping))
    }

    /// Goes on with the balance that has not ended.
    ///
    /// # Errors
    /// `NotFound` where there is none; as [`Self::begin`].
    pub(crate) fn resume(names: &Namespace, pace: Pace) -> Result<Self> {
        let core = &*names.core;
        check_writable(core)?;
        let paused = status(core)?.ok_or(CallerError::NotFound)?;
        let spec = paused.resumed();
        check(&spec.force(), core)?;
        let reshaping = core.data.begin_reshaping().ok_or(CallerError::Busy)?;
        Ok(Self::new(core, spec, pace, reshaping))
    }

    fn new(core: &Core, spec: BalanceSpec, pace: Pace, reshaping: Reshaping) -> Self {
        set_targets(core, &spec);
        // Groups that come to be from here on are not balanced.
        // Also those of a seed, which a conversion has to leave.
        let mut groups = core.store.groups();
        groups.retain(|group| !group.is_fixed);
        let chosen = choose(&spec, &groups);
        let progress = BalanceProgress {
            expected: chosen.iter().map(|_| 1).sum(),
            considered: groups.iter().map(|_| 1).sum(),
            bytes: chosen.iter().map(|group| group.used).sum(),
            ..BalanceProgress::default()
        };
        let waiting = chosen.iter().map(|group| group.start).collect();
        Self { waiting, leaving: None, progress, pace, is_noted: true, _reshaping: reshaping }
    }

    /// Moves one group of a served volume, without a balance item: if it is interrupted, nothing has to be resumed.
    pub(crate) fn of_group(start: Logical, reshaping: Reshaping) -> Self {
        let progress = BalanceProgress { expected: 1, ..BalanceProgress::default() };
        let pace = Pace::served();
        Self { waiting: vec![start], leaving: None, progress, pace, is_noted: false, _reshaping: reshaping }
    }

    /// How long to wait before the next step, where others use the volume.
    pub(crate) fn rest(&self) -> Duration {
        self.pace.rest()
    }

    pub(crate) fn progress(&self) -> &BalanceProgress {
        &self.progress
    }

    /// Moves the next part; false when the balance is done. The caller holds no lock.
    ///
    /// # Errors
    /// Damage, I/O; `Busy` where new data kept arriving in a group. Groups without room elsewhere are counted.
    pub(crate) fn step(&mut self, core: &Core) -> Result<bool> {
        match self.step_group(core) {
            Ok(true) => Ok(true),
            Ok(false) => {
                core.store.commit()?;
                Ok(false)
            }
            Err(error) => {
                if let Some(leaving) = self.leaving.take() {
                    leaving.stop(core);
                }
                match error {
                    Error::NoSpace(_) => self.progress.without_room += 1,
                    error => return Err(error),
                }
                Ok(true)
            }
        }
    }

    fn step_group(&mut self, core: &Core) -> Result<bool> {
        let Some(leaving) = &mut self.leaving else {
            let Some(start) = self.waiting.pop() else { return Ok(false) };
            self.leaving = Some(Evacuation::begin(core, start)?);
            return Ok(true);
        };
        let from = Instant::now();
        let left = leaving.step(core, &mut self.pace)?;
        self.pace.note_whole(from.elapsed());
        self.progress.moved_bytes = self.progress.moved_bytes.saturating_add(left.moved_bytes);
        if left.is_gone {
            self.progress.completed += 1;
            self.leaving = None;
        }
        Ok(true)
    }

    /// Stops it: the rest of a group stays there, and the balance item stays for a resume.
    pub(crate) fn stop(self, core: &Core) -> BalanceProgress {
        if let Some(leaving) = self.leaving {
            leaving.stop(core);
        }
        set_targets(core, &BalanceSpec::default());
        self.progress
    }

    /// Ends it when it is done, and removes its item.
    ///
    /// # Errors
    /// `NoSpace` where there was no room for some groups; as a sync.
    pub(crate) fn finish(self, names: &Namespace) -> Result<BalanceProgress> {
        let is_noted = self.is_noted;
        let progress = self.stop(&names.core);
        if is_noted {
            write(names, None)?;
        }
        if progress.without_room > 0 { Err(Error::NoSpace(None)) } else { Ok(progress) }
    }
}

/// Runs a balance until its end, or until `watch` breaks.
///
/// # Errors
/// As [`Running::step`] and [`Running::finish`].
pub(crate) fn go_on(names: &Namespace, mut running: Running, watch: Watch<'_>) -> Result<BalanceEnd> {
    let core = &*names.core;
    loop {
        if watch(running.progress()).is_break() {
            let progress = running.stop(core);
            core.store.commit()?;
            return Ok(BalanceEnd::Paused(progress));
        }
        match running.step(core) {
            Ok(true) => {}
            Ok(false) => return Ok(BalanceEnd::Done(running.finish(names)?)),
            Err(error) => {
                running.stop(core);
                return Err(error);
            }
        }
    }
}

/// Cancels the balance that has not ended: finished moves stay.
///
/// # Errors
/// `NotFound` where there is none; `ReadOnly`; as a sync.
pub(crate) fn cancel(names: &Namespace) -> Result<()> {
    check_writable(&names.core)?;
    status(&names.core)?.ok_or(CallerError::NotFound)?;
    write(names, None)
}

fn check_writable(core: &Core) -> Result<()> {
    match core.store.is_read_only() {
        true => Err(CallerError::ReadOnly.into()),
        false => Ok(()),
    }
}

/// Refuses a conversion to fewer metadata copies without `force`, one for which there are too few devices, and one that
/// mixed groups cannot have.
fn check(spec: &BalanceSpec, core: &Core) -> Result<()> {
    let groups = core.store.groups();
    let device_count = core.store.devices().iter().filter(|device| !device.is_missing).count();
    for one in Use::ALL {
        let Some(target) = spec.target(one) else { continue };
        let profile = Profile::from_flags(target | one.group_flag()).map_err(btrfs_store::Error::from)?;
        if profile.devices_min() > device_count {
            return Err(CallerError::FewDevices { needed: profile.devices_min(), found: device_count }.into());
        }
        let copies = |flags: BlockGroupFlags| Profile::from_flags(flags).map_or(1, Profile::mirror_count);
        let has_more = groups.iter().any(|group| group.flags.contains(one.group_flag()) && copies(group.flags) > 1);
        if one != Use::Data && has_more && copies(target | one.group_flag()) == 1 && !spec.is_forced() {
            return Err(CallerError::FewerCopies.into());
        }
    }
    let is_mixed = groups.iter().any(|group| group.flags.contains(BlockGroupFlags::MIXED));
    let differs = spec.has(Use::Data) != spec.has(Use::Metadata) || spec.args(Use::Data) != spec.args(Use::Metadata);
    if is_mixed && differs {
        return Err(CallerError::InvalidArgument.into());
    }
    Ok(())
}

/// Writes the balance item, or removes it, and makes that durable.
fn write(names: &Namespace, item: Option<&BalanceItem>) -> Result<()> {
    let root_tree = names.core.store.tree(TreeId::ROOT)?;
    let reservation = names.reserve(2)?;
    names.apply(reservation, |txn| {
        match item {
            Some(item) => txn.put(&root_tree, &KEY, item.bytes())?,
            None => {
                txn.remove(&root_tree, &KEY)?;
            }
        }
        Ok(())
    })?;
    names.core.store.commit()?;
    Ok(())
}

fn set_targets(core: &Core, spec: &BalanceSpec) {
    let is_mixed = core.store.groups().iter().any(|group| group.flags.contains(BlockGroupFlags::MIXED));
    for (one, kind) in
        [(Use::Data, SpaceKind::Data), (Use::Metadata, SpaceKind::Metadata), (Use::System, SpaceKind::System)]
    {
        let uses = if is_mixed && one != Use::System { BlockGroupFlags::MIXED } else { one.group_flag() };
        core.store.set_target(kind, spec.target(one).map(|profile| profile | uses));
    }
}

/// The groups that are balanced, by address: the last is the first to be taken, as by the kernel.
fn choose<'a>(spec: &BalanceSpec, groups: &'a [GroupState]) -> Vec<&'a GroupState> {
    let mut chosen = Vec::new();
    for one in Use::ALL {
        let limits = spec.limits(one);
        let mut same: Vec<&GroupState> =
            groups.iter().rev().filter(|group| Use::of(group.flags) == one && spec.selects(group)).collect();
        let count = u64::try_from(same.len()).unwrap_or(u64::MAX);
        if count < *limits.start() {
            continue;
        }
        same.truncate(usize::try_from(*limits.end()).unwrap_or(usize::MAX));
        chosen.extend(same);
    }
    chosen.sort_by_key(|group| group.start);
    chosen
}
