//! Reads, writes and flushes an open file by positioned system calls, with a start offset: a byte of the file is the
//! first of the device; makes their errors. Called by `file`, `direct_io` and `ring`.

use crate::convert::to_u64;
use crate::{Error, Op, Result};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, BorrowedFd};

/// Buffers Linux takes in one `preadv` or `pwritev` (`IOV_MAX`).
pub(super) const PARTS_MAX: usize = 1024;

/// The file behind a device.
#[derive(Debug)]
pub(super) struct RawFile {
    pub(super) name: String,
    pub(super) file: File,
    /// Byte of the file at which the device begins.
    pub(super) start: u64,
}

impl RawFile {
    pub(super) fn error(&self, op: Op, offset: u64, len: u64, source: impl Into<io::Error>) -> Error {
        Error::io(op, &self.name, offset, len, source.into())
    }

    /// The error of a write to a place of the file.
    pub(super) fn write_error(&self, position: u64, len: u64, source: io::Error) -> Error {
        self.error(Op::Write, self.offset_of(position), len, source)
    }

    /// Where a byte of the device is in the file.
    pub(super) const fn position(&self, offset: u64) -> u64 {
        self.start.saturating_add(offset)
    }

    /// Which byte of the device is at a place of the file.
    pub(super) const fn offset_of(&self, position: u64) -> u64 {
        position.saturating_sub(self.start)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The error of a read that met the end of the file before the end of the device: the file was truncated.
    fn cut_short(&self, offset: u64, len: u64, size: u64) -> Error {
        Error::UnexpectedEnd { device: self.name.clone(), offset, len, size }
    }

    /// Fills the buffers of `batch`, which begin at `at`. Short reads go on where they stopped.
    pub(super) fn read_batch(&self, at: u64, mut batch: &mut [IoSliceMut<'_>]) -> Result<()> {
        let len: u64 = batch.iter().map(|part| to_u64(part.len())).sum();
        let mut done = 0;
        while done < len {
            let position = self.position(at).saturating_add(done);
            match rustix::io::preadv(&self.file, batch, position) {
                Ok(0) => return Err(self.cut_short(at, len, at + done)),
                Ok(count) => {
                    done += to_u64(count);
                    IoSliceMut::advance_slices(&mut batch, count);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.error(Op::Read, at, len, error)),
            }
        }
        Ok(())
    }

    /// Writes the buffers of `batch`, which begin at `at`. Short writes go on where they stopped.
    pub(super) fn write_batch(&self, at: u64, mut batch: &mut [IoSlice<'_>]) -> Result<()> {
        let len: u64 = batch.iter().map(|part| to_u64(part.len())).sum();
        let mut done = 0;
        while done < len {
            let position = self.position(at).saturating_add(done);
            match rustix::io::pwritev(&self.file, batch, position) {
                Ok(0) => {
                    let error = io::Error::from(io::ErrorKind::WriteZero);
                    return Err(self.error(Op::Write, at, len, error));
                }
                Ok(count) => {
                    done += to_u64(count);
                    IoSlice::advance_slices(&mut batch, count);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.error(Op::Write, at, len, error)),
            }
        }
        Ok(())
    }
}
