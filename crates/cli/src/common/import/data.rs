//! Contents of files: read whole when small, in pieces when large, around the holes when sparse.

use std::io;
use std::os::fd::BorrowedFd;

use anyhow::Result;
use rustix::fs::{SeekFrom, Stat};
use rustix::io::Errno;
use spinney::File;

use crate::common::progress::Progress;

/// Files up to this size are read whole, and made with their contents in one call. Larger ones
/// are copied in pieces of this size.
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// A thread's buffer for contents, used again for every file.
pub(super) fn new_buffer() -> Vec<u8> {
    vec![0; PIECE_BYTES]
}

/// The size in bytes as the system reports it.
pub(super) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

/// True when the file has fewer blocks than its size needs: it has holes, or its file system
/// stores it compressed.
pub(super) fn may_have_holes(stat: &Stat) -> bool {
    u64::try_from(stat.st_blocks)
        .unwrap_or_default()
        .saturating_mul(512)
        < size(stat)
}

/// Reads a small file whole: as much as is there now, but not more than its size was.
pub(super) fn read_whole<'a>(
    fd: BorrowedFd<'_>,
    size: u64,
    buffer: &'a mut [u8],
) -> io::Result<&'a [u8]> {
    let want = usize::try_from(size)
        .unwrap_or(usize::MAX)
        .min(buffer.len());
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..want).filter(|rest| !rest.is_empty()) {
        match rustix::io::read(fd, rest) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(buffer.get(..done).unwrap_or_default())
}

/// Copies the contents of a large or sparse file.
pub(super) fn stream(
    fd: BorrowedFd<'_>,
    stat: &Stat,
    file: &File,
    buffer: &mut [u8],
    progress: &Progress,
) -> Result<()> {
    let size = size(stat);
    let mut at = 0;
    while at < size {
        // Asked of every file: preallocated space has blocks, and is a hole.
        let Some((start, end)) = next_data(fd, at, size)? else {
            break;
        };
        copy(fd, (start, end), file, buffer, progress)?;
        at = end;
    }
    // The hole at the end, and what was cut off while we read.
    if file.metadata()?.size < size {
        file.set_len(size)?;
    }
    Ok(())
}

/// The next run of data from `at` on, within the first `size` bytes.
fn next_data(fd: BorrowedFd<'_>, at: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // No holes to be found here: everything is data.
        Err(Errno::INVAL | Errno::NOTSUP) => return Ok(Some((at, size))),
        Err(errno) => return Err(errno.into()),
    };
    if start >= size {
        return Ok(None);
    }
    let end = rustix::fs::seek(fd, SeekFrom::Hole(start))?;
    // A file that changes under us must not make us stand still.
    Ok(Some((
        start,
        if end > start { end.min(size) } else { size },
    )))
}

fn copy(
    fd: BorrowedFd<'_>,
    (mut at, end): (u64, u64),
    file: &File,
    buffer: &mut [u8],
    progress: &Progress,
) -> Result<()> {
    while at < end {
        let want = usize::try_from(end - at)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let Some(part) = buffer.get_mut(..want) else {
            break;
        };
        let count = match rustix::io::pread(fd, &mut *part, at) {
            Ok(0) => break,
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(io::Error::from(errno).into()),
        };
        file.write_at(part.get(..count).unwrap_or_default(), at)?;
        let count = u64::try_from(count)?;
        progress.add_bytes(count);
        at += count;
    }
    Ok(())
}
