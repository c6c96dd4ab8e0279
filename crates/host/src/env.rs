//! Provides the clock and randomness that a volume was opened with. Engines take an [`Env`] in their options and ask
//! it; tests and crash runs give a seeded one.
//!
//! Nothing below the front ends asks the operating system for the time or for random
//! bytes: it asks the [`Env`] it was opened with, so that the same input can give the
//! same image byte for byte (`Env::seeded`), and a simulator can move the clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where time and randomness come from.
pub trait EnvSource: Send + Sync {
    /// Seconds since 1970 (may be negative) and nanoseconds within the second.
    fn now(&self) -> (i64, u32);
    /// Fills `bytes` with random bytes.
    fn fill_random(&self, bytes: &mut [u8]);
}

/// A handle on a source of time and randomness; clones share the source.
#[derive(Clone)]
pub struct Env(Arc<dyn EnvSource>);

impl Env {
    /// The operating system's clock and random numbers.
    #[must_use]
    pub fn system() -> Self {
        Self(Arc::new(System))
    }

    /// Always `now`, and random bytes that depend on nothing but `seed` and the order of calls.
    #[must_use]
    pub fn seeded(seed: u64, now: (i64, u32)) -> Self {
        Self(Arc::new(Seeded { state: AtomicU64::new(seed), now }))
    }

    /// A source of the caller's own.
    #[must_use]
    pub fn from_source(source: Arc<dyn EnvSource>) -> Self {
        Self(source)
    }

    /// Seconds since 1970 (may be negative) and nanoseconds within the second.
    #[must_use]
    pub fn now(&self) -> (i64, u32) {
        self.0.now()
    }

    /// Fills `bytes` with random bytes.
    pub fn fill_random(&self, bytes: &mut [u8]) {
        self.0.fill_random(bytes);
    }

    /// A random number.
    #[must_use]
    pub fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_random(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A random UUID (version 4, RFC 9562), in the byte order of the disk.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.fill_random(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes()
    }
}

impl Default for Env {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Env")
    }
}

struct System;

impl EnvSource for System {
    fn now(&self) -> (i64, u32) {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos()),
            Err(before) => time_before_epoch(before.duration()),
        }
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the system's random source does not fail once it is seeded");
    }
}

/// The nanoseconds count forward from the second, so a time before 1970 rounds its seconds down.
fn time_before_epoch(before: std::time::Duration) -> (i64, u32) {
    let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
    match before.subsec_nanos() {
        0 => (-seconds, 0),
        nanos => (-seconds - 1, 1_000_000_000 - nanos),
    }
}

struct Seeded {
    state: AtomicU64,
    now: (i64, u32),
}

impl EnvSource for Seeded {
    fn now(&self) -> (i64, u32) {
        self.now
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let word = self.next_word().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}

impl Seeded {
    /// splitmix64 (Steele, Lea, Flood 2014): one addition a number, so threads can share it.
    fn next_word(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_same_seed_gives_the_same_uuids() {
        let (a, b) = (Env::seeded(7, (1, 2)), Env::seeded(7, (1, 2)));
        assert_eq!(a.uuid(), b.uuid());
        assert_eq!(a.random_u64(), b.clone().random_u64());
        assert_ne!(a.uuid(), a.uuid());
        assert_eq!(a.now(), (1, 2));
    }

    #[test]
    fn uuids_say_that_they_are_version_4() {
        for env in [Env::system(), Env::seeded(1, (0, 0))] {
            let uuid = env.uuid();
            assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (4, 2));
        }
    }

    #[test]
    fn a_time_before_1970_keeps_its_nanoseconds_positive() {
        assert_eq!(time_before_epoch(Duration::from_secs(3)), (-3, 0));
        assert_eq!(time_before_epoch(Duration::new(0, 1)), (-1, 999_999_999));
    }
}
