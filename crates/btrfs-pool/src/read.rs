//! Reads and verifies ranges: any mirror with a valid checksum is used, and bad mirrors are repaired from it. The store
//! calls it for tree blocks, file data and scrub.
//!
//! Usually one copy is read and checked as a whole. If that fails, the copies are read in units (a tree block or data
//! sector with its own checksum), so copies that are bad in different places still give good data. On a writable pool
//! the good bytes then overwrite every bad copy found.
//!
//! The caller must keep the range allocated during the read: a copy that another transaction is writing would look bad,
//! and the repair would undo the write.

#![expect(
    clippy::indexing_slicing,
    reason = "parts and units of a plan lie in the buffer that it was made for; a panic is our own bug"
)]

use std::ops::Range;
use std::sync::Arc;

use blockdev::{Tag, tagged};
use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::{At, Corrupt, Detail, Logical};
use codec::ChecksumType;

use super::Pool;
use super::chunk::Chunk;
use super::devices::{Event, PoolDevice};
use super::parity::{self, WrongParity};
use super::plan::{Part, Purpose, plan};
use super::profile::Profile;
use crate::error::{BadCopy, Cause, Error, Result};

/// Reads of mirrored chunks on several devices switch devices every so many bytes, so that all devices are busy and
/// each reads sequential runs.
const MIRROR_TURN_BYTES: u64 = 1 << 20;

/// The check that a tree block must pass.
pub type BlockCheck<'a> = dyn Fn(&[u8]) -> Result<(), Corrupt> + 'a;

/// The check for the bytes of a range.
#[derive(Clone, Copy)]
pub enum Expect<'a> {
    /// No check: data without checksums.
    Unchecked,
    /// Data sectors with these checksums, packed in order.
    Csums(&'a [u8]),
    /// A tree block that passes this check.
    Block(&'a BlockCheck<'a>),
}

impl<'a> Expect<'a> {
    /// The check for a part of the bytes.
    fn of(self, range: &Range<usize>, sector_bytes: usize, kind: ChecksumType) -> Self {
        let Self::Csums(csums) = self else { return self };
        let place = |byte: usize| byte.div_ceil(sector_bytes) * kind.len();
        Self::Csums(csums.get(place(range.start)..place(range.end)).unwrap_or_default())
    }
}

impl Pool {
    /// Fills `buf` with the bytes at `at`, from any copy that passes the check.
    ///
    /// # Errors
    /// `NoGoodCopy` if there is none; `buf` is zeroed then. `Corrupt` if the range is not inside one chunk.
    pub fn read(&self, at: Logical, buf: &mut [u8], expect: Expect<'_>) -> Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let chunk = self.chunks().lookup(at, to_u64(buf.len()))?;
        if matches!(expect, Expect::Block(_)) {
            return self.read_turn(&chunk, at, buf, expect);
        }
        for (place, len) in turns(&chunk, at, to_u64(buf.len())) {
            let range = to_usize(place.0 - at.0)..to_usize(place.0 - at.0 + len);
            let part = expect.of(&range, self.sector_bytes(), self.csum_type());
            if let Err(error) = self.read_turn(&chunk, place, &mut buf[range], part) {
                buf.fill(0);
                return Err(error);
            }
        }
        Ok(())
    }

