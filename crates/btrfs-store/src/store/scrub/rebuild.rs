//! Writes to a device what belongs on it, from the copies on other devices, while the volume is in use: to one that
//! takes the place of another, or to a member that missed commits and is brought up to date. `btrfs::volume::devices`
//! calls it step by step.
//!
//! From the beginning the device is the twin of the one whose place it takes ([`btrfs_pool::twin`]): new writes go to
//! it. What was there before comes from views of committed states, whose places have no other use as long as they are
//! held. Data that may be overwritten in place is copied while such writes are stopped (`still`).
//!
//! A member that missed commits has everything that is not newer than its last commit ([`super::outdated`] finds what
//! only looks so), and the rest is not read, so the time does not grow with what is stored but with what changed.
//!
//! The device gets its superblock last, and with that becomes a member; until then a member that missed commits has its
//! old superblock, and a rebuild that was cut short begins anew.
//!
//! Failure: a range of which no copy is good is a result ([`RebuildStep::lost`]), and is left as it is on the device. A
//! write to the device that fails ends the rebuild, and the volume is as before.

use std::ops::Range;
use std::sync::Arc;

use blockdev::{Device, Kind, Tag, tagged};
use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::verify;
use btrfs_disk::{DevId, Generation, Logical};
use btrfs_pool::plan::plan;
use btrfs_pool::{Expect, MemberError, Part, Purpose, supers};
use codec::checksum::checksum_many;

use super::outdated::Outdated;
use super::{Content, Found, Piece, Scrub};
use crate::store::Store;
use crate::{Error, Result};

/// Pieces that are in memory at the same time.
const BATCH_PIECES: usize = 16;

/// Times that it begins anew at the same place, after its view was given up.
const RESTARTS_MAX: u32 = 16;

/// Runs a job while no data is overwritten in place.
pub type Still<'a> = dyn FnMut(&mut dyn FnMut() -> Result<()>) -> Result<()> + 'a;

/// A device that is being written.
#[derive(Debug)]
pub struct Rebuild {
    live: Store,
    /// The state that is copied; `None` before the first.
    scrub: Option<Scrub>,
    id: DevId,
    target: Arc<dyn Device>,
    since: Generation,
    /// Of what is not newer than `since`.
    outdated: Outdated,
    /// Only compares.
    compares: bool,
    /// Extents that begin before this address are done.
    next: u64,
    restarts: u32,
    is_over: bool,
}

/// The treatment of a piece on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treatment {
    /// It is written.
    Write,
    /// It is written where it differs.
    Mend,
    /// It is a failure where it differs.
    Compare,
}

/// The result of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RebuildStep {
    /// Bytes written to the device; in a comparison, bytes compared.
    pub bytes: u64,
    /// Bytes that were compared, and were there already.
    pub same_bytes: u64,
    /// Logical ranges of which no copy is good, or whose copy on the device differs when it is compared.
    pub lost: Vec<(Logical, u64)>,
}

impl RebuildStep {
    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.same_bytes = self.same_bytes.saturating_add(other.same_bytes);
        self.lost.extend(other.lost);
    }
}

/// The good bytes of a piece, without those that no copy has.
struct Good {
    bytes: Vec<u8>,
    lost: Vec<Range<usize>>,
}

impl Store {
    /// Begins to write to `target` what device `id` holds, of extents newer than `since`. The caller then sees to it
    /// that data that was being written before is in the trees, and calls [`Rebuild::look`].
    ///
    /// # Errors
    /// `Bug` for a device that the file system does not have; `Members` for a target that is too small; `Unsupported`
    /// while another device is rebuilt; `ReadOnly`.
    pub fn rebuild(&self, id: DevId, target: Arc<dyn Device>, since: Generation) -> Result<Rebuild> {
        let engine = &self.0;
        if engine.options.read_only {
            return Err(Error::ReadOnly);
        }
        let needed = engine.device(id)?.total_bytes();
        let available = target.size_bytes();
        if available < needed {
            let too_small = MemberError::TooSmall { device: target.name().to_owned(), found: available, least: needed };
            return Err(Error::Members(Box::new(too_small)));
        }
        if since.0 == 0 {
            // A device that another one is to take the place of has a superblock; this one has none before the end.
            supers::mark_target(&*target, engine.device(id)?.uuid())?;
        }
        engine.pool().begin_twin(id, Arc::clone(&target))?;
        Ok(Rebuild {
            live: self.clone(),
            scrub: None,
            id,
            target,
            since,
            outdated: Outdated::default(),
            compares: false,
            next: 0,
            restarts: 0,
            is_over: false,
        })
    }
}

