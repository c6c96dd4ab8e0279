//! Tests, sets and clears bits of maps, in the two orders that the format has. Called by `sit`, `dentry` and
//! `geometry`, and by the commit of `f2fs`.
//!
//! The version bitmaps of NAT and SIT, and the maps of valid blocks, begin with the highest bit of their first byte.
//! The slots of a dentry block and the NAT bits begin with the lowest one; the functions for these end in `_le`.
//!
//! A bit behind the end of a map is not set, and setting it changes nothing.

use crate::convert::u32_len;

/// Bit `index`, the highest of a byte first (`f2fs_test_bit`).
#[must_use]
pub fn test_bit(map: &[u8], index: usize) -> bool {
    map.get(index >> 3).is_some_and(|byte| byte & mask(index) != 0)
}

/// Sets bit `index`, the highest of a byte first.
pub fn set_bit(map: &mut [u8], index: usize) {
    if let Some(byte) = map.get_mut(index >> 3) {
        *byte |= mask(index);
    }
}

/// Clears bit `index`, the highest of a byte first.
pub fn clear_bit(map: &mut [u8], index: usize) {
    if let Some(byte) = map.get_mut(index >> 3) {
        *byte &= !mask(index);
    }
}

/// Bit `index`, the lowest of a byte first.
#[must_use]
pub fn test_bit_le(map: &[u8], index: usize) -> bool {
    map.get(index >> 3).is_some_and(|byte| byte & mask_le(index) != 0)
}

/// Sets bit `index`, the lowest of a byte first.
pub fn set_bit_le(map: &mut [u8], index: usize) {
    if let Some(byte) = map.get_mut(index >> 3) {
        *byte |= mask_le(index);
    }
}

/// Clears bit `index`, the lowest of a byte first.
pub fn clear_bit_le(map: &mut [u8], index: usize) {
    if let Some(byte) = map.get_mut(index >> 3) {
        *byte &= !mask_le(index);
    }
}

fn mask(index: usize) -> u8 {
    0x80_u8.checked_shr(u32_len(index & 7)).unwrap_or(0)
}

fn mask_le(index: usize) -> u8 {
    1_u8.checked_shl(u32_len(index & 7)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders_set_what_they_test() {
        let mut map = [0; 2];
        set_bit(&mut map, 9);
        assert_eq!(map, [0, 0x40]);
        assert!(test_bit(&map, 9) && !test_bit(&map, 8) && !test_bit(&map, 16));
        clear_bit(&mut map, 9);
        set_bit_le(&mut map, 9);
        assert_eq!(map, [0, 2]);
        assert!(test_bit_le(&map, 9) && !test_bit_le(&map, 14));
        clear_bit_le(&mut map, 9);
        set_bit(&mut map, 16);
        set_bit_le(&mut map, 16);
        assert_eq!(map, [0, 0]);
    }
}
