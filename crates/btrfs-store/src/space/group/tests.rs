//! Tests of one block group.

use super::*;

fn run(start: u64, len: u64) -> Run {
    Run { start, len }
}

fn group() -> BlockGroup {
    BlockGroup::new(GroupInfo {
        start: Logical(1000),
        len: 1000,
        flags: BlockGroupFlags::METADATA,
        used: 100,
        excluded: vec![run(1500, 64)],
        read_only: false,
        is_only_left: false,
    })
}

fn free(runs: &[Run]) -> FreeMap {
    let mut map = FreeMap::default();
    runs.iter().for_each(|run| map.insert(*run).unwrap());
    map
}

fn want(len: u64) -> Want {
    Want { len, min_len: len, align: 1, cluster: 0, window: 0, room: 0 }
}

#[test]
fn pinned_ranges_are_not_free_in_a_group_loaded_later() {
    let group = group();
    group.note_freed(run(1000, 50), true).unwrap();
    group.pin(run(1000, 50));
    group.take_changes().unwrap();
    let on_disk = free(&[run(1000, 50), run(1100, 900)]);
    assert_eq!(group.install(on_disk).unwrap(), Some((836, 836)));
    assert_eq!(group.take(SpaceKind::Metadata, &want(10), true), Some(run(1100, 10)));
    assert_eq!(group.bytes(), GroupBytes { total: 936, used: 50, allocated: 10, pinned: 50 });
    let pinned = group.take_pinned();
    assert_eq!(group.unpin(&pinned).unwrap(), Given::Loaded);
    assert_eq!(group.bytes().pinned, 0);
    assert!(group.take_at(SpaceKind::Metadata, run(1000, 50), 0));
    assert!(!group.take_at(SpaceKind::Metadata, run(1480, 30), 0), "a superblock copy");
    assert!(group.give(&[run(1200, 10)]).is_err(), "freed twice");
}

#[test]
fn unpinned_before_loading_is_free_after() {
    let group = group();
    group.note_freed(run(1000, 50), true).unwrap();
    group.pin(run(1000, 50));
    group.take_changes().unwrap();
    assert_eq!(group.unpin(&group.take_pinned()).unwrap(), Given::Unloaded);
    let on_disk = free(&[run(1000, 50), run(1100, 900)]);
    assert_eq!(group.install(on_disk).unwrap(), Some((886, 886)));
}

/// The state between a drain and the commit after it.
#[test]
fn a_group_is_loaded_while_the_tree_does_not_know_all_changes() {
    let group = group();
    group.note_freed(run(1000, 50), true).unwrap();
    group.pin(run(1000, 50));
    group.note_allocated(run(1100, 20), true).unwrap();
    let on_disk = free(&[run(1100, 900)]);
    assert_eq!(group.install(on_disk).unwrap(), Some((836, 816)));
    assert!(!group.take_at(SpaceKind::Metadata, run(1000, 50), 0), "pinned");
    assert!(!group.take_at(SpaceKind::Metadata, run(1119, 2), 0), "allocated");
    assert!(group.take_at(SpaceKind::Metadata, run(1120, 10), 0));
    let changes = group.take_changes().unwrap();
    assert_eq!((changes.allocated, changes.freed), (vec![run(1100, 20)], vec![run(1000, 50)]));
    assert_eq!(group.unpin(&group.take_pinned()).unwrap(), Given::Loaded);
    assert!(group.take_at(SpaceKind::Metadata, run(1000, 50), 0));
}

#[test]
fn changes_that_the_tree_contradicts_are_corrupt() {
    let freed = group();
    freed.note_freed(run(1100, 50), true).unwrap();
    assert!(freed.install(free(&[run(1100, 900)])).is_err());
    let allocated = group();
    allocated.note_allocated(run(1040, 50), true).unwrap();
    assert!(allocated.install(free(&[run(1100, 900)])).is_err());
}

#[test]
fn free_space_that_does_not_add_up_is_corrupt() {
    assert!(group().install(free(&[run(1100, 899)])).is_err());
    assert!(group().note_freed(run(1000, 101), true).is_err());
    assert!(group().note_allocated(run(1000, 901), true).is_err());
}

#[test]
fn changes_cancel_and_coalesce() {
    let group = group();
    for start in [1116, 1100, 1200] {
        group.note_allocated(run(start, 16), true).unwrap();
    }
    group.note_freed(run(1200, 16), true).unwrap();
    group.note_freed(run(1000, 20), true).unwrap();
    group.note_freed(run(1020, 20), true).unwrap();
    let changes = group.take_changes().unwrap();
    assert_eq!(changes.allocated, [run(1100, 32)]);
    assert_eq!(changes.freed, [run(1000, 40)]);
    assert_eq!(group.take_changes(), None);
    assert_eq!(group.take_use().map(|change| change.used), Some(92));
    assert_eq!(group.take_use(), None);
    assert!(group.is_touched());
    group.settle();
    assert!(!group.is_touched());
}
