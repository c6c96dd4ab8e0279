//! A balance from its first group to its last, and what is written of it.

use std::ops::ControlFlow;

use btrfs_disk::flags::BlockGroupFlags;
use btrfs_disk::items::{BalanceItem, OnDisk};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::{At, Key, TreeId};
use btrfs_store::{GroupState, SpaceKind};

use super::empty::empty_group;
use super::spec::{BalanceSpec, Use};
use super::{BalanceEnd, BalanceProgress, PausedBalance};
use crate::dir::Namespace;
use crate::error::{CallerError, Error, Result};
use crate::inode::Core;

/// Where the balance item is, in the root tree.
const KEY: Key = Key::new(objectid::BALANCE, item_type::TEMPORARY_ITEM, 0);

/// What hears of the progress, and says whether to go on.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(&BalanceProgress) -> ControlFlow<()>;

/// The balance that has not ended, if there is one.
///
/// # Errors
/// Damage, I/O.
pub(crate) fn status(core: &Core) -> Result<Option<PausedBalance>> {
    let root_tree = core.store.tree(TreeId::ROOT)?;
    let found = root_tree.get_with(&KEY, |bytes| BalanceItem::parse(bytes).copied())?;
    let item = found.transpose().map_err(|error| error.at(At::Key(TreeId::ROOT, KEY)))?;
    Ok(item.map(PausedBalance))
}

/// Begins a balance, and goes on until its end or until `watch` says no.
///
/// # Errors
/// `Busy` where another has not ended; `FewerCopies` where that was not asked for; `ReadOnly`. `NoSpace` at its end
/// where there was no room for some groups: the others are done. Damage, I/O.
pub(crate) fn begin(names: &Namespace, spec: BalanceSpec, watch: Watch<'_>) -> Result<BalanceEnd> {
    let core = &*names.core;
    check_writable(core)?;
    check(&spec, &core.store.groups())?;
    if status(core)?.is_some() {
        return Err(CallerError::Busy.into());
    }
    write(names, Some(&spec.0))?;
    go_on(names, &spec, watch)
}

/// Goes on with the balance that has not ended.
///
/// # Errors
/// `NotFound` where there is none; as [`begin`].
pub(crate) fn resume(names: &Namespace, watch: Watch<'_>) -> Result<BalanceEnd> {
    let core = &*names.core;
    check_writable(core)?;
    let paused = status(core)?.ok_or(CallerError::NotFound)?;
    let spec = paused.spec().resumed();
    check(&spec.force(), &core.store.groups())?;
    go_on(names, &spec, watch)
}

/// Forgets the balance that has not ended: what it did stays done.
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

/// Refuses what would lose copies of metadata without having been asked to, and what mixed groups cannot be.
fn check(spec: &BalanceSpec, groups: &[GroupState]) -> Result<()> {
    for one in [Use::Metadata, Use::System] {
        let Some(target) = spec.target(one) else { continue };
        let copies = |flags: BlockGroupFlags| !(flags & BlockGroupFlags::PROFILE_MASK).is_empty();
        let has_more = groups.iter().any(|group| group.flags.contains(one.group_flag()) && copies(group.flags));
        if has_more && !copies(target) && !spec.is_forced() {
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

fn go_on(names: &Namespace, spec: &BalanceSpec, watch: Watch<'_>) -> Result<BalanceEnd> {
    let core = &*names.core;
    let mut progress = BalanceProgress::default();
    set_targets(core, spec);
    let result = balance(core, spec, &mut progress, watch);
    set_targets(core, &BalanceSpec::default());
    let end = result?;
    core.store.commit()?;
    if end.is_break() {
        return Ok(BalanceEnd::Paused(progress));
    }
    write(names, None)?;
    if progress.without_room > 0 { Err(Error::NoSpace) } else { Ok(BalanceEnd::Done(progress)) }
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

fn balance(
    core: &Core,
    spec: &BalanceSpec,
    progress: &mut BalanceProgress,
    watch: Watch<'_>,
) -> Result<ControlFlow<()>> {
    // Groups that come to be from here on are not balanced.
    let groups = core.store.groups();
    let chosen = choose(spec, &groups);
    progress.expected = chosen.iter().map(|_| 1).sum();
    progress.considered = groups.iter().map(|_| 1).sum();
    progress.bytes = chosen.iter().map(|group| group.used).sum();
    if watch(progress).is_break() {
        return Ok(ControlFlow::Break(()));
    }
    for group in chosen {
        let mut step = |bytes: u64| {
            progress.moved_bytes = progress.moved_bytes.saturating_add(bytes);
            watch(progress)
        };
        match empty_group(core, group.start, &mut step) {
            Ok(ControlFlow::Continue(())) => progress.completed += 1,
            Ok(ControlFlow::Break(())) => return Ok(ControlFlow::Break(())),
            Err(Error::NoSpace) => progress.without_room += 1,
            Err(error) => return Err(error),
        }
        if watch(progress).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// The groups that are balanced, the last first, as the kernel takes them.
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
    chosen.sort_by_key(|group| std::cmp::Reverse(group.start));
    chosen
}
