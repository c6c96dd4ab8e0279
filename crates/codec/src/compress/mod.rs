//! Compression of file extents, with the framing they have on disk.
//!
//! Three codecs behind one interface: [`compress`], [`decompress`] and [`decompress_into`]. All readers of extents use
//! it, and so does `check`, so that they agree on which extents can be read. [`Form`] names one of two layouts:
//!
//! | | regular extent | inline extent |
//! |---|---|---|
//! | compressed bytes | whole sectors; padding after the stream is ignored | exactly the item; LZO records the length |
//! | a shorter stream | zeros follow, since kernels round the length up to a sector | damage |
//! | a longer stream | is cut at the end of the extent | up to one sector, as Linux 7.1 writes |
//!
//! The kernel reads the same extents, with one exception: it reads a truncated zstd frame of at most one sector as if
//! zeros followed, and this crate refuses it.
//!
//! Bounds: the output never exceeds the length the caller states (take it from a verified item),
//! and a decoder's own memory is fixed, except that a longer stream of zlib takes up to 1 MiB more; beyond that it is
//! refused. A zstd frame with a window above 128 KiB is refused, as by the kernel.
//!
//! Failures: [`Error`] has the codec, the position and the two lengths that disagree. Output buffers are undefined
//! after an error.
//!
//! Callers: file reads, writeback, send and receive. Extents have checksums over their compressed bytes, so a failure
//! here means damage before the checksum was computed, or an attack.
//!
//! Encoders and decoders are expensive to set up. Each thread keeps one of each kind.

mod block;
mod lz4;
mod lzo;
mod lzo_encoder;
mod lzo_rle;
mod zlib;
mod zstd;

pub use crate::kind::CompressionType;
use crate::{Error, Result};
pub use block::{BlockCodec, BlockError, decompress_block};

/// The location of a compressed extent, which decides its framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// In sectors of its own.
    Regular,
    /// Inside its item.
    Inline,
}

/// The framing of a compressed extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// Bytes of a sector, the unit of LZO segments.
    pub sector_size: usize,
    /// Its location.
    pub layout: Layout,
}

impl Form {
    /// An extent with sectors of its own.
    #[must_use]
    pub const fn regular(sector_size: usize) -> Self {
        Self { sector_size, layout: Layout::Regular }
    }

    /// An extent inside its item.
    #[must_use]
    pub const fn inline(sector_size: usize) -> Self {
        Self { sector_size, layout: Layout::Inline }
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

/// Decompresses `input` so that it fills `output`, with zeros after the stream if the form allows it. Returns the
/// number of bytes from the stream.
///
/// # Errors
/// [`Error::Invalid`] and [`Error::Length`] for damaged streams, [`Error::ShortOutput`] and [`Error::LongOutput`]
/// depending on the form, [`Error::OutOfMemory`].
pub fn decompress_into(codec: CompressionType, input: &[u8], form: Form, output: &mut [u8]) -> Result<usize> {
    let is_inline = form.layout == Layout::Inline;
    let len = match codec {
        CompressionType::Zlib if is_inline => zlib::decompress_inline(input, form.sector_size, output)?,
        CompressionType::Zlib => zlib::decompress(input, output)?,
        CompressionType::Lzo if is_inline => lzo::decompress_inline(input, form.sector_size, output)?,
        CompressionType::Lzo => lzo::decompress(input, form.sector_size, output)?,
        CompressionType::Zstd => zstd::decompress(input, output)?,
    };
    if is_inline && len < output.len() {
        return Err(Error::ShortOutput { codec, expected: output.len(), found: len });
    }
    if let Some(rest) = output.get_mut(len..) {
        rest.fill(0);
    }
    Ok(len)
}

/// Options of [`compress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressOptions {
    /// The codec's level, 0 for its default. Other levels are clamped to its range.
    pub level: i32,
    /// Bytes of a sector, the unit of LZO segments.
    pub sector_size: usize,
    /// Largest useful result, usually one sector less than the input.
    pub output_size_max: usize,
}

/// Compresses `input`. `None` if the result exceeds the limit in the options: then the data is better stored
/// uncompressed. The caller pads to whole sectors.
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
