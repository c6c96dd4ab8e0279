//! Defines `Device`, the one trait that every device implements, and the checks of range and write access that
//! implementations share. Everything above this crate works on `dyn Device`.

use crate::convert::to_u64;
use crate::{Error, Op, Result, Tag, tagged};
use std::fmt::Debug;
use std::fs::Metadata;
use std::sync::Arc;

/// Bytes of several buffers to be written one after the other at a place.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// First byte on the device.
    pub offset: u64,
    /// The bytes to write.
    pub parts: &'a [&'a [u8]],
    /// The purpose of the write.
    pub tag: Tag,
}

/// Whether a range that becomes zeros may become a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holes {
    /// It may, and should where the device can.
    Allowed,
    /// It stays allocated.
    Forbidden,
}

/// A range of bytes that can be read, written and made durable; the crate's documentation lists its promises. Methods
/// take `&self`: many threads use one device at once.
pub trait Device: Send + Sync + Debug {
    /// Its name in messages; usually the path.
    fn name(&self) -> &str;

    /// Bytes it has now.
    fn size_bytes(&self) -> u64;

    /// Whether every change is refused.
    fn is_read_only(&self) -> bool;

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// [`Error::UnexpectedEnd`] past the end, [`Error::Io`]. `buf` is then unspecified.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Announces that a range will be read soon. Advisory: a device with a cache may fetch it meanwhile, without
    /// reporting errors.
    fn will_read(&self, _offset: u64, _len: u64) {}

    /// The first byte at or after `offset` that may hold something: all bytes between them are a hole of a sparse file
    /// and read as zeros. [`Device::size_bytes`] where nothing follows but a hole; `offset` where the device does not
    /// know. For readers of a whole device.
    fn next_data(&self, offset: u64) -> u64 {
        offset
    }

    /// The first byte at or after `offset` that may lie in a hole; [`Device::size_bytes`] where there is none, or the
    /// device does not know. For readers of a whole device.
    fn next_hole(&self, offset: u64) -> u64 {
        self.size_bytes().max(offset)
    }

    /// Fills several buffers from one contiguous range, the first from `offset`.
    ///
    /// # Errors
    /// As [`Device::read_at`].
    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> Result<()> {
        let mut at = offset;
        for part in parts {
            self.read_at(at, part)?;
            at = at.saturating_add(to_u64(part.len()));
        }
        Ok(())
    }

    /// Writes `parts` one after the other, the first at `offset`.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::OutOfRange`] (nothing is written then), [`Error::Io`]
    /// (any part of the range may have been written).
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()>;

    /// Writes several runs, none of which overlaps another; a device with a queue has them under way at the same
    /// time. Each is tried, whatever becomes of the others: the answers, in the order of `writes`, are those of
    /// [`Device::write_at`].
    fn submit(&self, writes: &[Write<'_>]) -> Vec<Result<()>> {
        writes.iter().map(|write| tagged(write.tag, || self.write_at(write.offset, write.parts))).collect()
    }

    /// Requests that the device works on at the same time for one caller of [`Device::submit`]: with 1 nothing is
    /// gained by handing it several.
    fn queue_depth(&self) -> usize {
        1
    }

    /// Makes every write that returned before this call durable.
    ///
    /// # Errors
    /// [`Error::Io`]: nothing is known about the writes since the last good flush.
    fn flush(&self) -> Result<()>;

    /// Tells the device that a range is no longer needed. Its content is unspecified
    /// afterwards. Advisory: `Ok` where the device has no such operation.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::OutOfRange`], [`Error::Io`].
    fn discard(&self, offset: u64, len: u64) -> Result<()>;

    /// Makes a range zeros faster than by writing them. False, and nothing has changed, where the device cannot: then
    /// the caller writes them.
    ///
    /// # Errors
    /// As [`Device::write_at`].
    fn write_zeroes(&self, offset: u64, len: u64, holes: Holes) -> Result<bool> {
        let _ = (offset, len, holes);
        Ok(false)
    }

    /// Refuses a write here that would leave less than `spare` bytes on the host: a sparse file on a file system that
    /// is nearly full. Advisory: `Ok` if that is not known, and other programs may take the space.
    ///
    /// # Errors
    /// [`Error::Io`] for a write, as the write itself would fail without room.
    fn check_room(&self, _offset: u64, _len: u64, _spare: u64) -> Result<()> {
        Ok(())
    }

    /// Makes an image at least `size_bytes` long; the new part reads as zeros.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::CannotGrow`] where the size is fixed, [`Error::Io`].
    fn grow(&self, size_bytes: u64) -> Result<()>;

    /// Truncates an image file after `size_bytes`; later bytes are lost. Advisory: `Ok` without effect if the size is
    /// fixed.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::Io`].
    fn shrink(&self, _size_bytes: u64) -> Result<()> {
        Ok(())
    }

    /// The host's metadata (owner, permissions, numbers) of the open file or block device, even if its path names
    /// another one by now; `None` for a device that is neither.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn host_metadata(&self) -> Result<Option<Metadata>> {
        Ok(None)
    }

