//! Reads the contents of files without their holes, and copies the data. The sinks call it; sources implement
//! `Contents`, `cat` of the program uses it.

#[cfg(unix)]
use rustix::fs::SeekFrom;
#[cfg(unix)]
use rustix::io::Errno as HostErrno;
use vfs::{Errno, File};

use crate::error::{Error, Result};

/// An open file of the host.
#[cfg(unix)]
pub type HostContents = std::os::fd::OwnedFd;
/// An open file of the host.
#[cfg(not(unix))]
pub type HostContents = std::fs::File;

/// Contents of an open file, read by position.
pub trait Contents {
    /// Begin and end of the first run of data from `at` on that begins before `size`; `None` if there is none. A file
    /// system that reports no holes has one run.
    ///
    /// # Errors
    /// Those of the host or the volume.
    fn next_data(&self, at: u64, size: u64) -> Result<Option<(u64, u64)>>;

    /// Reads into `buffer` from `at` on. Returns how many bytes; 0 at the end of the file.
    ///
    /// # Errors
    /// Those of the host or the volume.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<usize>;

    /// Size in bytes by now.
    ///
    /// # Errors
    /// Those of the host or the volume.
    fn size(&self) -> Result<u64>;

    /// The file of a volume, from which extents can be shared.
    ///
    /// # Errors
    /// Those of opening it.
    fn in_volume(&self) -> Result<Option<&File>> {
        Ok(None)
    }
}

/// Where a copy of contents ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyEnd {
    /// End of the last piece.
    pub at: u64,
    /// The file ended earlier than its size said: it became shorter, or it is one of sysfs.
    pub is_short: bool,
}

/// Calls `write` with every piece of data of a file that has `size` bytes, and with the piece's offset, in order. A
/// piece is as long as `buffer` at most.
///
/// # Errors
/// Those of reading, and those of `write`.
pub fn copy_data<E: From<Error>>(
    contents: &(impl Contents + ?Sized),
    size: u64,
    buffer: &mut [u8],
    mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<CopyEnd, E> {
    let mut at = 0;
    while let Some((start, end)) = contents.next_data(at, size)? {
        at = start;
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let part = buffer.get_mut(..want).unwrap_or_default();
            let count = contents.read_at(part, at)?;
            let part = part.get(..count).filter(|part| !part.is_empty());
            let Some(part) = part else { return Ok(CopyEnd { at, is_short: true }) };
            write(at, part)?;
            at = at.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        }
    }
    Ok(CopyEnd { at, is_short: false })
}

/// Bytes of a file that are no holes.
///
/// # Errors
/// Those of looking for the data.
pub fn data_bytes(contents: &(impl Contents + ?Sized), size: u64) -> Result<u64> {
    let (mut at, mut bytes) = (0, 0_u64);
    while let Some((start, end)) = contents.next_data(at, size)? {
        bytes = bytes.saturating_add(end - start);
        at = end;
    }
    Ok(bytes)
}

/// The contents of a file whose bytes are elsewhere: none.
pub(crate) struct NoContents;

pub(crate) static NO_CONTENTS: NoContents = NoContents;

impl Contents for NoContents {
    fn next_data(&self, _at: u64, _size: u64) -> Result<Option<(u64, u64)>> {
        Ok(None)
    }

    fn read_at(&self, _buffer: &mut [u8], _at: u64) -> Result<usize> {
        Ok(0)
    }

    fn size(&self) -> Result<u64> {
        Ok(0)
    }
}

impl Contents for File {
    fn next_data(&self, at: u64, size: u64) -> Result<Option<(u64, u64)>> {
        if at >= size {
            return Ok(None);
        }
        let start = match self.seek_data(at) {
            Err(error) if error.errno() == Errno::ENXIO => return Ok(None),
            Err(error) if [Errno::ENOSYS, Errno::EOPNOTSUPP].contains(&error.errno()) => return Ok(Some((at, size))),
            start => start?,
        };
        let end = match self.seek_hole(start) {
            Err(error) if error.errno() == Errno::ENXIO => size,
            end => end?,
        };
        Ok(run(start, end, size))
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<usize> {
        Ok(Self::read_at(self, buffer, at)?)
    }

    fn size(&self) -> Result<u64> {
        Ok(self.metadata()?.size)
    }

    fn in_volume(&self) -> Result<Option<&File>> {
        Ok(Some(self))
    }
}

#[cfg(unix)]
impl Contents for HostContents {
    fn next_data(&self, at: u64, size: u64) -> Result<Option<(u64, u64)>> {
        if at >= size {
            return Ok(None);
        }
        let start = match rustix::fs::seek(self, SeekFrom::Data(at)) {
            Err(HostErrno::NXIO) => return Ok(None),
            Err(HostErrno::INVAL | HostErrno::NOTSUP) => return Ok(Some((at, size))),
            start => start?,
        };
        let end = match rustix::fs::seek(self, SeekFrom::Hole(start)) {
            // It was cut off before `start` since.
            Err(HostErrno::NXIO) => return Ok(None),
            end => end?,
        };
        Ok(run(start, end, size))
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<usize> {
        loop {
            match rustix::io::pread(self, &mut *buffer, at) {
                Err(HostErrno::INTR) => {}
                count => return Ok(count?),
            }
        }
    }

    fn size(&self) -> Result<u64> {
        let found = rustix::fs::fstat(self).map_err(std::io::Error::from)?;
        Ok(u64::try_from(found.st_size).unwrap_or_default())
    }
}

/// Holes are read as zeros there.
#[cfg(not(unix))]
impl Contents for HostContents {
    fn next_data(&self, at: u64, size: u64) -> Result<Option<(u64, u64)>> {
        Ok((at < size).then_some((at, size)))
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> Result<usize> {
        Ok(portable::FileExt::read_at(self, buffer, at)?)
    }

    fn size(&self) -> Result<u64> {
        Ok(self.metadata()?.len())
    }
}

/// A run of data within the first `size` bytes. Its end is behind its start even if the file changes meanwhile: a copy
/// must not stand still.
fn run(start: u64, end: u64, size: u64) -> Option<(u64, u64)> {
    (start < size).then(|| (start, if end > start { end.min(size) } else { size }))
}
