//! Names of directories.

use std::sync::Arc;

use f2fs_disk::convert::{to_u64, to_usize};
use f2fs_disk::dentry::{Entry, SLOTS_PER_BLOCK, Slots, bucket, position};
use f2fs_disk::flags::{InlineFlags, InodeFlags};
use f2fs_disk::inode::{Kind, NAME_BYTES_MAX};
use f2fs_disk::{At, Block, BlockAddr, Nid, hash};

use crate::error::{CallerError, Result};
use crate::map;
use crate::store::{Node, Store};

/// Positions from here on are those of names that recovery would make.
const FSYNCED_FROM: u64 = 1 << 62;
const BLOCK_BYTES: u64 = 4096;

/// A name and what it leads to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ino: Nid,
    /// `None` where the directory does not say.
    pub(crate) kind: Option<Kind>,
    /// Where a listing goes on behind it; never 0.
    pub(crate) next: u64,
}

/// Takes names; false ends the listing.
type Take<'a> = dyn FnMut(Listed<'_>) -> Result<bool> + 'a;

/// What a name leads to.
///
/// # Errors
/// [`CallerError::NotFound`], [`CallerError::NotADirectory`], [`CallerError::NameTooLong`].
pub(crate) fn lookup(store: &Store, dir: &Node, name: &[u8]) -> Result<Nid> {
    check_is_dir(dir)?;
    if name.len() > NAME_BYTES_MAX {
        return Err(CallerError::NameTooLong.into());
    }
    dir.check_is_plain()?;
    if let Some((ino, _)) = store.overlay().names(dir.ino()).and_then(|names| names.get(name)) {
        return Ok(*ino);
    }
    // Without the tables of case folding their hashes are not known: every name is looked at, and it has to be the
    // same byte by byte.
    let is_hashed = !dir.inode.flags().contains(InodeFlags::CASEFOLD);
    let found = if dir.inode.inline().contains(InlineFlags::DENTRY) || is_hashed {
        find(store, dir, name)?.map(|found| found.ino)
    } else {
        by_listing(store, dir, name)?
    };
    Ok(found.ok_or(CallerError::NotFound)?)
}

/// Where a name stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// What it leads to.
    pub(crate) ino: Nid,
    /// Block of the directory; `None` where names are inline.
    pub(crate) block: Option<u64>,
    /// Its first slot there.
    pub(crate) slot: usize,
}

/// Where a name stands in a directory that does not ignore case.
pub(crate) fn find(store: &Store, dir: &Node, name: &[u8]) -> Result<Option<Found>> {
    check_is_dir(dir)?;
    if dir.inode.inline().contains(InlineFlags::DENTRY) {
        let slots = Slots::inline(dir.inode.inline_area(&dir.block));
        let found = in_slots(slots, name, None, At::Inode(dir.ino()))?;
        return Ok(found.map(|(ino, slot)| Found { ino, block: None, slot }));
    }
    by_hash(store, dir, name)
}

/// A block of a directory; `None` for a hole.
pub(crate) fn block(store: &Store, dir: &Node, index: u64) -> Result<Option<Arc<Block>>> {
    if let Some(page) = store.page(dir.ino(), index) {
        return Ok(Some(Arc::clone(page)));
    }
    match map::run(store, dir, index, 1)?.at {
        BlockAddr::NULL | BlockAddr::NEW => Ok(None),
        at => Ok(Some(store.blocks.get(checked(store, dir, index, at)?)?)),
    }
}

fn check_is_dir(dir: &Node) -> Result<()> {
    match dir.inode.kind() {
        Kind::Directory => Ok(()),
        _ => Err(CallerError::NotADirectory.into()),
    }
}

fn in_slots(slots: Slots<'_>, name: &[u8], hash: Option<u32>, at: At) -> Result<Option<(Nid, usize)>> {
    for entry in slots.entries_from(0) {
        let entry = entry.map_err(|error| error.at(at))?;
        if hash.is_none_or(|hash| hash == entry.hash) && entry.name == name {
            return Ok(Some((entry.ino, entry.slot)));
        }
    }
    Ok(None)
}

