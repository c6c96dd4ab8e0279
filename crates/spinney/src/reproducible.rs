//! The clock and the random numbers of an image that is to have the same bytes each time it is built. `mkfs` of the
//! program uses it; a program of yours gives it to [`crate::btrfs::VolumeOptions::env`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use codec::ChecksumType;
use codec::checksum::checksum;
use host::{Env, EnvSource};

/// Separates these hashes from those of other programs.
const ROLE: &[u8] = b"spinney image";

/// A clock that stands at `now` (seconds since 1970, nanoseconds), and random bytes that follow from `uuid`, the UUID
/// of the file system, alone: the n-th 32 of them are the SHA-256 of a fixed text, `uuid`, and n as 8 little-endian
/// bytes. UUIDs that a new file system needs beside its own are made of them, in the order in which they are needed.
#[must_use]
pub fn reproducible_env(uuid: [u8; 16], now: (i64, u32)) -> Env {
    Env::from_source(Arc::new(Derived { uuid, now, count: AtomicU64::new(0) }))
}

/// A UUID that follows from a text alone, for an image whose maker gave none.
#[must_use]
pub fn derived_uuid(text: &[u8]) -> [u8; 16] {
    let mut uuid = [0; 16];
    let hash = checksum(ChecksumType::Sha256, &[ROLE, text].concat());
    uuid.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
    version_4(&mut uuid);
    uuid
}

/// Marks 16 bytes as a UUID of version 4, variant 1 (RFC 9562).
fn version_4(uuid: &mut [u8; 16]) {
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
}

struct Derived {
    uuid: [u8; 16],
    now: (i64, u32),
    count: AtomicU64,
}

impl EnvSource for Derived {
    fn now(&self) -> (i64, u32) {
        self.now
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(32) {
            let count = self.count.fetch_add(1, Ordering::Relaxed);
            let hash = checksum(ChecksumType::Sha256, &[ROLE, &self.uuid, &count.to_le_bytes()].concat());
            part.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_uuid_gives_the_same_numbers() {
        let [a, b] = [1, 1].map(|byte| reproducible_env([byte; 16], (7, 0)));
        let (first, second) = (a.uuid(), a.uuid());
        assert_ne!(first, second);
        assert_eq!((first, second), (b.uuid(), b.uuid()));
        assert_ne!(first, reproducible_env([2; 16], (7, 0)).uuid());
        assert_eq!(a.now(), (7, 0));
        assert_eq!((derived_uuid(b"x")[6] >> 4, derived_uuid(b"x") == derived_uuid(b"y")), (4, false));
    }
}
