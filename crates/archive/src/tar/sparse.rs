//! Reads the maps of sparse files, in the four forms that GNU tar has written. `members` calls it.
//!
//! A map lists the parts of a file that have data; the archive holds these parts one after another.

use super::header::{BLOCK_BYTES, Field, Header, number};
use super::pax::Merged;
use crate::bytes::Bytes;
use crate::error::{Place, Result, shown};
use crate::stored::Run;

/// Most parts of one file.
const PARTS_MAX: usize = 4 << 20;
/// Bytes of an offset or a length in the old form.
const NUMBER_BYTES: usize = 12;
/// Parts in a block that continues the old form.
const EXTENSION: Field = Field(0, 21 * 2 * NUMBER_BYTES);
/// Byte of such a block that tells whether another follows.
const IS_EXTENDED: Field = Field(504, 1);
/// Digits of a number in a map before the data.
const DIGITS_MAX: usize = 20;

/// The map of a file.
#[derive(Debug, Default)]
pub(super) struct Map {
    /// Offset and length of each part, in bytes.
    parts: Vec<(u64, u64)>,
    /// Bytes of the file.
    pub(super) size: u64,
}

/// A map, and how many bytes of the member's size it took.
pub(super) struct Found {
    pub(super) map: Map,
    pub(super) header_bytes: u64,
}

impl Map {
    fn push(&mut self, at: u64, len: u64, place: &Place) -> Result<()> {
        if self.parts.len() >= PARTS_MAX {
            return Err(place.unsupported(format!("a sparse file of more than {PARTS_MAX} parts")));
        }
        let end = self.parts.last().map_or(0, |(at, len)| at.saturating_add(*len));
        if at < end {
            return Err(place.field("sparse map", "parts in ascending order", format!("{at} behind {end}")));
        }
        if at.checked_add(len).is_none_or(|end| end > self.size) {
            let found = format!("{len} bytes at {at} in {} bytes", self.size);
            return Err(place.field("sparse map", "parts within the file", found));
        }
        // GNU tar marks the end of a file by a part without bytes.
        if len > 0 {
            self.parts.push((at, len));
        }
        Ok(())
    }

    /// Bytes that the archive holds of the file.
    pub(super) fn data_bytes(&self) -> u64 {
        self.parts.iter().fold(0, |sum, (_, len)| sum.saturating_add(*len))
    }

    /// The runs of the file, given those of its parts joined together.
    pub(super) fn spread(&self, packed: &[Run]) -> Vec<Run> {
        let (mut runs, mut packed, mut base) = (Vec::new(), packed.iter().copied().peekable(), 0_u64);
        for (at, len) in &self.parts {
            let end = base.saturating_add(*len);
            while let Some(run) = packed.peek_mut().filter(|run| run.at < end) {
                let taken = run.len.min(end.saturating_sub(run.at));
                let offset = at.saturating_add(run.at.saturating_sub(base));
                runs.push(Run { at: offset, len: taken, position: run.position });
                if taken == run.len {
                    packed.next();
                    continue;
                }
                run.at = run.at.saturating_add(taken);
                run.position = run.position.saturating_add(taken);
                run.len = run.len.saturating_sub(taken);
                break;
            }
            base = end;
        }
        runs
    }
}

/// The map of a member of the old form, which lies in its header and in blocks behind it.
pub(super) fn old(header: &Header, bytes: &mut Bytes<'_>, place: &Place) -> Result<Map> {
    let size = unsigned(header.bytes(Field::GNU_REAL_SIZE), place)?;
    let mut map = Map { parts: Vec::new(), size };
    let mut is_extended = old_parts(&mut map, header.bytes(Field::GNU_SPARSE), place)?;
    is_extended &= header.bytes(Field::GNU_IS_EXTENDED) != [0];
    while is_extended {
        let block = bytes.take(super::BLOCK, place, "a sparse map")?;
        let block: [u8; BLOCK_BYTES] = block.try_into().unwrap_or([0; BLOCK_BYTES]);
        let block = Header(block);
        is_extended = old_parts(&mut map, block.bytes(EXTENSION), place)? && block.bytes(IS_EXTENDED) != [0];
    }
    Ok(map)
}

