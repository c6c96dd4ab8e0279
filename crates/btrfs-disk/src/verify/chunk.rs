//! Verifies chunks. `tree_block` calls it for each chunk item, `superblock` for the chunks of the system array.

use super::{Context, end, equal, require};
use crate::error::{Corrupt, Detail};
use crate::flags::{BlockGroupFlags, Incompat};
use crate::items::{Chunk, ChunkItem, STRIPE_LEN};
use crate::key::objectid;

/// Chunks from this size on have more stripes than the kernel can count.
const CHUNK_LEN_MAX: u64 = (1 << 48) - STRIPE_LEN;

pub(super) fn verify(context: &Context<'_>) -> Result<(), Corrupt> {
    equal("chunk object id", context.key.objectid, objectid::FIRST_CHUNK_TREE)?;
    check(context, &ChunkItem::parse(context.data)?)
}

/// Checks a chunk that starts at the address in its key's offset.
pub(super) fn check(context: &Context<'_>, item: &ChunkItem<'_>) -> Result<(), Corrupt> {
    let chunk = item.chunk;
    let start = context.key.offset;
    let len = chunk.length.get();
    context.aligned("chunk address", start)?;
    context.aligned("chunk length", len)?;
    require(len > 0 && len < CHUNK_LEN_MAX, "chunk length", Detail::Range(1, CHUNK_LEN_MAX - 1), Detail::Number(len))?;
    end("end of the chunk", start, len)?;
    equal("chunk stripe length", chunk.stripe_len.get(), STRIPE_LEN)?;
    let sector = u64::from(chunk.sector_size.get());
    equal("chunk sector size", sector, u64::from(context.format.sectorsize))?;
    flags(chunk.flags(), context.format.incompat)?;
    stripe_count(chunk)?;
    stripes(item)
}

fn flags(flags: BlockGroupFlags, incompat: Incompat) -> Result<(), Corrupt> {
    let found = Detail::Hex(flags.bits());
    require(
        flags.beyond(BlockGroupFlags::NAMED).is_none(),
        "chunk type",
        Detail::Hex(BlockGroupFlags::NAMED.bits()),
        found,
    )?;
    profile("chunk profile", flags)?;
    let kind = flags & BlockGroupFlags::TYPE_MASK;
    require(!kind.is_empty(), "chunk type", Detail::Text("data, system or metadata"), found)?;
    require(
        !kind.contains(BlockGroupFlags::SYSTEM) || kind == BlockGroupFlags::SYSTEM,
        "chunk type",
        Detail::Text("system alone"),
        found,
    )?;
    require(
        !kind.contains(BlockGroupFlags::MIXED) || incompat.contains(Incompat::MIXED_GROUPS),
        "chunk type",
        Detail::Text("data or metadata, as the feature mixed_groups is off"),
        found,
    )
}

/// At most one profile is named.
pub(super) fn profile(what: &'static str, flags: BlockGroupFlags) -> Result<(), Corrupt> {
    let bits = (flags & BlockGroupFlags::PROFILE_MASK).bits();
    require(bits.count_ones() <= 1, what, Detail::Text("at most one bit"), Detail::Hex(bits))
}

/// The numbers of stripes that each profile allows.
fn stripe_count(chunk: &Chunk) -> Result<(), Corrupt> {
    let count = chunk.num_stripes.get();
    let flags = chunk.flags();
    if flags.contains(BlockGroupFlags::REMAPPED) && count == 0 {
        return Ok(());
    }
    let profile = flags & BlockGroupFlags::PROFILE_MASK;
    let allowed = if profile.is_empty() {
        1..=1
    } else if profile == BlockGroupFlags::DUP || profile == BlockGroupFlags::RAID1 {
        2..=2
    } else if profile == BlockGroupFlags::RAID1C3 {
        3..=3
    } else if profile == BlockGroupFlags::RAID1C4 {
        4..=4
    } else if profile == BlockGroupFlags::RAID0 {
        1..=u16::MAX
    } else if profile == BlockGroupFlags::RAID6 {
        3..=u16::MAX
    } else {
        2..=u16::MAX
    };
    require(
        allowed.contains(&count),
        "number of stripes",
        Detail::Range(u64::from(*allowed.start()), u64::from(*allowed.end())),
        Detail::Number(u64::from(count)),
    )?;
    if profile == BlockGroupFlags::RAID10 {
        equal("number of sub-stripes", u64::from(chunk.sub_stripes.get()), 2)?;
    }
    Ok(())
}

/// Each stripe ends within 64 bits. The chunk map checks stripes against device sizes.
fn stripes(item: &ChunkItem<'_>) -> Result<(), Corrupt> {
    // No stripe is longer than the chunk.
    let len = item.chunk.length.get();
    item.stripes.iter().try_for_each(|stripe| end("end of a stripe", stripe.offset.get(), len).map(drop))
}

/// Checks a chunk item outside of a leaf: one just built, or found by a rescue.
///
/// # Errors
/// [`Corrupt`] naming the first value that is wrong.
pub fn chunk(format: &super::Format, start: crate::Logical, bytes: &[u8]) -> Result<(), Corrupt> {
    let key = crate::Key::new(objectid::FIRST_CHUNK_TREE, crate::key::item_type::CHUNK_ITEM, start.0);
    verify(&Context {
        format,
        generation_max: u64::MAX,
        block_generation: u64::MAX,
        owner: crate::TreeId::CHUNK,
        key,
        data: bytes,
        previous: None,
    })
}
