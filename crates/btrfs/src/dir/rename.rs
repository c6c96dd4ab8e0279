//! Renames: moves a name, replaces another with it, or exchanges two. Called by `vfs_impl/names`.

use std::sync::Arc;

use btrfs_disk::key::item_type;
use btrfs_disk::{Detail, Key};
use btrfs_store::Txn;

use super::create::{CREATE_ITEMS, check_xattr};
use super::entry::{self, NewName};
use super::lookup::Stored;
use super::removal::NameLoss;
use super::unlink::note_unlink;
use super::{
    Found, Namespace, NewInode, RenameFlags, RootLink, check_can_add, check_can_remove, check_changeable, check_is_dir,
    check_name,
};
use crate::error::{CallerError, Result, corrupt_inode};
use crate::inode::{EMPTY_SUBVOL_INO, Inode, Move, NameLocks, Timestamp, lock_all};

/// Items that a rename changes beside those of a replaced inode: four entries, references of
/// both inodes and their items, two directories.
const RENAME_ITEMS: u32 = 14;
/// Directories between a directory and the top: more can only be a loop in a damaged image.
const DEPTH_MAX: u32 = 1 << 20;

/// Attempts at a rename beside concurrent ones. Each fails because another rename was
/// faster, and the next one waits for its end.
const ATTEMPTS_MAX: u32 = 1 << 20;

/// One end of a rename.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) dir: &'a Inode,
    pub(crate) name: &'a [u8],
}

/// The inodes at both ends, looked up before the locks are taken.
struct Ends {
    source: Found,
    source_inode: Arc<Inode>,
    target: Option<(Found, Arc<Inode>)>,
}

impl Namespace {
    /// Renames `from` to `to`. Where `flags` ask for it, `whiteout` is made at the old place, in the same transaction.
    ///
    /// # Errors
    /// `NotFound`, `Exists` and `NotFound` as `flags` say, `IsADirectory`, `NotADirectory`,
    /// `NotEmpty`, `InvalidArgument` (a directory below itself), `CrossSubvolume`, `Busy` (a
    /// subvolume would be replaced), and those of adding and removing names.
    pub(crate) fn rename(
        &self,
        from: Place<'_>,
        to: Place<'_>,
        flags: RenameFlags,
        whiteout: &NewInode<'_>,
    ) -> Result<()> {
        check_name(from.name)?;
        check_name(to.name)?;
        for attempt in 0..ATTEMPTS_MAX {
            let ends = self.find_ends(from, to, attempt)?;
            check_ends(from, to, &ends, flags)?;
            if ends.target.as_ref().is_some_and(|(target, _)| *target == ends.source) {
                return Ok(());
            }
            let done = if flags.contains(RenameFlags::EXCHANGE) {
                self.try_exchange(from, to, &ends)?
            } else {
                let whiteout = flags.contains(RenameFlags::WHITEOUT).then_some(whiteout);
                self.try_move(from, to, &ends, whiteout)?
            };
            if done {
                return Ok(());
            }
        }
        Err(CallerError::Busy.into())
    }

