//! Reading with verification: any mirror with a valid checksum is used; bad mirrors are repaired from it.
//!
//! The common case is one read of one copy and one check of all of it. Only where that
//! fails are the copies read unit by unit (a unit is what one checksum covers: a tree block
//! or a data sector), so that two copies that are bad in different places still give good
//! data. On a writable pool the good bytes are then written over every bad copy that was met.
//!
//! The caller must keep the range from being freed while it is read: a copy that another
//! transaction is just writing looks like a bad one, and mending it would undo the write.

#![expect(
    clippy::indexing_slicing,
    reason = "parts and units of a plan lie in the buffer that it was made for; a panic is our own bug"
)]

use std::ops::Range;
use std::sync::Arc;

use blockdev::{Tag, tagged};
use btrfs_disk::convert::to_u64;
use btrfs_disk::{At, Corrupt, Detail, Logical};
use codec::ChecksumType;

use super::Pool;
use super::chunk::Chunk;
use super::devices::{Event, PoolDevice};
use super::plan::{Part, Purpose, plan};
use super::profile::Profile;
use crate::error::{BadCopy, Cause, Error, Result};

/// Mirrored chunks on several devices are read from a device that changes every so many
/// bytes, so that all of them work and each reads in runs.
const MIRROR_TURN_BYTES: u64 = 1 << 20;

/// What a tree block has to pass to be used.
pub type BlockCheck<'a> = dyn Fn(&[u8]) -> Result<(), Corrupt> + 'a;

/// What the bytes of a range must be.
#[derive(Clone, Copy)]
pub enum Expect<'a> {
    /// Anything: data without checksums.
    Unchecked,
    /// Data whose sectors have these checksums, packed in order.
    Csums(&'a [u8]),
    /// One block that passes this check.
    Block(&'a BlockCheck<'a>),
}