impl Drop for Rebuild {
    fn drop(&mut self) {
        if !self.is_over {
            self.live.0.pool().end_twin();
        }
    }
}

impl Rebuild {
    /// The logical address up to which everything is done.
    #[must_use]
    pub fn done_until(&self) -> u64 {
        self.next
    }

    /// Commits, and goes on with that state.
    ///
    /// # Errors
    /// As [`Store::commit`] and [`Store::committed_view`].
    pub fn look(&mut self) -> Result<()> {
        self.scrub = None;
        self.live.commit()?;
        let scrub = self.live.scrub(Logical(self.next), false)?;
        if self.since.0 > 0 && !self.compares {
            self.outdated = Outdated::find(&scrub.view, self.since)?;
        }
        self.scrub = Some(scrub);
        Ok(())
    }

    /// Writes the next extents; `None` at the end.
    ///
    /// # Errors
    /// `Corrupt`, `NoGoodCopy` where the extents or checksums themselves cannot be read; `Device` for the target.
    pub fn step(&mut self, still: &mut Still<'_>) -> Result<Option<RebuildStep>> {
        self.live.0.pool().check_twin()?;
        match self.try_step(still) {
            Err(Error::Device(blockdev::Error::Gone { .. })) if self.restarts < RESTARTS_MAX => {
                self.restarts += 1;
                self.look()?;
                Ok(Some(RebuildStep::default()))
            }
            Ok(Some((step, end))) => {
                (self.next, self.restarts) = (end, 0);
                Ok(Some(step))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn try_step(&self, still: &mut Still<'_>) -> Result<Option<(RebuildStep, u64)>> {
        let scrub = self.scrub()?;
        let found = scrub.extents(self.next)?;
        let Some(last) = found.last() else { return Ok(None) };
        let end = last.at.saturating_add(last.len.max(1));
        let mut step = RebuildStep::default();
        let mut pieces = self.pieces(scrub, found)?.into_iter().peekable();
        while pieces.peek().is_some() {
            let (moving, settled): (Vec<_>, Vec<_>) =
                pieces.by_ref().take(BATCH_PIECES).partition(|(piece, _)| piece.content.is_bare_somewhere());
            let workers = scrub.view.0.pool().workers();
            let take = |(piece, treatment): (Piece, Treatment)| {
                let is_there = treatment == Treatment::Mend && self.has_right_sums(&piece);
                let good = if is_there { None } else { Some(read(scrub, &piece)) };
                (piece, treatment, good)
            };
            for (piece, treatment, good) in workers.map(settled, take) {
                match good {
                    Some(good) => step.add(self.put(scrub, &piece, treatment, &good?)?),
                    None => step.same_bytes = step.same_bytes.saturating_add(piece.len),
                }
            }
            for (piece, treatment) in moving {
                still(&mut || {
                    step.add(self.put(scrub, &piece, treatment, &read(scrub, &piece)?)?);
                    Ok(())
                })?;
            }
        }
        Ok(Some((step, end)))
    }

    fn scrub(&self) -> Result<&Scrub> {
        self.scrub.as_ref().ok_or_else(|| Error::bug("no state to copy", "rebuild"))
    }

    /// The pieces of extents that belong on the device and may not be there.
    fn pieces(&self, scrub: &Scrub, found: Vec<Found>) -> Result<Vec<(Piece, Treatment)>> {
        let is_here = |piece: &Piece| piece.chunk.stripes().iter().any(|stripe| stripe.device == self.id);
        if self.compares {
            let pieces = scrub.pieces(&found)?.into_iter().filter(is_here);
            return Ok(pieces.map(|piece| (piece, Treatment::Compare)).collect());
        }
        let is_new = |found: &Found| self.since.0 == 0 || found.generation > self.since;
        let (new, old): (Vec<Found>, Vec<Found>) = found.into_iter().partition(is_new);
        let is_sound_block = |found: &Found| found.block.is_some() && !self.outdated.has_block(found.at);
        let old: Vec<Found> = old.into_iter().filter(|found| !is_sound_block(found)).collect();
        let mut pieces: Vec<(Piece, Treatment)> = Vec::new();
        pieces.extend(scrub.pieces(&new)?.into_iter().filter(is_here).map(|piece| (piece, Treatment::Write)));
        let is_suspect = |piece: &Piece| {
            matches!(piece.content, Content::Blocks(_))
                || piece.content.is_bare_somewhere()
                || self.outdated.has_sums_in(piece.at.0, piece.len)
        };
        let old = scrub.pieces(&old)?.into_iter().filter(is_here).filter(is_suspect);
        pieces.extend(old.map(|piece| (piece, Treatment::Mend)));
        Ok(pieces)
    }

    /// Begins again, and compares the device with the other copies.
    ///
    /// # Errors
    /// `Device` where the writes cannot be made durable; as [`Self::look`].
    pub fn compare(&mut self) -> Result<()> {
        self.target.flush()?;
        (self.compares, self.next) = (true, 0);
        self.look()
    }

    /// Makes the device a member, with the superblock that the others have. Returns the device whose place it took, if
    /// that was there: it has a superblock still.
    ///
    /// # Errors
    /// `Device` for the target; as [`Store::commit`].
    pub fn finish(mut self) -> Result<Option<Arc<dyn Device>>> {
        self.scrub = None;
        let engine = &self.live.0;
        engine.pool().check_twin()?;
        self.live.commit()?;
        let twinned = {
            let _serial = engine.gate.serialize();
            let _syncs = engine.log.stop_syncs();
            let durable = engine.log.lock_superblock();
            let synced = engine.log.trees.lock().superblock.clone();
            supers::enlist(Arc::clone(&self.target), self.id, synced.as_ref().unwrap_or(&durable))?;
            engine.pool().adopt_twin()?
        };
        self.is_over = true;
        // Data that was overwritten in place while the superblock was written.
        self.target.flush()?;
        engine.space.set_missing(self.id, false);
        engine.give_up_views()?;
        Ok(twinned.before)
    }

    /// Treats a piece on the device, but for what no copy has.
    fn put(&self, scrub: &Scrub, piece: &Piece, treatment: Treatment, good: &Good) -> Result<RebuildStep> {
        let mut step = RebuildStep::default();
        let mut done = 0;
        for part in good.lost.iter().cloned().chain(std::iter::once(good.bytes.len()..good.bytes.len())) {
            let bytes = good.bytes.get(done..part.start).unwrap_or_default();
            let at = Logical(piece.at.0.saturating_add(to_u64(done)));
            if !bytes.is_empty() {
                self.put_range(scrub, (piece, treatment), (at, bytes), &mut step)?;
            }
            done = part.end;
        }
        let at = |part: &Range<usize>| Logical(piece.at.0.saturating_add(to_u64(part.start)));
        step.lost.extend(good.lost.iter().map(|part| (at(part), to_u64(part.len()))));
        Ok(step)
    }

    fn put_range(
        &self,
        scrub: &Scrub,
        (piece, treatment): (&Piece, Treatment),
        (at, good): (Logical, &[u8]),
        step: &mut RebuildStep,
    ) -> Result<()> {
        for mirror in 0..piece.chunk.profile().mirror_count() {
            let parts = plan(&piece.chunk, at, to_u64(good.len()), Purpose::Read(mirror));
            for part in parts.iter().filter(|part| part.device == self.id) {
                let from = to_usize(part.range_offset);
                let good = good.get(from..from.saturating_add(to_usize(part.len))).unwrap_or_default();
                match treatment {
                    Treatment::Mend if self.has(part, good) => {
                        step.same_bytes = step.same_bytes.saturating_add(part.len);
                    }
                    Treatment::Compare => {
                        if !self.has(part, good) {
                            step.lost.push((Logical(at.0.saturating_add(part.range_offset)), part.len));
                        }
                        step.bytes = step.bytes.saturating_add(part.len);
                    }
                    Treatment::Write | Treatment::Mend => {
                        if self.write(scrub, piece, part, good)? {
                            step.bytes = step.bytes.saturating_add(part.len);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// True if all of a piece lies on the device, with the right checksums: no other copy has to be read.
    fn has_right_sums(&self, piece: &Piece) -> bool {
        let Content::Data(csums) = &piece.content else { return false };
        let Some(stored) = csums.all() else { return false };
        let pool = self.live.0.pool();
        let is_right = |mirror: u32| {
            let parts = plan(&piece.chunk, piece.at, piece.len, Purpose::Read(mirror));
            let mut bytes = vec![0; to_usize(piece.len)];
            let mut is_read = |part: &Part| {
                let from = to_usize(part.range_offset);
                let place = bytes.get_mut(from..from.saturating_add(to_usize(part.len))).unwrap_or_default();
                part.device == self.id && self.target.read_at(part.device_offset, place).is_ok()
            };
            parts.iter().all(&mut is_read) && {
                let mut found = vec![0; stored.len()];
                checksum_many(pool.csum_type(), &bytes, pool.sector_bytes(), &mut found);
                found == stored
            }
        };
        (0..piece.chunk.profile().mirror_count()).any(is_right)
    }

    fn has(&self, part: &Part, good: &[u8]) -> bool {
        let mut found = vec![0; good.len()];
        self.target.read_at(part.device_offset, &mut found).is_ok() && found == good
    }

    /// Writes bytes of the state to the device; false where their chunk is gone, and so they are of no use.
    fn write(&self, scrub: &Scrub, piece: &Piece, part: &Part, good: &[u8]) -> Result<bool> {
        let engine = &self.live.0;
        if !engine.has_chunk(&piece.chunk, (piece.at, piece.len)) {
            return Ok(false);
        }
        let kind = if matches!(piece.content, Content::Data(_)) { Kind::Data } else { Kind::Metadata };
        let tag = Tag { kind, mirror: part.mirror };
        let write = || tagged(tag, || self.target.write_at(part.device_offset, &[good]));
        match engine.views.while_whole(&scrub.whole, write) {
            Some(written) => Ok(written.map(|()| true)?),
            None => {
                let reason = "the state that was copied was given up".into();
                Err(blockdev::Error::Gone { device: self.target.name().to_owned(), reason }.into())
            }
        }
    }
}

/// Reads a piece.
fn read(scrub: &Scrub, piece: &Piece) -> Result<Good> {
    let mut bytes = vec![0; to_usize(piece.len)];
    let lost = match read_whole(scrub, piece, &mut bytes) {
        true => Vec::new(),
        false => read_units(scrub, piece, &mut bytes)?,
    };
    Ok(Good { bytes, lost })
}

/// Reads a piece at once; false for one that has to be read unit by unit.
fn read_whole(scrub: &Scrub, piece: &Piece, buf: &mut [u8]) -> bool {
    let Content::Data(csums) = &piece.content else { return false };
    let pool = scrub.view.0.pool();
    let is_bare = (0..csums.count()).all(|index| csums.get(index).is_none());
    match (csums.all(), is_bare) {
        (Some(all), _) => pool.read(piece.at, buf, Expect::Csums(all)).is_ok(),
        (None, true) => pool.read(piece.at, buf, Expect::Unchecked).is_ok(),
        (None, false) => false,
    }
}

/// Reads a piece unit by unit; returns the units that have no good copy.
fn read_units(scrub: &Scrub, piece: &Piece, buf: &mut [u8]) -> Result<Vec<Range<usize>>> {
    let units = piece.units(scrub.view.0.pool());
    let mut lost = Vec::new();
    for (index, unit) in units.iter().enumerate() {
        let bytes = buf.get_mut(unit.clone()).unwrap_or_default();
        match read_unit(scrub, piece, index, (piece.unit_at(&units, index), bytes)) {
            Ok(()) => {}
            Err(Error::NoGoodCopy { .. }) => lost.push(unit.clone()),
            Err(error) => return Err(error),
        }
    }
    Ok(lost)
}

fn read_unit(scrub: &Scrub, piece: &Piece, index: usize, (at, bytes): (Logical, &mut [u8])) -> Result<()> {
    let pool = scrub.view.0.pool();
    match &piece.content {
        Content::Blocks(blocks) => {
            let expect = scrub.expect_block(blocks, index, at);
            pool.read(at, bytes, Expect::Block(&|bytes| verify::block(bytes, &expect)))?;
        }
        Content::Data(csums) => match csums.get(index) {
            Some(csum) => pool.read(at, bytes, Expect::Csums(csum))?,
            None => pool.read(at, bytes, Expect::Unchecked)?,
        },
    }
    Ok(())
}
