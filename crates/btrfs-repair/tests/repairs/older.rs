//! The root of the root tree, or of the chunk tree, is lost on all its copies: a repair goes back to the newest earlier
//! commit that is whole, and to none that was partly overwritten.

use std::sync::Arc;

use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, Volume};
use btrfs_check::open_media;
use btrfs_disk::node::header;
use btrfs_repair::{Older, Step, plan};
use crash_explorer::Random;
use testkit::reference::{self, Checked};

use crate::cuts::power_cuts;
use crate::{look, options, over, undo, undo_file};

const BLOCK: usize = 16 << 10;
/// States that power cuts during such a repair, and its undo, may leave.
const CUTS: u64 = 120;

/// A volume of some commits, each of which makes a file; the last one does not overwrite blocks that the one before
/// freed.
fn volume(commits: usize) -> (Arc<dyn Device>, Vec<u64>) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
    let volume = Volume::options().workers(1).make_device(Arc::clone(&device), &MakeOptions::default()).unwrap();
    let mut generations = Vec::new();
    for commit in 0..commits {
        volume.write(format!("file-{commit}"), vec![u8::try_from(commit).unwrap(); 100_000]).unwrap();
        volume.sync().unwrap();
        generations.push(volume.info().unwrap().generation.0);
    }
    (device, generations)
}

/// Overwrites all copies of the block with this address and generation; returns their number.
fn wipe(device: &dyn Device, at: u64, generation: u64) -> usize {
    let mut block = vec![0; BLOCK];
    let offsets = (0..device.size_bytes()).step_by(4096).filter(|offset| {
        *offset != 65_536
            && device.read_at(*offset, &mut block).is_ok()
            && header(&block).is_some_and(|header| {
                (header.bytenr.get(), header.generation.get()) == (at, generation) && header.nritems.get() > 0
            })
    });
    let offsets: Vec<u64> = offsets.collect();
    for offset in &offsets {
        device.write_at(*offset, &[&[0xee; BLOCK]]).unwrap();
    }
    offsets.len()
}

fn superblock(device: &Arc<dyn Device>) -> Box<btrfs_disk::superblock::DiskSuperblock> {
    open_media(&[Arc::clone(device)]).unwrap().fields
}

fn bytes(device: &dyn Device) -> Vec<u8> {
    let mut all = vec![0; usize::try_from(device.size_bytes()).unwrap()];
    device.read_at(0, &mut all).unwrap();
    all
}

