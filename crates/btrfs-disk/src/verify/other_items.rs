//! Verifies items that are rare and simple; types without a rule pass. `tree_block` calls it for each item that no
//! other module verifies.

use super::{Context, require};
use crate::convert::to_u64;
use crate::error::{Corrupt, Detail};
use crate::flags::Incompat;
use crate::items::{
    DirLogItem, FreeSpaceHeader, OnDisk, QgroupInfoItem, QgroupLimitItem, QgroupStatusItem, VerityDescriptorItem,
};
use crate::key::{item_type, objectid};

/// Bytes of one stride in a RAID_STRIPE item.
const RAID_STRIDE_SIZE: usize = 16;

pub(super) fn verify(context: &Context<'_>) -> Result<(), Corrupt> {
    match context.key.item_type {
        item_type::ORPHAN_ITEM => context.size("size of an orphan item", 0),
        item_type::DIR_LOG_ITEM | item_type::DIR_LOG_INDEX => at_least::<DirLogItem>(context),
        item_type::UUID_KEY_SUBVOL | item_type::UUID_KEY_RECEIVED_SUBVOL => {
            multiple_of(context, "size of a UUID item", 8)
        }
        item_type::QGROUP_STATUS => at_least::<QgroupStatusItem>(context),
        item_type::QGROUP_INFO => at_least::<QgroupInfoItem>(context),
        item_type::QGROUP_LIMIT => at_least::<QgroupLimitItem>(context),
        item_type::QGROUP_RELATION => context.size("size of a quota relation", 0),
        item_type::VERITY_DESC_ITEM if context.key.offset == 0 => at_least::<VerityDescriptorItem>(context),
        item_type::RAID_STRIPE => raid_stripe(context),
        0 if context.key.objectid == objectid::FREE_SPACE => at_least::<FreeSpaceHeader>(context),
        _ => Ok(()),
    }
}

/// The size of these items has grown before and may again.
fn at_least<T: OnDisk>(context: &Context<'_>) -> Result<(), Corrupt> {
    T::parse_prefix(context.data).map(drop)
}

fn multiple_of(context: &Context<'_>, what: &'static str, size: usize) -> Result<(), Corrupt> {
    require(
        context.data.len().is_multiple_of(size),
        what,
        Detail::MultipleOf(to_u64(size)),
        Detail::size(context.data.len()),
    )
}

fn raid_stripe(context: &Context<'_>) -> Result<(), Corrupt> {
    require(
        context.format.incompat.contains(Incompat::RAID_STRIPE_TREE),
        "item type",
        Detail::Text("no RAID_STRIPE, as the feature raid_stripe_tree is off"),
        context.key.into(),
    )?;
    context.aligned("address of a RAID stripe", context.key.objectid)?;
    multiple_of(context, "size of a RAID stripe item", RAID_STRIDE_SIZE)
}
