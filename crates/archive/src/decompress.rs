//! Recognises compressed data by its first bytes, and decompresses gzip, zstd, xz and bzip2. `bytes` reads through it.
//!
//! Several compressed streams behind one another count as one. Data that follows the last one of gzip or bzip2 and does
//! not begin like another is ignored; after zstd and xz it is an error. Their own programs do the same.
//!
//! Memory is limited whatever the data asks for: 128 MiB for the window of zstd, 256 MiB for xz.

use std::io::{self, BufRead, Read};

use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

use crate::error::shown;

/// Most bytes of memory that a decompressor of xz may use.
const XZ_MEMORY_MAX: u64 = 256 << 20;
/// Binary logarithm of the largest window of zstd in bytes, as its own program has it by default.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// Bytes that tell a compression.
pub(crate) const MAGIC_BYTES: usize = 6;

/// The compressions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstd,
    Xz,
    Bzip2,
}

impl Compression {
    /// The compression of data that begins with `magic`.
    pub(crate) fn of(magic: &[u8]) -> Option<Self> {
        match magic {
            [0x1f, 0x8b, 8, ..] => Some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Xz),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(Self::Bzip2),
            _ => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Bzip2 => "bzip2",
        }
    }
}

/// Words for data that no reader of this crate knows.
fn known_otherwise(magic: &[u8]) -> Option<&'static str> {
    Some(match magic {
        [0x04, 0x22, 0x4d, 0x18, ..] | [0x02, 0x21, 0x4c, 0x18, ..] => "data compressed by lz4",
        [b'L', b'Z', b'I', b'P', ..] => "data compressed by lzip",
        [0x89, b'L', b'Z', b'O', ..] => "data compressed by lzop",
        [0x1f, 0x9d, ..] => "data compressed by compress",
        [0x5d, 0, 0, _, _, ..] => "data compressed by lzma",
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => "a zip archive",
        [b'7', b'z', 0xbc, 0xaf, ..] => "a 7z archive",
        [b'!', b'<', b'a', b'r', b'c', b'h', ..] => "an ar archive",
        [b'R', b'a', b'r', b'!', ..] => "a rar archive",
        [b'h', b's', b'q', b's', ..] => "a squashfs image",
        [b'0', b'7', b'0', b'7', b'0', b'7', ..] => "a cpio archive in its odc format",
        [0xc7, 0x71, ..] | [0x71, 0xc7, ..] => "a cpio archive in its binary format",
        [0x7f, b'E', b'L', b'F', ..] => "a program",
        _ => return None,
    })
}

/// Compressed data, of which bytes can be given back.
pub(crate) struct Compressed {
    input: Box<dyn BufRead + Send>,
    /// Bytes that come before those of `input`: `begin[at..]`.
    begin: Vec<u8>,
    at: usize,
}

impl Compressed {
    /// Data that begins with `begin`.
    pub(crate) fn new(begin: Vec<u8>, input: Box<dyn BufRead + Send>) -> Self {
        Self { input, begin, at: 0 }
    }

    /// Makes `bytes` the next ones again. They are a few of one list, whatever the number of compressed streams.
    fn give_back(&mut self, bytes: &[u8]) {
        let rest = self.begin().unwrap_or_default();
        (self.begin, self.at) = ([bytes, rest].concat(), 0);
    }

    fn begin(&self) -> Option<&[u8]> {
        self.begin.get(self.at..).filter(|begin| !begin.is_empty())
    }
}

impl Read for Compressed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Compressed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.begin().is_some() {
            return Ok(self.begin().unwrap_or_default());
        }
        self.input.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        if self.begin().is_some() {
            self.at = self.at.saturating_add(count);
        } else {
            self.input.consume(count);
        }
    }
}

/// One compressed stream, or all of them where the library goes on by itself.
enum Decoder {
    Gzip(GzDecoder<Compressed>),
    Zstd(zstd::Decoder<'static, Compressed>),
    Xz(XzDecoder<Compressed>),
    Bzip2(BzDecoder<Compressed>),
}

impl Decoder {
    fn new(compression: Compression, data: Compressed) -> io::Result<Self> {
        Ok(match compression {
            Compression::Gzip => Self::Gzip(GzDecoder::new(data)),
            Compression::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(data)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Self::Zstd(decoder)
            }
            Compression::Xz => {
                Self::Xz(XzDecoder::new_stream(data, Stream::new_stream_decoder(XZ_MEMORY_MAX, CONCATENATED)?))
            }
            Compression::Bzip2 => Self::Bzip2(BzDecoder::new(data)),
        })
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
            Self::Xz(decoder) => decoder.read(buffer),
            Self::Bzip2(decoder) => decoder.read(buffer),
        }
    }

    /// The data behind the stream, once `read` returned 0. `None` where that was the end of the last one.
    fn into_rest(self) -> Option<Compressed> {
        match self {
            Self::Gzip(decoder) => Some(decoder.into_inner()),
            Self::Bzip2(decoder) => Some(decoder.into_inner()),
            Self::Zstd(_) | Self::Xz(_) => None,
        }
    }
}

/// All compressed streams of an input, decompressed.
pub(crate) struct Decompressor {
    compression: Compression,
    /// `None` at the end.
    decoder: Option<Decoder>,
}

impl Decompressor {
    pub(crate) fn new(compression: Compression, data: Compressed) -> io::Result<Self> {
        Ok(Self { compression, decoder: Some(Decoder::new(compression, data)?) })
    }

    /// The next compressed stream, if there is one.
    fn next(&self, mut rest: Compressed) -> io::Result<Option<Decoder>> {
        let mut magic = [0; MAGIC_BYTES];
        let count = fill(&mut rest, &mut magic)?;
        let magic = magic.get(..count).unwrap_or_default();
        if Compression::of(magic) != Some(self.compression) {
            // The writer of a pipe is not disturbed, and a caller who hashes the input sees all of it.
            io::copy(&mut rest, &mut io::sink())?;
            return Ok(None);
        }
        rest.give_back(magic);
        Decoder::new(self.compression, rest).map(Some)
    }
}

impl Read for Decompressor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while let Some(decoder) = &mut self.decoder {
            let count = decoder.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            let rest = self.decoder.take().and_then(Decoder::into_rest);
            self.decoder = rest.map(|rest| self.next(rest)).transpose()?.flatten();
        }
        Ok(0)
    }
}

/// Reads until `buffer` is full or the input ends. Returns how many bytes.
pub(crate) fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while let Some(rest) = buffer.get_mut(count..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(more) => count = count.saturating_add(more),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Words for an input that begins with these bytes.
pub(crate) fn what(block: &[u8]) -> String {
    const SHOWN_BYTES: usize = 16;
    if let Some(known) = known_otherwise(block) {
        return known.to_owned();
    }
    let begin = block.get(..SHOWN_BYTES).unwrap_or(block);
    format!("something that begins with `{}`", shown(begin))
}
