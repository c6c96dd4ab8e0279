//! Verifies superblocks. The module `superblock` of this crate calls it when one is read, and before one is written.

use codec::ChecksumType;
use zerocopy::IntoBytes;

use super::{Context, Format, chunk, equal, level, require};
use crate::convert::to_u64;
use crate::disk_superblock::{DiskSuperblock, MAGIC, SYSTEM_CHUNK_ARRAY_SIZE};
use crate::error::{At, Corrupt, Detail};
use crate::flags::BlockGroupFlags;
use crate::items::system_chunks;
use crate::key::{item_type, objectid};
use crate::node::CSUM_FIELD_SIZE;
use crate::{Key, TreeId};

/// Sector and node sizes are powers of two in this range.
const BLOCK_SIZE_MIN: u32 = 4096;
const BLOCK_SIZE_MAX: u32 = 65536;

/// Trees that even an empty file system has: fewer used bytes are invalid.
const TREES_MIN: u64 = 6;

/// Checks a superblock that was read from byte `offset` of a device.
///
/// # Errors
/// [`Corrupt`] naming the first value that is wrong.
pub fn superblock(fields: &DiskSuperblock, offset: u64) -> Result<ChecksumType, Corrupt> {
    let at = At::Superblock(offset);
    let csum_type = identity(fields).map_err(|error| error.at(at))?;
    let (_, body) = fields.as_bytes().split_at(CSUM_FIELD_SIZE);
    if !codec::checksum::matches(csum_type, body, &fields.csum) {
        let expected = codec::checksum::checksum(csum_type, body);
        return Err(Corrupt::new(
            "superblock checksum",
            Detail::csum(csum_type, &expected),
            Detail::csum(csum_type, &fields.csum),
        )
        .at(at));
    }
    superblock_fields(fields, offset)
}

/// Checks everything but the checksum of a superblock that lies, or is about to lie, at byte
/// `offset` of a device.
///
/// # Errors
/// [`Corrupt`] naming the first value that is wrong.
pub fn superblock_fields(fields: &DiskSuperblock, offset: u64) -> Result<ChecksumType, Corrupt> {
    check(fields, offset).map_err(|error| error.at(At::Superblock(offset)))
}

fn check(fields: &DiskSuperblock, offset: u64) -> Result<ChecksumType, Corrupt> {
    let csum_type = identity(fields)?;
    equal("superblock address", fields.bytenr.get(), offset)?;
    sizes(fields)?;
    roots(fields)?;
    let fsid = fields.tree_fsid();
    require(
        fsid == fields.dev_item.fsid,
        "file system UUID of the device",
        Detail::Uuid(fsid.0),
        Detail::Uuid(fields.dev_item.fsid.0),
    )?;
    let devices = fields.num_devices.get();
    require(devices > 0, "number of devices", Detail::AtLeast(1), Detail::Number(devices))?;
    let total = fields.total_bytes.get();
    require(total > 0, "total bytes", Detail::AtLeast(1), Detail::Number(total))?;
    let used = fields.bytes_used.get();
    let used_min = TREES_MIN * u64::from(fields.nodesize.get());
    require(used >= used_min, "bytes used", Detail::AtLeast(used_min), Detail::Number(used))?;
    system_array(fields)?;
    Ok(csum_type)
}

fn identity(fields: &DiskSuperblock) -> Result<ChecksumType, Corrupt> {
    let magic = fields.magic.get();
    require(magic == MAGIC, "superblock magic", Detail::Hex(MAGIC), Detail::Hex(magic))?;
    let raw = fields.csum_type.get();
    ChecksumType::from_raw(raw)
        .ok_or_else(|| Corrupt::new("checksum type", Detail::AtMost(3), Detail::Number(u64::from(raw))))
}

fn sizes(fields: &DiskSuperblock) -> Result<(), Corrupt> {
    let (sector, node) = (fields.sectorsize.get(), fields.nodesize.get());
    power_of_two("sector size", sector, BLOCK_SIZE_MIN)?;
    power_of_two("node size", node, sector)?;
    equal("leaf size", u64::from(fields.leafsize.get()), u64::from(node))?;
    let stripe = fields.stripesize.get();
    require(stripe.is_power_of_two(), "stripe size", Detail::Text("a power of two"), Detail::Number(u64::from(stripe)))
}

fn power_of_two(what: &'static str, size: u32, min: u32) -> Result<(), Corrupt> {
    require(size.is_power_of_two(), what, Detail::Text("a power of two"), Detail::Number(u64::from(size)))?;
    require(
        (min..=BLOCK_SIZE_MAX).contains(&size),
        what,
        Detail::Range(u64::from(min), u64::from(BLOCK_SIZE_MAX)),
        Detail::Number(u64::from(size)),
    )
}

fn roots(fields: &DiskSuperblock) -> Result<(), Corrupt> {
    level("level of the root tree", u64::from(fields.root_level))?;
    level("level of the chunk tree", u64::from(fields.chunk_root_level))?;
    level("level of the log tree", u64::from(fields.log_root_level))?;
    let sector = u64::from(fields.sectorsize.get());
    let roots = [
        ("address of the root tree", fields.root),
        ("address of the chunk tree", fields.chunk_root),
        ("address of the log tree", fields.log_root),
    ];
    for (what, at) in roots {
        let at = at.get();
        require(at.is_multiple_of(sector), what, Detail::MultipleOf(sector), Detail::Number(at))?;
    }
    Ok(())
}

/// The chunks that map the chunk tree: the only ones that no tree block contains.
fn system_array(fields: &DiskSuperblock) -> Result<(), Corrupt> {
    let used = u64::from(fields.sys_chunk_array_size.get());
    // One key, one chunk, one stripe.
    let range = 97..=to_u64(SYSTEM_CHUNK_ARRAY_SIZE);
    require(
        range.contains(&used),
        "size of the system chunk array",
        Detail::Range(*range.start(), *range.end()),
        Detail::Number(used),
    )?;
    let Some(format) = Format::of(fields) else {
        return Ok(());
    };
    for entry in system_chunks(fields.system_chunk_bytes()) {
        let (key, item) = entry?;
        system_chunk_key(&key)?;
        let context = Context {
            format: &format,
            generation_max: u64::MAX,
            block_generation: u64::MAX,
            owner: TreeId::CHUNK,
            key,
            data: &[],
            previous: None,
        };
        chunk::check(&context, &item)?;
        require(
            item.chunk.flags().contains(BlockGroupFlags::SYSTEM),
            "type of a system chunk",
            Detail::Hex(BlockGroupFlags::SYSTEM.bits()),
            Detail::Hex(item.chunk.chunk_type.get()),
        )?;
    }
    Ok(())
}

fn system_chunk_key(key: &Key) -> Result<(), Corrupt> {
    let expected = Key::new(objectid::FIRST_CHUNK_TREE, item_type::CHUNK_ITEM, key.offset);
    require(*key == expected, "key of a system chunk", expected.into(), (*key).into())
}
