//! Repairs file extents with a wrong length of their extent. Called by `round`.

use std::collections::BTreeMap;

use btrfs_disk::Key;
use btrfs_disk::items::{FileExtent, OnDisk as _};
use btrfs_disk::key::item_type;

use super::Mending;
use crate::error::Result;
use crate::extents::data_len;
use crate::survey::is_of_files;

/// Sets the length in all file extents of an extent with a known length.
///
/// # Errors
/// Where files disagree, and no extent item decides.
pub(crate) fn mend(mending: &mut Mending<'_>) -> Result<()> {
    let survey = mending.survey;
    let mut wrong: BTreeMap<u64, u64> = BTreeMap::new();
    for (at, facts) in &survey.data {
        let len = data_len(*at, facts, survey.old.get(at))?;
        if facts.lens.iter().any(|other| *other != len) {
            wrong.insert(*at, len);
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    for root in &survey.roots {
        let tree = btrfs_disk::TreeId(root.key.objectid);
        if !is_of_files(tree) {
            continue;
        }
        let mut changes: Vec<(Key, Vec<u8>)> = Vec::new();
        mending.each(tree, |key, data| {
            if key.item_type != item_type::EXTENT_DATA {
                return;
            }
            let Ok(FileExtent::Extent(extent)) = FileExtent::parse(data) else { return };
            let Some(len) = wrong.get(&extent.disk_bytenr.get()).filter(|len| **len != extent.disk_num_bytes.get())
            else {
                return;
            };
            let mut extent = *extent;
            if extent.head.compression == 0 && extent.head.ram_bytes == extent.disk_num_bytes {
                extent.head.ram_bytes = (*len).into();
            }
            extent.disk_num_bytes = (*len).into();
            changes.push((*key, extent.bytes().to_vec()));
        });
        for (key, data) in changes {
            mending.change(tree, key, Some(data));
        }
    }
    Ok(())
}
