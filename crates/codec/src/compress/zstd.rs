//! Compresses and decompresses Zstandard: one frame (RFC 8878), then padding. Called by `compress`, with contexts that
//! each thread reuses.

use crate::{CompressionType, Error, Result};
use std::cell::RefCell;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

const CODEC: CompressionType = CompressionType::Zstd;
/// The kernel's working memory has room for windows of 128 KiB.
const WINDOW_LOG_MAX: u32 = 17;

thread_local! {
    static DECODER: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
    static ENCODER: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
}

/// Decompresses into `output` and returns the number of bytes written. A longer frame is cut at the end of `output`;
/// data after the frame is padding.
pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Result<usize> {
    let mut decoder = match DECODER.take() {
        Some(decoder) => decoder,
        None => new_decoder().ok_or(Error::OutOfMemory { codec: CODEC })?,
    };
    let result = decompress_with(&mut decoder, input, output);
    // A decoder that cannot be reset is dropped.
    if decoder.reset(ResetDirective::SessionOnly).is_ok() {
        DECODER.set(Some(decoder));
    }
    result
}

fn new_decoder() -> Option<DCtx<'static>> {
    let mut decoder = DCtx::try_create()?;
    decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).ok()?;
    Some(decoder)
}

fn decompress_with(decoder: &mut DCtx<'_>, input: &[u8], output: &mut [u8]) -> Result<usize> {
    let expected = output.len();
    let mut source = InBuffer::around(input);
    let mut target = OutBuffer::around(output);
    loop {
        let before = (source.pos(), target.pos());
        let hint = decoder.decompress_stream(&mut target, &mut source).map_err(|code| Error::Invalid {
            codec: CODEC,
            what: zstd_safe::get_error_name(code),
            at: source.pos(),
        })?;
        if hint == 0 || target.pos() == expected {
            return Ok(target.pos());
        }
        if (source.pos(), target.pos()) == before {
            return Err(Error::Invalid { codec: CODEC, what: "frame is cut short", at: source.pos() });
        }
    }
}

/// Compresses `input` into one frame; `None` if the frame is longer than `size_max`.
pub(super) fn compress(input: &[u8], level: i32, size_max: usize) -> Result<Option<Vec<u8>>> {
    let memory = || Error::OutOfMemory { codec: CODEC };
    let mut encoder = match ENCODER.take() {
        Some(encoder) => encoder,
        None => CCtx::try_create().ok_or_else(memory)?,
    };
    let mut output = Vec::new();
    let size = zstd_safe::compress_bound(input.len());
    output.try_reserve_exact(size).map_err(|_| memory())?;
    // The output has room for the worst case and the parameters are legal, so only a lack of memory can cause an error.
    encoder
        .set_parameter(CParameter::CompressionLevel(level))
        .and_then(|_| encoder.set_parameter(CParameter::WindowLog(WINDOW_LOG_MAX)))
        .and_then(|_| encoder.compress2(&mut output, input))
        .map_err(|_| memory())?;
    ENCODER.set(Some(encoder));
    Ok((output.len() <= size_max).then_some(output))
}
