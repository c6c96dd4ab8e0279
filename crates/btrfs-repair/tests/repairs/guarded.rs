//! Damage that a repair could make worse: it refuses repairs that would cost a subvolume, and trusts the newest copy.

use std::sync::Arc;

use blockdev::Device;
use btrfs_disk::key::item_type::{DIR_INDEX, DIR_ITEM, ROOT_BACKREF, ROOT_ITEM, ROOT_REF};
use btrfs_disk::node::header;
use btrfs_disk::verify::seal;
use btrfs_disk::{Key, TreeId};
use btrfs_repair::{Plan, Step, plan};

use super::images::{self, Image};
use super::plant::Planted;
use super::{look, options, over};

fn copy(image: &Image) -> Planted {
    let (device, editor) = image.base.copy();
    Planted { device, editor }
}

fn planned(device: &Arc<dyn Device>) -> Plan {
    plan(device, &options(), &()).unwrap()
}

fn assert_refused(name: &str, image: &Planted, why: &str) {
    let plan = planned(&image.device);
    assert!(!plan.is_needless(), "{name}: a check finds something");
    assert!(!plan.is_complete(), "{name}: it would be carried out unasked");
    // No tree is written.
    let of_trees = plan.steps.iter().find(|(step, _)| ![Step::Superblock, Step::Log, Step::Mirrors].contains(step));
    assert!(of_trees.is_none(), "{name}: {:?}", plan.steps);
    assert!(plan.refusals.iter().any(|text| text.contains(why)), "{name}: {:?}", plan.refusals);
}

#[test]
fn what_would_cost_a_subvolume_is_refused() {
    let mut tried = [0; 3];
    for image in images::all() {
        let name = &image.base.name;
        // The tree of roots does not have its place any more: it would become an orphan, and the kernel delete it.
        let planted = copy(image);
        if let Some((key, _)) = planted.taken(TreeId::ROOT, ROOT_REF, |_, _| true) {
            let back = Key::new(key.offset, ROOT_BACKREF, key.objectid);
            if planted.editor.remove_item(TreeId::ROOT, &back).is_ok() {
                assert_refused(name, &planted, "it would be deleted");
                tried[0] += 1;
            }
        }
        // Its blocks would be given away.
        let planted = copy(image);
        let refs: Vec<u64> = planted
            .items(TreeId::ROOT)
            .iter()
            .filter(|(key, _)| key.item_type == ROOT_REF)
            .map(|(key, _)| key.offset)
            .collect();
        if planted.taken(TreeId::ROOT, ROOT_ITEM, |key, _| refs.contains(&key.objectid)).is_some() {
            assert_refused(name, &planted, "has lost its root item");
            tried[1] += 1;
        }
        let planted = copy(image);
        if planted.taken(TreeId::ROOT, ROOT_ITEM, |key, _| key.objectid == TreeId::FS.0).is_some() {
            assert_refused(name, &planted, "the root item of the top subvolume is lost");
            tried[2] += 1;
        }
    }
    assert!(tried.iter().all(|count| *count > 0), "{tried:?}");
}

#[test]
fn of_two_names_of_a_subvolume_none_is_chosen() {
    let mut tried = 0;
    for image in images::all() {
        let planted = copy(image);
        let leads_to_subvolume = |key: &Key, data: &[u8]| key.item_type == DIR_INDEX && data.get(8) == Some(&ROOT_ITEM);
        let renamed = planted.change((TreeId::FS, DIR_INDEX), leads_to_subvolume, |item| item[30] ^= 1);
        if renamed.is_some() && planted.items(TreeId::FS).iter().any(|(key, _)| key.item_type == DIR_ITEM) {
            assert_refused(&image.base.name, &planted, "has several names");
            tried += 1;
        }
    }
    assert!(tried > 0);
}

/// One copy of a block missed the last write, and is right in itself.
#[test]
fn the_newest_copy_of_a_block_is_believed() {
    let mut tried = 0;
    for image in images::all() {
        let before = look::at(&image.base.copy().0).unwrap();
        for tree in [TreeId::FS, TreeId::CSUM] {
            let planted = copy(image);
            let Ok((root, 0)) = planted.editor.root(tree) else { continue };
            let places = planted.editor.places(root).unwrap();
            let mut block = planted.editor.block(root).unwrap();
            let generation = header(&block).unwrap().generation.get();
            if places.len() < 2 || generation < 2 {
                continue;
            }
            block[80..88].copy_from_slice(&(generation - 1).to_le_bytes());
            if tree == TreeId::FS {
                // The older state has other contents.
                block[96..100].copy_from_slice(&1u32.to_le_bytes());
            }
            seal(&mut block, planted.editor.format().csum_type);
            planted.device.write_at(places[0], &[&block]).unwrap();
            let plan = planned(&planted.device);
            assert!(plan.is_complete(), "{}: {:?}", image.base.name, plan.refusals);
            let repaired = over(&planted.device);
            plan.apply(&*repaired).unwrap();
            let repaired: Arc<dyn Device> = repaired;
            assert_eq!(look::at(&repaired).unwrap(), before, "{}", image.base.name);
            tried += 1;
        }
    }
    assert!(tried > 0);
}
