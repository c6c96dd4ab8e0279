//! The request queue: many small requests become few large ones.
//!
//! A commit writes thousands of tree blocks that lie next to each other on the device, but are
//! found in the order of a tree. Sorted and merged, 4 KiB blocks are written about thirteen times
//! as fast on a disk. Nothing is copied: a merged request is one vectored system call.

use crate::convert::to_u64;
use crate::{Device, Result, Tag, tagged};

/// Bytes of a merged request. Above this nothing is gained, and other threads wait longer for
/// their turn. A single request may be larger.
pub const MERGED_BYTES_MAX: u64 = 4 << 20;
/// Parts of a merged request: what Linux takes in one call.
pub const MERGED_PARTS_MAX: usize = 1024;

/// Bytes to be written at a place.
#[derive(Debug, Clone, Copy)]
pub struct WriteRequest<'a> {
    /// First byte on the device.
    pub offset: u64,
    /// What to write there.
    pub bytes: &'a [u8],
    /// What it is for. Neighbours that become one request are for what the first is.
    pub tag: Tag,
}

/// Writes every request, in the order of the device, neighbours together. The requests must not
/// overlap: it is not specified whose bytes would remain. `requests` is sorted afterwards.
///
/// # Errors
/// The first error of the device. Any of the requests may have been written then.
pub fn write_all(device: &dyn Device, requests: &mut Vec<WriteRequest<'_>>) -> Result<()> {
    requests.sort_by_key(|request| request.offset);
    let mut parts = Vec::with_capacity(requests.len().min(MERGED_PARTS_MAX));
    for run in runs(requests, |request| extent(request.offset, request.bytes)) {
        parts.clear();
        parts.extend(run.iter().map(|request| request.bytes));
        if let Some(first) = run.first() {
            tagged(first.tag, || device.write_at(first.offset, &parts))?;
        }
    }
    Ok(())
}

/// A buffer to be filled from a place.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// First byte on the device.
    pub offset: u64,
    /// Where the bytes go.
    pub buf: &'a mut [u8],
}

/// Fills every request, in the order of the device, neighbours together. `requests` is sorted
/// afterwards.
///
/// # Errors
/// The first error of the device. The content of all buffers is unspecified then.
pub fn read_all(device: &dyn Device, requests: &mut Vec<ReadRequest<'_>>) -> Result<()> {
    requests.sort_by_key(|request| request.offset);
    let mut rest = requests.as_mut_slice();
    while let Some(first) = rest.first() {
        let offset = first.offset;
        let count = run_len(rest, |request| extent(request.offset, request.buf));
        let (run, behind) = rest.split_at_mut(count);
        let mut parts: Vec<&mut [u8]> = run.iter_mut().map(|request| &mut *request.buf).collect();
        device.read_parts_at(offset, &mut parts)?;
        rest = behind;
    }
    Ok(())
}

/// Where a request begins, and how many bytes it has.
const fn extent(offset: u64, bytes: &[u8]) -> (u64, u64) {
    (offset, to_u64(bytes.len()))
}

/// Splits sorted requests into runs that can each be one request.
fn runs<T>(requests: &[T], extent: impl Fn(&T) -> (u64, u64)) -> impl Iterator<Item = &[T]> {
    let mut rest = requests;
    std::iter::from_fn(move || {
        let (run, behind) = rest.split_at(run_len(rest, &extent));
        rest = behind;
        (!run.is_empty()).then_some(run)
    })
}

/// How many of the first requests follow each other without a gap and within the limits. At
/// least 1 unless there are none.
fn run_len<T>(requests: &[T], extent: impl Fn(&T) -> (u64, u64)) -> usize {
    let Some(first) = requests.first() else {
        return 0;
    };
    let (start, mut len) = extent(first);
    let mut count = 1;
    for request in &requests[1..requests.len().min(MERGED_PARTS_MAX)] {
        let (offset, more) = extent(request);
        let merged = len.saturating_add(more);
        if start.checked_add(len) != Some(offset) || merged > MERGED_BYTES_MAX {
            break;
        }
        len = merged;
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::MemoryDevice;
    use crate::trace::TracingDevice;
    use crate::{Error, Op};

    #[test]
    fn neighbours_are_merged_whatever_their_order_and_gaps_are_kept() {
        let device = TracingDevice::recording(MemoryDevice::new(1 << 20));
        let blocks: Vec<[u8; 16]> = (0..8).map(|at| [at; 16]).collect();
        let places = [48, 0, 16, 160, 32, 176, 400, 1000];
        let mut requests: Vec<_> = std::iter::zip(places, &blocks)
            .map(|(offset, bytes)| WriteRequest { offset, bytes, tag: Tag::default() })
            .collect();
        write_all(&device, &mut requests).unwrap();
        let written: Vec<_> = device.take_events().iter().map(|event| (event.offset, event.len)).collect();
        assert_eq!(written, [(0, 64), (160, 32), (400, 16), (1000, 16)]);

        let mut found = [[9; 16]; 8];
        let mut requests: Vec<_> =
            std::iter::zip(places, &mut found).map(|(offset, buf)| ReadRequest { offset, buf }).collect();
        read_all(&device, &mut requests).unwrap();
        drop(requests);
        assert_eq!(found.as_slice(), blocks);
        let counts = device.counts();
        assert_eq!((counts.reads, counts.read_bytes), (4, 128));
    }

    #[test]
    fn merged_requests_respect_both_limits() {
        let device = TracingDevice::recording(MemoryDevice::new(64 << 20));
        let block = vec![1; 1 << 20];
        let mut large: Vec<_> =
            (0..9).map(|at| WriteRequest { offset: at << 20, bytes: &block, tag: Tag::default() }).collect();
        write_all(&device, &mut large).unwrap();
        let lens: Vec<_> = device.take_events().iter().map(|event| event.len).collect();
        assert_eq!(lens, [4 << 20, 4 << 20, 1 << 20]);

        let mut tiny: Vec<_> =
            (0..2500).map(|offset| WriteRequest { offset, bytes: &block[..1], tag: Tag::default() }).collect();
        write_all(&device, &mut tiny).unwrap();
        let lens: Vec<_> = device.take_events().iter().map(|event| event.len).collect();
        assert_eq!(lens, [1024, 1024, 452]);

        let huge = vec![2; 9 << 20];
        let mut single = vec![WriteRequest { offset: 0, bytes: &huge, tag: Tag::default() }];
        write_all(&device, &mut single).unwrap();
        assert_eq!(device.take_events().len(), 1);
        write_all(&device, &mut Vec::new()).unwrap();
        read_all(&device, &mut Vec::new()).unwrap();
        assert_eq!(device.take_events().len(), 0);
    }

    #[test]
    fn the_device_s_error_is_handed_on() {
        let device = MemoryDevice::new(100);
        let mut requests = vec![WriteRequest { offset: u64::MAX, bytes: &[1], tag: Tag::default() }];
        let error = write_all(&device, &mut requests).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { op: Op::Write, .. }));
    }
}
