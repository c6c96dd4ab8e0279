//! Scrubbing: reads and checks all copies of a committed state, and rewrites bad copies from good ones. `btrfs::scrub`
//! calls it step by step.
//!
//! A scrub goes through the extents of one committed state (a view, which holds blocks that are freed meanwhile) by
//! address, some megabytes at a time. A tree block is checked against its extent item (address, level, generation) and
//! its own checksum; data against the state's checksum tree. Data without checksums is read, and not checked.
//!
//! In a chunk with parity a bad unit is computed from the rest of its row; where that succeeds, a good copy counts as
//! there. The parity of each row with extents is compared with the row's data, unless that is bad or not there.
//!
//! Failure: a bad copy is not a failure of the scrub, but a result in [`ScrubStep::bad`]. If the volume needs the space
//! that the view holds, the view is given up, and the scrub fails: the caller begins another one at [`Scrub::place`].

mod outdated;
mod parity_rows;
mod rebuild;

use std::ops::Range;
use std::sync::Arc;

use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::flags::ExtentFlags;
use btrfs_disk::items::ExtentView;
use btrfs_disk::key::item_type::{EXTENT_ITEM, METADATA_ITEM};
use btrfs_disk::superblock::{SUPERBLOCK_SIZE, Superblock};
use btrfs_disk::verify;
use btrfs_disk::{At, Corrupt, Detail, Generation, Key, Logical};
use codec::checksum::checksum_many;

use super::Store;
use crate::error::{BadCopy, Cause};
use crate::extent::CsumRange;
use crate::tree::Scan;
use crate::txn::View;
use crate::{Error, Result};
use btrfs_pool::parity;
use btrfs_pool::plan::plan;
use btrfs_pool::supers::Copies;
use btrfs_pool::{Chunk, Pool, PoolDevice, Purpose, check_sector};

pub use rebuild::{Rebuild, RebuildStep, Still};

/// Bytes of extents in one step, of each copy.
const STEP_BYTES: u64 = 16 << 20;
/// Bytes that are read and checked together.
const PIECE_BYTES: u64 = 1 << 20;
/// Extents that one step looks up at most.
const STEP_EXTENTS_MAX: usize = 4096;

/// The outcome for a bad unit (a tree block or a data sector of one copy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Another copy is good, and was written over it.
    Mended,
    /// Another copy is good; this one was not changed.
    Left,
    /// No copy is good.
    Lost,
}

/// A bad unit of one copy.
#[derive(Clone, Debug)]
pub struct BadUnit {
    /// Where it is.
    pub at: Logical,
    /// Its bytes.
    pub len: u64,
    /// A tree block; else a sector of data.
    pub is_tree: bool,
    /// The copy, and its defect.
    pub copy: BadCopy,
    /// The outcome.
    pub fate: Fate,
}

/// The result of one step.
#[derive(Clone, Debug, Default)]
pub struct ScrubStep {
    /// Bytes of tree blocks, of all copies.
    pub tree_bytes: u64,
    /// Bytes of data, of all copies.
    pub data_bytes: u64,
    /// Bytes of data without a checksum, of all copies.
    pub unchecked_bytes: u64,
    /// Bad units, by address.
    pub bad: Vec<BadUnit>,
}

/// A superblock copy that differs from the current one.
#[derive(Clone, Debug)]
pub struct BadSuperblock {
    /// The copy, and its defect.
    pub copy: BadCopy,
    /// The outcome.
    pub fate: Fate,
}

/// A scrub of one committed state.
#[derive(Debug)]
pub struct Scrub {
    live: Store,
    view: Store,
    whole: Arc<View>,
    mends: bool,
    /// The generation of blocks newer than the state.
    running: Generation,
    /// Extents that begin before this address were read.
    next: u64,
    /// The last row of a chunk with parity that was compared: the chunk's start, and the row's number.
    last_row: Option<(Logical, u64)>,
    /// The extents of the step that begins at this address, prefetched by the devices.
    ahead: Option<(u64, Vec<Found>)>,
}

/// The expected contents of a run of bytes.
enum Content {
    /// Tree blocks: level and generation of each.
    Blocks(Vec<(u8, Generation)>),
    /// Data, with its checksums.
    Data(CsumRange),
}

