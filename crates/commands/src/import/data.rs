//! Contents of files: read whole when small, in pieces when large, around the holes when sparse.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use anyhow::Result;
use parking_lot::Mutex;
use rustix::fs::{SeekFrom, Stat};
use rustix::io::Errno;
use vfs::File;

use crate::progress::Progress;

/// Files up to this size are read whole, and made with their contents in one call. Larger ones
/// are copied in pieces of this size.
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// Larger files are copied by several threads, where that is worth it, in chunks of this size.
pub(super) const CHUNK_BYTES: u64 = 8 << 20;

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
    let (at, is_short) = stream_range(fd, 0..size, file, buffer, progress)?;
    end_stream(fd, size, file, (at, is_short))
}

/// As [`stream`], by several threads: for contents that are worked on when they are written (compressed), so that there
/// is always a thread that reads on.
pub(super) fn stream_by(
    threads: usize,
    fd: BorrowedFd<'_>,
    stat: &Stat,
    file: &File,
    progress: &Progress,
) -> Result<()> {
    let size = size(stat);
    // Where the next chunk begins. Holes are passed over, however long they may be.
    let next = Mutex::new(0);
    let take = || -> Result<Option<(u64, u64)>> {
        let mut at = next.lock();
        let Some((start, end)) = next_data(fd, *at, size)?.filter(|_| *at < size) else {
            *at = size;
            return Ok(None);
        };
        *at = end.min(start.saturating_add(CHUNK_BYTES));
        Ok(Some((start, *at)))
    };
    let one = || {
        let mut buffer = new_buffer();
        let mut last = 0;
        while let Some((start, end)) = take()? {
            let at = copy(fd, (start, end), file, &mut buffer, progress)?;
            last = at.max(last);
            if at < end {
                *next.lock() = size;
                return Ok::<_, anyhow::Error>((last, Some(at)));
            }
        }
        Ok((last, None))
    };
    let ends = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(one)).collect();
        let mut ends = vec![one()];
        ends.extend(others.into_iter().filter_map(|other| other.join().ok()));
        ends.into_iter().collect::<Result<Vec<_>>>()
    })?;
    anyhow::ensure!(ends.len() == threads.max(1), "a thread that copied has ended early");
    match ends.iter().filter_map(|(_, short)| *short).min() {
        // What lies behind was read before the file became shorter.
        Some(short) => Ok(file.set_len(short)?),
        None => end_stream(fd, size, file, (ends.iter().map(|(last, _)| *last).max().unwrap_or(0), false)),
    }
}

/// Copies the data within `range`; returns where it ended (0 where there is none), and whether the file ends there too,
/// before `range` does.
fn stream_range(
    fd: BorrowedFd<'_>,
    range: Range<u64>,
    file: &File,
    buffer: &mut [u8],
    progress: &Progress,
) -> Result<(u64, bool)> {
    let (mut at, mut end_of_data) = (range.start, 0);
    while at < range.end {
        // Asked of every file: preallocated space has blocks, and is a hole.
        let Some((start, end)) = next_data(fd, at, range.end)? else {
            break;
        };
        at = copy(fd, (start, end), file, buffer, progress)?;
        end_of_data = at;
        if at < end {
            return Ok((at, true));
        }
    }
    Ok((end_of_data, false))
}

/// Gives the copy its length.
fn end_stream(fd: BorrowedFd<'_>, size: u64, file: &File, (at, is_short): (u64, bool)) -> Result<()> {
    if is_short {
        return set_end(file, at);
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

    /// As [`streamed`], by two threads.
    #[test]
    fn several_threads_copy_what_one_does() {
        let (mib, chunk) = (1 << 20, usize::try_from(CHUNK_BYTES).unwrap());
        let before: Vec<u8> = (0..3 * chunk + 5000).map(|at| u8::try_from(at / 4096 % 251).unwrap()).collect();
        for (hole, now) in [(0, before.len()), (0, chunk + mib), (2 * chunk, before.len() + chunk), (0, 0)] {
            let volume = Volume::new(Arc::new(MemoryFs::default()));
            let source = tempfile::NamedTempFile::new().unwrap();
            fs::write(source.path(), &before).unwrap();
            source.as_file().set_len(u64::try_from(before.len() + hole).unwrap()).unwrap();
            let stat = rustix::fs::fstat(source.as_file()).unwrap();
            source.as_file().set_len(u64::try_from(now).unwrap()).unwrap();
            let file = FileOptions::new().read(true).write(true).create(true).open(&volume, "copy").unwrap();
            stream_by(2, source.as_file().as_fd(), &stat, &file, &Progress::default()).unwrap();
            drop(file);
            let copy = volume.read("copy").unwrap();
            assert_eq!(copy.len(), now);
            let data = before.len().min(now);
            assert!(copy[..data] == before[..data] && copy[data..].iter().all(|byte| *byte == 0), "{hole} {now}");
        }
    }

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
