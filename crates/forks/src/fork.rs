//! Makes, lists, compares, merges and drops forks: the front of the crate.
//!
//! [`Forks`] holds two locks. `gate` is held shared by a fork while its parts appear, and exclusively by the removal of
//! incomplete ones. `work` is held by a merge or a drop: there is one at a time.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use btrfs::{Change, QgroupId, QuotaChange, SubvolumeInfo, TreeId, Volume};
use parking_lot::{Mutex, RwLock};
use vfs::SnapshotMode;
use vfs::file_system::{RenameFlags, Time};

use crate::error::{Error, Result};
use crate::hidden::{self, Hidden};
use crate::merge::{Merge, Merged, Merger, Strategy};
use crate::place::{plain, rooted, seen_path, subvolume};
use crate::record::{Record, Uuid};
use crate::touched::Touched;
use crate::tree::Tree;

/// Attempts at a merge into a target that changes meanwhile.
const ATTEMPTS_MAX: u32 = 4;

/// The options of a new fork.
#[derive(Debug, Clone, Default)]
pub struct ForkOptions {
    /// The fork cannot be changed.
    pub read_only: bool,
    /// When [`Forks::drop_expired`] drops it, in seconds since 1970.
    pub expires: Option<i64>,
    /// Bytes that its own data may take. Needs quotas.
    pub limit: Option<u64>,
}

/// A fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// Its path from the root of the volume.
    pub path: PathBuf,
    /// Number of its subvolume.
    pub id: TreeId,
    /// UUID of its subvolume.
    pub uuid: Uuid,
    /// The path of its base; `None` if that is gone, or outside the volume's root. The root itself is an empty path.
    pub base: Option<PathBuf>,
    /// When it was made.
    pub created: Time,
    /// When it expires, in seconds since 1970.
    pub expires: Option<i64>,
    /// Bytes that its own data may take.
    pub limit: Option<u64>,
    /// True if it cannot be changed.
    pub read_only: bool,
    /// The path of its ancestor: the state of the base that it began with, or that of the fork at its last merge.
    pub ancestor: PathBuf,
    hidden: Hidden,
    record: Record,
}

#[derive(Debug, Default)]
struct Locks {
    gate: RwLock<()>,
    work: Mutex<()>,
}

impl Locks {
    /// The locks of the volume with a UUID: all values of this process share them, as two mounts of one server.
    fn of(uuid: Uuid) -> Arc<Self> {
        static ALL: Mutex<BTreeMap<Uuid, Weak<Locks>>> = Mutex::new(BTreeMap::new());
        let mut all = ALL.lock();
        all.retain(|_, locks| locks.strong_count() > 0);
        if let Some(locks) = all.get(&uuid).and_then(Weak::upgrade) {
            return locks;
        }
        let locks = Arc::<Self>::default();
        all.insert(uuid, Arc::downgrade(&locks));
        locks
    }
}

/// The forks of an open volume.
///
/// # Examples
/// ```
/// # use std::path::Path;
/// # use std::sync::Arc;
/// # use btrfs::{MakeOptions, MemoryDevice, Volume};
/// # use forks::{ForkOptions, Forks, Merge};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Arc::new(MemoryDevice::new(64 << 20));
/// # let volume = Volume::options().make_device(device, &MakeOptions::default())?;
/// volume.create_subvolume("main")?;
/// volume.write("main/settings", "colour=blue")?;
///
/// let forks = Forks::new(volume.clone());
/// let trial = forks.fork(Path::new("main"), Path::new("trial"), &ForkOptions::default())?;
/// volume.write("trial/settings", "colour=red")?;
/// let merged = forks.merge(&trial.path, &Merge::default())?;
/// assert!(merged.is_merged && merged.conflicts.is_empty());
/// assert_eq!(volume.read("main/settings")?, b"colour=red");
/// forks.drop_fork(&trial.path)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Forks {
    volume: Volume,
    owner: u32,
    locks: Arc<Locks>,
}

impl Forks {
    /// The forks of a volume, with paths from its root.
    #[must_use]
    pub fn new(volume: Volume) -> Self {
        let locks = volume.info().map_or_else(|_| Arc::default(), |info| Locks::of(info.uuid));
        Self { volume, owner: 0, locks }
    }

    /// The user who works with the volume. The hidden directory of forks may belong to this user, to root, or to the
    /// owner of the root directory.
    #[must_use]
    pub fn owner(mut self, uid: u32) -> Self {
        self.owner = uid;
        self
    }