#[test]
fn the_newest_earlier_commit_that_is_whole_is_gone_back_to() {
    let (device, generations) = volume(3);
    let [.., before, last] = generations[..] else { panic!("three commits") };
    let fields = superblock(&device);
    assert_eq!(fields.generation.get(), last);
    assert_eq!(wipe(&*device, fields.root.get(), last), 2);

    let plan = plan(&device, &options(), &()).unwrap();
    assert_eq!(plan.older, Some(Older { from: last, to: before }), "{:?} {:?}", plan.refusals, plan.after.counts);
    assert!(plan.is_complete() && plan.has_changes());
    assert_eq!(plan.steps.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [Step::OlderState]);

    let (damaged, file) = (bytes(&*device), undo_file(&plan));
    let repaired = over(&device);
    plan.apply(&*repaired).unwrap();
    let repaired_device: Arc<dyn Device> = Arc::<blockdev::backends::OverlayDevice>::clone(&repaired);
    let files = look::at(&repaired_device).unwrap();
    let names: Vec<String> = files.keys().map(|path| path.display().to_string()).collect();
    assert_eq!(names, ["/file-0", "/file-1"]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("repaired.img");
    std::fs::write(&path, bytes(&*repaired)).unwrap();
    if reference::is_installed() {
        assert!(matches!(reference::check(&path), Ok(Checked::Clean)), "{:?}", reference::check(&path));
    }
    // It is writable like any volume.
    let volume = Volume::open(&path).unwrap();
    volume.write("again", vec![7; 300_000]).unwrap();
    volume.close().unwrap();
    if reference::is_installed() {
        assert!(matches!(reference::check(&path), Ok(Checked::Clean)), "{:?}", reference::check(&path));
    }
    undo(&file, &*repaired).unwrap();
    assert!(bytes(&*repaired) == damaged, "an undo brings every byte back");
    let (olds, news) = power_cuts("a lost root tree", &device, &plan, CUTS, &mut Random::new(5));
    assert!(olds > 0 && news > 0, "{olds} {news}");
}

#[test]
fn a_state_that_was_written_over_in_part_is_passed_over() {
    let (device, generations) = volume(4);
    let [.., earlier, before, last] = generations[..] else { panic!("four commits") };
    let fields = superblock(&device);
    let backup = |generation: u64| {
        let found = fields.super_roots.iter().find(|backup| backup.tree_root_gen.get() == generation);
        found.unwrap().tree_root.get()
    };
    assert!(wipe(&*device, fields.root.get(), last) > 0);
    assert!(wipe(&*device, backup(before), before) > 0);
    let some = plan(&device, &options(), &()).unwrap();
    assert!(!some.refusals.is_empty());
    // The commit before may have been overwritten by the last; the chosen one is whole.
    assert!(some.older.is_none_or(|older| older.to <= earlier && some.is_complete()), "{:?}", some.older);
    for generation in fields.super_roots.iter().map(|backup| backup.tree_root_gen.get()) {
        wipe(&*device, backup(generation), generation);
    }
    let none = plan(&device, &options(), &()).unwrap();
    assert!(none.older.is_none() && !none.has_changes(), "{:?}", none.steps);
}

#[test]
fn a_sound_root_tree_is_not_gone_back_from() {
    let (device, generations) = volume(2);
    let fields = superblock(&device);
    // One copy of two: the other is good.
    let mut block = vec![0; BLOCK];
    let offset = (0..device.size_bytes()).step_by(4096).find(|offset| {
        device.read_at(*offset, &mut block).unwrap();
        *offset != 65_536 && header(&block).is_some_and(|header| header.bytenr.get() == fields.root.get())
    });
    device.write_at(offset.unwrap(), &[&[0xee; BLOCK]]).unwrap();
    let plan = plan(&device, &options(), &()).unwrap();
    assert!(plan.older.is_none() && plan.is_complete(), "{generations:?} {:?}", plan.after.counts);
}

/// The devices in the superblock are as of the last commit too, and go back with it.
#[test]
fn a_lost_chunk_tree_is_gone_back_from() {
    let (device, generations) = volume(2);
    let before = superblock(&device);
    let volume = Volume::options().workers(1).open_device(Arc::clone(&device)).unwrap();
    volume.write("large", vec![5; 60 << 20]).unwrap();
    volume.close().unwrap();
    let fields = superblock(&device);
    assert!(fields.chunk_root != before.chunk_root, "chunks were added");
    assert!(fields.dev_item.bytes_used.get() > before.dev_item.bytes_used.get());
    assert!(wipe(&*device, fields.chunk_root.get(), fields.chunk_root_generation.get()) > 0);
    let plan = plan(&device, &options(), &()).unwrap();
    let older = plan.older.unwrap_or_else(|| panic!("{:?} {:?}", plan.refusals, plan.after.counts));
    assert!(plan.is_complete() && older.to >= generations[0] && older.to < fields.generation.get(), "{older:?}");
    let repaired = over(&device);
    plan.apply(&*repaired).unwrap();
    let (olds, news) = power_cuts("a lost chunk tree", &device, &plan, CUTS, &mut Random::new(6));
    assert!(olds > 0 && news > 0, "{olds} {news}");
    let repaired: Arc<dyn Device> = repaired;
    assert!(look::at(&repaired).unwrap().keys().any(|path| path.ends_with("file-0")));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("repaired.img");
    std::fs::write(&path, bytes(&*repaired)).unwrap();
    if reference::is_installed() {
        assert!(matches!(reference::check(&path), Ok(Checked::Clean)), "{:?}", reference::check(&path));
    }
}
