//! A free-space tree with right checksums and wrong runs: later writes overwrote existing data or tree blocks.

use super::{IMAGE_BYTES, Image, options, reason};
use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, Volume};
use btrfs_disk::flags::CompatRo;
use btrfs_disk::key::item_type::{BLOCK_GROUP_ITEM, EXTENT_ITEM, FREE_SPACE_EXTENT, METADATA_ITEM};
use btrfs_disk::{Key, TreeId};
use std::sync::Arc;
use vfs::FileOptions;

const LEN: u64 = 64 << 10;

/// Files of which the last one's data lies directly before free space.
fn fill(volume: &Volume) {
    for name in ["/first", "/victim"] {
        volume.write(name, vec![7; usize::try_from(LEN).unwrap()]).unwrap();
        volume.sync().unwrap();
    }
}

/// The first item of one of these types from `at` on, in any tree.
fn next(image: &Image, tree: TreeId, at: u64, types: &[u8]) -> Vec<Key> {
    let items = image.edit().items(tree, Key::new(at, 0, 0)..=Key::MAX).unwrap();
    let keys = items.iter().map(|(key, _)| *key);
    keys.filter(|key| types.contains(&key.item_type)).collect()
}

/// Moves a free run over the preceding extent.
fn move_run(image: &Image, behind: u64, by: u64) {
    let edit = image.edit();
    let runs = next(image, TreeId::FREE_SPACE, behind, &[FREE_SPACE_EXTENT]);
    let run = *runs.iter().find(|run| run.objectid == behind).unwrap();
    edit.remove_item(TreeId::FREE_SPACE, &run).unwrap();
    let moved = Key::new(run.objectid - by, run.item_type, run.offset);
    edit.put_item(TreeId::FREE_SPACE, &moved, &[]).unwrap();
}

/// Where the data of the last file ends.
fn data_end(image: &Image) -> u64 {
    let extents = next(image, TreeId::EXTENT, 0, &[EXTENT_ITEM]);
    let last = extents.iter().rfind(|key| key.offset == LEN).unwrap();
    last.objectid + last.offset
}

fn check(image: &Image) {
    let volume = image.read_only();
    for name in ["/first", "/victim"] {
        assert!(volume.read(name).unwrap().iter().all(|byte| *byte == 7), "{name}");
    }
}

#[test]
fn data_is_not_written_over_data() {
    let image = Image::new(fill);
    move_run(&image, data_end(&image), LEN);
    let volume = image.open().unwrap();
    let written = volume.write("/new", vec![9; usize::try_from(LEN).unwrap()]).and_then(|()| volume.sync());
    drop(volume);
    check(&image);
    let error = reason(&written.unwrap_err());
    assert!(error.contains("space that nothing uses"), "{error}");
}

#[test]
fn tree_blocks_are_not_written_over_others() {
    let image = Image::new(fill);
    // All free runs of the group move onto the blocks before them, by the size of a block.
    let groups = next(&image, TreeId::BLOCK_GROUP, 0, &[BLOCK_GROUP_ITEM]);
    let blocks = next(&image, TreeId::EXTENT, 0, &[METADATA_ITEM]);
    let group = groups
        .iter()
        .find(|group| {
            blocks.iter().filter(|block| block.objectid >= group.objectid).count() > 5 && group.objectid > 2 << 20
        })
        .unwrap();
    let runs = next(&image, TreeId::FREE_SPACE, group.objectid, &[FREE_SPACE_EXTENT]);
    let end = group.objectid + group.offset;
    let mut moved = 0;
    for run in runs.iter().filter(|run| run.objectid < end) {
        let before = run.objectid - 4096;
        if blocks.iter().any(|block| block.objectid == before) {
            move_run(&image, run.objectid, 4096);
            moved += 1;
        }
    }
    assert!(moved > 0);
    let written = image.open().and_then(|volume| {
        volume.write("/new", "contents")?;
        volume.close()
    });
    check(&image);
    let error = reason(&written.unwrap_err());
    assert!(error.contains("space that nothing uses"), "{error}");
}

#[test]
fn a_log_is_not_written_over_tree_blocks() {
    let image = Image::new(fill);
    let blocks = next(&image, TreeId::EXTENT, 0, &[METADATA_ITEM]);
    let runs = next(&image, TreeId::FREE_SPACE, 2 << 20, &[FREE_SPACE_EXTENT]);
    for run in runs {
        if blocks.iter().any(|block| block.objectid == run.objectid - 4096) {
            move_run(&image, run.objectid, 4096);
        }
    }
    let volume = image.open().unwrap();
    let for_writing = FileOptions::new().write(true);
    for number in 0..40u64 {
        let Ok(file) = for_writing.open(&volume, "/first") else {
            break;
        };
        let _ = file.write_at(&[7; 100], number * 100);
        let _ = file.sync_all();
    }
    // As a crash leaves it.
    let crashed = Image { device: Arc::new(image.device.duplicate()) };
    drop(volume);
    for image in [crashed, image] {
        // With such a free-space tree the log may not be replayable.
        let options = options().read_only(true).replay_log(false);
        let volume = options.open_device(image.device.clone()).unwrap();
        for name in ["/first", "/victim"] {
            assert!(volume.read(name).unwrap().iter().all(|byte| *byte == 7), "{name}");
        }
        image.edit().blocks().unwrap();
    }
}

#[test]
fn without_a_free_space_tree_extents_may_not_move() {
    let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    let make = MakeOptions { nodesize: 4096, compat_ro: CompatRo::empty(), ..MakeOptions::default() };
    let volume = options().make_device(device.clone(), &make).unwrap();
    fill(&volume);
    volume.close().unwrap();
    let image = Image { device };
    let edit = image.edit();
    let old = Key::new(data_end(&image) - LEN, EXTENT_ITEM, LEN);
    let (_, data) = edit.items(TreeId::EXTENT, old..=old).unwrap().pop().unwrap();
    edit.remove_item(TreeId::EXTENT, &old).unwrap();
    let moved = Key::new(old.objectid + LEN, EXTENT_ITEM, LEN);
    edit.put_item(TreeId::EXTENT, &moved, &data).unwrap();
    let written = image.open().and_then(|volume| {
        volume.write("/new", vec![9; usize::try_from(LEN).unwrap()])?;
        volume.close()
    });
    let _ = written;
    check(&image);
}