    /// Looks both names up, at the first attempt in the cache, which has the old state until a running rename ends.
    /// Later attempts look up under the directory's lock, when that rename has ended.
    fn find_ends(&self, from: Place<'_>, to: Place<'_>, attempt: u32) -> Result<Ends> {
        check_is_dir(to.dir)?;
        let find = |place: Place<'_>| match attempt {
            0 => self.find_inode(place.dir, place.name),
            _ => self.find_inode_locked(place.dir, place.name),
        };
        let (source, source_inode) = find(from)?.ok_or(CallerError::NotFound)?;
        Ok(Ends { source, source_inode, target: find(to)? })
    }

    /// False when a name was changed before the locks were taken.
    fn try_move(&self, from: Place<'_>, to: Place<'_>, ends: &Ends, whiteout: Option<&NewInode<'_>>) -> Result<bool> {
        let target = ends.target.as_ref().map(|(_, inode)| &**inode);
        let whiteout_items = whiteout.map_or(0, |new| CREATE_ITEMS + self.xattr_items(new));
        let items = RENAME_ITEMS + target.map_or(0, Self::removal_items) + whiteout_items;
        let reservation = self.reserve(items)?;
        let moves_dir = ends.source.kind.is_dir() && !std::ptr::eq(from.dir, to.dir);
        let _rename = moves_dir.then(|| self.rename.lock());
        if moves_dir {
            self.check_not_below(to.dir, &ends.source_inode)?;
        }
        let mut locks = lock_all([Some(from.dir), Some(to.dir), Some(&ends.source_inode), target]);
        if !self.is_unchanged(from, to, ends)? {
            return Ok(false);
        }
        check_can_remove(from.dir)?;
        check_can_add(to.dir)?;
        check_changeable(&ends.source_inode)?;
        self.check_room(to.dir, to.name)?;
        self.back_refs.check_room(&ends.source_inode, to.dir.ino(), to.name)?;
        if let Some(target) = target {
            check_can_remove(to.dir)?;
            check_changeable(target)?;
            if target.kind().is_dir() && target.state().size > 0 {
                return Err(CallerError::NotEmpty.into());
            }
        }
        for (name, value) in whiteout.map_or(&[][..], |new| new.xattrs) {
            check_xattr(name, value, self.xattr_bytes_max())?;
        }
        let loss = target.map_or(NameLoss::NONE, |target| self.begin_last_name(target, &reservation));
        self.apply(reservation, |txn| {
            let _moves = begin_moves(from, to);
            let now = self.core.now();
            self.detach(txn, from, ends.source, &ends.source_inode, now)?;
            if let Some(target) = target {
                note_unlink(txn, target);
                self.take_name(txn, to.dir, to.name, target, now)?;
                self.drop_name(txn, target, &loss, now)?;
            }
            self.attach(txn, to, &mut locks, (ends.source, &ends.source_inode), now)?;
            if let Some(new) = whiteout {
                self.insert_named(txn, from.dir, locks.of(from.dir), from.name, new)?;
            }
            Ok(())
        })?;
        let last = loss.end();
        drop(locks);
        if let Some(target) = target {
            self.finish_removal(target, last)?;
        }
        Ok(true)
    }

    fn try_exchange(&self, from: Place<'_>, to: Place<'_>, ends: &Ends) -> Result<bool> {
        let Some((target, target_inode)) = &ends.target else {
            return Err(CallerError::NotFound.into());
        };
        let reservation = self.reserve(RENAME_ITEMS)?;
        let moves = !std::ptr::eq(from.dir, to.dir);
        let _rename = moves.then(|| self.rename.lock());
        if moves && ends.source.kind.is_dir() {
            self.check_not_below(to.dir, &ends.source_inode)?;
        }
        if moves && target.kind.is_dir() {
            self.check_not_below(from.dir, target_inode)?;
        }
        let inodes = [Some(from.dir), Some(to.dir), Some(&*ends.source_inode), Some(&**target_inode)];
        let mut locks = lock_all(inodes);
        if !self.is_unchanged(from, to, ends)? {
            return Ok(false);
        }
        for (place, inode, other) in [(from, &ends.source_inode, to), (to, target_inode, from)] {
            check_can_remove(place.dir)?;
            check_changeable(inode)?;
            self.check_room(other.dir, other.name)?;
            self.back_refs.check_room(inode, other.dir.ino(), other.name)?;
        }
        self.apply(reservation, |txn| {
            let _moves = begin_moves(from, to);
            let now = self.core.now();
            self.detach(txn, from, ends.source, &ends.source_inode, now)?;
            self.detach(txn, to, *target, target_inode, now)?;
            self.attach(txn, to, &mut locks, (ends.source, &ends.source_inode), now)?;
            self.attach(txn, from, &mut locks, (*target, target_inode), now)
        })?;
        Ok(true)
    }

    fn is_unchanged(&self, from: Place<'_>, to: Place<'_>, ends: &Ends) -> Result<bool> {
        let target = ends.target.as_ref().map(|(found, _)| *found);
        Ok(self.lookup_locked(from.dir, from.name)? == Some(ends.source)
            && self.lookup_locked(to.dir, to.name)? == target)
    }

    /// Takes a name from an inode or a subvolume that keeps existing.
    fn detach(&self, txn: &Txn, place: Place<'_>, found: Found, inode: &Inode, now: Timestamp) -> Result<()> {
        if found.tree == place.dir.tree_id() {
            return self.take_name(txn, place.dir, place.name, inode, now);
        }
        // A log has no names of subvolumes.
        txn.require_commit();
        let index = self.root_links.remove(txn, place.dir.tree_id(), found.tree)?;
        self.remove_name(txn, place.dir, place.name, index)?;
        entry::shrink(txn, place.dir, place.name, now);
        Ok(())
    }

    /// Gives an inode or a subvolume a name.
    fn attach(
        &self,
        txn: &Txn,
        place: Place<'_>,
        locks: &mut NameLocks<'_>,
        (found, inode): (Found, &Inode),
        now: Timestamp,
    ) -> Result<()> {
        let (dir, name) = (place.dir, place.name);
        let index = self.next_index(dir, locks.of(dir))?;
        let is_subvolume = inode.is_subvolume_root();
        let location = if is_subvolume {
            let link = RootLink { parent: dir.tree_id(), dir: dir.ino(), index, name: name.into() };
            self.root_links.add(txn, found.tree, &link)?;
            Key::new(found.tree.0, item_type::ROOT_ITEM, u64::MAX)
        } else {
            self.back_refs.add(txn, inode, dir.ino(), name, index)?;
            Key::new(found.ino.0, item_type::INODE_ITEM, 0)
        };
        let stored = Stored { location, kind: found.kind };
        self.add_name(txn, dir, locks.of(dir), &NewName { name, stored, found })?;
        entry::grow(txn, dir, name, now);
        inode.change(txn, |state| state.ctime = now);
        Ok(())
    }

    /// Refuses to move the directory `moved` below itself. The caller holds the rename lock, so no directory on the way
    /// up moves.
    fn check_not_below(&self, dir: &Inode, moved: &Inode) -> Result<()> {
        let mut at = self.core.inode(dir.tree_id(), dir.ino())?;
        for _ in 0..DEPTH_MAX {
            if std::ptr::eq(&*at, moved) {
                return Err(CallerError::InvalidArgument.into());
            }
            let above = self.back_refs.parent_dir(&at);
            if above.is_err() && is_removed(&at) {
                return Err(CallerError::NotFound.into());
            }
            at = match above? {
                Some(parent) => self.core.inode(at.tree_id(), parent)?,
                None => match self.root_links.of(at.tree_id())? {
                    Some(link) => self.core.inode(link.parent, link.dir)?,
                    None => return Ok(()),
                },
            };
        }
        let (expected, found) = (Detail::Text("a way to the top"), Detail::Text("a loop"));
        Err(corrupt_inode(dir.tree_id(), dir.ino(), "directory", expected, found))
    }
}

