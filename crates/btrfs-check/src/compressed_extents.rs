//! Checks whether compressed extents decompress, by the rules of readers. Called by `files/scan` and `run`.
//!
//! An inline extent is decompressed when its inode is checked. Regular extents are read once each, in the order of
//! their addresses, when all data is read; extents of which no copy has the right checksums are reported by `data`.

use std::io;
use std::sync::Mutex;

use btrfs_disk::convert::{to_u64, to_usize, usize_from};
use btrfs_disk::items::{FileExtentHead, FileExtentItem};
use btrfs_disk::verify::INLINE_LEN_MAX;
use codec::CompressionType;
use codec::compress::{Form, decompress};

use crate::code::Code;
use crate::context::Context;
use crate::finding::Place;
use crate::sort::{Record, Sorter, lock};
use crate::threads::in_threads;

/// Compressed extents: address, size on disk, size of the contents, compression, tree, inode.
pub(crate) type Streams = Sorter<6>;

/// Longest extent, before and after compression, that kernels write and readers accept.
const EXTENT_BYTES_MAX: u64 = 128 << 10;
/// Extents that a thread decompresses as one job.
const BATCH: usize = 32;

/// The record of a regular extent to decompress; `None` if it is not compressed.
pub(crate) fn record(item: &FileExtentItem, (tree, inode): (u64, u64)) -> Option<Record<6>> {
    let compression = item.head.compression;
    let is_read = compression != 0 && !item.is_hole() && !item.is_prealloc();
    let (at, disk_len) = (item.disk_bytenr.get(), item.disk_num_bytes.get());
    is_read.then(|| [at, disk_len, item.head.ram_bytes.get(), compression.into(), tree, inode])
}

/// Why the `data` of an inline extent cannot be decompressed.
pub(crate) fn inline_problem(cx: &Context<'_>, head: &FileExtentHead, data: &[u8]) -> Option<String> {
    if head.compression == 0 {
        return None;
    }
    let len = head.ram_bytes.get();
    if len > INLINE_LEN_MAX {
        return Some(format!("a length of {len} bytes, more than {INLINE_LEN_MAX}"));
    }
    let form = Form::inline(usize_from(cx.media.format.sectorsize));
    problem(head.compression.into(), data, form, len)
}

/// Why a regular extent cannot be decompressed, judged by its item alone.
pub(crate) fn length_problem(item: &FileExtentItem) -> Option<(u64, u64)> {
    let longest = item.disk_num_bytes.get().max(item.head.ram_bytes.get());
    let is_read = item.head.compression != 0 && !item.is_hole() && !item.is_prealloc();
    (is_read && longest > EXTENT_BYTES_MAX).then_some((EXTENT_BYTES_MAX, longest))
}

fn problem(compression: u64, stored: &[u8], form: Form, len: u64) -> Option<String> {
    let Some(kind) = u8::try_from(compression).ok().and_then(CompressionType::from_raw) else {
        return Some(format!("compression {compression}"));
    };
    decompress(kind, stored, form, to_usize(len)).err().map(|error| error.to_string())
}

/// Reads all recorded extents. Extents that touch the sorted `bad` ranges are skipped: `data` reports them.
///
/// # Errors
/// I/O errors of the temporary file with the records that do not fit into memory.
pub(crate) fn check(cx: &Context<'_>, streams: Streams, bad: &[(u64, u64)]) -> io::Result<()> {
    let sorted = streams.finish()?;
    let next = Mutex::new((sorted.iter(), None::<[u64; 4]>));
    in_threads(cx.threads, || {
        let mut batch: Vec<Record<6>> = Vec::with_capacity(BATCH);
        loop {
            batch.clear();
            let mut next = lock(&next);
            let (records, last) = &mut *next;
            while batch.len() < BATCH {
                let Some(record) = records.next() else { break };
                let [at, disk_len, ram_len, compression, ..] = record;
                let extent = [at, disk_len, ram_len, compression];
                // Files that share an extent share its fault.
                if last.replace(extent) != Some(extent) {
                    batch.push(record);
                }
            }
            drop(next);
            if batch.is_empty() {
                return;
            }
            batch.iter().for_each(|record| check_extent(cx, record, bad));
        }
    });
    Ok(())
}

fn check_extent(cx: &Context<'_>, &[at, disk_len, ram_len, compression, tree, inode]: &Record<6>, bad: &[(u64, u64)]) {
    let end = at.saturating_add(disk_len);
    let first = bad.partition_point(|(_, behind)| *behind <= at);
    let is_bad = bad.get(first).is_some_and(|(start, _)| *start < end);
    if is_bad || disk_len.max(ram_len) > EXTENT_BYTES_MAX {
        return;
    }
    let form = Form::regular(usize_from(cx.media.format.sectorsize));
    let mut stored = vec![0; to_usize(disk_len)];
    let mut found = None;
    for mirror in cx.media.ways(at, stored.len()) {
        if cx.media.read_copy(at, &mut stored, mirror).is_err() {
            continue;
        }
        cx.watch.add_bytes(disk_len);
        found = problem(compression, &stored, form, ram_len);
        if found.is_none() {
            return;
        }
    }
    if let Some(found) = found {
        let place = Place::inode(tree, inode).at(at);
        let expected = format!("{} bytes that decompress to {ram_len}", to_u64(stored.len()));
        cx.findings.add(Code::DataStream, place, expected, found);
    }
}
