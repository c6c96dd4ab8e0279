//! A chunk said that its second copy lay at the beginning of the device, where the superblock is. A scrub found that
//! copy wrong, as it was, and mended it: over the superblock, of which small images have no other copy. The image could
//! not be opened any more.

use std::ops::ControlFlow;

use btrfs::{Fate, ScrubOptions};
use btrfs_disk::key::item_type::CHUNK_ITEM;
use btrfs_disk::key::objectid::FIRST_CHUNK_TREE;
use btrfs_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use btrfs_disk::{Key, TreeId};
use testkit::hostile::small_bases;

use super::options;

/// Where the second stripe of a chunk item says on its device that it begins.
const SECOND_STRIPE_AT: usize = 88;

#[test]
fn a_copy_that_is_said_to_lie_on_the_superblock_is_not_mended() {
    let bases = small_bases().unwrap();
    let mixed = bases.iter().find(|small| small.base().name == "mixed").unwrap();
    let (device, editor) = mixed.base().copy();
    let chunks = editor.items(TreeId::CHUNK, Key::MIN..=Key::MAX).unwrap();
    let is_chunk = |key: &&Key| key.objectid == FIRST_CHUNK_TREE && key.item_type == CHUNK_ITEM;
    let last = chunks.iter().map(|(key, _)| key).rfind(is_chunk).unwrap();
    let to_the_beginning = |item: &mut [u8]| item[SECOND_STRIPE_AT..][..8].fill(0);
    editor.change_item(TreeId::CHUNK, last, to_the_beginning).unwrap();
    let mut before = vec![0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut before).unwrap();

    let volume = options().open_device(device.clone()).unwrap();
    let found = volume.scrub(ScrubOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    let left: Vec<u64> =
        found.faults.iter().filter(|fault| fault.fate == Fate::Left).map(|fault| fault.offset).collect();
    assert_eq!(left, [SUPERBLOCK_OFFSET], "{found:?}");
    assert!(found.progress.mended > 0, "other copies are mended");
    drop(volume);
    let mut after = vec![0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut after).unwrap();
    assert_eq!(before[64..72], after[64..72], "the superblock's magic");
    options().read_only(true).open_device(device).unwrap();
}
