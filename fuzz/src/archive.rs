//! Archives of tar and cpio: read from a stream and from a file, walked, written again.

#[path = "../../crates/archive/tests/archives/common/exercise.rs"]
mod exercise;

/// Bytes of a header block of tar.
const BLOCK_BYTES: usize = 512;
/// Where the checksum of a header is.
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// An archive of tar. Checksums are made right, since a fuzzer does not find them.
pub fn tar_read(data: &[u8]) {
    let mut bytes = data.to_vec();
    for block in bytes.chunks_exact_mut(BLOCK_BYTES).filter(|block| &block[257..262] == b"ustar") {
        block[CHECKSUM].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[CHECKSUM.start..CHECKSUM.end - 1].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
    exercise::exercise(&bytes);
}

/// An archive of cpio, or anything else whose format and compression are to be recognised.
pub fn cpio_read(data: &[u8]) {
    exercise::exercise(data);
}
