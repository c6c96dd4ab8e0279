//! Makes the header and the tables of a qcow2 file from the map of its clusters. Called by `qcow2`.
//!
//! All numbers are big-endian. The layout is that of `docs/interop/qcow2.rst` of QEMU.

use super::super::output::Sink;
use super::map::{GROUP_CLUSTERS, Map, Place};
use super::{CLUSTER, CLUSTER_BYTES};
use crate::Result;
use crate::number::{at_most, up};

/// Marks the file: `QFI` and a byte that is no letter.
const MAGIC: u32 = 0x5146_49fb;
/// Bytes of the header, the kind of compression and its padding included.
const HEADER_BYTES: u32 = 112;
/// Incompatible feature: clusters are compressed in another way than deflate.
const COMPRESSION_BIT: u64 = 1 << 3;
/// The kind of compression of zstd.
const ZSTD: u8 = 1;
/// In L1 and L2 entries: the cluster has one user.
const COPIED: u64 = 1 << 63;
/// In L2 entries: the cluster is compressed.
const COMPRESSED: u64 = 1 << 62;
/// In L2 entries of compressed clusters: where the number of sectors begins.
const SECTORS_SHIFT: u32 = 54;
/// Sectors in which compressed data is counted.
const SECTOR: u64 = 512;
/// References in a refcount block: two bytes each.
const BLOCK_COUNTS: u64 = CLUSTER / 2;

/// Bytes before the data: the header and the L1 table.
pub(super) fn head_bytes(size_bytes: u64) -> u64 {
    CLUSTER + up(l1_count(size_bytes) * 8, CLUSTER).unwrap_or(CLUSTER)
}

fn l1_count(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(CLUSTER * GROUP_CLUSTERS)
}

/// Where the tables behind the data are, in clusters.
struct Tables {
    l2_at: u64,
    blocks_at: u64,
    refcount_table_at: u64,
    refcount_table_count: u64,
    end_at: u64,
}

impl Tables {
    /// The counts count their own blocks, so their number is found by trying: it only grows, and stops soon since one
    /// block counts thousands.
    fn of(map: &Map, head_bytes: u64) -> Self {
        let l2_at = map.end(head_bytes) / CLUSTER;
        let blocks_at = l2_at + map.group_count();
        let mut end_at = blocks_at;
        loop {
            let block_count = end_at.div_ceil(BLOCK_COUNTS);
            let refcount_table_count = (block_count * 8).div_ceil(CLUSTER);
            let refcount_table_at = blocks_at + block_count;
            let needed = refcount_table_at + refcount_table_count;
            if needed == end_at {
                return Self { l2_at, blocks_at, refcount_table_at, refcount_table_count, end_at };
            }
            end_at = needed;
        }
    }
}

/// The clusters before the data.
pub(super) fn head(map: &Map, size_bytes: u64, is_compressed: bool) -> Vec<u8> {
    let head_bytes = head_bytes(size_bytes);
    let tables = Tables::of(map, head_bytes);
    let l1_count = l1_count(size_bytes);
    let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    let mut head = Vec::new();
    head.extend(MAGIC.to_be_bytes());
    head.extend(3_u32.to_be_bytes());
    // No backing file.
    head.extend([0; 12]);
    head.extend(CLUSTER_BYTES.trailing_zeros().to_be_bytes());
    // QEMU counts in sectors, and would cut a part of one.
    head.extend(up(size_bytes, SECTOR).unwrap_or(size_bytes).to_be_bytes());
    // No encryption.
    head.extend([0; 4]);
    head.extend(short(l1_count));
    head.extend(CLUSTER.to_be_bytes());
    head.extend((tables.refcount_table_at * CLUSTER).to_be_bytes());
    head.extend(short(tables.refcount_table_count));
    // No snapshots.
    head.extend([0; 12]);
    head.extend(if is_compressed { COMPRESSION_BIT } else { 0 }.to_be_bytes());
    // No compatible and no automatically cleared features.
    head.extend([0; 16]);
    // References have 2^4 bits.
    head.extend(4_u32.to_be_bytes());
    head.extend(HEADER_BYTES.to_be_bytes());
    head.extend([if is_compressed { ZSTD } else { 0 }, 0, 0, 0, 0, 0, 0, 0]);
    head.resize(CLUSTER_BYTES, 0);
    let mut groups = (0..).zip(map.groups()).peekable();
    for index in 0..l1_count {
        let table = groups.next_if(|(_, group)| *group == index);
        let entry = table.map_or(0, |(rank, _): (u64, u64)| ((tables.l2_at + rank) * CLUSTER) | COPIED);
        head.extend(entry.to_be_bytes());
    }
    head.resize(at_most(head_bytes, usize::MAX), 0);
    head
}