    /// Refuses a device whose file became shorter since it was opened: someone truncated it, and writes would fill the
    /// rest with holes. `Ok` if that is not known.
    ///
    /// # Errors
    /// [`Error::Io`] for a flush.
    fn check_length(&self) -> Result<()> {
        Ok(())
    }

    /// Whether requests go through rings of the kernel (io_uring), for which a process that limits its system calls
    /// has to allow `io_uring_enter`.
    fn uses_rings(&self) -> bool {
        false
    }

    /// Lets others use the device before this value is dropped: locks and claims on it end. Nothing may be written
    /// afterwards, and reads may fail.
    fn let_go(&self) {}
}

impl<D: Device + ?Sized> Device for Arc<D> {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn size_bytes(&self) -> u64 {
        (**self).size_bytes()
    }
    fn is_read_only(&self) -> bool {
        (**self).is_read_only()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        (**self).read_at(offset, buf)
    }
    fn will_read(&self, offset: u64, len: u64) {
        (**self).will_read(offset, len);
    }
    fn next_data(&self, offset: u64) -> u64 {
        (**self).next_data(offset)
    }
    fn next_hole(&self, offset: u64) -> u64 {
        (**self).next_hole(offset)
    }
    fn read_parts_at(&self, offset: u64, parts: &mut [&mut [u8]]) -> Result<()> {
        (**self).read_parts_at(offset, parts)
    }
    fn write_zeroes(&self, offset: u64, len: u64, holes: Holes) -> Result<bool> {
        (**self).write_zeroes(offset, len, holes)
    }
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        (**self).write_at(offset, parts)
    }
    fn submit(&self, writes: &[Write<'_>]) -> Vec<Result<()>> {
        (**self).submit(writes)
    }
    fn queue_depth(&self) -> usize {
        (**self).queue_depth()
    }
    fn flush(&self) -> Result<()> {
        (**self).flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        (**self).discard(offset, len)
    }
    fn check_room(&self, offset: u64, len: u64, spare: u64) -> Result<()> {
        (**self).check_room(offset, len, spare)
    }
    fn grow(&self, size_bytes: u64) -> Result<()> {
        (**self).grow(size_bytes)
    }
    fn shrink(&self, size_bytes: u64) -> Result<()> {
        (**self).shrink(size_bytes)
    }
    fn host_metadata(&self) -> Result<Option<Metadata>> {
        (**self).host_metadata()
    }
    fn check_length(&self) -> Result<()> {
        (**self).check_length()
    }
    fn uses_rings(&self) -> bool {
        (**self).uses_rings()
    }
    fn let_go(&self) {
        (**self).let_go();
    }
}

/// Bytes in `parts` together.
#[must_use]
pub fn parts_len(parts: &[&[u8]]) -> u64 {
    parts.iter().map(|part| to_u64(part.len())).sum()
}

/// Refuses a range that is not wholly inside `device`, with the error that fits `op`.
///
/// # Errors
/// [`Error::UnexpectedEnd`] for a read, [`Error::OutOfRange`] for another operation.
pub fn check_range<D: Device + ?Sized>(device: &D, op: Op, offset: u64, len: u64) -> Result<()> {
    let size = device.size_bytes();
    if offset.checked_add(len).is_some_and(|end| end <= size) {
        return Ok(());
    }
    let device = device.name().to_owned();
    Err(match op {
        Op::Read => Error::UnexpectedEnd { device, offset, len, size },
        _ => Error::OutOfRange { op, device, offset, len, size },
    })
}

/// Refuses every change of a device opened for reading.
///
/// # Errors
/// [`Error::ReadOnly`].
pub fn check_writable<D: Device + ?Sized>(device: &D, op: Op) -> Result<()> {
    if device.is_read_only() {
        return Err(Error::ReadOnly { op, device: device.name().to_owned() });
    }
    Ok(())
}
