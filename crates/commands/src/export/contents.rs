//! Contents of files, without their holes.

use std::path::Path;

use anyhow::Result;
use vfs::{Errno, File};

/// Bytes read at once: enough for the file system to have several threads at what is compressed.
pub(super) const PIECE_BYTES: usize = 2 << 20;

/// Calls `write` with every run of data of a file, which has the name `path`, and the offset it has there, in order.
///
/// # Errors
/// Those of reading, with the name, and those of `write`.
pub(crate) fn copy_sparse(
    (file, path): (&File, &Path),
    size: u64,
    buffer: &mut [u8],
    mut write: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    while let Some((start, end)) = next_data(file, at, size).map_err(|error| error.at(path))? {
        at = start;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let Some(part) = buffer.get_mut(..want) else {
                break;
            };
            let count = file.read_at(part, at).map_err(|error| error.at(path))?;
            if count == 0 {
                return Ok(());
            }
            write(at, part.get(..count).unwrap_or_default())?;
            at += u64::try_from(count)?;
        }
    }
    Ok(())
}

/// Bytes of a file that are no holes.
///
/// # Errors
/// Those of reading the places of the data.
pub(crate) fn data_bytes(file: &File, size: u64) -> vfs::Result<u64> {
    let (mut at, mut bytes) = (0, 0);
    while let Some((start, end)) = next_data(file, at, size)? {
        bytes += end - start;
        at = end;
    }
    Ok(bytes)
}

/// A buffer for [`copy_sparse`].
pub(crate) fn new_buffer() -> Vec<u8> {
    vec![0; PIECE_BYTES]
}

/// The first data from `at` on, which is before the end, `size`.
fn next_data(file: &File, at: u64, size: u64) -> vfs::Result<Option<(u64, u64)>> {
    if at >= size {
        return Ok(None);
    }
    let start = match file.seek_data(at) {
        Err(error) if error.errno() == Errno::ENXIO => return Ok(None),
        // A format that tells no holes: all of it is data.
        Err(error) if [Errno::ENOSYS, Errno::EOPNOTSUPP].contains(&error.errno()) => return Ok(Some((at, size))),
        start => start?,
    };
    if start >= size {
        return Ok(None);
    }
    let end = match file.seek_hole(start) {
        Err(error) if error.errno() == Errno::ENXIO => size,
        end => end?.min(size),
    };
    // Standing still would be for ever.
    Ok(Some((start, if end > start { end } else { size })))
}