    /// The volume.
    #[must_use]
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Makes a fork of the subvolume at `base`, at the path `target`, which must not exist. The cost does not depend on
    /// the size of the base. It is durable with the next sync of the volume.
    ///
    /// # Errors
    /// `NotSubvolume`, `Dots`, `Reserved`, `NoQuotas`; `Volume` as [`vfs::Volume::snapshot`].
    pub fn fork(&self, base: &Path, target: &Path, options: &ForkOptions) -> Result<Fork> {
        let (base, target) = (plain(base)?, plain(target)?);
        if options.limit.is_some() && self.volume.quotas()?.is_none() {
            return Err(Error::NoQuotas);
        }
        if hidden::is_below(&target) {
            return Err(Error::Reserved(target));
        }
        let source = subvolume(&self.volume, &base)?;
        // Checked early, so that a mistake leaves nothing behind.
        if self.volume.exists(rooted(&target))? {
            return Err(vfs::Error::from(vfs::Errno::EEXIST).at(&target).into());
        }
        let _shared = self.locks.gate.read();
        let hidden = Hidden::create(&self.volume, self.owner)?;
        let made = self.make(&source, &hidden, &target, options);
        if made.is_err() {
            // The next merge removes the rest, if this fails.
            let _ = hidden.remove(&self.volume);
        }
        let record = made?;
        let info = subvolume(&self.volume, &target)?;
        if let Some(limit) = options.limit
            && let Err(error) = self.set_limit(info.id, limit)
        {
            hidden::delete(&self.volume, &rooted(&target))?;
            hidden.remove(&self.volume)?;
            return Err(error);
        }
        Ok(fork_of(&info, target, Some(base), (hidden, record)))
    }

    /// The record first, then the ancestor and the fork at once.
    fn make(&self, source: &SubvolumeInfo, hidden: &Hidden, target: &Path, options: &ForkOptions) -> Result<Record> {
        let record = Record {
            base: source.uuid,
            base_path: PathBuf::from(&source.path),
            first: self.volume.new_uuid(),
            forks: Vec::new(),
            expires: options.expires,
            limit: options.limit,
        };
        hidden.write_record(&self.volume, &record)?;
        let mode = if options.read_only { SnapshotMode::ReadOnly } else { SnapshotMode::ReadWrite };
        let ancestor = (&*hidden.ancestor(), record.first);
        self.volume.snapshot_with_ancestor(source.id, ancestor, &rooted(target), mode)?;
        Ok(record)
    }

    fn set_limit(&self, id: TreeId, bytes: u64) -> Result<()> {
        let group = QgroupId::of(id);
        Ok(self.volume.change_quotas(QuotaChange::Limit { group, is_excl: true, bytes: Some(bytes) })?)
    }

    /// All forks below the root of the volume, in the order of their paths.
    ///
    /// # Errors
    /// `Record`, `Volume`.
    pub fn list(&self) -> Result<Vec<Fork>> {
        let all = self.volume.subvolumes()?;
        let mut by_uuid: HashMap<Uuid, &SubvolumeInfo> = HashMap::new();
        let mut by_parent: HashMap<Uuid, &SubvolumeInfo> = HashMap::new();
        for info in all.iter().filter(|info| !hidden::is_internal(info)) {
            by_uuid.insert(info.uuid, info);
            by_parent.insert(info.parent_uuid, info);
        }
        let mut forks = Vec::new();
        for hidden in Hidden::all(&self.volume, self.owner)? {
            let Some(record) = hidden.record(&self.volume)? else { continue };
            let known = record.forks.iter().find_map(|uuid| by_uuid.get(uuid));
            let Some(info) = known.or_else(|| by_parent.get(&record.first)) else { continue };
            let Some(path) = seen_path(&self.volume, info)? else { continue };
            let base = match self.base_info(&all, &record)? {
                Some(base) => seen_path(&self.volume, &base)?,
                None => None,
            };
            forks.push(fork_of(info, path, base, (hidden, record)));
        }
        forks.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(forks)
    }

    /// The base of a fork: the subvolume that it was made of, or that which a merge put in its place.
    fn base_info(&self, all: &[SubvolumeInfo], record: &Record) -> Result<Option<SubvolumeInfo>> {
        let mut own = all.iter().filter(|info| !hidden::is_internal(info));
        let top = self.volume.subvolume_info(TreeId::FS)?;
        let same = own.clone().chain(Some(&top)).find(|info| info.uuid == record.base && info.uuid != [0; 16]);
        let found = same.or_else(|| own.find(|info| Path::new(&info.path) == record.base_path));
        Ok(found.cloned().or_else(|| record.base_path.as_os_str().is_empty().then_some(top)))
    }