/// Adds the parts of one block. Returns false behind the last one.
fn old_parts(map: &mut Map, fields: &[u8], place: &Place) -> Result<bool> {
    for part in fields.chunks_exact(2 * NUMBER_BYTES) {
        let (at, len) = part.split_at_checked(NUMBER_BYTES).unwrap_or_default();
        if len.first() == Some(&0) {
            return Ok(false);
        }
        map.push(unsigned(at, place)?, unsigned(len, place)?, place)?;
    }
    Ok(true)
}

fn unsigned(field: &[u8], place: &Place) -> Result<u64> {
    let value = number(field).and_then(|value| u64::try_from(value).ok());
    value.ok_or_else(|| place.field("sparse map", "a number", shown(field)))
}

/// The map that PAX records give, or the beginning of the data in form 1.0. `None` for a file without a map.
pub(super) fn of_records(records: Merged<'_>, bytes: &mut Bytes<'_>, place: &Place) -> Result<Option<Found>> {
    if records.get("GNU.sparse.major").is_some() {
        let major: u32 = records.number("GNU.sparse.major", place)?.unwrap_or_default();
        let minor: u32 = records.number("GNU.sparse.minor", place)?.unwrap_or_default();
        if (major, minor) != (1, 0) {
            return Err(place.unsupported(format!("sparse files of version {major}.{minor}")));
        }
        let size = records.number("GNU.sparse.realsize", place)?;
        let size = size.ok_or_else(|| place.field("GNU.sparse.realsize", "a number", ""))?;
        return before_data(bytes, size, place).map(Some);
    }
    let Some(size) = records.number("GNU.sparse.size", place)? else { return Ok(None) };
    let mut map = Map { parts: Vec::new(), size };
    if let Some(list) = records.get("GNU.sparse.map") {
        let numbers: Vec<&[u8]> = list.split(|byte| *byte == b',').collect();
        for pair in numbers.chunks(2) {
            let [at, len] = pair else {
                return Err(place.field("GNU.sparse.map", "pairs of numbers", shown(list)));
            };
            map.push(decimal(at, place)?, decimal(len, place)?, place)?;
        }
    } else {
        for pair in records.own.sparse.chunks(2) {
            let [(true, at), (false, len)] = pair else {
                return Err(place.field("GNU.sparse.offset", "one before each GNU.sparse.numbytes", "another order"));
            };
            map.push(decimal(at, place)?, decimal(len, place)?, place)?;
        }
    }
    Ok(Some(Found { map, header_bytes: 0 }))
}

/// A map that lies before the data: numbers in lines, filled up to a block.
fn before_data(bytes: &mut Bytes<'_>, size: u64, place: &Place) -> Result<Found> {
    let begin = bytes.at();
    let mut lines = Lines { bytes, block: Vec::new(), at: 0, place };
    let mut map = Map { parts: Vec::new(), size };
    let count = lines.number()?;
    for _ in 0..count {
        let (at, len) = (lines.number()?, lines.number()?);
        map.push(at, len, place)?;
    }
    let header_bytes = bytes.at().saturating_sub(begin);
    Ok(Found { map, header_bytes })
}

/// Numbers in lines.
struct Lines<'a, 'b> {
    bytes: &'a mut Bytes<'b>,
    block: Vec<u8>,
    at: usize,
    place: &'a Place,
}

impl Lines<'_, '_> {
    fn number(&mut self) -> Result<u64> {
        let mut digits = Vec::new();
        loop {
            if self.at >= self.block.len() {
                self.block = self.bytes.take(super::BLOCK, self.place, "a sparse map")?;
                self.at = 0;
            }
            let byte = self.block.get(self.at).copied().unwrap_or_default();
            self.at = self.at.saturating_add(1);
            if byte == b'\n' {
                return decimal(&digits, self.place);
            }
            digits.push(byte);
            if digits.len() > DIGITS_MAX {
                return Err(self.place.field("sparse map", "numbers in lines", shown(&digits)));
            }
        }
    }
}

fn decimal(digits: &[u8], place: &Place) -> Result<u64> {
    let value = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
    value.ok_or_else(|| place.field("sparse map", "a number", shown(digits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_spread_over_the_file() {
        let map = Map { parts: vec![(10, 5), (100, 20)], size: 200 };
        let packed = [Run { at: 0, len: 8, position: 50 }, Run { at: 15, len: 10, position: 80 }];
        let runs = map.spread(&packed);
        let expected = [(10, 5, 50), (100, 3, 55), (110, 10, 80)];
        assert_eq!(runs, expected.map(|(at, len, position)| Run { at, len, position }));
        assert_eq!(map.data_bytes(), 25);
    }
}
