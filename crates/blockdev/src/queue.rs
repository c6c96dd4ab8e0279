//! Sorts and merges write requests: many small ones become few large ones.
//!
//! A commit writes thousands of tree blocks that lie next to each other on the device, but are found in the order of a
//! tree. Sorted and merged, 4 KiB blocks are written about thirteen times as fast on a disk. Nothing is copied: a
//! merged request is one vectored system call. Called by the engine's pool of devices when a commit writes its tree
//! blocks.

use crate::convert::to_u64;
use crate::{Device, Error, Result, Tag, Write};
use std::ops::Range;

/// Bytes of a merged request. Above this nothing is gained, and other threads wait longer for
/// their turn. A single request may be larger.
pub const MERGED_BYTES_MAX: u64 = 4 << 20;
/// Most parts of a merged request: Linux's limit for one call.
pub const MERGED_PARTS_MAX: usize = 1024;

/// Bytes to be written at a place.
#[derive(Debug, Clone, Copy)]
pub struct WriteRequest<'a> {
    /// First byte on the device.
    pub offset: u64,
    /// The bytes to write.
    pub bytes: &'a [u8],
    /// The purpose. A request merged from neighbours of one mirror has the tag of the first.
    pub tag: Tag,
}

/// A write that a device refused.
#[derive(Debug, Clone)]
pub struct Failed {
    /// The tag: which copy of which bytes was not written.
    pub tag: Tag,
    /// The device's reason.
    pub error: Error,
}

/// Writes every request, in the order of the device, with adjacent ones merged, and returns those that failed; the
/// others are written all the same. The requests must not overlap: which bytes would remain is not specified.
/// `requests` is sorted afterwards.
#[must_use]
pub fn write_all(device: &dyn Device, requests: &mut Vec<WriteRequest<'_>>) -> Vec<Failed> {
    requests.sort_by_key(|request| request.offset);
    let parts: Vec<&[u8]> = requests.iter().map(|request| request.bytes).collect();
    let writes: Vec<Write<'_>> = runs(requests, |request| Extent::of_write(request))
        .filter_map(|run| {
            let first = requests.get(run.start)?;
            Some(Write { offset: first.offset, parts: parts.get(run)?, tag: first.tag })
        })
        .collect();
    submit(device, &writes)
}

/// Submits writes to a device unchanged, and returns those that failed.
#[must_use]
pub fn submit(device: &dyn Device, writes: &[Write<'_>]) -> Vec<Failed> {
    let answers = device.submit(writes);
    debug_assert!(answers.len() == writes.len(), "each write has an answer");
    std::iter::zip(writes, answers)
        .filter_map(|(write, answer)| Some(Failed { tag: write.tag, error: answer.err()? }))
        .collect()
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
        let count = run_len(rest, |request| Extent::new(request.offset, request.buf, 0));
        let (run, behind) = rest.split_at_mut(count);
        let mut parts: Vec<&mut [u8]> = run.iter_mut().map(|request| &mut *request.buf).collect();
        device.read_parts_at(offset, &mut parts)?;
        rest = behind;
    }
    Ok(())
}

/// Where a request begins, how many bytes it has, and of which copy.
struct Extent {
    offset: u64,
    len: u64,
    mirror: u32,
}

impl Extent {
    const fn new(offset: u64, bytes: &[u8], mirror: u32) -> Self {
        Self { offset, len: to_u64(bytes.len()), mirror }
    }

    const fn of_write(request: &WriteRequest<'_>) -> Self {
        Self::new(request.offset, request.bytes, request.tag.mirror)
    }
}

/// Splits sorted requests into runs that can each be one request: their places in the list.
fn runs<T>(requests: &[T], extent: impl Fn(&T) -> Extent) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let run = start..start + run_len(requests.get(start..).unwrap_or_default(), &extent);
        start = run.end;
        (!run.is_empty()).then_some(run)
    })
}

/// How many of the first requests follow each other without a gap and within the limits. At
/// least 1 unless there are none.
fn run_len<T>(requests: &[T], extent: impl Fn(&T) -> Extent) -> usize {
    let Some(first) = requests.first() else {
        return 0;
    };
    let Extent { offset: start, mut len, mirror } = extent(first);
    let mut count = 1;
    for request in &requests[1..requests.len().min(MERGED_PARTS_MAX)] {
        let next = extent(request);
        let merged = len.saturating_add(next.len);
        if start.checked_add(len) != Some(next.offset) || merged > MERGED_BYTES_MAX || next.mirror != mirror {
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
    use crate::Op;
    use crate::backends::MemoryDevice;
    use crate::trace::TracingDevice;

    #[test]
    fn neighbours_are_merged_whatever_their_order_and_gaps_are_kept() {
        let device = TracingDevice::recording(MemoryDevice::new(1 << 20));
        let blocks: Vec<[u8; 16]> = (0..8).map(|at| [at; 16]).collect();
        let places = [48, 0, 16, 160, 32, 176, 400, 1000];
        let mut requests: Vec<_> = std::iter::zip(places, &blocks)
            .map(|(offset, bytes)| WriteRequest { offset, bytes, tag: Tag::default() })
            .collect();
        assert!(write_all(&device, &mut requests).is_empty());
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
        assert!(write_all(&device, &mut large).is_empty());
        let lens: Vec<_> = device.take_events().iter().map(|event| event.len).collect();
        assert_eq!(lens, [4 << 20, 4 << 20, 1 << 20]);

        let mut tiny: Vec<_> =
            (0..2500).map(|offset| WriteRequest { offset, bytes: &block[..1], tag: Tag::default() }).collect();
        assert!(write_all(&device, &mut tiny).is_empty());
        let lens: Vec<_> = device.take_events().iter().map(|event| event.len).collect();
        assert_eq!(lens, [1024, 1024, 452]);

        let huge = vec![2; 9 << 20];
        let mut single = vec![WriteRequest { offset: 0, bytes: &huge, tag: Tag::default() }];
        assert!(write_all(&device, &mut single).is_empty());
        assert_eq!(device.take_events().len(), 1);
        assert!(write_all(&device, &mut Vec::new()).is_empty());
        read_all(&device, &mut Vec::new()).unwrap();
        assert_eq!(device.take_events().len(), 0);
    }

    #[test]
    fn a_copy_fails_alone_and_says_which_it_is() {
        let device = TracingDevice::recording(MemoryDevice::new(100));
        let of_mirror = |mirror| Tag { mirror, ..Tag::default() };
        let places = [(0, 0), (10, 1), (95, 1), (20, 0), (200, 2)];
        let mut requests: Vec<_> = places
            .iter()
            .map(|(offset, mirror)| WriteRequest { offset: *offset, bytes: &[7; 10], tag: of_mirror(*mirror) })
            .collect();
        let failed = write_all(&device, &mut requests);
        assert_eq!(failed.iter().map(|failed| failed.tag.mirror).collect::<Vec<_>>(), [1, 2]);
        assert!(failed.iter().all(|failed| matches!(failed.error, Error::OutOfRange { op: Op::Write, .. })));
        // Neighbours of different copies stay apart: an answer is of one copy.
        let asked: Vec<_> = device.take_events().iter().map(|event| (event.offset, event.len)).collect();
        assert_eq!(asked, [(0, 10), (10, 10), (20, 10), (95, 10), (200, 10)]);
        let mut found = [0; 30];
        device.read_at(0, &mut found).unwrap();
        assert_eq!(found, [7; 30]);
    }
}
