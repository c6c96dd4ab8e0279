//! Deflate in a zlib wrapper (RFC 1950), then padding.

use crate::{CompressionType, Error, Result};
use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};
use std::cell::RefCell;

const CODEC: CompressionType = CompressionType::Zlib;

thread_local! {
    static DECODER: RefCell<Option<Decompressor>> = const { RefCell::new(None) };
    static ENCODER: RefCell<Option<(i32, Compressor)>> = const { RefCell::new(None) };
}

/// Fills `output` from its start and returns the bytes of the stream. What follows the stream in
/// `input` is padding.
pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Result<usize> {
    DECODER.with_borrow_mut(|decoder| {
        let decoder = decoder.get_or_insert_with(Decompressor::new);
        decoder.zlib_decompress(input, output).map_err(|error| match error {
            DecompressionError::BadData => {
                Error::Invalid { codec: CODEC, what: "damaged stream or wrong Adler-32", at: 0 }
            }
            DecompressionError::InsufficientSpace => Error::LongOutput { codec: CODEC, expected: output.len() },
        })
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
            // The encoder's one failure is that the output does not fit.
            Ok(encoder.zlib_compress(input, &mut output).ok())
        })
        .map(|len| {
            len.map(|len| {
                output.truncate(len);
                output
            })
        })
}