impl Content {
    /// True for data of which some has no checksum, and so may be overwritten in place.
    fn is_bare_somewhere(&self) -> bool {
        matches!(self, Self::Data(csums) if csums.all().is_none())
    }
}

/// A run of extents of one kind that lie side by side.
struct Piece {
    chunk: Arc<Chunk>,
    at: Logical,
    len: u64,
    content: Content,
}

/// A bad unit, by its index in its piece, and its correct bytes.
struct Mend {
    index: usize,
    chunk: Arc<Chunk>,
    good: Vec<u8>,
}

/// An extent as its item describes it.
#[derive(Clone, Copy, Debug)]
struct Found {
    at: u64,
    len: u64,
    block: Option<(u8, Generation)>,
    /// The transaction that made it.
    generation: Generation,
}

/// True for two extents of one kind that lie side by side.
fn goes_on(a: &Found, b: &Found) -> bool {
    a.at.checked_add(a.len) == Some(b.at) && a.block.is_some() == b.block.is_some()
}

impl Store {
    /// Begins a scrub of the newest durable state, at the extents from an address on. With `mends`, bad copies are
    /// rewritten.
    ///
    /// # Errors
    /// As [`Self::committed_view`]; `ReadOnly` where it cannot mend.
    pub fn scrub(&self, from: Logical, mends: bool) -> Result<Scrub> {
        if mends {
            self.check_mends()?;
        }
        let (view, whole) = self.view(None)?;
        let running = view.generation();
        Ok(Scrub { live: self.clone(), view, whole, mends, running, next: from.0, last_row: None, ahead: None })
    }

    /// Reads all copies of the superblock, and with `mends` rewrites those that differ from the last commit's; returns
    /// the bytes read, and the bad copies.
    ///
    /// # Errors
    /// `Device` when a copy could not be written, `ReadOnly`.
    pub fn scrub_superblocks(&self, mends: bool) -> Result<(u64, Vec<BadSuperblock>)> {
        if mends {
            self.check_mends()?;
        }
        let engine = &self.0;
        // While the gate is held, no commit writes a superblock.
        let _serial = engine.gate.serialize();
        let current = engine.log.lock_superblock();
        let pool = engine.pool();
        let (mut bytes, mut bad) = (0u64, Vec::new());
        // A seed has a superblock of its own.
        for device in pool.devices().present().filter(|device| device.seed_fsid().is_none()) {
            let copies = Copies::within(&**device.device(), device.total_bytes());
            for (mirror, (offset, read)) in (0u32..).zip(copies.iter()) {
                bytes = bytes.saturating_add(to_u64(SUPERBLOCK_SIZE));
                let Some(cause) = wrong_superblock(*offset, read, &current)? else { continue };
                let fate = match (mends, mirror) {
                    (false, _) => Fate::Left,
                    (true, 0) => pool.write_primary_superblock(&current).map(|()| Fate::Mended)?,
                    (true, _) => pool.write_superblock_mirrors(&current).map(|()| Fate::Mended)?,
                };
                let offset = *offset;
                bad.push(BadSuperblock { copy: BadCopy { mirror, device: device.id(), offset, cause }, fate });
            }
        }
        Ok((bytes, bad))
    }

    fn check_mends(&self) -> Result<()> {
        if self.is_read_only() { Err(Error::ReadOnly) } else { self.0.health.check() }
    }
}

impl Scrub {
    /// Where the next step begins.
    #[must_use]
    pub fn place(&self) -> Logical {
        Logical(self.next)
    }

