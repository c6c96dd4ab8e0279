//! Finds the files with lost data, in all subvolumes and snapshots. Called by `run`.

use std::ffi::OsString;
use std::path::PathBuf;

use btrfs_disk::items::FileExtent;
use btrfs_disk::key::item_type::EXTENT_DATA;
use btrfs_disk::{InodeNo, Key, TreeId};
use btrfs_store::Scan;
use portable::OsStringExt as _;

use super::report::{LostRange, ScrubReport};
use crate::dir::Namespace;
use crate::error::Result;
use crate::subvol;

/// The parts of files that lie in these ranges.
pub(crate) fn files_with(names: &Namespace, ranges: &[(u64, u64)]) -> Vec<LostRange> {
    let (mut sorted, mut report) = (ranges.to_vec(), ScrubReport::default());
    sorted.sort_unstable();
    find(names, &sorted, &mut report);
    report.lost
}

/// Finds the files of these places of data, sorted, each with its bytes.
pub(super) fn find(names: &Namespace, lost: &[(u64, u64)], report: &mut ScrubReport) {
    if lost.is_empty() {
        return;
    }
    let mut ids = Vec::new();
    let listed = subvol::for_each_root(names, |id, item| ids.extend((item.refs.get() > 0).then_some(id)));
    if listed.is_err() {
        report.unreadable.push(TreeId::ROOT.0);
    }
    for id in ids {
        if in_subvolume(names, id, lost, &mut report.lost).is_err() {
            report.unreadable.push(id.0);
        }
    }
    for range in &mut report.lost {
        // Where a directory on the path is damaged, only numbers are reported.
        let path = subvol::path_of_inode(names, TreeId(range.subvolume), InodeNo(range.inode)).ok().flatten();
        range.path = path.map(|path| PathBuf::from(OsString::from_vec(path)));
    }
    report.lost.sort();
}

fn in_subvolume(names: &Namespace, id: TreeId, lost: &[(u64, u64)], found: &mut Vec<LostRange>) -> Result<()> {
    let tree = names.core.store.tree(id)?;
    tree.scan(&Key::MIN, &Key::MAX, |key, bytes| {
        if key.item_type != EXTENT_DATA {
            return Ok(Scan::Continue);
        }
        let FileExtent::Extent(item) = FileExtent::parse(bytes)? else { return Ok(Scan::Continue) };
        let Some(part) = item.data_range() else { return Ok(Scan::Continue) };
        let is_plain = item.head.compression == 0;
        let first = lost.partition_point(|(at, len)| at.saturating_add(*len) <= part.0);
        for (at, len) in lost.get(first..).unwrap_or_default().iter().take_while(|(at, _)| *at < part.1) {
            // A compressed extent is lost as a whole.
            let (offset, len) = match is_plain {
                true => {
                    let start = (*at).max(part.0);
                    let end = at.saturating_add(*len).min(part.1);
                    (key.offset.saturating_add(start.saturating_sub(part.0)), end.saturating_sub(start))
                }
                false => (key.offset, item.num_bytes.get()),
            };
            push(found, LostRange { subvolume: id.0, inode: key.objectid, path: None, offset, len });
        }
        Ok(if found.len() >= ScrubReport::LOST_MAX { Scan::Stop } else { Scan::Continue })
    })?;
    Ok(())
}

/// Adds a range, or extends the one before.
fn push(found: &mut Vec<LostRange>, range: LostRange) {
    if let Some(last) = found.last_mut() {
        let is_same = (last.subvolume, last.inode) == (range.subvolume, range.inode);
        let end = last.offset.saturating_add(last.len);
        if is_same && last.offset <= range.offset && range.offset <= end {
            last.len = last.len.max(range.offset.saturating_add(range.len).saturating_sub(last.offset));
            return;
        }
    }
    found.push(range);
}
