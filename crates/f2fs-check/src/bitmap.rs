//! Holds one bit for each block or node of the volume, all of them clear at first. `tables` marks used ones, `files`
//! claimed ones, `fsync_chain` visited ones.

use f2fs_disk::convert::usize_from;

const BITS: u32 = u64::BITS;

/// Bits with numbers from 0 on.
#[derive(Debug, Default)]
pub(crate) struct Bitmap(Vec<u64>);

impl Bitmap {
    pub(crate) fn new(count: u32) -> Self {
        Self(vec![0; usize_from(count.div_ceil(BITS))])
    }

    pub(crate) fn has(&self, index: u32) -> bool {
        self.0.get(usize_from(index / BITS)).is_some_and(|word| word & mask(index) != 0)
    }

    /// Sets a bit; false where it was set before. One behind the end never is.
    pub(crate) fn set(&mut self, index: u32) -> bool {
        let Some(word) = self.0.get_mut(usize_from(index / BITS)) else { return false };
        let was_clear = *word & mask(index) == 0;
        *word |= mask(index);
        was_clear
    }
}

const fn mask(index: u32) -> u64 {
    1 << (index % BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_set_once() {
        let mut bits = Bitmap::new(65);
        assert!(bits.set(64) && !bits.set(64) && bits.has(64) && !bits.has(63));
        assert!(!bits.set(1000) && !bits.has(1000));
    }
}