/// Announces the moves to listings of the directories. The second is another one, or none.
fn begin_moves<'a>(from: Place<'a>, to: Place<'a>) -> (Move<'a>, Option<Move<'a>>) {
    let other = (!std::ptr::eq(from.dir, to.dir)).then_some(to.dir);
    (from.dir.begin_move(), other.map(Inode::begin_move))
}

/// True for a directory that was removed and is still in use. Waits for a removal that is not finished.
fn is_removed(dir: &Inode) -> bool {
    drop(dir.lock_names());
    dir.state().nlink == 0
}

/// Finds mistakes of the caller that show without locks.
fn check_ends(from: Place<'_>, to: Place<'_>, ends: &Ends, flags: RenameFlags) -> Result<()> {
    let is_exchange = flags.contains(RenameFlags::EXCHANGE);
    from.dir.check_writable()?;
    to.dir.check_writable()?;
    if !std::ptr::eq(from.dir, to.dir) {
        check_may_leave(&ends.source_inode)?;
        if let (true, Some((_, target))) = (is_exchange, &ends.target) {
            check_may_leave(target)?;
        }
    }
    let crosses = from.dir.tree_id() != to.dir.tree_id();
    let target = ends.target.as_ref().map(|(found, _)| *found);
    let refusal = match target {
        _ if ends.source.ino == EMPTY_SUBVOL_INO => Some(CallerError::NotPermitted),
        Some(_) if flags.contains(RenameFlags::NO_REPLACE) => Some(CallerError::Exists),
        None if is_exchange => Some(CallerError::NotFound),
        // Only a subvolume as a whole may move to another one.
        target if crosses && (ends.source.tree == from.dir.tree_id() || target.is_some()) => {
            Some(CallerError::CrossSubvolume)
        }
        Some(target) if target.ino == EMPTY_SUBVOL_INO => Some(CallerError::Busy),
        Some(target) if !is_exchange && target != ends.source => check_replaceable(to, ends.source, target),
        _ => None,
    };
    refusal.map_or(Ok(()), |what| Err(what.into()))
}

/// A directory that moves to another one changes its `..`: it has to be writable.
fn check_may_leave(inode: &Inode) -> Result<()> {
    if inode.kind().is_dir() {
        inode.check_writable()?;
        inode.check_not_read_only()?;
    }
    Ok(())
}

fn check_replaceable(to: Place<'_>, source: Found, target: Found) -> Option<CallerError> {
    match (source.kind.is_dir(), target.kind.is_dir()) {
        (true, false) => Some(CallerError::NotADirectory),
        (false, true) => Some(CallerError::IsADirectory),
        _ if target.tree != to.dir.tree_id() => Some(CallerError::Busy),
        _ => None,
    }
}