    /// Reads and checks all copies of some extents; `None` at the end.
    ///
    /// # Errors
    /// `Corrupt`, `NoGoodCopy` where the extents or checksums themselves cannot be read; `Device` when a copy could not
    /// be mended, or the view was given up.
    pub fn step(&mut self) -> Result<Option<ScrubStep>> {
        let found = match self.ahead.take().filter(|(from, _)| *from == self.next) {
            Some((_, found)) => found,
            None => self.extents(self.next)?,
        };
        let Some(last) = found.last() else { return Ok(None) };
        let end = last.at.saturating_add(last.len.max(1));
        let pieces = self.pieces(&found)?;
        // Fast devices need many requests at a time, so they prefetch the extents of the next step meanwhile.
        // The next step reports an error in looking these up.
        if let Ok(coming) = self.extents(end) {
            self.will_read(&coming);
            self.ahead = Some((end, coming));
        }
        let rows = parity_rows::of(&pieces, &mut self.last_row);
        let judged = self.view.0.pool().workers().map(pieces, |piece| self.judge(&piece));
        let mut step = ScrubStep::default();
        for piece in judged {
            let (mut piece, mends) = piece?;
            for Mend { index, chunk, good } in mends {
                let Some(bad) = piece.bad.get_mut(index) else { continue };
                // A job of the workers may not wait for the lock that this takes.
                if self.live.0.mend(&self.whole, &chunk, bad.at, &good, bad.copy.mirror)? {
                    bad.fate = Fate::Mended;
                }
            }
            step.tree_bytes = step.tree_bytes.saturating_add(piece.tree_bytes);
            step.data_bytes = step.data_bytes.saturating_add(piece.data_bytes);
            step.unchecked_bytes = step.unchecked_bytes.saturating_add(piece.unchecked_bytes);
            step.bad.extend(piece.bad);
        }
        parity_rows::check(self.view.0.pool(), rows, &mut step);
        self.next = end;
        Ok(Some(step))
    }

