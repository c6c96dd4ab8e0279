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

mod lzo;
mod zlib;
mod zstd;

use crate::{Error, Result};
use std::fmt;

/// How an extent is compressed; the numbers are those of the extent item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompressionType {
    /// Deflate in a zlib wrapper.
    Zlib = 1,
    /// LZO1X in segments of one sector.
    Lzo = 2,
    /// One Zstandard frame.
    Zstd = 3,
}

impl CompressionType {
    /// Every type, in the order of the numbers.
    pub const ALL: [Self; 3] = [Self::Zlib, Self::Lzo, Self::Zstd];

    /// The type with this number on disk. `None` for 0, which means "not compressed", and for
    /// unknown numbers.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            1 => Some(Self::Zlib),
            2 => Some(Self::Lzo),
            3 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The number on disk.
    #[must_use]
    pub const fn to_raw(self) -> u8 {
        match self {
            Self::Zlib => 1,
            Self::Lzo => 2,
            Self::Zstd => 3,
        }
    }

    /// The type with this name, as given in properties and mount options.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name mount options and properties use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Lzo => "lzo",
            Self::Zstd => "zstd",
        }
    }

    /// Legal levels. Level 0 always means the default.
    #[must_use]
    pub const fn levels(self) -> std::ops::RangeInclusive<i32> {
        match self {
            Self::Zlib => 1..=9,
            Self::Lzo => 0..=0,
            Self::Zstd => -15..=15,
        }
    }

    /// `level` brought into [`CompressionType::levels`], 0 replaced by the default.
    #[must_use]
    fn effective_level(self, level: i32) -> i32 {
        let levels = self.levels();
        match (self, level) {
            (Self::Zlib | Self::Zstd, 0) => DEFAULT_LEVEL,
            _ => level.clamp(*levels.start(), *levels.end()),
        }
    }
}

/// The level of zlib and zstd where none is given.
const DEFAULT_LEVEL: i32 = 3;

impl fmt::Display for CompressionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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
        Self {
            sector_size,
            tail: Tail::Zeros,
        }
    }

    /// An extent inside its item.
    #[must_use]
    pub const fn inline(sector_size: usize) -> Self {
        Self {
            sector_size,
            tail: Tail::Damage,
        }
    }
}

/// Decompresses `input` into a new buffer of `output_len` bytes.
///
/// # Errors
/// As [`decompress_into`].
pub fn decompress(
    codec: CompressionType,
    input: &[u8],
    form: Form,
    output_len: usize,
) -> Result<Vec<u8>> {
    let mut output = Vec::new();
    output
        .try_reserve_exact(output_len)
        .map_err(|_| Error::OutOfMemory { codec })?;
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
pub fn decompress_into(
    codec: CompressionType,
    input: &[u8],
    form: Form,
    output: &mut [u8],
) -> Result<usize> {
    let len = match codec {
        CompressionType::Zlib => zlib::decompress(input, output)?,
        CompressionType::Lzo => lzo::decompress(input, form.sector_size, output)?,
        CompressionType::Zstd => zstd::decompress(input, output)?,
    };
    if len < output.len() && form.tail == Tail::Damage {
        return Err(Error::ShortOutput {
            codec,
            expected: output.len(),
            found: len,
        });
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
pub fn compress(
    codec: CompressionType,
    input: &[u8],
    options: &CompressOptions,
) -> Result<Option<Vec<u8>>> {
    let level = codec.effective_level(options.level);
    match codec {
        CompressionType::Zlib => zlib::compress(input, level, options.output_size_max),
        CompressionType::Lzo => Ok(lzo::compress(input, options)),
        CompressionType::Zstd => zstd::compress(input, level, options.output_size_max),
    }
}

#[cfg(test)]
mod tests;
