//! Looks names of directories up, and lists them. Called by `vfs_impl` for lookups and listings, and by `change/names`.

use std::sync::Arc;

use f2fs_disk::convert::{to_u64, to_usize};
use f2fs_disk::dentry::{Entry, SLOTS_PER_BLOCK, Slots, bucket, position};
use f2fs_disk::flags::{Features, InlineFlags, InodeFlags};
use f2fs_disk::inode::{Kind, NAME_BYTES_MAX};
use f2fs_disk::{At, Block, BlockAddr, Nid, fold, hash};

use crate::error::{CallerError, Result};
use crate::map;
use crate::read_volume::{Node, ReadVolume};

/// Positions from here on are those of fsynced names that recovery would make.
const FSYNCED_FROM: u64 = 1 << 62;
const BLOCK_BYTES: u64 = 4096;

/// A name with its inode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ino: Nid,
    /// `None` if the directory does not record it.
    pub(crate) kind: Option<Kind>,
    /// Position at which a listing continues behind it; never 0.
    pub(crate) next: u64,
}

/// Takes names; false ends the listing.
type Take<'a> = dyn FnMut(Listed<'_>) -> Result<bool> + 'a;

/// The inode of a name.
///
/// # Errors
/// [`CallerError::NotFound`], [`CallerError::NotADirectory`], [`CallerError::NameTooLong`].
pub(crate) fn lookup(volume: &ReadVolume, dir: &Node, name: &[u8]) -> Result<Nid> {
    check_is_dir(dir)?;
    if name.len() > NAME_BYTES_MAX {
        return Err(CallerError::NameTooLong.into());
    }
    dir.check_is_plain()?;
    let wanted = Wanted::new(volume, dir, name)?;
    if let Some(names) = volume.overlay().names(dir.ino()) {
        let fsynced = match wanted.folded {
            None => names.get(name),
            Some(_) => names.iter().find(|(name, _)| wanted.is(name)).map(|(_, found)| found),
        };
        if let Some((ino, _)) = fsynced {
            return Ok(*ino);
        }
    }
    Ok(find_wanted(volume, dir, &wanted)?.ok_or(CallerError::NotFound)?.ino)
}

/// True for a directory that ignores case.
pub(crate) fn ignores_case(volume: &ReadVolume, dir: &Node) -> bool {
    dir.inode.flags().contains(InodeFlags::CASEFOLD) && volume.features().contains(Features::CASEFOLD)
}

/// True if the encoding of the volume's case-insensitive directories is supported.
pub(crate) fn knows_case(volume: &ReadVolume) -> bool {
    volume.superblock().fields().s_encoding.get() == fold::UTF8_12_1
}

/// A name to look up.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    name: &'a [u8],
    /// Its folded form, if case is ignored and it is text.
    folded: Option<Vec<u8>>,
    pub(crate) hash: u32,
    /// If it is not found by its hash, all buckets are searched.
    is_anywhere: bool,
}

impl<'a> Wanted<'a> {
    /// A name in a directory.
    ///
    /// # Errors
    /// [`CallerError::InvalidArgument`] for a name that is not UTF-8 if the encoding is strict.
    pub(crate) fn new(volume: &ReadVolume, dir: &Node, name: &'a [u8]) -> Result<Self> {
        if !ignores_case(volume, dir) || matches!(name, b"." | b"..") {
            return Ok(Self { name, folded: None, hash: hash::of_name(name), is_anywhere: false });
        }
        if !knows_case(volume) {
            // It has to be equal byte by byte, in any bucket.
            return Ok(Self { name, folded: None, hash: hash::of_name(name), is_anywhere: true });
        }
        let flags = volume.superblock().fields().s_encoding_flags.get();
        let folded = fold::folded(name);
        if folded.is_none() && flags & fold::STRICT != 0 {
            return Err(CallerError::InvalidArgument.into());
        }
        let hash = fold::hash(name, folded.as_deref());
        Ok(Self { name, folded, hash, is_anywhere: flags & fold::NO_COMPAT_FALLBACK == 0 })
    }

    /// True if a stored name matches.
    fn is(&self, name: &[u8]) -> bool {
        if name == self.name {
            return true;
        }
        let Some(folded) = &self.folded else { return false };
        // Most names can be compared without folding.
        match name.is_ascii() {
            true => name.eq_ignore_ascii_case(folded),
            false => !matches!(name, b"." | b"..") && fold::folded(name).as_ref() == Some(folded),
        }
    }
}

/// Place of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// Inode of the name.
    pub(crate) ino: Nid,
    /// Block of the directory; `None` for inline names.
    pub(crate) block: Option<u64>,
    /// Its first slot there.
    pub(crate) slot: usize,
    /// Bytes of the stored name, which may differ from the looked-up name if case is ignored.
    pub(crate) len: usize,
}

/// The place of a name in a directory.
pub(crate) fn find(volume: &ReadVolume, dir: &Node, name: &[u8]) -> Result<Option<Found>> {
    check_is_dir(dir)?;
    find_wanted(volume, dir, &Wanted::new(volume, dir, name)?)
}

fn find_wanted(volume: &ReadVolume, dir: &Node, wanted: &Wanted<'_>) -> Result<Option<Found>> {
    if dir.inode.inline().contains(InlineFlags::DENTRY) {
        let slots = Slots::inline(dir.inode.inline_area(&dir.block));
        return in_slots(slots, wanted, None, None, At::Inode(dir.ino()));
    }
    match by_hash(volume, dir, wanted)? {
        None if wanted.is_anywhere => anywhere(volume, dir, wanted),
        found => Ok(found),
    }
}

