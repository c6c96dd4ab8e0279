//! Computes checksums of metadata, and the hash of names. Called by `checkpoint`, `superblock` and `inode`, and for
//! names by `f2fs` and `f2fs-check`.

use codec::checksum::crc32_raw;

use crate::ids::MAGIC;

/// The checksum of superblocks and checkpoints: CRC-32 from the magic on, without a final inversion (`f2fs_crc32`).
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32_raw(MAGIC, bytes)
}

/// The same, going on from another checksum (`f2fs_chksum`).
#[must_use]
pub fn crc32_from(seed: u32, bytes: &[u8]) -> u32 {
    crc32_raw(seed, bytes)
}

/// The constant added in each round of the Tiny Encryption Algorithm, of which the hash does sixteen.
const DELTA: u32 = 0x9e37_79b9;
const ROUNDS: u32 = 16;
/// Where the hash begins; the constants of MD4.
const START: [u32; 2] = [0x6745_2301, 0xefcd_ab89];
/// Bytes of a name that one pass takes.
const PASS_BYTES: usize = 16;

/// The hash of a name (`f2fs_dentry_hash`): TEA over passes of sixteen bytes. Those of `.` and `..` are 0. A directory
/// that ignores case hashes the folded name: [`crate::fold::hash`].
#[must_use]
pub fn of_name(name: &[u8]) -> u32 {
    if name == b"." || name == b".." {
        return 0;
    }
    of_bytes(name)
}

/// The hash of bytes that stand for a name.
pub(crate) fn of_bytes(name: &[u8]) -> u32 {
    let mut state = START;
    let mut rest = name;
    loop {
        let (pass, behind) = rest.split_at_checked(PASS_BYTES).unwrap_or((rest, &[]));
        mix(&mut state, key_of(pass, rest.len()));
        if behind.is_empty() {
            return state[0];
        }
        rest = behind;
    }
}

/// Four numbers of a pass, each from four bytes, the first of which is the highest. Missing bytes are filled with the
/// number of bytes left at the beginning of the pass.
fn key_of(pass: &[u8], left: usize) -> [u32; 4] {
    let [low, ..] = left.to_le_bytes();
    let pad = u32::from_le_bytes([low; 4]);
    let mut key = [pad; 4];
    for (number, bytes) in key.iter_mut().zip(pass.chunks(4)) {
        // A partial group is shifted into the padding.
        *number = bytes.iter().fold(pad, |value, byte| (value << 8) | u32::from(*byte));
    }
    key
}

fn mix(state: &mut [u32; 2], [a, b, c, d]: [u32; 4]) {
    let [mut x, mut y] = *state;
    let mut sum = 0_u32;
    for _ in 0..ROUNDS {
        sum = sum.wrapping_add(DELTA);
        let left = (y << 4).wrapping_add(a) ^ y.wrapping_add(sum) ^ (y >> 5).wrapping_add(b);
        x = x.wrapping_add(left);
        let right = (x << 4).wrapping_add(c) ^ x.wrapping_add(sum) ^ (x >> 5).wrapping_add(d);
        y = y.wrapping_add(right);
    }
    *state = [state[0].wrapping_add(x), state[1].wrapping_add(y)];
}