impl Pool {
    /// Fills `buf` with the bytes at `at`, from any copy that is as expected.
    ///
    /// # Errors
    /// `NoGoodCopy` when there is none; `buf` is zeros then. `Corrupt` when the range is not
    /// inside one chunk.
    pub fn read(&self, at: Logical, buf: &mut [u8], expect: Expect<'_>) -> Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let chunk = self.chunks().lookup(at, to_u64(buf.len()))?;
        let request = Request { pool: self, chunk: &chunk, at, expect };
        let first = self.preferred_mirror(&chunk, at, to_u64(buf.len()));
        let bad = match self.read_parts(&chunk, at, buf, first) {
            Ok(()) => request.bad_units(buf),
            Err(_) => request.units(buf.len()),
        };
        for unit in bad {
            if let Err(error) = request.recover(unit, buf, first) {
                buf.fill(0);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Says that a range will be read soon, to the device that it will be read from.
    pub fn will_read(&self, at: Logical, len: u64) {
        let Ok(chunk) = self.chunks().lookup(at, len) else { return };
        for part in plan(&chunk, at, len, Purpose::Read(self.preferred_mirror(&chunk, at, len))) {
            self.device(part.device).device().will_read(part.device_offset, part.len);
        }
    }

    /// Says that all copies of a range will be read soon, as far as the range is in chunks.
    pub fn will_read_copies(&self, at: Logical, len: u64) {
        let end = at.0.saturating_add(len);
        let mut from = at.0;
        while from < end {
            let Ok(chunk) = self.chunks().lookup(Logical(from), 1) else { return };
            let chunk_end = chunk.start().0.saturating_add(chunk.len_bytes());
            let len = end.min(chunk_end).saturating_sub(from);
            for mirror in 0..chunk.profile().mirror_count() {
                for part in plan(&chunk, Logical(from), len, Purpose::Read(mirror)) {
                    self.device(part.device).device().will_read(part.device_offset, part.len);
                }
            }
            from = chunk_end;
        }
    }

    /// Fills `buf` from copy number `mirror`, unchecked: for those who judge copies.
    ///
    /// # Errors
    /// The device's, or `Corrupt` when the range is not inside one chunk.
    pub fn read_copy(&self, at: Logical, buf: &mut [u8], mirror: u32) -> Result<()> {
        let chunk = self.chunks().lookup(at, to_u64(buf.len()))?;
        Ok(self.read_parts(&chunk, at, buf, mirror)?)
    }

    /// Copies on one device are all read from the first; copies on several take turns. One of which a device is missing
    /// is not read first as long as there is another.
    fn preferred_mirror(&self, chunk: &Chunk, at: Logical, len: u64) -> u32 {
        let count = chunk.profile().mirror_count();
        if count == 1 || chunk.profile() == Profile::Dup {
            return 0;
        }
        let first = u32::try_from(at.0 / MIRROR_TURN_BYTES % u64::from(count)).unwrap_or(0);
        if !self.devices().iter().any(PoolDevice::is_missing) {
            return first;
        }
        let is_whole = |mirror: &u32| {
            let parts = plan(chunk, at, len, Purpose::Read(*mirror));
            !parts.iter().any(|part| self.device(part.device).is_missing())
        };
        let mut mirrors = (0..count).map(|turn| (first + turn) % count);
        mirrors.find(is_whole).unwrap_or(first)
    }

    /// As [`Self::read_copy`], of a chunk that the caller has.
    ///
    /// # Errors
    /// The device's.
    pub fn read_parts(&self, chunk: &Chunk, at: Logical, buf: &mut [u8], mirror: u32) -> blockdev::Result<()> {
        for part in plan(chunk, at, to_u64(buf.len()), Purpose::Read(mirror)) {
            let device = self.device(part.device);
            let tag = Tag { kind: chunk.kind(), mirror };
            let buf = &mut buf[range_of(&part)];
            let read = tagged(tag, || device.device().read_at(part.device_offset, buf));
            read.inspect_err(|_| device.count(Event::ReadError))?;
        }
        Ok(())
    }
}

/// The bytes of the request's buffer that a part is about.
pub(super) fn range_of(part: &Part) -> Range<usize> {
    use btrfs_disk::convert::to_usize;
    to_usize(part.range_offset)..to_usize(part.range_offset + part.len)
}

/// A read that is checked.
struct Request<'a> {
    pool: &'a Pool,
    chunk: &'a Arc<Chunk>,
    at: Logical,
    expect: Expect<'a>,
}

impl Request<'_> {
    /// The runs of the buffer that are checked, and can be mended, on their own.
    fn units(&self, len: usize) -> Vec<Range<usize>> {
        let size = match self.expect {
            Expect::Block(_) => len,
            Expect::Csums(_) | Expect::Unchecked => self.pool.sector_bytes(),
        };
        (0..len).step_by(size.max(1)).map(|start| start..(start + size).min(len)).collect()
    }

    /// The units that are not as expected.
    fn bad_units(&self, buf: &[u8]) -> Vec<Range<usize>> {
        if let Expect::Csums(stored) = self.expect {
            let pool = self.pool;
            let found = pool.workers().csum_data(pool.csum_type(), pool.sector_bytes(), buf);
            if found == stored {
                return Vec::new();
            }
        }
        let mut units = self.units(buf.len());
        units.retain(|unit| self.check(unit, &buf[unit.clone()]).is_err());
        units
    }

    /// Whether the bytes of one unit are as expected.
    fn check(&self, unit: &Range<usize>, bytes: &[u8]) -> Result<(), Corrupt> {
        match self.expect {
            Expect::Unchecked => Ok(()),
            Expect::Block(check) => check(bytes),
            Expect::Csums(csums) => {
                let kind = self.pool.csum_type();
                let start = unit.start / self.pool.sector_bytes() * kind.len();
                let stored = csums.get(start..start + kind.len()).unwrap_or_default();
                check_sector(kind, bytes, stored).map_err(|error| error.at(At::Data(self.at_of(unit))))
            }
        }
    }

    /// Tries every copy of one unit, the one read before first, until one is good; then
    /// writes it over those that were not.
    fn recover(&self, unit: Range<usize>, buf: &mut [u8], first: u32) -> Result<()> {
        let count = self.chunk.profile().mirror_count();
        let mut bad: Vec<BadCopy> = Vec::new();
        for turn in 0..count {
            let mirror = (first + turn) % count;
            let bytes = &mut buf[unit.clone()];
            match self.try_copy(&unit, bytes, mirror) {
                Ok(()) => {
                    self.mend(&unit, bytes, &bad);
                    return Ok(());
                }
                // No copy is any better.
                Err(Cause::Device(gone @ blockdev::Error::Gone { .. })) => return Err(gone.into()),
                Err(cause) => bad.push(self.describe(&unit, mirror, cause)),
            }
        }
        let (at, len) = (self.at_of(&unit), to_u64(unit.len()));
        Err(Error::NoGoodCopy { at, len, causes: bad.into() })
    }

    fn try_copy(&self, unit: &Range<usize>, bytes: &mut [u8], mirror: u32) -> Result<(), Cause> {
        self.pool.read_parts(self.chunk, self.at_of(unit), bytes, mirror)?;
        self.check(unit, bytes)?;
        Ok(())
    }

    fn describe(&self, unit: &Range<usize>, mirror: u32, cause: Cause) -> BadCopy {
        let parts = plan(self.chunk, self.at_of(unit), 1, Purpose::Read(mirror));
        let (device, offset) = parts.first().map_or_else(Default::default, |part| (part.device, part.device_offset));
        if matches!(cause, Cause::Corrupt(_)) {
            self.pool.device(device).count(Event::Corruption);
        }
        BadCopy { mirror, device, offset, cause }
    }

    /// Overwrites the bad copies. A failure is counted and changes nothing for the reader.
    fn mend(&self, unit: &Range<usize>, good: &[u8], bad: &[BadCopy]) {
        if !self.pool.is_writable() {
            return;
        }
        for copy in bad {
            let at = self.at_of(unit);
            if self.pool.write_copy(self.chunk, at, good, copy.mirror).is_ok_and(|is_written| is_written) {
                self.pool.device(copy.device).count(Event::Repair);
            }
        }
    }

    fn at_of(&self, unit: &Range<usize>) -> Logical {
        Logical(self.at.0 + to_u64(unit.start))
    }
}

/// Whether a sector of data has this checksum.
///
/// # Errors
/// `Corrupt`, of an unknown place.
pub fn check_sector(kind: ChecksumType, bytes: &[u8], stored: &[u8]) -> Result<(), Corrupt> {
    if codec::checksum::matches(kind, bytes, stored) {
        return Ok(());
    }
    let found = codec::checksum::checksum(kind, bytes);
    let (expected, found) = (Detail::bytes(stored), Detail::csum(kind, &found));
    Err(Corrupt::new("data checksum", expected, found))
}