    /// Prefetches all copies of these extents.
    fn will_read(&self, found: &[Found]) {
        let pool = self.view.0.pool();
        for run in found.chunk_by(goes_on) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let len = last.at.saturating_add(last.len).saturating_sub(first.at);
            // A damaged item may claim any length.
            pool.will_read_copies(Logical(first.at), len.min(STEP_BYTES));
        }
    }

    /// The extents of the step that begins here.
    fn extents(&self, from: u64) -> Result<Vec<Found>> {
        let tree = &self.view.0.core.extent;
        let node_bytes = u64::from(self.view.sizes().node);
        let (from, to) = (Key::new(from, 0, 0), Key::new(u64::MAX, u8::MAX, u64::MAX));
        let (mut found, mut bytes) = (Vec::new(), 0u64);
        tree.scan(&from, &to, |key, item| {
            if !matches!(key.item_type, EXTENT_ITEM | METADATA_ITEM) {
                return Ok(Scan::Continue);
            }
            let view = ExtentView::parse(key, item).map_err(|error| error.at(At::Key(tree.id(), *key)))?;
            let is_block = view.item.extent_flags().contains(ExtentFlags::TREE_BLOCK);
            let generation = Generation(view.item.generation.get());
            let block = is_block.then(|| (view.level(key).unwrap_or(u8::MAX), generation));
            let len = if is_block { node_bytes } else { key.offset };
            found.push(Found { at: key.objectid, len, block, generation });
            bytes = bytes.saturating_add(len);
            let is_full = bytes >= STEP_BYTES || found.len() >= STEP_EXTENTS_MAX;
            Ok(if is_full { Scan::Stop } else { Scan::Continue })
        })?;
        Ok(found)
    }

    /// Cuts extents into pieces that are read at once.
    fn pieces(&self, found: &[Found]) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        for run in found.chunk_by(goes_on) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let mut at = first.at;
            let end = last.at.saturating_add(last.len);
            let mut blocks = run.iter().filter_map(|found| found.block);
            while at < end {
                let chunk = self.view.0.pool().chunks().lookup(Logical(at), 1)?;
                let chunk_end = chunk.start().0.saturating_add(chunk.len_bytes());
                let len = PIECE_BYTES.min(end.saturating_sub(at)).min(chunk_end.saturating_sub(at));
                let content = match first.block {
                    Some(_) => {
                        let count = to_usize(len.checked_div(first.len).unwrap_or(0));
                        Content::Blocks(blocks.by_ref().take(count).collect())
                    }
                    None => Content::Data(self.view.data_csums(Logical(at), len)?),
                };
                pieces.push(Piece { chunk, at: Logical(at), len, content });
                at = at.saturating_add(len);
            }
        }
        Ok(pieces)
    }

    /// Reads all copies of a piece; returns their defects, and the repairs.
    fn judge(&self, piece: &Piece) -> Result<(ScrubStep, Vec<Mend>)> {
        let copies = piece.chunk.profile().mirror_count();
        let units = piece.units(self.view.0.pool());
        let bytes = piece.len.saturating_mul(u64::from(copies));
        let mut judged = ScrubStep::default();
        match &piece.content {
            Content::Blocks(_) => judged.tree_bytes = bytes,
            Content::Data(csums) => {
                let bare = to_u64((0..csums.count()).filter(|index| csums.get(*index).is_none()).count());
                let sector = u64::from(self.view.sizes().sector);
                judged.unchecked_bytes = bare.saturating_mul(sector).saturating_mul(u64::from(copies));
                judged.data_bytes = bytes;
            }
        }
        let mut buf = vec![0; to_usize(piece.len)];
        let mut bad: Vec<(usize, BadCopy)> = Vec::new();
        for mirror in 0..copies {
            for (index, cause) in self.bad_units(piece, &units, mirror, &mut buf)? {
                let place = piece.place(&units, index, mirror);
                bad.push((index, BadCopy { mirror, device: place.0, offset: place.1, cause }));
            }
        }
        bad.sort_by_key(|(index, copy)| (*index, copy.mirror));
        let mut mends = Vec::new();
        for same in bad.chunk_by(|(a, _), (b, _)| a == b) {
            self.treat(piece, &units, same, copies, (&mut judged, &mut mends));
        }
        Ok((judged, mends))
    }

    /// The bad units of one copy.
    fn bad_units(
        &self,
        piece: &Piece,
        units: &[Range<usize>],
        mirror: u32,
        buf: &mut [u8],
    ) -> Result<Vec<(usize, Cause)>> {
        let pool = self.view.0.pool();
        if pool.read_parts(&piece.chunk, piece.at, buf, mirror).is_ok() {
            return Ok(self.wrong(piece, units, buf));
        }
        let mut bad = Vec::new();
        for (index, unit) in units.iter().enumerate() {
            let part = buf.get_mut(unit.clone()).unwrap_or_default();
            if pool.devices().get(piece.place(units, index, mirror).0).is_some_and(PoolDevice::is_missing)
                && (!piece.chunk.is_parity() || self.is_computable(piece, index, unit, part))
            {
                continue;
            }
            match self.read_unit(piece, index, unit, mirror, part) {
                Ok(()) => {}
                // The view was given up, so no other copy can be read either.
                Err(Cause::Device(gone @ blockdev::Error::Gone { .. })) => return Err(gone.into()),
                Err(cause) => bad.push((index, cause)),
            }
        }
        Ok(bad)
    }

    /// Checks the bytes read from one copy of the whole piece.
    fn wrong(&self, piece: &Piece, units: &[Range<usize>], buf: &[u8]) -> Vec<(usize, Cause)> {
        // Computing all checksums at once takes a fraction of the time, and is enough if all of them are right.
        if let Content::Data(csums) = &piece.content
            && let Some(expected) = csums.all()
        {
            let pool = self.view.0.pool();
            let mut computed = vec![0; expected.len()];
            checksum_many(pool.csum_type(), buf, pool.sector_bytes(), &mut computed);
            if computed == expected {
                return Vec::new();
            }
        }
        let check = |(index, unit): (usize, &Range<usize>)| {
            let bytes = buf.get(unit.clone()).unwrap_or_default();
            Some((index, self.check(piece, index, piece.unit_at(units, index), bytes).err()?))
        };
        units.iter().enumerate().filter_map(check).collect()
    }

    /// Checks one unit.
    fn check(&self, piece: &Piece, index: usize, at: Logical, bytes: &[u8]) -> Result<(), Cause> {
        match &piece.content {
            Content::Blocks(blocks) => Ok(verify::block(bytes, &self.expect_block(blocks, index, at))?),
            Content::Data(csums) => {
                let Some(expected) = csums.get(index) else { return Ok(()) };
                let kind = self.view.0.pool().csum_type();
                Ok(check_sector(kind, bytes, expected).map_err(|error| error.at(At::Data(at)))?)
            }
        }
    }

    /// The check of the tree block with this index in its piece.
    fn expect_block(&self, blocks: &[(u8, Generation)], index: usize, at: Logical) -> verify::Expect<'_> {
        let (level, generation) = blocks.get(index).copied().unwrap_or_default();
        let reader = &self.view.0.reader;
        verify::Expect { level: Some(level), ..reader.expect_for_write(at, self.running, generation) }
    }

    fn read_unit(
        &self,
        piece: &Piece,
        index: usize,
        unit: &Range<usize>,
        mirror: u32,
        buf: &mut [u8],
    ) -> Result<(), Cause> {
        let at = Logical(piece.at.0.saturating_add(to_u64(unit.start)));
        self.view.0.pool().read_parts(&piece.chunk, at, buf, mirror)?;
        self.check(piece, index, at, buf)
    }

    /// Whether a unit can be computed from the rest of its row.
    fn is_computable(&self, piece: &Piece, index: usize, unit: &Range<usize>, buf: &mut [u8]) -> bool {
        let at = Logical(piece.at.0.saturating_add(to_u64(unit.start)));
        let mut ways = parity::ways(&piece.chunk, at, to_u64(unit.len())).into_iter();
        ways.any(|way| self.read_unit(piece, index, unit, way, buf).is_ok())
    }

    /// Finds a good copy of a unit with bad copies.
    fn treat(
        &self,
        piece: &Piece,
        units: &[Range<usize>],
        bad: &[(usize, BadCopy)],
        copies: u32,
        (judged, mends): (&mut ScrubStep, &mut Vec<Mend>),
    ) {
        let Some((index, _)) = bad.first() else { return };
        let unit = units.get(*index).cloned().unwrap_or_default();
        let at = piece.unit_at(units, *index);
        let mut buf = vec![0; unit.len()];
        let is_bad = |mirror: u32| bad.iter().any(|(_, copy)| copy.mirror == mirror);
        let has_good = (0..copies)
            .filter(|mirror| !is_bad(*mirror))
            .any(|mirror| self.read_unit(piece, *index, &unit, mirror, &mut buf).is_ok())
            || (piece.chunk.is_parity() && self.is_computable(piece, *index, &unit, &mut buf));
        // Data without checksums may be overwritten in place at any time, with bytes that were not read here.
        let is_stable = !matches!(&piece.content, Content::Data(csums) if csums.get(*index).is_none());
        for (_, copy) in bad {
            if self.mends && has_good && is_stable {
                mends.push(Mend { index: judged.bad.len(), chunk: Arc::clone(&piece.chunk), good: buf.clone() });
            }
            let fate = if has_good { Fate::Left } else { Fate::Lost };
            let is_tree = matches!(piece.content, Content::Blocks(_));
            judged.bad.push(BadUnit { at, len: to_u64(unit.len()), is_tree, copy: copy.clone(), fate });
        }
    }
}