    /// The fork at a path.
    ///
    /// # Errors
    /// `NotSubvolume`, `NotFork`, `Dots`, `Record`, `Volume`.
    pub fn at(&self, path: &Path) -> Result<Fork> {
        let path = plain(path)?;
        let id = subvolume(&self.volume, &path)?.id;
        let found = self.list()?.into_iter().find(|fork| fork.id == id);
        found.ok_or(Error::NotFork(path))
    }

    /// Shows the changes of a fork since it was made, or since its last merge into its base.
    ///
    /// # Errors
    /// Those of [`Self::at`] and of `show`.
    pub fn status(&self, path: &Path, mut show: impl FnMut(Change)) -> Result<()> {
        let fork = self.at(path)?;
        self.volume.for_each_change(rooted(&fork.ancestor), rooted(&fork.path), |change| {
            show(change);
            Ok::<(), vfs::Error>(())
        })?;
        Ok(())
    }

    /// Deletes a fork. Its space is freed in the background.
    ///
    /// # Errors
    /// Those of [`Self::at`]; `Volume`: `ENOTEMPTY` if it contains subvolumes.
    pub fn drop_fork(&self, path: &Path) -> Result<Fork> {
        let _work = self.locks.work.lock();
        let fork = self.at(path)?;
        self.drop_found(&fork)?;
        self.remove_incomplete()?;
        Ok(fork)
    }

    /// Deletes the forks that expired before `now`, in seconds since 1970.
    ///
    /// # Errors
    /// As [`Self::drop_fork`].
    pub fn drop_expired(&self, now: i64) -> Result<Vec<Fork>> {
        let _work = self.locks.work.lock();
        let mut expired = self.list()?;
        expired.retain(|fork| fork.expires.is_some_and(|expires| expires <= now));
        expired.iter().try_for_each(|fork| self.drop_found(fork))?;
        self.remove_incomplete()?;
        Ok(expired)
    }

    fn drop_found(&self, fork: &Fork) -> Result<()> {
        self.volume.delete_subvolume(rooted(&fork.path))?;
        fork.hidden.remove(&self.volume)
    }

    /// Removes what interrupted forks, merges and drops left.
    fn remove_incomplete(&self) -> Result<()> {
        let _alone = self.locks.gate.write();
        let known = self.list()?;
        for hidden in Hidden::all(&self.volume, self.owner)? {
            match known.iter().find(|fork| fork.hidden == hidden) {
                Some(_) => hidden.clean(&self.volume)?,
                // A fork outside the root of the volume is not listed: its directory stays.
                None if self.is_used(&hidden)? => {}
                None => hidden.remove(&self.volume)?,
            }
        }
        hidden::remove_dirs(&self.volume);
        Ok(())
    }

    fn is_used(&self, hidden: &Hidden) -> Result<bool> {
        let Some(record) = hidden.record(&self.volume)? else { return Ok(false) };
        let is_fork = |info: &SubvolumeInfo| {
            !hidden::is_internal(info) && (info.parent_uuid == record.first || record.forks.contains(&info.uuid))
        };
        Ok(self.volume.subvolumes()?.iter().any(is_fork))
    }

    /// Brings the changes of a fork since its ancestor into its base, or another subvolume: all of them, durably, or
    /// none. After a merge into the base, the state that was merged is the ancestor of the fork. Open files of the
    /// target stay those of the subvolume that it was.
    ///
    /// # Errors
    /// Those of [`Self::at`]; `NoBase`, `TargetIsRoot`, `TargetHasSubvolumes`, `TargetReadOnly`, `Itself`, `Unsteady`.
    /// Conflicts are no error: see [`Merged::conflicts`].
    pub fn merge(&self, path: &Path, options: &Merge) -> Result<Merged> {
        let _work = self.locks.work.lock();
        self.remove_incomplete()?;
        let fork = self.at(path)?;
        let (target, is_base) = match &options.into {
            Some(into) => (plain(into)?, false),
            None => (fork.base.clone().ok_or_else(|| Error::NoBase(fork.path.clone()))?, true),
        };
        let is_base = is_base || fork.base.as_ref() == Some(&target);
        for _ in 0..ATTEMPTS_MAX {
            let merged = self.try_merge(&fork, &target, is_base, options.strategy);
            fork.hidden.clean(&self.volume)?;
            if let Some(merged) = merged? {
                self.volume.sync()?;
                return Ok(merged);
            }
        }
        Err(Error::Unsteady(target))
    }

