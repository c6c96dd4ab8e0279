//! Writes the form of QEMU, version 3: clusters of 64 KiB, of which those with data are in the file, in order.
//!
//! ```text
//!  header | L1 table | data clusters (compressed ones packed) | L2 tables | refcount blocks | refcount table
//! ```
//!
//! The header and the L1 table tell where all others are; the L1 table's size follows from the image's. So the data can
//! begin at a known place, a file gets its first clusters last, and a stream is made in two passes.
//!
//! Our own writer, and not the crate `imago` (0.2.6): that one is for images that a machine uses, with a cache of
//! tables, allocation, and storage that is written at any place; here are images that are finished, written once from
//! the beginning to the end, into a pipe too. It has 29 packages in its synchronous variant, and writes no compressed
//! clusters. Compressed clusters are zstd: the older way, deflate with a window of 4 KiB, is in no library that we
//! have.
//!
//! Invariants: no backing file, no snapshots, no dirty bit, every count is exact, so that `qemu-img check` finds no
//! leaks. Failure: sizes beyond 2 PiB are refused. Callers: `write`.

mod map;
mod tables;

use super::compressor::Compressor;
use super::options::Options;
use super::output::{Output, Sink, write_headed};
use super::scan::{Image, Run, Scan};
use super::watch::Watch;
use super::zeros::is_zero;
use super::{Written, ordered};
use crate::{Error, Result};
use map::{Map, Stored};

/// Bytes of a cluster: what `qemu-img` makes.
const CLUSTER_BYTES: usize = 64 * 1024;
/// The same as a number of bytes of a file.
const CLUSTER: u64 = 64 * 1024;
/// Largest image: its L1 table has 32 MiB, which is all that QEMU reads.
const SIZE_MAX: u64 = 1 << 51;

pub(super) fn write(image: Image<'_>, output: Output<'_>, options: &Options<'_>, watch: &Watch<'_>) -> Result<Written> {
    if image.size_bytes > SIZE_MAX {
        return Err(Error::TooLarge { form: "qcow2", max_bytes: SIZE_MAX, size_bytes: image.size_bytes });
    }
    let level = options.compression.level_if_any()?;
    let head_bytes = tables::head_bytes(image.size_bytes);
    let (map, output_bytes) = write_headed(
        output,
        head_bytes,
        watch,
        |sink| {
            let scan = Scan::new(image, CLUSTER_BYTES, watch);
            let map = match level {
                None => write_whole(scan, sink)?,
                Some(level) => write_compressed(scan, level, options, sink)?,
            };
            sink.align(CLUSTER)?;
            tables::write(&map, head_bytes, sink)?;
            Ok(map)
        },
        |map| Ok(tables::head(map, image.size_bytes, level.is_some())),
    )?;
    Ok(Written { output_bytes, data_bytes: map.data_count().saturating_mul(CLUSTER).min(image.size_bytes) })
}

fn write_whole(mut scan: Scan<'_>, sink: &mut Sink<'_>) -> Result<Map> {
    let mut map = Map::default();
    let mut cluster_index = 0;
    while let Some(run) = scan.next()? {
        match run {
            Run::Zeros(len) => cluster_index += len.div_ceil(CLUSTER),
            Run::Data(data) => {
                for _ in data.chunks(CLUSTER_BYTES) {
                    map.add(cluster_index, Stored::Whole);
                    cluster_index += 1;
                }
                sink.write(data)?;
                sink.align(CLUSTER)?;
            }
        }
    }
    Ok(map)
}

/// A cluster on its way through a thread that compresses.
struct Cluster {
    index: u64,
    data: Vec<u8>,
}

fn write_compressed(scan: Scan<'_>, level: i32, options: &Options<'_>, sink: &mut Sink<'_>) -> Result<Map> {
    let mut map = Map::default();
    let mut clusters = Clusters { scan, waiting: Vec::new(), next_index: 0 };
    ordered::run(
        options.threads,
        || Compressor::new(level, false),
        |compressor, mut cluster: Cluster| {
            let frame = compressor.compress(&cluster.data)?;
            let stored = Stored::of_len(frame.len());
            if stored != Stored::Whole {
                cluster.data = frame;
            }
            Ok((cluster, stored))
        },
        || clusters.next(),
        |(cluster, stored)| {
            if stored == Stored::Whole {
                sink.align(CLUSTER)?;
            }
            map.add(cluster.index, stored);
            sink.write(&cluster.data)
        },
    )?;
    Ok(map)
}

/// The clusters with data of an image; the last one is filled up with zeros.
struct Clusters<'a> {
    scan: Scan<'a>,
    /// Clusters of the last run, the next one at the end.
    waiting: Vec<Cluster>,
    next_index: u64,
}

impl Clusters<'_> {
    fn next(&mut self) -> Result<Option<Cluster>> {
        while self.waiting.is_empty() {
            match self.scan.next()? {
                None => return Ok(None),
                Some(Run::Zeros(len)) => self.next_index += len.div_ceil(CLUSTER),
                Some(Run::Data(data)) => {
                    for part in data.chunks(CLUSTER_BYTES) {
                        debug_assert!(!is_zero(part), "the scan tells zeros from data");
                        let mut data = part.to_vec();
                        data.resize(CLUSTER_BYTES, 0);
                        self.waiting.push(Cluster { index: self.next_index, data });
                        self.next_index += 1;
                    }
                    self.waiting.reverse();
                }
            }
        }
        Ok(self.waiting.pop())
    }
}
