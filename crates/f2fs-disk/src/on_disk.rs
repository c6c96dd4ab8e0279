//! What every structure of fixed size on disk can do.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Corrupt, Detail};

/// A structure of fixed size, read in place.
pub trait OnDisk: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned + Copy {
    /// What an error calls it.
    const NAME: &'static str;

    /// The structure at the start of `bytes`.
    ///
    /// # Errors
    /// [`Corrupt`] where there are too few bytes.
    fn parse(bytes: &[u8]) -> Result<&Self, Corrupt> {
        match Self::ref_from_prefix(bytes) {
            Ok((value, _)) => Ok(value),
            Err(_) => Err(Corrupt::new(Self::NAME, Detail::size(size_of::<Self>()), Detail::size(bytes.len()))),
        }
    }
}

/// Bit `index` of a map whose first bit is the highest of its first byte (`f2fs_test_bit`): of the version bitmaps of
/// NAT and SIT, and of the valid blocks of a segment.
pub(crate) fn test_bit(map: &[u8], index: usize) -> bool {
    let mask = 0x80_u8.checked_shr(crate::convert::u32_len(index & 7)).unwrap_or(0);
    map.get(index >> 3).is_some_and(|byte| byte & mask != 0)
}

/// Bit `index` of a map whose first bit is the lowest of its first byte: of the slots of a dentry block.
pub(crate) fn test_bit_le(map: &[u8], index: usize) -> bool {
    let mask = 1_u8.checked_shl(crate::convert::u32_len(index & 7)).unwrap_or(0);
    map.get(index >> 3).is_some_and(|byte| byte & mask != 0)
}
