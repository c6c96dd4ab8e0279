//! A block of the generation after the superblock's was taken for one that the running transaction
//! had made, and edited in place: a command succeeded and the tree was gone.

use super::{Image, reason};
use btrfs_disk::{Logical, TreeId};
use testkit::hostile::Editor;
use vfs::SnapshotMode;

/// Where a block's header has its generation.
const GENERATION_AT: usize = 80;
/// Bytes of a node's header, of a pointer, and before its generation.
const HEADER: usize = 101;
const POINTER: usize = 33;
const POINTER_GENERATION: usize = 25;

fn set_generation(edit: &Editor, at: Logical, generation: u64) {
    let change = |block: &mut [u8]| {
        block[GENERATION_AT..GENERATION_AT + 8].copy_from_slice(&generation.to_le_bytes());
    };
    edit.change_block(at, change).unwrap();
}

fn many_files() -> Image {
    Image::new(|volume| {
        for number in 0..200 {
            volume.write(format!("/file{number:03}"), [7; 100]).unwrap();
        }
    })
}

#[test]
fn a_root_of_the_next_generation_is_refused() {
    let image = Image::new(|volume| volume.write("/file", "contents").unwrap());
    let edit = image.edit();
    let next = edit.superblock().unwrap().generation.get() + 1;
    set_generation(&edit, edit.root(TreeId::FS).unwrap().0, next);
    image.change_root_item(TreeId::FS, |item| {
        item.generation = next.into();
        item.generation_v2 = next.into();
    });
    let before = image.bytes();
    let written = image.open().and_then(|volume| {
        volume.write("/new", "more")?;
        volume.close()
    });
    let error = reason(&written.unwrap_err());
    assert!(error.contains("generation"), "{error}");
    assert!(image.bytes() == before, "nothing is written");
}

#[test]
fn a_leaf_of_the_next_generation_is_refused() {
    let image = many_files();
    let edit = image.edit();
    let next = edit.superblock().unwrap().generation.get() + 1;
    let (root, level) = edit.root(TreeId::FS).unwrap();
    assert!(level > 0, "the tree has a node");
    let leaf = edit.blocks().unwrap();
    let leaf = leaf.iter().rfind(|block| block.tree == TreeId::FS && block.level == 0).unwrap();
    let node = edit.blocks().unwrap();
    let node = node.iter().find(|block| block.tree == TreeId::FS && block.level == 1).map_or(root, |n| n.at);
    set_generation(&edit, leaf.at, next);
    let change = |block: &mut [u8]| {
        for pointer in block[HEADER..].chunks_exact_mut(POINTER) {
            if pointer[17..25] == leaf.at.0.to_le_bytes() {
                pointer[POINTER_GENERATION..].copy_from_slice(&next.to_le_bytes());
            }
        }
    };
    edit.change_block(node, change).unwrap();
    let before = image.bytes();
    let removed = image.open().and_then(|volume| {
        for number in 0..200 {
            volume.remove_file(format!("/file{number:03}"))?;
        }
        volume.close()
    });
    let error = reason(&removed.unwrap_err());
    assert!(error.contains("generation"), "{error}");
    assert!(image.bytes() == before, "nothing is written");
}

#[test]
fn a_cached_block_is_compared_with_each_parent() {
    let image = Image::new(|volume| {
        volume.create_subvolume("/one").unwrap();
        volume.write("/one/file", "contents").unwrap();
        volume.snapshot("/one", "/two", SnapshotMode::ReadWrite).unwrap();
    });
    let one = image.edit().root(TreeId(256)).unwrap().0;
    let block = image.edit().block(one).unwrap();
    let generation = u64::from_le_bytes(block[GENERATION_AT..GENERATION_AT + 8].try_into().unwrap());
    // The second says that the block is older than it is.
    image.change_root_item(TreeId(257), |item| {
        item.bytenr = one.0.into();
        item.generation = (generation - 1).into();
        item.generation_v2 = (generation - 1).into();
    });
    let cold = image.read_only().read("/two/file");
    assert!(reason(&cold.unwrap_err()).contains("generation"));
    let volume = image.read_only();
    assert_eq!(volume.read("/one/file").unwrap(), b"contents");
    let warm = volume.read("/two/file");
    assert!(reason(&warm.unwrap_err()).contains("generation"));
}

#[test]
fn a_block_of_another_tree_is_no_root_of_a_subvolume() {
    let image = Image::new(|volume| {
        volume.create_subvolume("/one").unwrap();
        volume.write("/one/file", "contents").unwrap();
    });
    let edit = image.edit();
    let (uuids, _) = edit.root(TreeId::UUID).unwrap();
    let generation = edit.block(uuids).unwrap()[GENERATION_AT..GENERATION_AT + 8].to_vec();
    let generation = u64::from_le_bytes(generation.try_into().unwrap());
    image.change_root_item(TreeId(256), |item| {
        item.bytenr = uuids.0.into();
        item.generation = generation.into();
        item.generation_v2 = generation.into();
    });
    let written = image.open().and_then(|volume| volume.write("/one/new", "more"));
    assert!(reason(&written.unwrap_err()).contains("owner"));
}
