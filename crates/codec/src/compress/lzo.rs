//! Compresses and decompresses LZO1X in segments of one sector. Called by `compress`; `lzo_encoder` writes the
//! segments.
//!
//! ```text
//!    0      4        8                       8+n      8+n+4
//!    | total | n      | n bytes of LZO1X      | m      | m bytes ...   | padding
//!    '--- counted by total -----------------------------------------...'
//! ```
//!
//! Lengths are little-endian, `total` includes its own four bytes. Each segment is one sector of
//! the extent (the last may be shorter), compressed alone. A segment may cross a sector boundary
//! of the compressed bytes, the four bytes of its length may not: where fewer than four are left
//! in a sector, they are skipped.

use super::{CompressOptions, lzo_encoder as encoder};
use crate::{CompressionType, Error, Result};
use lzo as decoder;

const CODEC: CompressionType = CompressionType::Lzo;
/// Bytes of the total length, and of each segment's.
const LENGTH_SIZE: usize = 4;

/// Largest size of an incompressible sector that kernels accept.
const fn segment_size_max(sector_size: usize) -> usize {
    sector_size.saturating_add(sector_size / 16).saturating_add(64 + 3)
}

/// Decompresses segments into `output` and returns the number of bytes written. A longer stream is cut at its end.
pub(super) fn decompress(input: &[u8], sector_size: usize, output: &mut [u8]) -> Result<usize> {
    let total = read_length(input, 0, "total length", input.len())?;
    let input = input.get(..total).unwrap_or(input);
    let mut at = LENGTH_SIZE;
    let mut done: usize = 0;
    while at < input.len() && done < output.len() {
        let room = input.len().saturating_sub(at.saturating_add(LENGTH_SIZE));
        let limit = room.min(segment_size_max(sector_size));
        let size = read_length(input, at, "segment length", limit)?;
        at = at.saturating_add(LENGTH_SIZE);
        // The limit above keeps this within the input.
        let segment = input.get(at..at.saturating_add(size)).unwrap_or_default();
        let rest = output.get_mut(done..).unwrap_or_default();
        done = done.saturating_add(one_segment(segment, at, sector_size, rest)?);
        at = at.saturating_add(size);
        at = at.saturating_add(skipped(at, sector_size));
    }
    Ok(done)
}

/// Like [`decompress`], for an inline extent: one segment, whose two lengths must match the item.
pub(super) fn decompress_inline(input: &[u8], sector_size: usize, output: &mut [u8]) -> Result<usize> {
    let heads = LENGTH_SIZE.saturating_add(LENGTH_SIZE);
    for (at, what, expected) in
        [(0, "total length", input.len()), (LENGTH_SIZE, "segment length", input.len().saturating_sub(heads))]
    {
        let found = read_length(input, at, what, expected)?;
        if found != expected {
            return Err(Error::Length { codec: CODEC, what, at, expected, found });
        }
    }
    one_segment(input.get(heads..).unwrap_or_default(), heads, sector_size, output)
}

/// Decompresses the segment at `at` to the start of `output`, and returns the number of bytes written; the rest of a
/// longer segment is dropped.
fn one_segment(segment: &[u8], at: usize, sector_size: usize, output: &mut [u8]) -> Result<usize> {
    if let Some(sector) = output.get_mut(..sector_size) {
        return decoder::decompress_into(segment, sector).map_err(|error| damaged_segment(error, at));
    }
    // The extent ends inside the sector of this segment.
    let mut whole = Vec::new();
    whole.try_reserve_exact(sector_size).map_err(|_| Error::OutOfMemory { codec: CODEC })?;
    whole.resize(sector_size, 0);
    let made = decoder::decompress_into(segment, &mut whole).map_err(|error| damaged_segment(error, at))?;
    let len = made.min(output.len());
    if let (Some(to), Some(from)) = (output.get_mut(..len), whole.get(..len)) {
        to.copy_from_slice(from);
    }
    Ok(len)
}

/// Bytes between `at` and the next possible position of a segment length.
const fn skipped(at: usize, sector_size: usize) -> usize {
    match at.checked_rem(sector_size) {
        Some(within) => {
            let left = sector_size.saturating_sub(within);
            if left < LENGTH_SIZE { left } else { 0 }
        }
        None => 0,
    }
}

/// The length at `at`, which must not exceed `max`.
fn read_length(input: &[u8], at: usize, what: &'static str, max: usize) -> Result<usize> {
    let bytes = input.get(at..).and_then(|rest| rest.first_chunk::<LENGTH_SIZE>()).ok_or(Error::Invalid {
        codec: CODEC,
        what: "cut short inside a length",
        at,
    })?;
    let raw = u32::from_le_bytes(*bytes);
    let found = usize::try_from(raw).unwrap_or(usize::MAX);
    let min = if at == 0 { LENGTH_SIZE } else { 0 };
    if found > max {
        return Err(Error::Length { codec: CODEC, what, at, expected: max, found });
    }
    if found < min {
        return Err(Error::Invalid { codec: CODEC, what: "total length does not count itself", at });
    }
    Ok(found)
}

fn damaged_segment(error: decoder::Error, at: usize) -> Error {
    let what = match error {
        decoder::Error::OutputOverrun => "segment is longer than a sector",
        decoder::Error::InputOverrun => "segment is cut short",
        decoder::Error::LookbehindOverrun => "match before the start of its segment",
        decoder::Error::InputNotConsumed => "bytes behind the end of a segment",
        _ => "damaged segment",
    };
    Error::Invalid { codec: CODEC, what, at }
}

/// `None` if the extent would be longer than the options allow.
pub(super) fn compress(input: &[u8], options: &CompressOptions) -> Option<Vec<u8>> {
    let sector_size = options.sector_size.max(LENGTH_SIZE);
    let mut output = vec![0; LENGTH_SIZE];
    for sector in input.chunks(sector_size) {
        output.resize(output.len().saturating_add(skipped(output.len(), sector_size)), 0);
        let at = output.len();
        output.extend_from_slice(&[0; LENGTH_SIZE]);
        encoder::compress(sector, &mut output);
        let segment_len = output.len().saturating_sub(at.saturating_add(LENGTH_SIZE));
        let length = output.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<LENGTH_SIZE>())?;
        *length = u32::try_from(segment_len).ok()?.to_le_bytes();
        if output.len() > options.output_size_max {
            return None;
        }
    }
    let total = u32::try_from(output.len()).ok()?;
    *output.first_chunk_mut::<LENGTH_SIZE>()? = total.to_le_bytes();
    (output.len() <= options.output_size_max).then_some(output)
}
