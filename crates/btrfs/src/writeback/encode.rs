//! Compresses dirty bytes: a pure function of the bytes. Called by `run` on worker threads.

use btrfs_disk::convert::{to_u64, to_usize, usize_from};
use codec::CompressionType;
use codec::compress::{CompressOptions, compress};
use vfs::Run;

use super::outgoing_data::Source;
use crate::extents::COMPRESSED_BYTES_MAX;
use crate::inode::Compression;

/// Most bytes of a file in one compressed extent.
pub(super) const PIECE_BYTES: u64 = COMPRESSED_BYTES_MAX;
/// Shorter pieces are compressed to see whether that helps; of longer ones a sample is.
const SAMPLED_BYTES_MIN: usize = 32 << 10;
/// Bytes of a sample's parts, and the distance from one to the next.
const SAMPLE_PART: usize = 256;
const SAMPLE_STEP: usize = 4 << 10;

/// The compressed bytes of `piece`, padded to whole sectors; `None` where that saves no sector.
pub(super) fn piece(source: Source<'_>, piece: Run, compression: Compression, sector: u32) -> Option<Vec<u8>> {
    debug_assert!(piece.len <= PIECE_BYTES, "readers take no longer extents");
    let mut plain = Vec::with_capacity(to_usize(piece.len));
    source.parts(piece.start..piece.end()).for_each(|part| plain.extend_from_slice(part));
    debug_assert!(to_u64(plain.len()) == piece.len, "a source has all of its runs");
    if !compression.is_forced && !looks_compressible(&plain) {
        return None;
    }
    let sector = usize_from(sector);
    let mut encoded = encode(&plain, compression, plain.len().checked_sub(sector)?, sector)?;
    encoded.resize(encoded.len().next_multiple_of(sector), 0);
    (encoded.len() < plain.len()).then_some(encoded)
}

/// The compressed bytes of a file of less than a sector, for its item; `None` where they are not smaller, or longer
/// than `max_len`.
pub(super) fn small(plain: &[u8], compression: Compression, max_len: u64, sector: u32) -> Option<Vec<u8>> {
    let max_len = to_usize(max_len).min(plain.len().checked_sub(1)?);
    encode(plain, compression, max_len, usize_from(sector))
}

/// If a codec lacks memory, the data is stored uncompressed.
fn encode(plain: &[u8], compression: Compression, output_size_max: usize, sector_size: usize) -> Option<Vec<u8>> {
    let options = CompressOptions { level: compression.level, sector_size, output_size_max };
    compress(compression.kind, plain, &options).ok().flatten()
}

/// Whether a sixteenth of the bytes, taken from all over the piece, becomes smaller by an eighth. This detects
/// compressed or encrypted data in a tenth of the time that compressing takes; zstd finds repetitions and frequent
/// bytes, and so predicts the other codecs as well.
fn looks_compressible(plain: &[u8]) -> bool {
    if plain.len() < SAMPLED_BYTES_MIN {
        return true;
    }
    let parts: Vec<&[u8]> = plain.chunks(SAMPLE_STEP).filter_map(|step| step.get(..SAMPLE_PART)).collect();
    let sample = parts.concat();
    let options = CompressOptions { level: 1, sector_size: SAMPLE_STEP, output_size_max: sample.len() / 8 * 7 };
    compress(CompressionType::Zstd, &sample, &options).is_ok_and(|smaller| smaller.is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use codec::compress::{Form, decompress};
    use vfs::{Budget, PageCache};

    use super::*;

    const SECTOR: u32 = 4096;

    /// A file with these bytes, all of them dirty.
    fn pages(bytes: &[u8]) -> PageCache {
        let mut pages = PageCache::new(SECTOR, Arc::new(Budget::new(1 << 30)));
        for (index, page) in bytes.chunks(usize_from(SECTOR)).enumerate() {
            let mut whole = page.to_vec();
            whole.resize(usize_from(SECTOR), 0);
            pages.put(to_u64(index) * u64::from(SECTOR), whole.into());
        }
        pages
    }

    /// Bytes without any pattern.
    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()[7]
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    fn with(kind: CompressionType, is_forced: bool) -> Compression {
        Compression { kind, level: 0, is_forced }
    }

    #[test]
    fn text_becomes_whole_sectors_that_are_read_back() {
        let text = b"a forest of trees one can carry in a file\n".repeat(3000);
        let run = Run { start: 0, len: 122_880 };
        let plain = &text[..to_usize(run.len)];
        for kind in CompressionType::ALL {
            let encoded = piece(Source::Pages(&pages(plain)), run, with(kind, false), SECTOR).unwrap();
            assert!(encoded.len().is_multiple_of(usize_from(SECTOR)) && encoded.len() <= 12 << 10, "{kind}");
            let form = Form::regular(usize_from(SECTOR));
            assert_eq!(decompress(kind, &encoded, form, plain.len()).unwrap(), plain, "{kind}");
        }
    }

    #[test]
    fn noise_stays_as_it_is() {
        let noise = noise(128 << 10);
        let run = Run { start: 0, len: PIECE_BYTES };
        assert!(!looks_compressible(&noise));
        for (kind, is_forced) in CompressionType::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            assert_eq!(piece(Source::Pages(&pages(&noise)), run, with(kind, is_forced), SECTOR), None, "{kind}");
        }
        // Bytes of which some are more frequent, without a repetition.
        let skewed: Vec<u8> = noise.iter().map(|byte| byte & 0x33).collect();
        assert!(looks_compressible(&skewed));
    }

    #[test]
    fn a_piece_that_saves_no_sector_stays_as_it_is() {
        let mut bytes = noise(8192);
        bytes[8000..].fill(0);
        let run = Run { start: 0, len: 8192 };
        assert_eq!(piece(Source::Pages(&pages(&bytes)), run, with(CompressionType::Zstd, true), SECTOR), None);
        bytes[3000..].fill(0);
        assert_eq!(
            piece(Source::Pages(&pages(&bytes)), run, with(CompressionType::Zstd, true), SECTOR).map(|e| e.len()),
            Some(4096)
        );
        assert_eq!(
            piece(
                Source::Pages(&pages(&bytes)),
                Run { start: 0, len: 4096 },
                with(CompressionType::Zstd, true),
                SECTOR
            ),
            None
        );
    }
}
