//! Iterates over the extents of a range, in order of address. Called by relocation and the rescan of quotas.

use btrfs_disk::flags::ExtentFlags;
use btrfs_disk::items::ExtentView;
use btrfs_disk::key::item_type::{EXTENT_ITEM, METADATA_ITEM};
use btrfs_disk::{At, Key, Logical};

use super::ref_change::ExtentKind;
use crate::Result;
use crate::space::Run;
use crate::tree::{Scan, Tree};

/// Calls `see` for each extent that begins in a range, in order of address, until it returns `Scan::Stop`.
///
/// # Errors
/// `Corrupt` for an item that cannot be read; those of `see`.
pub(crate) fn each_extent(
    tree: &Tree,
    range: Run,
    mut see: impl FnMut(Logical, ExtentKind) -> Result<Scan>,
) -> Result<()> {
    let to = Key::new(range.end().saturating_sub(1), u8::MAX, u64::MAX);
    let mut from = Key::new(range.start, 0, 0);
    let mut found = Vec::new();
    loop {
        // `see` may read trees, so it is called without the lock of a leaf.
        found.clear();
        let mut next = None;
        tree.scan(&from, &to, |key, bytes| {
            if found.len() >= SCANNED_TOGETHER {
                next = Some(*key);
                return Ok(Scan::Stop);
            }
            if !matches!(key.item_type, EXTENT_ITEM | METADATA_ITEM) {
                return Ok(Scan::Continue);
            }
            let view = ExtentView::parse(key, bytes).map_err(|error| error.at(At::Key(tree.id(), *key)))?;
            let is_tree = view.item.extent_flags().contains(ExtentFlags::TREE_BLOCK);
            let kind = match is_tree {
                true => ExtentKind::Tree { level: view.level(key).unwrap_or(u8::MAX) },
                false => ExtentKind::Data { len: key.offset },
            };
            found.push((Logical(key.objectid), kind));
            Ok(Scan::Continue)
        })?;
        for (at, kind) in found.drain(..) {
            if see(at, kind)? == Scan::Stop {
                return Ok(());
            }
        }
        match next {
            Some(key) => from = key,
            None => return Ok(()),
        }
    }
}

/// Extents that are looked up at a time.
const SCANNED_TOGETHER: usize = 256;
