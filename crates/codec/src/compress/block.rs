//! Decompresses bare compressed blocks: one stream without framing, whose compressed and decompressed lengths the
//! caller knows.
//!
//! The output never exceeds the caller's buffer. Callers: file systems that store these lengths themselves.

use std::fmt;

use super::{lz4, lzo_rle};

/// Codec of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockCodec {
    /// LZO1X, without the run-length extension of the kernel.
    Lzo,
    /// LZO1X with the run-length extension.
    LzoRle,
    /// An LZ4 block.
    Lz4,
    /// One Zstandard frame.
    Zstd,
}

impl BlockCodec {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lzo => "lzo",
            Self::LzoRle => "lzo-rle",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Error for a block that does not decompress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{codec}: {what}")]
pub struct BlockError {
    /// The codec.
    pub codec: BlockCodec,
    /// The problem.
    pub what: &'static str,
}

impl fmt::Display for BlockCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Decompresses `input`, a complete stream, to the start of `output`. Returns the number of bytes written.
///
/// # Errors
/// [`BlockError`] for a damaged stream, or if it exceeds `output`.
pub fn decompress_block(codec: BlockCodec, input: &[u8], output: &mut [u8]) -> Result<usize, BlockError> {
    let done = match codec {
        BlockCodec::Lz4 => lz4::decompress(input, output),
        BlockCodec::Lzo => lzo::decompress_into(input, output).map_err(|error| match error {
            lzo::Error::OutputOverrun => "more output than expected",
            lzo::Error::InputOverrun => "the block is cut short",
            _ => "damaged block",
        }),
        BlockCodec::LzoRle => lzo_rle::decompress(input, output),
        BlockCodec::Zstd => zstd_safe::decompress(output, input).map_err(zstd_safe::get_error_name),
    };
    done.map_err(|what| BlockError { codec, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        (0_u32..4000).flat_map(|n| (n / 7).to_le_bytes()).collect()
    }

    #[test]
    fn blocks_of_the_other_libraries_are_read() {
        let data = sample();
        let mut packed = vec![0; zstd_safe::compress_bound(data.len())];
        let len = zstd_safe::compress(&mut packed, &data, 3).unwrap();
        packed.truncate(len);
        for (codec, packed) in [(BlockCodec::Zstd, packed), (BlockCodec::Lzo, lzo1x::compress(&data))] {
            let mut output = vec![0; data.len()];
            assert_eq!(decompress_block(codec, &packed, &mut output), Ok(data.len()));
            assert_eq!(output, data);
            let mut short = vec![0; data.len() - 1];
            assert!(decompress_block(codec, &packed, &mut short).is_err());
            // zstd treats empty input as no frame, which is not an error.
            for cut in [1, packed.len() / 2] {
                let error = decompress_block(codec, &packed[..cut], &mut output).unwrap_err();
                assert!(error.to_string().starts_with(codec.name()), "{error}");
            }
        }
    }
}
