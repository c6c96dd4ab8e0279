//! Repairs checksums of data: removes those without data, and computes missing ones from the present data. Called by
//! `round`.

use std::collections::BTreeMap;

use btrfs_disk::convert::{to_u64, to_usize, u32_len};
use btrfs_disk::flags::InodeFlags;
use btrfs_disk::items::{CsumGeometry, FileExtent, InodeItem, OnDisk as _};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::{Key, Logical, TreeId};

use super::Mending;
use crate::error::{Error, Result};
use crate::pack::OwnedItem;
use crate::space::Ranges;

/// Bytes of data that are read at a time.
const READ_BYTES: u64 = 1 << 20;

/// Makes the checksum tree cover the data that must be covered, and no other.
///
/// # Errors
/// Data that cannot be read.
pub(crate) fn mend(mending: &mut Mending<'_>) -> Result<()> {
    let format = &mending.image.media.format;
    let geometry = CsumGeometry { sectorsize: format.sectorsize, csum_len: u32_len(format.csum_type.len()) };
    let mut data = Ranges::default();
    for (at, facts) in &mending.survey.data {
        data.add(*at, facts.lens.last().copied().unwrap_or(0));
    }
    let needed = needed(mending);
    let (mut kept, mut covered, mut old) = (BTreeMap::new(), Ranges::default(), BTreeMap::new());
    mending.each(TreeId::CSUM, |key, sums| {
        if key.item_type == item_type::EXTENT_CSUM {
            old.insert(*key, sums.to_vec());
        }
    });
    for (key, sums) in &old {
        keep(mending, geometry, (key.offset, sums), (&data, &mut covered, &mut kept));
    }
    for (start, end) in needed.iter() {
        for (from, to) in uncovered(&covered, (start, end)) {
            make(mending, geometry, (from, to), &mut kept)?;
        }
    }
    if mending.is_broken(TreeId::CSUM) {
        let items: Vec<OwnedItem> = kept.into_iter().map(|(at, sums)| (key(at), sums)).collect();
        mending.fresh.insert(TreeId::CSUM, items);
        return Ok(());
    }
    for old in old.keys().filter(|old| !kept.contains_key(&old.offset)) {
        mending.change(TreeId::CSUM, *old, None);
    }
    for (at, sums) in kept {
        if old.get(&key(at)) != Some(&sums) {
            mending.change(TreeId::CSUM, key(at), Some(sums));
        }
    }
    Ok(())
}

fn key(at: u64) -> Key {
    Key::new(objectid::EXTENT_CSUM, item_type::EXTENT_CSUM, at)
}

/// The data of files that must have checksums.
fn needed(mending: &Mending<'_>) -> Ranges {
    let mut needed = Ranges::default();
    for tree in mending.subvolumes() {
        let mut inode = (0, true);
        mending.each(tree, |key, data| match key.item_type {
            item_type::INODE_ITEM => {
                let item = InodeItem::parse(data);
                let is_exempt = item.is_ok_and(|item| item.inode_flags().contains(InodeFlags::NODATASUM));
                inode = (key.objectid, is_exempt);
            }
            item_type::EXTENT_DATA => {
                let Ok(FileExtent::Extent(extent)) = FileExtent::parse(data) else { return };
                let is_exempt = inode.0 == key.objectid && inode.1;
                if let Some((start, end)) = extent.data_range().filter(|_| !is_exempt) {
                    needed.add(start, end.saturating_sub(start));
                }
            }
            _ => {}
        });
    }
    needed
}

/// Keeps the sectors of an item that lie in data and have no checksum so far; of two the right one.
fn keep(
    mending: &Mending<'_>,
    geometry: CsumGeometry,
    (start, sums): (u64, &[u8]),
    (data, covered, kept): (&Ranges, &mut Ranges, &mut BTreeMap<u64, Vec<u8>>),
) {
    let (sector, len) = (u64::from(geometry.sectorsize), btrfs_disk::convert::usize_from(geometry.csum_len));
    let mut run: Option<(u64, Vec<u8>)> = None;
    for (index, sum) in (0u64..).zip(sums.chunks_exact(len.max(1))) {
        let at = start.saturating_add(index.saturating_mul(sector));
        let is_data = data.overlap(at, sector).is_some();
        if is_data && covered.overlap(at, sector).is_none() {
            match &mut run {
                Some((_, bytes)) => bytes.extend_from_slice(sum),
                None => run = Some((at, sum.to_vec())),
            }
            continue;
        }
        if let Some((at, bytes)) = run.take() {
            covered.add(at, geometry.covered_bytes(bytes.len()));
            kept.insert(at, bytes);
        }
        if is_data && matches_data(mending, at, sum) {
            replace(geometry, kept, at, sum);
        }
    }
    if let Some((at, bytes)) = run {
        covered.add(at, geometry.covered_bytes(bytes.len()));
        kept.insert(at, bytes);
    }
}

/// Replaces the checksum of a sector.
fn replace(geometry: CsumGeometry, kept: &mut BTreeMap<u64, Vec<u8>>, at: u64, sum: &[u8]) {
    let Some((start, bytes)) = kept.range_mut(..=at).next_back() else { return };
    let Some(position) = geometry.position(Logical(*start), Logical(at)) else { return };
    if let Some(to) = bytes.get_mut(position..position.saturating_add(sum.len())) {
        to.copy_from_slice(sum);
    }
}

fn matches_data(mending: &Mending<'_>, at: u64, sum: &[u8]) -> bool {
    let media = &mending.image.media;
    let mut sector = vec![0; btrfs_disk::convert::usize_from(media.format.sectorsize)];
    (0..media.copies(at)).any(|mirror| {
        media.read_copy(at, &mut sector, mirror).is_ok()
            && codec::checksum::matches(media.format.csum_type, &sector, sum)
    })
}

/// The parts of a range that are not covered.
fn uncovered(covered: &Ranges, (start, end): (u64, u64)) -> Vec<(u64, u64)> {
    let inside = covered.iter().filter(|(from, to)| *from < end && *to > start);
    crate::space::gaps(
        start,
        end,
        inside.map(|(from, to)| {
            let from = from.max(start);
            (from, to.min(end).saturating_sub(from))
        }),
    )
}

/// Computes checksums of a range of data.
fn make(
    mending: &Mending<'_>,
    geometry: CsumGeometry,
    (start, end): (u64, u64),
    kept: &mut BTreeMap<u64, Vec<u8>>,
) -> Result<()> {
    let media = &mending.image.media;
    let most = geometry.covered_bytes(geometry.item_size_max(media.format.nodesize));
    let step = READ_BYTES.min(most).max(u64::from(geometry.sectorsize));
    let sector = btrfs_disk::convert::usize_from(geometry.sectorsize).max(1);
    let mut at = start;
    while at < end {
        let len = step.min(end.saturating_sub(at));
        let mut data = vec![0; to_usize(len)];
        let is_read = (0..media.copies(at)).any(|mirror| media.read_copy(at, &mut data, mirror).is_ok());
        if !is_read {
            return Err(Error::Beyond(format!("data at {at} cannot be read to make its checksums")));
        }
        let mut sums = vec![0; to_usize(geometry.item_size(to_u64(data.len())))];
        codec::checksum::checksum_many(media.format.csum_type, &data, sector, &mut sums);
        kept.insert(at, sums);
        at = at.saturating_add(len);
    }
    Ok(())
}
