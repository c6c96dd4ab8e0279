//! Decides whether the free space of a group is kept as extents or as bitmaps: the smaller form is used, as in the
//! kernel. Pure. Called by `free_space_tree`.

use btrfs_disk::Key;
use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::flags::FreeSpaceFlags;
use btrfs_disk::items::{bitmap_set, bitmap_size};
use btrfs_disk::key::item_type::FREE_SPACE_BITMAP;

use super::free_map::Run;

/// Sectors of a bitmap, one bit each.
const BITMAP_SECTORS: u64 = 256 * 8;
/// Bytes of an item's header in a leaf.
const ITEM_BYTES: u64 = 25;
/// How far the number of extents must fall below the limit before bitmaps are given up again.
const EXTENTS_BETWEEN: u64 = 100;

/// The form for the free space of a group with `extents` free extents, whose present form is `now`.
pub(super) fn wanted(group: Run, sector: u64, extents: u64, now: FreeSpaceFlags) -> FreeSpaceFlags {
    let bitmaps = group.len.div_ceil(BITMAP_SECTORS * sector);
    let extents_max = bitmaps * (ITEM_BYTES + to_u64(bitmap_size(BITMAP_SECTORS, 1))) / ITEM_BYTES;
    match now.contains(FreeSpaceFlags::USING_BITMAPS) {
        false if extents > extents_max => now | FreeSpaceFlags::USING_BITMAPS,
        true if extents < extents_max.saturating_sub(EXTENTS_BETWEEN) => now - FreeSpaceFlags::USING_BITMAPS,
        _ => now,
    }
}

/// The bitmaps of a group with these free runs, which lie in it.
pub(super) fn bitmaps_of(group: Run, sector: u64, free: impl Iterator<Item = Run>) -> Vec<(Key, Vec<u8>)> {
    let len_max = BITMAP_SECTORS * sector;
    let count = group.len.div_ceil(len_max);
    let mut bitmaps: Vec<(Key, Vec<u8>)> = (0..count)
        .map(|number| {
            let start = group.start + number * len_max;
            let len = len_max.min(group.end() - start);
            (Key::new(start, FREE_SPACE_BITMAP, len), vec![0; bitmap_size(len / sector, 1)])
        })
        .collect();
    for run in free {
        let (first, last) = ((run.start - group.start) / len_max, (run.end() - 1 - group.start) / len_max);
        for (key, bitmap) in bitmaps.iter_mut().skip(to_usize(first)).take(to_usize(last - first) + 1) {
            let start = run.start.max(key.objectid) - key.objectid;
            let end = run.end().min(key.objectid + key.offset) - key.objectid;
            for bit in start / sector..end / sector {
                bitmap_set(bitmap, bit, true);
            }
        }
    }
    bitmaps
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn as_many_extents_are_kept_as_take_less_than_bitmaps() {
        let (extents, bitmaps) = (FreeSpaceFlags::empty(), FreeSpaceFlags::USING_BITMAPS);
        let group = Run { start: 0, len: 1 << 30 };
        // 128 bitmaps of 281 bytes with their item.
        for (count, now, then) in [
            (1438, extents, extents),
            (1439, extents, bitmaps),
            (1439, bitmaps, bitmaps),
            (1338, bitmaps, bitmaps),
            (1337, bitmaps, extents),
        ] {
            assert_eq!(wanted(group, 4096, count, now), then, "{count} {now:?}");
        }
        let small = Run { start: 0, len: 8 * MIB };
        assert_eq!(wanted(small, 4096, 12, extents), bitmaps);
        assert_eq!(wanted(small, 4096, 0, bitmaps), bitmaps, "as many as the kernel leaves");
    }

    #[test]
    fn bitmaps_say_what_is_free() {
        let group = Run { start: 100 * MIB, len: 20 * MIB };
        let free = [
            Run { start: 100 * MIB, len: 4096 },
            Run { start: 107 * MIB, len: 2 * MIB },
            Run { start: 120 * MIB - 4096, len: 4096 },
        ];
        let bitmaps = bitmaps_of(group, 4096, free.into_iter());
        let keys: Vec<_> = bitmaps.iter().map(|(key, bytes)| (key.objectid, key.offset, bytes.len())).collect();
        assert_eq!(keys, [(100 * MIB, 8 * MIB, 256), (108 * MIB, 8 * MIB, 256), (116 * MIB, 4 * MIB, 128)]);
        let ones: Vec<u32> =
            bitmaps.iter().map(|(_, bytes)| bytes.iter().map(|byte| byte.count_ones()).sum()).collect();
        assert_eq!(ones, [1 + 256, 256, 1]);
        assert_eq!(bitmaps.first().map(|(_, bytes)| bytes.first().copied()), Some(Some(1)));
    }
}
