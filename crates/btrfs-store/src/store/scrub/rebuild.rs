//! Writes to a device what belongs on it, from the copies on other devices: to one that was replaced, or to a member
//! that missed commits and is brought up to date. `btrfs::volume::devices` calls it step by step.
//!
//! Extents that are newer than the member's last commit are written. Older ones lie there already, unless a balance has
//! moved them since, which keeps their generation, or data without checksums was overwritten in place: their copies are
//! compared with the good ones, and written where they differ. The device gets its superblock last, and with that
//! becomes a member; until then a member that missed commits has its old superblock, and a rebuild that was cut short
//! begins anew.
//!
//! The volume may not be changed meanwhile: the caller has it alone.
//!
//! Failure: a range of which no copy is good is a result ([`RebuildStep::lost`]), and is left as it is on the device.

use std::ops::Range;
use std::sync::Arc;

use blockdev::{Device, Kind, Tag, tagged};
use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::verify;
use btrfs_disk::{DevId, Generation, Logical};
use btrfs_pool::plan::plan;
use btrfs_pool::{Expect, Purpose, supers};

use super::{Content, Found, Piece, Scrub};
use crate::store::Store;
use crate::{Error, Result};

/// A device that is being written.
#[derive(Debug)]
pub struct Rebuild {
    scrub: Scrub,
    id: DevId,
    target: Arc<dyn Device>,
    since: Generation,
    /// Only compares.
    compares: bool,
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

impl Store {
    /// Begins to write to `target` what device `id` holds, of extents newer than `since`.
    ///
    /// # Errors
    /// `Bug` for a device that the file system does not have; `NoSpace` for a target that is too small; as
    /// [`Self::committed_view`].
    pub fn rebuild(&self, id: DevId, target: Arc<dyn Device>, since: Generation) -> Result<Rebuild> {
        let needed = self.0.device(id)?.total_bytes();
        let available = target.size_bytes();
        if available < needed {
            return Err(Error::NoSpace { kind: crate::SpaceKind::System, needed, available });
        }
        let scrub = self.scrub(Logical(0), false)?;
        Ok(Rebuild { scrub, id, target, since, compares: false })
    }
}

impl Rebuild {
    /// Writes the next extents; `None` at the end.
    ///
    /// # Errors
    /// `Corrupt`, `NoGoodCopy` where the extents or checksums themselves cannot be read; `Device` for the target.
    pub fn step(&mut self) -> Result<Option<RebuildStep>> {
        let found = self.scrub.extents(self.scrub.next)?;
        let Some(last) = found.last() else { return Ok(None) };
        let end = last.at.saturating_add(last.len.max(1));
        let (new, old): (Vec<Found>, Vec<Found>) = found.into_iter().partition(|found| found.generation > self.since);
        let (write, mend) = match self.compares {
            true => (Treatment::Compare, Treatment::Compare),
            false => (Treatment::Write, Treatment::Mend),
        };
        let mut pieces: Vec<(Piece, Treatment)> = Vec::new();
        pieces.extend(self.scrub.pieces(&new)?.into_iter().map(|piece| (piece, write)));
        pieces.extend(self.scrub.pieces(&old)?.into_iter().map(|piece| (piece, mend)));
        pieces.retain(|(piece, _)| piece.chunk.stripes().iter().any(|stripe| stripe.device == self.id));
        let workers = Arc::clone(self.scrub.view.0.pool().workers());
        let mut step = RebuildStep::default();
        for done in workers.map(pieces, |(piece, treatment)| self.copy(&piece, treatment)) {
            let done = done?;
            step.bytes = step.bytes.saturating_add(done.bytes);
            step.same_bytes = step.same_bytes.saturating_add(done.same_bytes);
            step.lost.extend(done.lost);
        }
        self.scrub.next = end;
        Ok(Some(step))
    }

    /// Begins again, and compares the device with the other copies.
    ///
    /// # Errors
    /// `Device` where the writes cannot be made durable.
    pub fn compare(&mut self) -> Result<()> {
        self.target.flush()?;
        (self.compares, self.scrub.next) = (true, 0);
        Ok(())
    }

    /// Makes the device a member, with the superblock of the last commit.
    ///
    /// # Errors
    /// `Device` for the target.
    pub fn finish(self) -> Result<()> {
        let engine = &self.scrub.live.0;
        let _serial = engine.gate.serialize();
        let current = engine.log.lock_superblock();
        Ok(supers::enlist(self.target, self.id, &current)?)
    }

