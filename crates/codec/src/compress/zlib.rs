//! Compresses and decompresses Deflate in a zlib wrapper (RFC 1950), then padding. Called by `compress`.

use crate::{CompressionType, Error, Result};
use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};
use std::cell::RefCell;

const CODEC: CompressionType = CompressionType::Zlib;

/// Bytes of the header, and its fields: the method, the window (32 KiB at most) and whether a dictionary is needed.
const HEADER_SIZE: usize = 2;
const DEFLATE: u8 = 8;
const WINDOW_MAX: u8 = 7;
const PRESET_DICT: u8 = 0x20;
/// Bytes beyond the output that a stream may have: kernels stop reading where the extent ends.
const MORE_MIN: usize = 4 << 10;
const MORE_MAX: usize = 1 << 20;

thread_local! {
    static DECODER: RefCell<Option<Decompressor>> = const { RefCell::new(None) };
    static ENCODER: RefCell<Option<(i32, Compressor)>> = const { RefCell::new(None) };
}

/// Decompresses into `output` and returns the number of bytes written. A longer stream is cut at the end of `output`.
/// Data after the stream is padding. Like in the kernel, whose extents may end before it, the Adler-32 is not read.
pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Result<usize> {
    let expected = output.len();
    match inflate(input, output)? {
        Some(len) => Ok(len),
        // If the output is too small, the decoder does not report its progress, so it gets a larger buffer.
        None => {
            let mut room = expected.saturating_add(MORE_MIN);
            while room <= expected.saturating_add(MORE_MAX) {
                let mut longer = buffer(room)?;
                if inflate(input, &mut longer)?.is_some() {
                    output.copy_from_slice(longer.get(..expected).unwrap_or_default());
                    return Ok(expected);
                }
                room = room.saturating_mul(2);
            }
            Err(Error::LongOutput { codec: CODEC, expected })
        }
    }
}

/// As [`decompress`], for an inline extent: the stream is complete, and decompresses to at most `room` bytes.
pub(super) fn decompress_inline(input: &[u8], room: usize, output: &mut [u8]) -> Result<usize> {
    let expected = output.len();
    let mut whole = buffer(room.max(expected))?;
    let len = inflate(input, &mut whole)?.ok_or(Error::LongOutput { codec: CODEC, expected })?;
    let len = len.min(expected);
    if let (Some(to), Some(from)) = (output.get_mut(..len), whole.get(..len)) {
        to.copy_from_slice(from);
    }
    Ok(len)
}

fn buffer(len: usize) -> Result<Vec<u8>> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(len).map_err(|_| Error::OutOfMemory { codec: CODEC })?;
    buffer.resize(len, 0);
    Ok(buffer)
}

/// Fills `output` from its start; `None` if the stream is longer.
fn inflate(input: &[u8], output: &mut [u8]) -> Result<Option<usize>> {
    let Some((&[method, flags], stream)) = input.split_first_chunk() else {
        return Err(Error::Invalid { codec: CODEC, what: "cut short inside the header", at: 0 });
    };
    let is_whole = u16::from_be_bytes([method, flags]).is_multiple_of(31);
    if method & 0xf != DEFLATE || method >> 4 > WINDOW_MAX || flags & PRESET_DICT != 0 || !is_whole {
        return Err(Error::Invalid { codec: CODEC, what: "no header of zlib", at: 0 });
    }
    DECODER.with_borrow_mut(|decoder| {
        let decoder = decoder.get_or_insert_with(Decompressor::new);
        match decoder.deflate_decompress(stream, output) {
            Ok(len) => Ok(Some(len)),
            Err(DecompressionError::InsufficientSpace) => Ok(None),
            Err(DecompressionError::BadData) => {
                Err(Error::Invalid { codec: CODEC, what: "damaged stream", at: HEADER_SIZE })
            }
        }
    })
}

/// `None` if the stream would be longer than `size_max`.
pub(super) fn compress(input: &[u8], level: i32, size_max: usize) -> Result<Option<Vec<u8>>> {
    let mut output = Vec::new();
    ENCODER
        .with_borrow_mut(|encoder| {
            if encoder.as_ref().is_none_or(|(old, _)| *old != level) {
                let strength = CompressionLvl::new(level).unwrap_or_default();
                *encoder = Some((level, Compressor::new(strength)));
            }
            let Some((_, encoder)) = encoder else {
                return Err(Error::OutOfMemory { codec: CODEC });
            };
            let size = size_max.min(encoder.zlib_compress_bound(input.len()));
            output.try_reserve_exact(size).map_err(|_| Error::OutOfMemory { codec: CODEC })?;
            output.resize(size, 0);
            // The encoder fails only if the output does not fit.
            Ok(encoder.zlib_compress(input, &mut output).ok())
        })
        .map(|len| {
            len.map(|len| {
                output.truncate(len);
                output
            })
        })
}
