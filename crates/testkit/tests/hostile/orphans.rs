//! A note in the tree of roots that a live tree is being deleted made the next open for writing
//! delete it: a subvolume, or the tree of all checksums, was gone after `mkdir`.

use super::Image;
use btrfs_disk::key::item_type::ORPHAN_ITEM;
use btrfs_disk::{Key, TreeId};

fn note(id: u64) -> Key {
    Key::new(0u64.wrapping_sub(5), ORPHAN_ITEM, id)
}

/// Notes that `id` is being deleted, and writes to the volume.
fn write_with_note(id: u64) -> Image {
    let image = Image::new(|volume| {
        volume.write("/file", [1; 10_000]).unwrap();
        volume.create_subvolume("/subvolume").unwrap();
        volume.write("/subvolume/file", [2; 10_000]).unwrap();
    });
    image.edit().put_item(TreeId::ROOT, &note(id), &[]).unwrap();
    let volume = image.open().unwrap();
    volume.create_dir("/new").unwrap();
    volume.close().unwrap();
    let volume = image.read_only();
    assert!(volume.exists("/new").unwrap());
    assert_eq!(volume.read("/file").unwrap(), [1; 10_000]);
    assert_eq!(volume.read("/subvolume/file").unwrap(), [2; 10_000]);
    image
}

#[test]
fn a_live_tree_stays_and_the_note_goes() {
    for id in [256, 5, 7, 2, 999, 0u64.wrapping_sub(9), 1 << 60] {
        let image = write_with_note(id);
        let edit = image.edit();
        assert!(edit.find(TreeId::ROOT, &note(id)).is_err(), "the note of {id} is left");
    }
}

#[test]
fn a_deletion_that_stopped_where_the_tree_has_no_node_is_left_alone() {
    let image = Image::new(|volume| {
        volume.write("/file", [1; 10_000]).unwrap();
        volume.create_subvolume("/subvolume").unwrap();
    });
    image.edit().put_item(TreeId::ROOT, &note(256), &[]).unwrap();
    image.change_root_item(TreeId(256), |item| {
        item.refs = 0.into();
        item.drop_progress = Key::new(256, 1, 0).into();
    });
    let volume = image.open().unwrap();
    volume.create_dir("/new").unwrap();
    volume.close().unwrap();
    let edit = image.edit();
    assert!(edit.find(TreeId::ROOT, &note(256)).is_ok());
    assert!(edit.root(TreeId(256)).is_ok());
}

#[test]
fn a_damaged_subvolume_keeps_nobody_from_the_others() {
    let image = Image::new(|volume| {
        volume.create_subvolume("/damaged").unwrap();
    });
    image.change_root_item(TreeId(256), |item| item.bytenr = (1 << 40).into());
    let volume = image.open().unwrap();
    volume.create_dir("/new").unwrap();
    volume.close().unwrap();
    assert!(image.read_only().exists("/new").unwrap());
}
