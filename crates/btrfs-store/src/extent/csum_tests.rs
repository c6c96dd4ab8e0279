//! The checksum tree against a map.

use std::collections::BTreeMap;

use btrfs_disk::convert::{to_u64, to_usize};
use btrfs_disk::key::{item_type, objectid};
use btrfs_disk::{Key, Logical};

use super::tests::{Fixture, NODESIZE, Random, SECTOR};
use crate::Error;
use crate::tree::Scan;

#[test]
fn csums_match_a_model() {
    for seed in 0..20 {
        println!("seed {seed}");
        let fixture = Fixture::new(true);
        let mut random = Random(seed);
        let mut model: BTreeMap<u64, [u8; 4]> = BTreeMap::new();
        for step in 0..400u32 {
            let sector = random.below(6000);
            let count = 1 + if random.below(4) == 0 { random.below(2500) } else { random.below(60) };
            let (at, len) = (Logical(sector * SECTOR), count * SECTOR);
            match random.below(4) {
                0..2 => {
                    let values: Vec<[u8; 4]> = (sector..sector + count)
                        .map(|s| (u32::try_from(s).unwrap() ^ step << 16).to_le_bytes())
                        .collect();
                    fixture.csums().put(&fixture.edit(), at, &values.concat()).unwrap();
                    model.extend((sector..).zip(values));
                }
                2 => {
                    fixture.csums().delete(&fixture.edit(), at, len).unwrap();
                    model.retain(|s, _| *s < sector || *s >= sector + count);
                }
                _ => {}
            }
            let range = fixture.csums().lookup(at, len).unwrap();
            let expected: Vec<Option<&[u8; 4]>> = (sector..sector + count).map(|s| model.get(&s)).collect();
            let found: Vec<Option<&[u8]>> = (0..range.count()).map(|index| range.get(index)).collect();
            assert_eq!(found, expected.iter().map(|one| one.map(|csum| &csum[..])).collect::<Vec<_>>());
            let none = vec![None; found.len()];
            let runs: Vec<Option<&[u8]>> = range.runs().into_iter().fold(none, |mut all, (first, run)| {
                all[first..].iter_mut().zip(run.chunks(4)).for_each(|(place, csum)| *place = Some(csum));
                all
            });
            assert_eq!(runs, found);
            assert_eq!(range.all().is_some(), expected.iter().all(Option::is_some));
            assert_eq!(fixture.csums().any(at, len).unwrap(), !range.is_empty());
        }
        check_csum_items(&fixture, model.len());
        fixture.verify();
    }
}

fn check_csum_items(fixture: &Fixture, count: usize) {
    let (mut end, mut sum) = (0, 0);
    let max = ((to_usize(NODESIZE.into()) - 101 - 50) / 4 - 1) * 4;
    fixture
        .csums
        .scan(&Key::MIN, &Key::MAX, |key, bytes| {
            assert!(key.offset >= end && !bytes.is_empty() && bytes.len() <= max);
            sum += bytes.len() / 4;
            end = key.offset + to_u64(bytes.len() / 4) * SECTOR;
            Ok(Scan::Continue)
        })
        .unwrap();
    assert_eq!(sum, count);
}

#[test]
fn neighbouring_csums_share_items() {
    let fixture = Fixture::new(true);
    for extent in 0..32u64 {
        let at = Logical((1 << 30) + extent * 32 * SECTOR);
        fixture.csums().put(&fixture.edit(), at, &[9; 32 * 4]).unwrap();
    }
    let mut items = 0;
    let count = |_: &Key, _: &[u8]| {
        items += 1;
        Ok(Scan::Continue)
    };
    fixture.csums.scan(&Key::MIN, &Key::MAX, count).unwrap();
    assert_eq!(items, 2, "1024 checksums, of which 961 fit the first item");
}

/// Each removal from the middle of an item once moved the rest of the item to a leaf of its own: hundreds of almost
/// empty leaves.
#[test]
fn scattered_removals_need_no_more_leaves_than_their_items() {
    let fixture = Fixture::new(true);
    let (count, start) = (20_000, 1u64 << 30);
    let place = |sector: u64| Logical(start + sector * SECTOR);
    fixture.csums().put(&fixture.edit(), place(0), &vec![9; to_usize(count) * 4]).unwrap();
    let before = fixture.csums.block_count();
    for sector in (1..count).step_by(4) {
        fixture.csums().delete(&fixture.edit(), place(sector), 2 * SECTOR).unwrap();
    }
    check_csum_items(&fixture, to_usize(count / 2));
    // Half of the checksums, and a header for each two that are left.
    let bytes = count / 2 * 4 + count / 4 * 25;
    let after = fixture.csums.block_count();
    assert!(after * u64::from(NODESIZE) < 3 * bytes, "{before} blocks, then {after} for {bytes} bytes");
    fixture.verify();
}

#[test]
fn items_that_overlap_are_refused() {
    for (next, removed) in [(50, 40..50), (45, 40..50), (50, 0..50)] {
        let fixture = Fixture::new(true);
        for (sector, count) in [(0u64, 100), (next, 100)] {
            let key = Key::new(objectid::EXTENT_CSUM, item_type::EXTENT_CSUM, sector * SECTOR);
            fixture.edit().insert(&fixture.csums, &key, &vec![1; count * 4]).unwrap();
        }
        let len = (removed.end - removed.start) * SECTOR;
        let deleted = fixture.csums().delete(&fixture.edit(), Logical(removed.start * SECTOR), len);
        assert!(matches!(deleted, Err(Error::Exists { .. })), "{next} {removed:?}: {deleted:?}");
        let mut keys = Vec::new();
        let collect = |key: &Key, _: &[u8]| {
            keys.push(*key);
            Ok(Scan::Continue)
        };
        fixture.csums.scan(&Key::MIN, &Key::MAX, collect).unwrap();
        assert!(keys.is_sorted() && keys.len() == 2, "{keys:?}");
    }
}