impl Piece {
    /// The runs of bytes that are checked one by one.
    fn units(&self, pool: &Pool) -> Vec<Range<usize>> {
        let size = match &self.content {
            Content::Blocks(_) => pool.node_bytes(),
            Content::Data(_) => pool.sector_bytes(),
        };
        let len = to_usize(self.len);
        (0..len).step_by(size.max(1)).map(|start| start..start.saturating_add(size).min(len)).collect()
    }

    fn unit_at(&self, units: &[Range<usize>], index: usize) -> Logical {
        Logical(self.at.0.saturating_add(units.get(index).map_or(0, |unit| to_u64(unit.start))))
    }

    /// Device and byte of a unit's copy.
    fn place(&self, units: &[Range<usize>], index: usize, mirror: u32) -> (btrfs_disk::DevId, u64) {
        let parts = plan(&self.chunk, self.unit_at(units, index), 1, Purpose::Read(mirror));
        parts.first().map_or_else(Default::default, |part| (part.device, part.device_offset))
    }
}

/// The defect of a copy of the superblock.
fn wrong_superblock(offset: u64, read: &btrfs_pool::Result<Superblock>, current: &Superblock) -> Result<Option<Cause>> {
    let copy = match read {
        Ok(copy) => copy,
        Err(btrfs_pool::Error::Corrupt(error)) => return Ok(Some((*error).into())),
        Err(btrfs_pool::Error::Device(error)) => return Ok(Some(error.clone().into())),
        Err(error) => return Err(error.clone().into()),
    };
    let wrong = |what, expected: Detail, found: Detail| {
        Ok(Some(Corrupt::new(what, expected, found).at(At::Superblock(offset)).into()))
    };
    let (expected, found) = (current.fields(), copy.fields());
    if found.fsid != expected.fsid {
        return wrong("file system of the superblock", Detail::Text("this one"), Detail::Text("another"));
    }
    let (expected, found) = (expected.generation.get(), found.generation.get());
    if found != expected {
        return wrong("generation of the superblock", Detail::Number(expected), Detail::Number(found));
    }
    Ok(None)
}
