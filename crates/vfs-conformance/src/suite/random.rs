//! Generates numbers that look random and are the same at every run. Called by the cases on contents, copies and
//! threads.

#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// A number below `limit`, which is not 0.
    pub(super) const fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }

    pub(super) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut byte = || u8::try_from(self.below(256)).unwrap_or_default();
        std::iter::repeat_with(&mut byte).take(count).collect()
    }
}
