//! Generates random numbers that are the same for the same seed on every machine and version. Used here, and by tests
//! and trials.

/// A small generator (splitmix64). Not for secrets.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A sequence of its own for each seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed ^ 0x9e37_79b9_7f4a_7c15 }
    }

    /// Any 64-bit number.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number().checked_rem(end).unwrap_or(0)
    }

    /// A number of `range`, both ends included.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first.saturating_add(self.below(last.saturating_sub(first).saturating_add(1)))
    }

    /// An index into `len` things.
    pub fn index(&mut self, len: usize) -> usize {
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        usize::try_from(self.below(len)).unwrap_or(0)
    }

    /// True once in `count` times.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// One of `choices`; none when there are none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        let index = self.index(choices.len());
        choices.get(index)
    }

    /// A size that is often small: each power of two up to `max` is as likely as the next.
    pub fn skewed(&mut self, max: u64) -> u64 {
        let bits = u64::from(u64::BITS.saturating_sub(max.leading_zeros()));
        let bits = self.between(0, bits);
        let limit = 1u64.checked_shl(u32::try_from(bits).unwrap_or(0)).unwrap_or(u64::MAX);
        self.below(limit.max(1)).min(max)
    }

    /// Bytes that no compressor shrinks.
    pub fn noise(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len.saturating_add(8));
        while bytes.len() < len {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// Bytes that compress like source text: words repeated in changing order.
    pub fn text(&mut self, len: usize) -> Vec<u8> {
        const WORDS: &[&str] =
            &["static ", "struct ", "inode ", "return ", "if (", ");\n", "\t", "extent_", "0x", "->"];
        let mut bytes = Vec::with_capacity(len.saturating_add(16));
        while bytes.len() < len {
            let word = self.pick(WORDS).copied().unwrap_or_default();
            bytes.extend_from_slice(word.as_bytes());
            if self.one_in(4) {
                bytes.extend_from_slice(self.below(100_000).to_string().as_bytes());
            }
        }
        bytes.truncate(len);
        bytes
    }

    /// Text or noise.
    pub fn content(&mut self, len: usize) -> Vec<u8> {
        if self.one_in(2) { self.noise(len) } else { self.text(len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_sequence() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [random.number(), random.below(1000), random.skewed(1 << 30)]
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
    }

    #[test]
    fn ranges_hold() {
        let mut random = Random::new(7);
        for _ in 0..1000 {
            assert!((3..=5).contains(&random.between(3, 5)));
            assert!(random.skewed(100) <= 100);
        }
        assert_eq!((random.below(0), random.text(0).len(), random.noise(13).len()), (0, 0, 13));
    }
}
