//! Defines hash maps whose keys are numbers: addresses, tree and inode numbers, keys of items. `tree`, `txn`, `extent`
//! and `accounting` use them, and `inode`, `notes` and `send` of `btrfs`.
//!
//! The standard hasher guards against keys chosen to collide, and costs more than the look-up it
//! is for. Here a number is multiplied to 128 bits whose halves are folded, so that each bit of it reaches the bits
//! that a map uses. There is no seed: the order of a map is the same in each run, as replaying a failed test from its
//! seed needs. An image can choose numbers that collide, so only maps that are otherwise bounded use it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by a number, or by a few.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// The golden ratio's fraction: odd, and without a pattern in its bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes one number, or the few of a tuple.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let wide = u128::from(self.0.rotate_left(32) ^ number ^ FACTOR.rotate_left(7)) * u128::from(FACTOR);
        let bytes = wide.to_le_bytes();
        let (halves, _) = bytes.as_chunks::<8>();
        self.0 = halves.iter().fold(0, |all, half| all ^ u64::from_le_bytes(*half));
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn hash(number: u64) -> u64 {
        let mut hasher = NumberHasher::default();
        hasher.write_u64(number);
        hasher.finish()
    }

    /// A map of n buckets uses the lowest bits for the bucket and the highest seven to tell keys
    /// apart. Of 4096 random numbers some 2590 of 4096 buckets have one; fewer do where the distance
    /// and the factor go together badly.
    #[test]
    fn neighbours_spread_whatever_their_distance() {
        for shift in [0, 12, 14, 20, 32, 40, 48] {
            let hashes: Vec<u64> = (0..4096).map(|n: u64| hash(n << shift)).collect();
            let buckets: HashSet<u64> = hashes.iter().map(|hash| hash % 4096).collect();
            let tags: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            assert!(buckets.len() > 1500, "{} buckets at distance 1 << {shift}", buckets.len());
            assert!(tags.len() > 120, "{} tags at distance 1 << {shift}", tags.len());
        }
    }

    #[test]
    fn the_order_of_a_tuple_matters() {
        let both = |a, b| {
            let mut hasher = NumberHasher::default();
            hasher.write_u64(a);
            hasher.write_u64(b);
            hasher.finish()
        };
        assert_ne!(both(1, 2), both(2, 1));
        assert_ne!(both(0, 0), hash(0));
    }
}