/// Looks into the bucket of the name's hash, level by level.
fn by_hash(store: &Store, dir: &Node, name: &[u8]) -> Result<Option<Found>> {
    let hash = hash::of_name(name);
    let fields = dir.inode.fields();
    let blocks = dir.inode.size().div_ceil(BLOCK_BYTES);
    // Verified to be 63 at most.
    for level in 0..fields.i_current_depth.get() {
        let (first, count) = bucket(level, fields.i_dir_level, hash);
        if first >= blocks {
            break;
        }
        for index in first..first.saturating_add(count).min(blocks) {
            let Some(block) = block(store, dir, index)? else { continue };
            let found = in_slots(Slots::of_block(&block), name, Some(hash), At::File(dir.ino(), index))?;
            if let Some((ino, slot)) = found {
                return Ok(Some(Found { ino, block: Some(index), slot }));
            }
        }
    }
    Ok(None)
}

fn by_listing(store: &Store, dir: &Node, name: &[u8]) -> Result<Option<Nid>> {
    let mut found = None;
    list_stored(store, dir, 0, &mut |entry| {
        if entry.name == name {
            found = Some(entry.ino);
        }
        Ok(found.is_none())
    })?;
    Ok(found)
}

/// Lists the names behind a position, 0 for all: `.` and `..` too.
pub(crate) fn list(store: &Store, dir: &Node, from: u64, take: &mut Take<'_>) -> Result<()> {
    check_is_dir(dir)?;
    dir.check_is_plain()?;
    let fsynced = store.overlay().names(dir.ino());
    let has_gone_on = list_stored(store, dir, from, &mut |entry| {
        // What an fsync gave the name to is listed behind all others.
        if fsynced.is_some_and(|names| names.contains_key(entry.name)) {
            return Ok(true);
        }
        take(entry)
    })?;
    let Some(names) = fsynced.filter(|_| has_gone_on) else { return Ok(()) };
    let skipped = to_usize(from.saturating_sub(FSYNCED_FROM));
    for (index, (name, (ino, kind))) in names.iter().enumerate().skip(skipped) {
        let next = FSYNCED_FROM.saturating_add(to_u64(index)).saturating_add(1);
        if !take(Listed { name, ino: *ino, kind: *kind, next })? {
            break;
        }
    }
    Ok(())
}

/// Lists the names that are stored; false where they were not wanted to the end.
fn list_stored(store: &Store, dir: &Node, from: u64, take: &mut Take<'_>) -> Result<bool> {
    if from >= FSYNCED_FROM {
        return Ok(true);
    }
    if dir.inode.inline().contains(InlineFlags::DENTRY) {
        let slots = Slots::inline(dir.inode.inline_area(&dir.block));
        return list_slots(slots, 0, to_usize(from), At::Inode(dir.ino()), take);
    }
    let per_block = to_u64(SLOTS_PER_BLOCK);
    let blocks = dir.inode.size().div_ceil(BLOCK_BYTES);
    let mut index = from.checked_div(per_block).unwrap_or(0);
    let mut slot = to_usize(from.checked_rem(per_block).unwrap_or(0));
    while index < blocks {
        let run = map::run(store, dir, index, blocks.saturating_sub(index))?;
        let hole = store.unchanged_pages(dir.ino(), index, run.count);
        if matches!(run.at, BlockAddr::NULL | BlockAddr::NEW) && hole > 0 {
            index = index.saturating_add(hole);
        } else if let Some(block) = block(store, dir, index)? {
            if !list_slots(Slots::of_block(&block), index, slot, At::File(dir.ino(), index), take)? {
                return Ok(false);
            }
            index = index.saturating_add(1);
        } else {
            index = index.saturating_add(1);
        }
        slot = 0;
    }
    Ok(true)
}

fn list_slots(slots: Slots<'_>, block: u64, from: usize, at: At, take: &mut Take<'_>) -> Result<bool> {
    for entry in slots.entries_from(from) {
        let Entry { slot, ino, kind, name, .. } = entry.map_err(|error| error.at(at))?;
        let next = position(block, slot).saturating_add(1);
        if !take(Listed { name, ino, kind, next })? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The address of a directory's block, which is neither a hole nor compressed.
fn checked(store: &Store, dir: &Node, index: u64, at: BlockAddr) -> Result<BlockAddr> {
    map::check_is_data(store, dir.ino(), index, at)?;
    Ok(at)
}
