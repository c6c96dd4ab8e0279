//! Reads the header of a member: a magic and 13 numbers of eight hexadecimal digits. `members` interprets them.

use crate::error::{Place, Result, shown};

/// Bytes of the magic.
pub(crate) const MAGIC_BYTES: usize = 6;
/// Bytes of a header, without the name.
pub(super) const HEADER_BYTES: usize = MAGIC_BYTES + NUMBERS * DIGITS;
const NUMBERS: usize = 13;
const DIGITS: usize = 8;
const NEWC: &[u8] = b"070701";
const CRC: &[u8] = b"070702";

/// True for the first bytes of a header.
pub(crate) fn is_magic(bytes: &[u8]) -> bool {
    matches!(bytes, NEWC | CRC)
}

/// The numbers of a header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) ino: u32,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) nlink: u32,
    /// Seconds since 1970.
    pub(super) mtime: u32,
    /// Bytes of contents, or of a link's target.
    pub(super) size: u32,
    /// Device that the file was on: major and minor number.
    pub(super) on: (u32, u32),
    /// Device that the file is.
    pub(super) device: (u32, u32),
    /// Bytes of the name, with the zero behind it.
    pub(super) name_size: u32,
    /// Sum of the bytes of contents, where the format has one.
    pub(super) sum: Option<u32>,
}

impl Header {
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES], place: &Place) -> Result<Self> {
        let (magic, digits) = bytes.split_at_checked(MAGIC_BYTES).unwrap_or_default();
        if !is_magic(magic) {
            return Err(place.field("magic", "`070701` or `070702`", shown(magic)));
        }
        let mut numbers = [0; NUMBERS];
        for (number, digits) in numbers.iter_mut().zip(digits.chunks(DIGITS)) {
            *number =
                hexadecimal(digits).ok_or_else(|| place.field("header", "eight hexadecimal digits", shown(digits)))?;
        }
        let [ino, mode, uid, gid, nlink, mtime, size, major, minor, device_major, device_minor, name_size, sum] =
            numbers;
        Ok(Self {
            ino,
            mode,
            uid,
            gid,
            nlink,
            mtime,
            size,
            on: (major, minor),
            device: (device_major, device_minor),
            name_size,
            sum: (magic == CRC).then_some(sum),
        })
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0_u32, |sum, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        sum.checked_mul(16)?.checked_add(digit)
    })
}