    /// `None` if the target changed meanwhile.
    fn try_merge(&self, fork: &Fork, target: &Path, is_base: bool, strategy: Strategy) -> Result<Option<Merged>> {
        let volume = &self.volume;
        let info = self.check_target(fork, target)?;
        let (theirs, ours) = (fork.hidden.theirs(), fork.hidden.ours());
        fork.hidden.note_merge(volume, &info.uuid)?;
        volume.snapshot_of(fork.id, &theirs, SnapshotMode::ReadOnly)?;
        let staging = hidden::staging(target, &info.uuid);
        let both = (&*ours, volume.new_uuid());
        let staged = volume.snapshot_with_ancestor(info.id, both, &rooted(&staging), SnapshotMode::ReadWrite)?;
        let touched = self.touched(&fork.ancestor, &theirs)?;
        let tree = |path: &Path| Tree::open(volume.by_paths(), &rooted(path));
        let merger = Merger::new(tree(&fork.ancestor)?, tree(&theirs)?, tree(&staging)?, strategy);
        let mut merged = Merged { target: target.to_owned(), ..merger.run(&touched)? };
        let is_refused = strategy == Strategy::Fail && !merged.conflicts.is_empty();
        if is_refused {
            merged.conflicts.iter_mut().for_each(|conflict| conflict.kept = None);
            return Ok(Some(Merged { changes: 0, ..merged }));
        }
        let changes = merged.changes > 0;
        if changes && !self.exchange(&info, target, (&ours, &staging, staged))? {
            return Ok(None);
        }
        if is_base {
            // The names are exchanged: the old ancestor goes with the merge's snapshots.
            volume.rename_with(&theirs, &fork.ancestor, RenameFlags::EXCHANGE)?;
        }
        Ok(Some(Merged { is_merged: changes, ..merged }))
    }

    fn check_target(&self, fork: &Fork, target: &Path) -> Result<SubvolumeInfo> {
        let info = subvolume(&self.volume, target)?;
        let is_root = target.as_os_str().is_empty() || info.id == TreeId::FS;
        if is_root || info.id == self.volume.default_subvolume()? {
            return Err(Error::TargetIsRoot(target.to_owned()));
        }
        if info.id == fork.id {
            return Err(Error::Itself(target.to_owned()));
        }
        if info.read_only {
            return Err(Error::TargetReadOnly(target.to_owned()));
        }
        if let Some(inner) = self.volume.subvolumes()?.iter().find(|other| other.parent == Some(info.id)) {
            let inner = PathBuf::from(&inner.path);
            return Err(Error::TargetHasSubvolumes { target: target.to_owned(), inner });
        }
        Ok(info)
    }

    fn touched(&self, ancestor: &Path, theirs: &Path) -> Result<Touched> {
        let tree = |path: &Path| Tree::open(self.volume.by_paths(), &rooted(path));
        let (old, new) = (tree(ancestor)?, tree(theirs)?);
        let mut touched = Touched::default();
        self.volume.for_each_change(rooted(ancestor), rooted(theirs), |change| touched.add(&change, &old, &new))?;
        Ok(touched)
    }

    /// Puts the successor in the place of the target; false if the target changed since its snapshot `ours`.
    fn exchange(
        &self,
        info: &SubvolumeInfo,
        target: &Path,
        (ours, staging, staged): (&Path, &Path, TreeId),
    ) -> Result<bool> {
        let volume = &self.volume;
        // If the target is a fork itself, its successor is, too.
        if let Some(fork) = self.list()?.into_iter().find(|fork| fork.id == info.id) {
            let mut record = fork.record;
            record.forks.retain(|uuid| *uuid == info.uuid);
            record.forks.push(volume.subvolume_info(staged)?.uuid);
            fork.hidden.write_record(volume, &record)?;
            if let Some(limit) = record.limit.filter(|_| volume.quotas().is_ok_and(|quotas| quotas.is_some())) {
                self.set_limit(staged, limit)?;
            }
        }
        // Before the names change, so that no crash shows the successor without its data.
        volume.sync()?;
        volume.set_read_only_of(info.id, true)?;
        let mut is_unchanged = true;
        let done = volume.for_each_change(rooted(ours), rooted(target), |_| {
            is_unchanged = false;
            Ok::<(), vfs::Error>(())
        });
        if done.is_err() || !is_unchanged {
            volume.set_read_only_of(info.id, false)?;
            done?;
            return Ok(false);
        }
        volume.rename_with(rooted(staging), rooted(target), RenameFlags::EXCHANGE)?;
        Ok(true)
    }
}

fn fork_of(info: &SubvolumeInfo, path: PathBuf, base: Option<PathBuf>, (hidden, record): (Hidden, Record)) -> Fork {
    Fork {
        path,
        id: info.id,
        uuid: info.uuid,
        base,
        created: info.otime,
        expires: record.expires,
        limit: record.limit,
        read_only: info.read_only,
        ancestor: hidden.ancestor(),
        hidden,
        record,
    }
}
