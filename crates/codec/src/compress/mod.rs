//! Compression of file extents, with the framing they have on disk.
//!
//! Three codecs, one front: [`compress`], [`decompress`] and [`decompress_into`]. A compressed
//! regular extent is a whole number of sectors long, so that every decoder accepts padding behind
//! its stream; an inline one ends with its stream. [`Form`] says which of the two it is, because
//! they also differ in what a stream means that is shorter than the extent: the kernel compresses
//! up to the end of the file and then rounds the length of a regular extent up to a sector, so the
//! missing tail is zeros; an inline extent has its exact length, so a missing tail is damage.
//!
//! Bounds: the output never exceeds the length the caller states (take it from a verified item),
//! and a decoder's own memory is fixed; a zstd frame that needs a window above 128 KiB is refused,
//! as the kernel refuses it.
//!
//! How it fails: [`Error`] names the codec, the place and the two lengths that disagree. Output
//! buffers are unspecified after an error.
//!
//! Who calls it: file reads, writeback and send. Extents have checksums over their compressed
//! bytes, so that a failure here means damage before the checksum was made, or an attack.
//!
//! Encoders and decoders are expensive to set up. Each thread keeps one of each kind.

mod block;
mod lz4;
mod lzo;
mod lzo_rle;
mod zlib;
mod zstd;

pub use crate::kind::CompressionType;
use crate::{Error, Result};
pub use block::{BlockCodec, BlockError, decompress_block};

/// What a stream means that ends before the extent does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// The rest is zeros.
    Zeros,
    /// The extent is damaged: [`Error::ShortOutput`].
    Damage,
}

/// The framing of a compressed extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// Bytes of a sector, the unit of LZO segments.
    pub sector_size: usize,
    /// What a short stream means.
    pub tail: Tail,
}

impl Form {
    /// An extent with sectors of its own.
    #[must_use]
    pub const fn regular(sector_size: usize) -> Self {
        Self { sector_size, tail: Tail::Zeros }
    }

    /// An extent inside its item.
    #[must_use]
    pub const fn inline(sector_size: usize) -> Self {
        Self { sector_size, tail: Tail::Damage }
    }
}

/// Decompresses `input` into a new buffer of `output_len` bytes.
///
/// # Errors
/// As [`decompress_into`].
pub fn decompress(codec: CompressionType, input: &[u8], form: Form, output_len: usize) -> Result<Vec<u8>> {
    let mut output = Vec::new();
    output.try_reserve_exact(output_len).map_err(|_| Error::OutOfMemory { codec })?;
    output.resize(output_len, 0);
    decompress_into(codec, input, form, &mut output)?;
    Ok(output)
}

/// Decompresses `input` so that it fills `output`, with zeros behind the stream where the form
/// allows it. Returns the bytes that came from the stream.
///
/// # Errors
/// [`Error::Invalid`] and [`Error::Length`] for damaged streams, [`Error::ShortOutput`],
/// [`Error::LongOutput`], [`Error::OutOfMemory`].
pub fn decompress_into(codec: CompressionType, input: &[u8], form: Form, output: &mut [u8]) -> Result<usize> {
    let len = match codec {
        CompressionType::Zlib => zlib::decompress(input, output)?,
        CompressionType::Lzo => lzo::decompress(input, form.sector_size, output)?,
        CompressionType::Zstd => zstd::decompress(input, output)?,
    };
    if len < output.len() && form.tail == Tail::Damage {
        return Err(Error::ShortOutput { codec, expected: output.len(), found: len });
    }
    if let Some(rest) = output.get_mut(len..) {
        rest.fill(0);
    }
    Ok(len)
}

/// How to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressOptions {
    /// The codec's level, 0 for its default. Levels outside its range are brought into it.
    pub level: i32,
    /// Bytes of a sector, the unit of LZO segments.
    pub sector_size: usize,
    /// Largest result worth having, usually one sector less than the input.
    pub output_size_max: usize,
}

/// Compresses `input`. `None` where the result is longer than the options allow: then the data is
/// better stored as it is. Padding to whole sectors is left to the caller.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn compress(codec: CompressionType, input: &[u8], options: &CompressOptions) -> Result<Option<Vec<u8>>> {
    let level = codec.effective_level(options.level);
    match codec {
        CompressionType::Zlib => zlib::compress(input, level, options.output_size_max),
        CompressionType::Lzo => Ok(lzo::compress(input, options)),
        CompressionType::Zstd => zstd::compress(input, level, options.output_size_max),
    }
}

#[cfg(test)]
mod tests;
