//! Arithmetic in GF(256) with the polynomial 0x11d, for the second parity of RAID6 (Q). Called by `parity`.

#![expect(clippy::indexing_slicing, reason = "a table of 256 entries has one for each byte")]

/// The polynomial without its highest bit: a doubled byte that overflows is reduced by it.
const POLYNOMIAL: u8 = 0x1d;

/// Multiplies an element by two.
const fn doubled(a: u8) -> u8 {
    (a << 1) ^ (if a & 0x80 == 0 { 0 } else { POLYNOMIAL })
}

/// The product of two elements.
const fn product(mut a: u8, mut b: u8) -> u8 {
    let mut sum = 0;
    while b != 0 {
        if b & 1 == 1 {
            sum ^= a;
        }
        a = doubled(a);
        b >>= 1;
    }
    sum
}

/// Two to the power of `exponent`.
pub(super) fn power_of_two(exponent: u64) -> u8 {
    (0..exponent % 255).fold(1, |power, _| doubled(power))
}

/// The inverse of an element, which is its 254th power. Zero has no inverse, and gives zero.
pub(super) fn inverse(a: u8) -> u8 {
    (0..254).fold(1, |power, _| product(power, a))
}

/// Doubles each byte, then adds the byte of `other` at the same place.
pub(super) fn double_and_add(bytes: &mut [u8], other: &[u8]) {
    for (byte, other) in bytes.iter_mut().zip(other) {
        *byte = doubled(*byte) ^ other;
    }
}

/// Adds each byte of `other` to the byte at the same place (exclusive or).
pub(super) fn add(bytes: &mut [u8], other: &[u8]) {
    for (byte, other) in bytes.iter_mut().zip(other) {
        *byte ^= other;
    }
}

/// Multiplies each byte by a constant.
pub(super) fn scale(bytes: &mut [u8], by: u8) {
    let mut table = [0; 256];
    for (entry, byte) in table.iter_mut().zip(0..=u8::MAX) {
        *entry = product(by, byte);
    }
    for byte in bytes {
        *byte = table[usize::from(*byte)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_but_zero_has_an_inverse() {
        assert_eq!(inverse(0), 0);
        for a in 1..=u8::MAX {
            assert_eq!(product(a, inverse(a)), 1, "{a}");
        }
    }

    #[test]
    fn powers_of_two_are_those_of_the_polynomial() {
        let known = [(0, 1), (1, 2), (7, 0x80), (8, 0x1d), (9, 0x3a), (12, 0xcd), (254, 0x8e), (255, 1), (256, 2)];
        for (exponent, power) in known {
            assert_eq!(power_of_two(exponent), power, "2^{exponent}");
        }
        let mut bytes = [1, 2, 0x80, 0xff];
        double_and_add(&mut bytes, &[0, 1, 0, 0]);
        assert_eq!(bytes, [2, 5, 0x1d, 0xe3]);
        scale(&mut bytes, inverse(2));
        assert_eq!(bytes, [1, 5 >> 1 ^ 0x8e, 0x80, 0xff]);
    }
}
