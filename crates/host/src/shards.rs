//! Tables behind several locks, so that threads that look up different keys rarely contend.
//!
//! The owner chooses the type of a shard (a lock around a map, perhaps with other state) and the rank of its lock. A
//! key always has the same shard. An owner that needs several shards locks them one after the other, never two at once.
//! Callers: tables of the engines.

use std::slice;

/// The golden ratio's fraction: multiplying by it spreads neighbouring numbers over the highest bits of the product.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A table spread over a fixed number of shards.
#[derive(Debug)]
pub struct Shards<T> {
    shards: Box<[T]>,
    /// Bits of the mixed number that are not part of the index.
    shift: u32,
}

impl<T> Shards<T> {
    /// `count` shards, each made by `make`.
    ///
    /// # Panics
    /// When `count` is not a power of two, or is one.
    #[must_use]
    pub fn new(count: usize, make: impl FnMut() -> T) -> Self {
        assert!(count > 1 && count.is_power_of_two(), "the number of shards is a power of two");
        let shards = std::iter::repeat_with(make).take(count).collect();
        Self { shards, shift: u64::BITS - count.trailing_zeros() }
    }

    /// The shard of a key, given as a number: an address, a hash, or an inode number.
    #[inline]
    pub fn of(&self, key: u64) -> &T {
        let index = usize::try_from(key.wrapping_mul(FACTOR) >> self.shift).expect("fewer than the shards");
        &self.shards[index]
    }

    /// The shard of a pair of numbers.
    #[inline]
    pub fn of_pair(&self, first: u64, second: u64) -> &T {
        self.of(first.rotate_left(32) ^ second)
    }

    /// All shards, for operations on the whole table.
    pub fn iter(&self) -> slice::Iter<'_, T> {
        self.shards.iter()
    }
}

impl<'a, T> IntoIterator for &'a Shards<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn neighbours_spread_whatever_their_distance() {
        for shift in [0, 12, 14, 20, 32, 40] {
            let shards = Shards::new(16, || Cell::new(0));
            for number in 0..4096u64 {
                let count = shards.of(number << shift);
                count.set(count.get() + 1);
            }
            let counts: Vec<u32> = shards.iter().map(Cell::get).collect();
            assert!(counts.iter().all(|count| (192..=320).contains(count)), "distance 1 << {shift}: {counts:?}");
        }
    }

    #[test]
    fn a_key_keeps_its_shard_and_a_pair_has_an_order() {
        let mut next = 0;
        let shards = Shards::new(64, || {
            next += 1;
            next
        });
        assert_eq!(shards.of(7), shards.of(7));
        assert_eq!(shards.of_pair(0, 7), shards.of(7));
        assert!((0..64).any(|number| shards.of_pair(number, 5) != shards.of_pair(5, number)));
    }

    #[test]
    #[should_panic(expected = "power of two")]
    fn a_number_of_shards_that_is_no_power_of_two_is_refused() {
        let _shards = Shards::new(48, || ());
    }
}
