//! Verifies roots and the names of subvolumes. `tree_block` calls it for each such item.

use super::{Context, dir, level, require};
use crate::TreeId;
use crate::error::{Corrupt, Detail};
use crate::flags::RootFlags;
use crate::items::{OnDisk, RootItem, RootRefEntry};

pub(super) fn verify(context: &Context<'_>) -> Result<(), Corrupt> {
    key(context)?;
    let is_legacy = context.data.len() == RootItem::LEGACY_SIZE;
    if !is_legacy {
        let item = RootItem::parse(context.data)?;
        context.generation("second root generation", item.generation_v2.get())?;
    }
    // A read copy: roots are few.
    let item = RootItem::read(context.data)?;
    // A tree's root item changes whenever its root block does.
    let (newest, generation) = (context.block_generation, item.generation.get());
    require(generation <= newest, "root generation", Detail::AtMost(newest), Detail::Number(generation))?;
    context.generation("generation of the last snapshot", item.last_snapshot.get())?;
    context.aligned("root address", item.bytenr.get())?;
    level("root level", u64::from(item.level))?;
    level("level of a deletion", u64::from(item.drop_level))?;
    let flags = item.root_flags();
    require(
        flags.beyond(RootFlags::NAMED).is_none(),
        "root flags",
        Detail::Hex(RootFlags::NAMED.bits()),
        Detail::Hex(flags.bits()),
    )
}

fn key(context: &Context<'_>) -> Result<(), Corrupt> {
    let (id, offset) = (context.key.objectid, context.key.offset);
    require(id != 0, "tree number", Detail::AtLeast(1), Detail::Number(id))?;
    // A relocation tree's key names the tree it stands for: a subvolume, or with older kernels the
    // data relocation tree.
    require(
        TreeId(id) != TreeId::TREE_RELOC || TreeId(offset).is_subvolume() || TreeId(offset) == TreeId::DATA_RELOC,
        "subvolume of a relocation tree",
        Detail::Text("a subvolume's number"),
        Detail::Number(offset),
    )
}

pub(super) fn verify_ref(context: &Context<'_>) -> Result<(), Corrupt> {
    dir::file_name(RootRefEntry::parse(context.data)?.name)
}
