//! Contents of files: read whole when small, in pieces when large, around the holes when sparse.

use std::io;
use std::os::fd::BorrowedFd;

use anyhow::Result;
use rustix::fs::{SeekFrom, Stat};
use rustix::io::Errno;
use vfs::File;

use crate::progress::Progress;

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
    u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(512) < size(stat)
}

/// Reads a small file whole: as much as is there now, but not more than its size was.
pub(super) fn read_whole<'a>(fd: BorrowedFd<'_>, size: u64, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let want = usize::try_from(size).unwrap_or(usize::MAX).min(buffer.len());
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

/// Copies the contents of a large or sparse file, up to the size in `stat`. Of a file that is
/// shorter by now, or never was so long (files of sysfs), what can be read arrives, without zeros
/// in the place of what cannot.
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
        at = copy(fd, (start, end), file, buffer, progress)?;
        if at < end {
            return set_end(file, at);
        }
    }
    // The hole at the end, as far as the file still has it.
    let now = self::size(&rustix::fs::fstat(fd)?);
    set_end(file, at.max(size.min(now)))
}

/// Makes a file that was written up to here, or less far, `end` bytes long.
fn set_end(file: &File, end: u64) -> Result<()> {
    if file.metadata()?.size < end {
        file.set_len(end)?;
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
    let end = match rustix::fs::seek(fd, SeekFrom::Hole(start)) {
        Ok(end) => end,
        // It was cut off before `start` since.
        Err(Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    // A file that changes under us must not make us stand still.
    Ok(Some((start, if end > start { end.min(size) } else { size })))
}

/// Copies a run of data. Returns where it ended: before `end` where the file does.
fn copy(
    fd: BorrowedFd<'_>,
    (mut at, end): (u64, u64),
    file: &File,
    buffer: &mut [u8],
    progress: &Progress,
) -> Result<u64> {
    while at < end {
        let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
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
    Ok(at)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::fd::AsFd as _;
    use std::sync::Arc;

    use vfs::{FileOptions, Volume};
    use vfs_conformance::MemoryFs;

    use super::*;

    /// Streams a file of the host that had the size of `before` when it was looked at, and is cut
    /// to `now` bytes before it is read. Returns what the volume has afterwards.
    fn streamed(before: &[u8], hole: u64, now: u64) -> Vec<u8> {
        let volume = Volume::new(Arc::new(MemoryFs::default()));
        let dir = tempfile::tempdir().unwrap();
        let mut source = fs::File::create_new(dir.path().join("source")).unwrap();
        source.write_all(before).unwrap();
        let length = u64::try_from(before.len()).unwrap() + hole;
        source.set_len(length).unwrap();
        let stat = rustix::fs::fstat(&source).unwrap();
        source.set_len(now).unwrap();
        let source = fs::File::open(dir.path().join("source")).unwrap();
        let file = FileOptions::new().read(true).write(true).create(true).open(&volume, "copy").unwrap();
        let progress = Progress::default();
        stream(source.as_fd(), &stat, &file, &mut new_buffer(), &progress).unwrap();
        drop(file);
        volume.read("copy").unwrap()
    }

    #[test]
    fn a_file_that_became_shorter_has_no_zeros_at_its_end() {
        let long = vec![7; 3 << 20];
        for now in [0, 1000, 1 << 20, (2 << 20) + 5] {
            let copy = streamed(&long, 0, now);
            assert_eq!(u64::try_from(copy.len()).unwrap(), now);
            assert!(copy.iter().all(|byte| *byte == 7), "cut to {now}");
        }
    }

    #[test]
    fn holes_at_the_end_arrive_as_far_as_they_are_there() {
        let data = vec![7; 1 << 20];
        for now in [1 << 20, 2 << 20, 3 << 20] {
            let copy = streamed(&data, 2 << 20, now);
            assert_eq!(u64::try_from(copy.len()).unwrap(), now);
            let (head, tail) = copy.split_at(1 << 20);
            assert!(head == data && tail.iter().all(|byte| *byte == 0), "cut to {now}");
        }
    }
}