/// A block of a directory; `None` for a hole.
pub(crate) fn block(volume: &ReadVolume, dir: &Node, index: u64) -> Result<Option<Arc<Block>>> {
    if let Some(page) = volume.page(dir.ino(), index) {
        return Ok(Some(Arc::clone(page)));
    }
    match map::run(volume, dir, index, 1)?.at {
        BlockAddr::NULL | BlockAddr::NEW => Ok(None),
        at => Ok(Some(volume.blocks.get(checked(volume, dir, index, at)?)?)),
    }
}

fn check_is_dir(dir: &Node) -> Result<()> {
    match dir.inode.kind() {
        Kind::Directory => Ok(()),
        _ => Err(CallerError::NotADirectory.into()),
    }
}

fn in_slots(
    slots: Slots<'_>,
    wanted: &Wanted<'_>,
    hash: Option<u32>,
    block: Option<u64>,
    at: At,
) -> Result<Option<Found>> {
    for entry in slots.entries_from(0) {
        let entry = entry.map_err(|error| error.at(at))?;
        if hash.is_none_or(|hash| hash == entry.hash) && wanted.is(entry.name) {
            return Ok(Some(Found { ino: entry.ino, block, slot: entry.slot, len: entry.name.len() }));
        }
    }
    Ok(None)
}

/// Searches the bucket of the name's hash, level by level.
fn by_hash(volume: &ReadVolume, dir: &Node, wanted: &Wanted<'_>) -> Result<Option<Found>> {
    let hash = wanted.hash;
    let fields = dir.inode.fields();
    let blocks = dir.inode.size().div_ceil(BLOCK_BYTES);
    // Verified to be at most 63.
    for level in 0..fields.i_current_depth.get() {
        let (first, count) = bucket(level, fields.i_dir_level, hash);
        if first >= blocks {
            break;
        }
        for index in first..first.saturating_add(count).min(blocks) {
            let Some(block) = block(volume, dir, index)? else { continue };
            let at = At::File(dir.ino(), index);
            let found = in_slots(Slots::of_block(&block), wanted, Some(hash), Some(index), at)?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    Ok(None)
}

/// Searches all names of a directory: a kernel with other tables may have hashed one differently.
fn anywhere(volume: &ReadVolume, dir: &Node, wanted: &Wanted<'_>) -> Result<Option<Found>> {
    let mut found = None;
    each_block(volume, dir, 0, &mut |index, block| {
        found = in_slots(Slots::of_block(block), wanted, None, Some(index), At::File(dir.ino(), index))?;
        Ok(found.is_none())
    })?;
    Ok(found)
}

/// Lists the names behind a position, 0 for all, with `.` and `..`.
pub(crate) fn list(volume: &ReadVolume, dir: &Node, from: u64, take: &mut Take<'_>) -> Result<()> {
    check_is_dir(dir)?;
    dir.check_is_plain()?;
    let fsynced = volume.overlay().names(dir.ino());
    // If case is ignored it may be spelled differently.
    let given: Vec<Wanted<'_>> = match fsynced {
        Some(names) if ignores_case(volume, dir) => {
            names.keys().map(|name| Wanted::new(volume, dir, name)).collect::<Result<_>>()?
        }
        _ => Vec::new(),
    };
    let has_gone_on = list_stored(volume, dir, from, &mut |entry| {
        // Names that an fsync has set are listed behind all others.
        if fsynced.is_some_and(|names| names.contains_key(entry.name)) || given.iter().any(|name| name.is(entry.name)) {
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

/// Lists the stored names; false if the listing was ended early.
fn list_stored(volume: &ReadVolume, dir: &Node, from: u64, take: &mut Take<'_>) -> Result<bool> {
    if from >= FSYNCED_FROM {
        return Ok(true);
    }
    if dir.inode.inline().contains(InlineFlags::DENTRY) {
        let slots = Slots::inline(dir.inode.inline_area(&dir.block));
        return list_slots(slots, 0, to_usize(from), At::Inode(dir.ino()), take);
    }
    let per_block = to_u64(SLOTS_PER_BLOCK);
    let first = from.checked_div(per_block).unwrap_or(0);
    let mut slot = to_usize(from.checked_rem(per_block).unwrap_or(0));
    each_block(volume, dir, first, &mut |index, block| {
        let from = if index == first { std::mem::take(&mut slot) } else { 0 };
        list_slots(Slots::of_block(block), index, from, At::File(dir.ino(), index), take)
    })
}

/// Visits the blocks of a directory, from one on; false if `look` ended the visit.
fn each_block(
    volume: &ReadVolume,
    dir: &Node,
    first: u64,
    look: &mut dyn FnMut(u64, &Block) -> Result<bool>,
) -> Result<bool> {
    let blocks = dir.inode.size().div_ceil(BLOCK_BYTES);
    let mut index = first;
    while index < blocks {
        let run = map::run(volume, dir, index, blocks.saturating_sub(index))?;
        let hole = volume.unchanged_pages(dir.ino(), index, run.count);
        if matches!(run.at, BlockAddr::NULL | BlockAddr::NEW) && hole > 0 {
            index = index.saturating_add(hole);
            continue;
        }
        if let Some(block) = block(volume, dir, index)?
            && !look(index, &block)?
        {
            return Ok(false);
        }
        index = index.saturating_add(1);
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

/// The address of a directory's block, which must be neither a hole nor compressed.
fn checked(volume: &ReadVolume, dir: &Node, index: u64, at: BlockAddr) -> Result<BlockAddr> {
    map::check_is_data(volume, dir.ino(), index, at)?;
    Ok(at)
}