    /// Copies the parts of a piece that belong on the device.
    fn copy(&self, piece: &Piece, treatment: Treatment) -> Result<RebuildStep> {
        let mut step = RebuildStep::default();
        let mut buf = vec![0; to_usize(piece.len)];
        let units = piece.units(self.scrub.view.0.pool());
        let lost = match self.read_whole(piece, &mut buf) {
            true => Vec::new(),
            false => self.read_units(piece, &units, &mut buf)?,
        };
        let mut done = 0;
        for part in &lost {
            self.put((piece, treatment), &buf, done..part.start, &mut step)?;
            done = part.end;
        }
        self.put((piece, treatment), &buf, done..buf.len(), &mut step)?;
        let at = |part: &Range<usize>| Logical(piece.at.0.saturating_add(to_u64(part.start)));
        step.lost.extend(lost.iter().map(|part| (at(part), to_u64(part.len()))));
        Ok(step)
    }

    /// Reads a piece at once; false for one that has to be read unit by unit.
    fn read_whole(&self, piece: &Piece, buf: &mut [u8]) -> bool {
        let Content::Data(csums) = &piece.content else { return false };
        let pool = self.scrub.view.0.pool();
        let is_bare = (0..csums.count()).all(|index| csums.get(index).is_none());
        match (csums.all(), is_bare) {
            (Some(all), _) => pool.read(piece.at, buf, Expect::Csums(all)).is_ok(),
            (None, true) => pool.read(piece.at, buf, Expect::Unchecked).is_ok(),
            (None, false) => false,
        }
    }

    /// Reads a piece unit by unit; returns the units that have no good copy.
    fn read_units(&self, piece: &Piece, units: &[Range<usize>], buf: &mut [u8]) -> Result<Vec<Range<usize>>> {
        let mut lost = Vec::new();
        for (index, unit) in units.iter().enumerate() {
            let bytes = buf.get_mut(unit.clone()).unwrap_or_default();
            match self.read_unit(piece, index, piece.unit_at(units, index), bytes) {
                Ok(()) => {}
                Err(Error::NoGoodCopy { .. }) => lost.push(unit.clone()),
                Err(error) => return Err(error),
            }
        }
        Ok(lost)
    }

    fn read_unit(&self, piece: &Piece, index: usize, at: Logical, bytes: &mut [u8]) -> Result<()> {
        let pool = self.scrub.view.0.pool();
        match &piece.content {
            Content::Blocks(blocks) => {
                let expect = self.scrub.expect_block(blocks, index, at);
                pool.read(at, bytes, Expect::Block(&|bytes| verify::block(bytes, &expect)))?;
            }
            Content::Data(csums) => match csums.get(index) {
                Some(csum) => pool.read(at, bytes, Expect::Csums(csum))?,
                None => pool.read(at, bytes, Expect::Unchecked)?,
            },
        }
        Ok(())
    }

    /// Treats a range of a piece on the device.
    fn put(
        &self,
        (piece, treatment): (&Piece, Treatment),
        buf: &[u8],
        range: Range<usize>,
        step: &mut RebuildStep,
    ) -> Result<()> {
        let at = Logical(piece.at.0.saturating_add(to_u64(range.start)));
        let good = buf.get(range).unwrap_or_default();
        if good.is_empty() {
            return Ok(());
        }
        for mirror in 0..piece.chunk.profile().mirror_count() {
            let parts = plan(&piece.chunk, at, to_u64(good.len()), Purpose::Read(mirror));
            for part in parts.iter().filter(|part| part.device == self.id) {
                let from = to_usize(part.range_offset);
                let good = good.get(from..from.saturating_add(to_usize(part.len))).unwrap_or_default();
                let is_same = || {
                    let mut found = vec![0; good.len()];
                    self.target.read_at(part.device_offset, &mut found).is_ok() && found == good
                };
                match treatment {
                    Treatment::Mend if is_same() => step.same_bytes = step.same_bytes.saturating_add(part.len),
                    Treatment::Compare => {
                        if !is_same() {
                            step.lost.push((Logical(at.0.saturating_add(part.range_offset)), part.len));
                        }
                        step.bytes = step.bytes.saturating_add(part.len);
                    }
                    Treatment::Write | Treatment::Mend => {
                        let kind = if matches!(piece.content, Content::Data(_)) { Kind::Data } else { Kind::Metadata };
                        let tag = Tag { kind, mirror };
                        tagged(tag, || self.target.write_at(part.device_offset, &[good]))?;
                        step.bytes = step.bytes.saturating_add(part.len);
                    }
                }
            }
        }
        Ok(())
    }
}