    /// As [`Self::read`], from one mirror if that is good.
    fn read_turn(&self, chunk: &Arc<Chunk>, at: Logical, buf: &mut [u8], expect: Expect<'_>) -> Result<()> {
        let request = Request { pool: self, chunk, at, expect };
        let first = self.preferred_mirror(chunk, at, to_u64(buf.len()));
        let bad = match self.read_parts(chunk, at, buf, first) {
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

    /// Announces a read of a range to the devices that will serve it.
    pub fn will_read(&self, at: Logical, len: u64) {
        let Ok(chunk) = self.chunks().lookup(at, len) else { return };
        for (at, len) in turns(&chunk, at, len) {
            for part in plan(&chunk, at, len, Purpose::Read(self.preferred_mirror(&chunk, at, len))) {
                self.device(part.device).device().will_read(part.device_offset, part.len);
            }
        }
    }

    /// Announces a read of all copies of a range, as far as chunks cover it.
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

    /// Fills `buf` from copy `mirror` without a check, for callers that check it themselves.
    ///
    /// # Errors
    /// The device's, or `Corrupt` if the range is not inside one chunk.
    pub fn read_copy(&self, at: Logical, buf: &mut [u8], mirror: u32) -> Result<()> {
        let chunk = self.chunks().lookup(at, to_u64(buf.len()))?;
        Ok(self.read_parts(&chunk, at, buf, mirror)?)
    }

    /// Copies on one device are read from the first; copies on several devices alternate. A copy with a missing device
    /// is read last.
    fn preferred_mirror(&self, chunk: &Chunk, at: Logical, len: u64) -> u32 {
        let count = chunk.profile().mirror_count();
        if chunk.is_parity() {
            return self.possible_way(chunk, at, len);
        }
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

    /// The first way to read a range with parity that needs no missing device.
    fn possible_way(&self, chunk: &Chunk, at: Logical, len: u64) -> u32 {
        if !self.devices().iter().any(PoolDevice::is_missing) {
            return 0;
        }
        let is_there = |part: &Part| !self.device(part.device).is_missing();
        let mut ways = parity::ways(chunk, at, len).into_iter();
        ways.find(|way| parity::is_possible(chunk, at, len, *way, &is_there)).unwrap_or(0)
    }

    /// Like [`Self::read_copy`], for a chunk that the caller already has. `mirror` may be one of [`parity::ways`].
    ///
    /// # Errors
    /// The device's.
    pub fn read_parts(&self, chunk: &Chunk, at: Logical, buf: &mut [u8], mirror: u32) -> blockdev::Result<()> {
        let tag = Tag { kind: chunk.kind(), mirror };
        if chunk.is_parity() {
            return parity::read(chunk, at, buf, mirror, &mut |part, buf| self.read_part(part, buf, tag));
        }
        for part in plan(chunk, at, to_u64(buf.len()), Purpose::Read(mirror)) {
            self.read_part(&part, &mut buf[range_of(&part)], tag)?;
        }
        Ok(())
    }

    /// Compares the parity of a row of a chunk with its data.
    ///
    /// # Errors
    /// The device's.
    pub fn check_parity(&self, chunk: &Chunk, row: u64) -> blockdev::Result<Vec<WrongParity>> {
        let tag = Tag { kind: chunk.kind(), mirror: 0 };
        let wrong = parity::check_row(chunk, row, &mut |part, buf| self.read_part(part, buf, tag))?;
        wrong.iter().for_each(|wrong| self.device(wrong.part.device).count(Event::Corruption));
        Ok(wrong)
    }

    fn read_part(&self, part: &Part, buf: &mut [u8], tag: Tag) -> blockdev::Result<()> {
        let device = self.device(part.device);
        let read = tagged(tag, || device.read_at(part.device_offset, buf));
        if let Err(error @ blockdev::Error::UnexpectedEnd { .. }) = &read
            && self.is_writable()
        {
            // The file was truncated; a repair would only fill it with holes. The caller gets the error of the read,
            // and tries other copies.
            let _ = self.or_without(device, Err(error.clone().into()));
        }
        read
    }
}

/// Cuts a range where reads of the chunk switch devices. Both a read and its announcement are cut, so that the device
/// that prepared is the one that is asked.
fn turns(chunk: &Chunk, at: Logical, len: u64) -> impl Iterator<Item = (Logical, u64)> {
    let profile = chunk.profile();
    let takes_turns = !chunk.is_parity() && profile != Profile::Dup && profile.mirror_count() > 1;
    let end = at.0.saturating_add(len);
    let mut from = at.0;
    std::iter::from_fn(move || {
        let start = from;
        let next = if takes_turns { (start / MIRROR_TURN_BYTES + 1).saturating_mul(MIRROR_TURN_BYTES) } else { end };
        from = next.min(end);
        (start < end).then(|| (Logical(start), from - start))
    })
}

/// The bytes of the request's buffer that belong to a part.
pub(super) fn range_of(part: &Part) -> Range<usize> {
    to_usize(part.range_offset)..to_usize(part.range_offset + part.len)
}

/// A checked read.
struct Request<'a> {
    pool: &'a Pool,
    chunk: &'a Arc<Chunk>,
    at: Logical,
    expect: Expect<'a>,
}

impl Request<'_> {
    /// The ranges of the buffer that are checked and repaired separately.
    fn units(&self, len: usize) -> Vec<Range<usize>> {
        let size = match self.expect {
            Expect::Block(_) => len,
            Expect::Csums(_) | Expect::Unchecked => self.pool.sector_bytes(),
        };
        (0..len).step_by(size.max(1)).map(|start| start..(start + size).min(len)).collect()
    }

    /// The units that fail the check.
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

    /// Checks the bytes of one unit.
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

    /// Tries every copy of one unit, beginning with the one already read, until one is good. Then writes it over the
    /// bad ones.
    fn recover(&self, unit: Range<usize>, buf: &mut [u8], first: u32) -> Result<()> {
        let mut ways = parity::ways(self.chunk, self.at_of(&unit), to_u64(unit.len()));
        let first_index = ways.iter().position(|way| *way == first).unwrap_or(0);
        ways.rotate_left(first_index);
        let mut bad: Vec<BadCopy> = Vec::new();
        for mirror in ways {
            let bytes = &mut buf[unit.clone()];
            match self.try_copy(&unit, bytes, mirror) {
                Ok(()) => {
                    self.mend(&unit, bytes, &bad);
                    return Ok(());
                }
                // No other copy can be better.
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

    /// Overwrites the bad copies. A failure is counted and does not affect the read.
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

/// Checks a sector of data against its checksum.
///
/// # Errors
/// `Corrupt`, without a place.
pub fn check_sector(kind: ChecksumType, bytes: &[u8], stored: &[u8]) -> Result<(), Corrupt> {
    if codec::checksum::matches(kind, bytes, stored) {
        return Ok(());
    }
    let found = codec::checksum::checksum(kind, bytes);
    let (expected, found) = (Detail::bytes(stored), Detail::csum(kind, &found));
    Err(Corrupt::new("data checksum", expected, found))
}
