//! Undo files and images that lie: refused or repaired, without a panic, and nothing is written outside of the image or
//! to an image that is another.

use std::sync::Arc;

use blockdev::Device;
use crash_explorer::Random;
use testkit::hostile::{bases, mutated};

use super::plant::found;
use super::{differences, images, options, over, planted, plants, undo, undo_file};

const FILES: u64 = 2_000;
const IMAGES: u64 = 150;

#[test]
fn undo_files_that_lie_are_refused() {
    let plant = plants().into_iter().find(|plant| plant.code == btrfs_check::Code::ExtentMissing).unwrap();
    let damaged = planted(&plant, &images::all()[0]).unwrap();
    let plan = btrfs_repair::plan(&damaged, &options(), &()).unwrap();
    let file = undo_file(&plan);
    let repaired = over(&damaged);
    plan.apply(&*repaired).unwrap();
    let repaired: Arc<dyn Device> = repaired;
    let mut random = Random::new(3);
    for number in 0..FILES {
        let mut bytes = file.clone();
        match random.below(4) {
            0 => bytes.truncate(random.index(file.len())),
            1 => bytes.extend_from_slice(&[0; 4096]),
            _ => {
                let reach = if random.one_in(2) { 200 } else { bytes.len() };
                let at = random.index(reach);
                bytes[at] ^= 1 << random.below(8);
            }
        }
        let device = over(&repaired);
        assert!(undo(&bytes, &*device).is_err(), "file {number} was taken");
        assert_eq!(differences(&device, &*repaired), 0, "file {number} was written");
    }
    // An image that was written to since is not changed.
    let changed = over(&repaired);
    changed.write_at(64 << 10, &[&[7; 4096]]).unwrap();
    assert!(undo(&file, &*changed).is_err());
    // Nor is an image that was not repaired by this plan.
    let other: Arc<dyn Device> = images::all()[1].base.copy().0;
    assert!(undo(&file, &*over(&other)).is_err());
    assert!(plan.apply(&*over(&other)).is_err());
    // An undo can be repeated.
    let device = over(&repaired);
    undo(&file, &*device).unwrap();
    undo(&file, &*device).unwrap();
    let device: Arc<dyn Device> = device;
    assert_eq!(found(&device), found(&damaged));
}

#[test]
fn images_that_lie_are_repaired_or_refused() {
    let bases = bases().unwrap();
    let (mut clean, mut refused, mut partly) = (0, 0, 0);
    for number in 0..IMAGES {
        let device = mutated(&bases, 5, number).unwrap();
        let Ok(plan) = btrfs_repair::plan(&device, &options(), &()) else {
            refused += 1;
            continue;
        };
        if !plan.has_changes() {
            continue;
        }
        let repaired = over(&device);
        plan.apply(&*repaired).unwrap();
        undo(&undo_file(&plan), &*repaired).unwrap();
        assert_eq!(differences(&repaired, &*device), 0, "image {number}");
        clean += u32::from(plan.is_complete());
        partly += u32::from(!plan.is_complete());
    }
    println!("{clean} repaired, {partly} partly, {refused} without a superblock, of {IMAGES}");
}
