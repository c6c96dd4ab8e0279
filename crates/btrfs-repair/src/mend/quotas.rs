//! Repairs quotas: adds missing groups, limits and relations, removes relations of groups that do not exist, and marks
//! the numbers as inconsistent, so that a rescan counts them again. Called by `round`.

use std::collections::BTreeSet;

use btrfs_disk::flags::QgroupStatusFlags;
use btrfs_disk::items::{OnDisk as _, QgroupInfoItem, QgroupLimitItem, QgroupStatusItem};
use btrfs_disk::key::item_type;
use btrfs_disk::{Key, QgroupId, TreeId};
use zerocopy::FromZeros as _;

use super::Mending;

/// Repairs the quota tree as above; changes nothing if it has no status item.
pub(crate) fn mend(mending: &mut Mending<'_>) {
    let (mut groups, mut limits) = (BTreeSet::new(), BTreeSet::new());
    let mut relations: BTreeSet<(u64, u64)> = BTreeSet::new();
    let mut status: Option<(Key, Vec<u8>)> = None;
    mending.each(TreeId::QUOTA, |key, data| match key.item_type {
        item_type::QGROUP_STATUS => status = Some((*key, data.to_vec())),
        item_type::QGROUP_INFO => drop(groups.insert(key.offset)),
        item_type::QGROUP_LIMIT => drop(limits.insert(key.offset)),
        item_type::QGROUP_RELATION => drop(relations.insert((key.objectid, key.offset))),
        _ => {}
    });
    let Some((key, mut bytes)) = status else { return };
    for tree in mending.subvolumes() {
        let id = QgroupId::of(tree).0;
        if groups.insert(id) {
            let info = QgroupInfoItem { generation: mending.image.generation().into(), ..QgroupInfoItem::new_zeroed() };
            mending.change(TreeId::QUOTA, Key::new(0, item_type::QGROUP_INFO, id), Some(info.bytes().to_vec()));
        }
        if limits.insert(id) {
            let limit = QgroupLimitItem::new_zeroed().bytes().to_vec();
            mending.change(TreeId::QUOTA, Key::new(0, item_type::QGROUP_LIMIT, id), Some(limit));
        }
    }
    for (a, b) in &relations {
        if !groups.contains(a) || !groups.contains(b) {
            mending.change(TreeId::QUOTA, Key::new(*a, item_type::QGROUP_RELATION, *b), None);
        } else if !relations.contains(&(*b, *a)) {
            mending.change(TreeId::QUOTA, Key::new(*b, item_type::QGROUP_RELATION, *a), Some(Vec::new()));
        }
    }
    if let Ok((item, _)) = QgroupStatusItem::parse_prefix(&bytes) {
        let flags = item.status_flags() | QgroupStatusFlags::INCONSISTENT;
        let item = QgroupStatusItem { flags: flags.bits().into(), ..*item };
        bytes.splice(..item.bytes().len(), item.bytes().iter().copied());
        mending.change(TreeId::QUOTA, key, Some(bytes));
    }
}
