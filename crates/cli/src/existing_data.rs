//! Finds out whether a file or device holds any data, which may be precious even if it is no known file system, and
//! overwrites the signatures of old file systems. `target` calls it before `mkfs` overwrites a file or device.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use spinney::blockdev::{Device, Result as DeviceResult};

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;
/// Bytes checked at each end of a device. Its middle is not checked: a reused device rarely holds only zeros there.
const DEVICE_ENDS_BYTES: u64 = 4 << 20;

/// Where file systems and tables of partitions have their signatures, from the begin of a device: boot sectors, tables
/// and superblocks but that of btrfs, which `mkfs` of btrfs overwrites in an order of its own.
const SIGNATURES: [Range<u64>; 2] = [0..64 << 10, 68 << 10..1 << 20];
/// The superblocks of btrfs, which other formats leave in free space.
const SUPERBLOCKS: [Range<u64>; 3] = [64 << 10..68 << 10, 64 << 20..(64 << 20) + 4096, 1 << 38..(1 << 38) + 4096];
/// Bytes at the end of a device that the second table of partitions and members of arrays have.
const END_BYTES: u64 = 1 << 20;

/// Overwrites the signatures of an earlier file system, which would be found beside the new one. `all` says whether the
/// superblocks of btrfs are overwritten, too.
///
/// # Errors
/// Those of the device.
pub(crate) fn erase_signatures(device: &dyn Device, all: bool) -> DeviceResult<()> {
    let end = device.size_bytes();
    let superblocks = SUPERBLOCKS.iter().filter(|_| all).cloned();
    let last = end.saturating_sub(END_BYTES).max(1 << 20)..end;
    for range in SIGNATURES.iter().cloned().chain(superblocks).chain([last]) {
        let (mut at, stop) = (range.start, range.end.min(end));
        while at < stop {
            let len = usize::try_from(stop - at).map_or(READ_BYTES, |left| left.min(READ_BYTES));
            let mut bytes = vec![0; len];
            device.read_at(at, &mut bytes)?;
            if bytes.iter().any(|byte| *byte != 0) {
                bytes.fill(0);
                device.write_at(at, &[&bytes])?;
            }
            at = at.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
        }
    }
    Ok(())
}

/// The first byte that is not zero among `len` bytes from `offset` on. Holes are not read.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn first_byte(path: &Path, offset: u64, len: u64, is_device: bool) -> io::Result<Option<u64>> {
    let file = File::open(path)?;
    let end = offset.saturating_add(len);
    if is_device {
        let head = end.min(offset.saturating_add(DEVICE_ENDS_BYTES));
        let tail = head.max(end.saturating_sub(DEVICE_ENDS_BYTES));
        return Ok(scan(&file, offset, head)?.or(scan(&file, tail, end)?));
    }
    let mut at = offset;
    while at < end {
        let data = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data,
            // The rest of the range is a hole.
            Err(Errno::NXIO) => return Ok(None),
            // This file system does not report holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return scan(&file, at, end),
            Err(error) => return Err(error.into()),
        };
        let hole = rustix::fs::seek(&file, SeekFrom::Hole(data)).unwrap_or(end).min(end);
        if let Some(found) = scan(&file, data.min(end), hole)? {
            return Ok(Some(found));
        }
        at = hole.max(data);
        if hole <= data {
            return Ok(None);
        }
    }
    Ok(None)
}

/// The first byte that is not zero at either end of a device that is elsewhere.
///
/// # Errors
/// Those of the device.
pub(crate) fn first_byte_of(device: &dyn Device) -> DeviceResult<Option<u64>> {
    let end = device.size_bytes();
    let head = end.min(DEVICE_ENDS_BYTES);
    let tail = head.max(end.saturating_sub(DEVICE_ENDS_BYTES));
    for (start, end) in [(0, head), (tail, end)] {
        let at = device.next_data(start).min(end);
        let mut bytes = vec![0; usize::try_from(end - at).unwrap_or_default()];
        device.read_at(at, &mut bytes)?;
        if let Some(position) = bytes.iter().position(|byte| *byte != 0) {
            return Ok(Some(at + u64::try_from(position).unwrap_or(0)));
        }
    }
    Ok(None)
}

fn scan(file: &File, mut at: u64, end: u64) -> io::Result<Option<u64>> {
    let mut bytes = vec![0; READ_BYTES];
    while at < end {
        let len = usize::try_from(end - at).map_or(READ_BYTES, |left| left.min(READ_BYTES));
        let part = bytes.get_mut(..len).unwrap_or_default();
        let count = match file.read_at(part, at) {
            Ok(0) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            count => count?,
        };
        let read = part.get(..count).unwrap_or_default();
        if let Some(position) = read.iter().position(|byte| *byte != 0) {
            return Ok(Some(at + u64::try_from(position).unwrap_or(0)));
        }
        at += u64::try_from(count).unwrap_or(u64::MAX);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_zeros_are_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::create(&path).unwrap();
        file.set_len(64 << 20).unwrap();
        file.write_all_at(&[0; 8192], 1 << 20).unwrap();
        for is_device in [false, true] {
            assert_eq!(first_byte(&path, 0, 64 << 20, is_device).unwrap(), None);
        }
        let last = (64 << 20) - 1;
        file.write_all_at(b"x", last).unwrap();
        for is_device in [false, true] {
            assert_eq!(first_byte(&path, 0, 64 << 20, is_device).unwrap(), Some(last));
            assert_eq!(first_byte(&path, 4096, last - 4096, is_device).unwrap(), None);
        }
    }
}
