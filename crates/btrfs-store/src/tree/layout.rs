//! Reads and writes the fields of a tree block in place.
//!
//! A block stays in memory as its on-disk bytes, so an edit is a few moves of memory and a commit writes those bytes.
//! Offsets and sizes come from the format: a 101-byte header, then 25-byte item headers with their data stacked from
//! the end (leaves), or 33-byte pointers (nodes). Every block in the cache was verified when it was read. Used by the
//! modules of the tree layer.

#![expect(
    clippy::indexing_slicing,
    reason = "places in a block come from its header and items, which the verifier has seen; a panic is our own bug"
)]

use btrfs_disk::Key;
use btrfs_disk::convert::{u32_len, usize_from};

/// Bytes of the header of every tree block.
pub(crate) const HEADER: usize = 101;
/// Bytes of an item header in a leaf.
pub(crate) const ITEM: usize = 25;
/// Bytes of a child pointer in a node.
pub(crate) const PTR: usize = 33;

const CSUM_LEN: usize = 32;
const FSID_AT: usize = CSUM_LEN;
const BYTENR_AT: usize = 48;
const FLAGS_AT: usize = 56;
const CHUNK_UUID_AT: usize = 64;
const GENERATION_AT: usize = 80;
const OWNER_AT: usize = 88;
const NRITEMS_AT: usize = 96;
const LEVEL_AT: usize = 100;

/// Header flag: the block has been written (always set when we write).
pub(crate) const FLAG_WRITTEN: u64 = 1;
/// Header flag: the block belongs to a relocation tree.
pub(crate) const FLAG_RELOC: u64 = 2;
/// Back reference revision in the top byte of the flags: 1, mixed back references.
pub(crate) const BACKREF_REV_MIXED: u64 = 1 << 56;

pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(raw)
}

pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(raw)
}

pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn get_key(bytes: &[u8], at: usize) -> Key {
    Key::new(get_u64(bytes, at), bytes[at + 8], get_u64(bytes, at + 9))
}

pub(crate) fn put_key(bytes: &mut [u8], at: usize, key: &Key) {
    put_u64(bytes, at, key.objectid);
    bytes[at + 8] = key.item_type;
    put_u64(bytes, at + 9, key.offset);
}

pub(crate) fn bytenr(block: &[u8]) -> u64 {
    get_u64(block, BYTENR_AT)
}

pub(crate) fn flags(block: &[u8]) -> u64 {
    get_u64(block, FLAGS_AT)
}

pub(crate) fn set_flags(block: &mut [u8], flags: u64) {
    put_u64(block, FLAGS_AT, flags);
}

pub(crate) fn chunk_tree_uuid(block: &[u8]) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&block[CHUNK_UUID_AT..CHUNK_UUID_AT + 16]);
    uuid
}

pub(crate) fn generation(block: &[u8]) -> u64 {
    get_u64(block, GENERATION_AT)
}

pub(crate) fn owner(block: &[u8]) -> u64 {
    get_u64(block, OWNER_AT)
}

pub(crate) fn level(block: &[u8]) -> u8 {
    block[LEVEL_AT]
}

pub(crate) fn nritems(block: &[u8]) -> usize {
    usize_from(get_u32(block, NRITEMS_AT))
}

pub(crate) fn set_nritems(block: &mut [u8], count: usize) {
    put_u32(block, NRITEMS_AT, u32_len(count));
}

/// The fields of a new block's header.
pub(crate) struct NewHeader {
    pub(crate) at: u64,
    pub(crate) generation: u64,
    pub(crate) owner: u64,
    pub(crate) level: u8,
    pub(crate) fsid: [u8; 16],
    pub(crate) chunk_tree_uuid: [u8; 16],
}

/// Writes the header of an empty block.
pub(crate) fn init(block: &mut [u8], header: &NewHeader) {
    block[..HEADER].fill(0);
    block[FSID_AT..FSID_AT + 16].copy_from_slice(&header.fsid);
    put_u64(block, BYTENR_AT, header.at);
    put_u64(block, FLAGS_AT, FLAG_WRITTEN | BACKREF_REV_MIXED);
    block[CHUNK_UUID_AT..CHUNK_UUID_AT + 16].copy_from_slice(&header.chunk_tree_uuid);
    put_u64(block, GENERATION_AT, header.generation);
    put_u64(block, OWNER_AT, header.owner);
    block[LEVEL_AT] = header.level;
}

/// Makes a copy of a block one of this file system: it may be of a seed.
pub(crate) fn set_fsid(block: &mut [u8], fsid: &[u8; 16]) {
    block[FSID_AT..FSID_AT + 16].copy_from_slice(fsid);
}

/// Turns a copy of a block into another block: new address, generation and owner.
pub(crate) fn readdress(block: &mut [u8], at: u64, generation: u64, owner: u64) {
    put_u64(block, BYTENR_AT, at);
    put_u64(block, GENERATION_AT, generation);
    put_u64(block, OWNER_AT, owner);
    set_flags(block, FLAG_WRITTEN | BACKREF_REV_MIXED);
}

/// The key of an item or pointer.
pub(crate) fn key_at(block: &[u8], slot: usize) -> Key {
    get_key(block, HEADER + slot * stride(block))
}

fn stride(block: &[u8]) -> usize {
    if level(block) == 0 { ITEM } else { PTR }
}

/// Binary search: the slot of `key`, or where it would go.
pub(crate) fn search(block: &[u8], key: &Key) -> Result<usize, usize> {
    let stride = stride(block);
    let (mut low, mut high) = (0, nritems(block));
    while low < high {
        let middle = usize::midpoint(low, high);
        match get_key(block, HEADER + middle * stride).cmp(key) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => return Ok(middle),
        }
    }
    Err(low)
}

/// The child of a node in whose range `key` lies: the last whose key is not above.
pub(crate) fn child_slot(block: &[u8], key: &Key) -> usize {
    match search(block, key) {
        Ok(slot) => slot,
        Err(slot) => slot.saturating_sub(1),
    }
}

/// Number of bytes in a leaf or node for items.
pub(crate) fn capacity(block: &[u8]) -> usize {
    block.len() - HEADER
}

/// Address of the first byte after the header as an index (item offsets count from there).
pub(crate) fn data_at(offset: u32) -> usize {
    HEADER + usize_from(offset)
}

#[cfg(test)]
pub(crate) fn empty_block(size: usize, level: u8) -> Box<[u8]> {
    let mut block = vec![0; size].into_boxed_slice();
    let header = NewHeader { at: 4096, generation: 1, owner: 5, level, fsid: [0; 16], chunk_tree_uuid: [0; 16] };
    init(&mut block, &header);
    block
}