/// Writes the tables behind the data.
pub(super) fn write(map: &Map, head_bytes: u64, sink: &mut Sink<'_>) -> Result<()> {
    let tables = Tables::of(map, head_bytes);
    debug_assert_eq!(sink.at(), tables.l2_at * CLUSTER, "the data ends where the map says");
    write_l2(map, head_bytes, sink)?;
    write_refcounts(map, head_bytes, &tables, sink)?;
    for block_at in tables.blocks_at..tables.refcount_table_at {
        sink.write(&(block_at * CLUSTER).to_be_bytes())?;
    }
    sink.align(CLUSTER)?;
    debug_assert_eq!(sink.at(), tables.end_at * CLUSTER, "the tables end where the first of them says");
    Ok(())
}

fn write_l2(map: &Map, head_bytes: u64, sink: &mut Sink<'_>) -> Result<()> {
    let mut places = map.places(head_bytes).peekable();
    for group in map.groups() {
        let mut next_index = group * GROUP_CLUSTERS;
        let end = next_index + GROUP_CLUSTERS;
        while let Some(place) = places.next_if(|place| place.cluster_index < end) {
            sink.write_zeros((place.cluster_index - next_index) * 8)?;
            sink.write(&l2_entry(place).to_be_bytes())?;
            next_index = place.cluster_index + 1;
        }
        sink.write_zeros((end - next_index) * 8)?;
    }
    Ok(())
}

fn l2_entry(place: Place) -> u64 {
    if !place.is_compressed {
        return place.at | COPIED;
    }
    // Sectors behind the one in which the data begins.
    let sectors = (place.at + place.len_bytes - 1) / SECTOR - place.at / SECTOR;
    COMPRESSED | sectors << SECTORS_SHIFT | place.at
}

fn write_refcounts(map: &Map, head_bytes: u64, tables: &Tables, sink: &mut Sink<'_>) -> Result<()> {
    let data_at = head_bytes / CLUSTER;
    let shared = shared_counts(map, head_bytes);
    for cluster in 0..tables.end_at {
        let of_data = cluster.checked_sub(data_at).and_then(|index| usize::try_from(index).ok());
        let count = of_data.and_then(|index| shared.get(index)).copied().unwrap_or(1);
        sink.write(&count.to_be_bytes())?;
    }
    sink.align(CLUSTER)
}

/// How many compressed clusters touch each cluster of the file from the data on; empty if none is compressed.
fn shared_counts(map: &Map, head_bytes: u64) -> Vec<u16> {
    if map.is_whole() {
        return Vec::new();
    }
    let mut counts = vec![0_u16; at_most((map.end(head_bytes) - head_bytes) / CLUSTER, usize::MAX)];
    for place in map.places(head_bytes) {
        let first = (place.at - head_bytes) / CLUSTER;
        let last = (place.at + place.len_bytes - 1 - head_bytes) / CLUSTER;
        for index in first..=last {
            if let Some(count) = usize::try_from(index).ok().and_then(|index| counts.get_mut(index)) {
                *count = count.saturating_add(1);
            }
        }
    }
    counts
}

const _: () = assert!(CLUSTER_BYTES.is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_count_themselves() {
        let mut map = Map::default();
        // The header, the L1 table, data, an L2 table for each of these clusters, and exactly one refcount block.
        for index in 0..16_380 {
            map.add(index * GROUP_CLUSTERS, super::super::map::Stored::Whole);
        }
        let tables = Tables::of(&map, 2 * CLUSTER);
        assert_eq!(tables.blocks_at, 2 + 2 * 16_380);
        assert_eq!(tables.refcount_table_at - tables.blocks_at, 1);
        assert_eq!(tables.end_at, 32_764);
        assert_eq!(crate::number::bytes(CLUSTER_BYTES), CLUSTER);
    }
}
