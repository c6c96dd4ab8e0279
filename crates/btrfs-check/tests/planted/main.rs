//! Each code of the table is found where its damage is planted: one field, item or byte is changed in an image, and
//! checksums are made right where the damage is not the checksum. A code without a plant fails the test, so that the
//! table is complete; an image without damage has to be clean.

#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions, missing_docs, reason = "tests fail by panicking")]

mod chunks;
mod extents;
mod files;
mod images;
mod plant;
mod roots;
mod snapshots;
mod trees;

use std::collections::{BTreeMap, BTreeSet};

use btrfs_check::{Code, CodeTable as _};
use images::Image;
use plant::{Plant, Planted, found};

/// Fewest pairs of a code and a place where it is planted.
const PAIRS_MIN: usize = 120;

fn plants() -> Vec<Plant> {
    [chunks::PLANTS, trees::PLANTS, extents::PLANTS, files::PLANTS, roots::PLANTS].concat()
}

#[test]
fn nothing_is_found_where_nothing_is_planted() {
    for image in images::all() {
        let (device, _) = image.base.copy();
        let counts = found(&device);
        assert!(counts.is_empty(), "{}: {counts:?}", image.base.name);
    }
}

#[test]
fn each_code_is_found_where_it_is_planted() {
    let images = images::all();
    let mut missed: Vec<String> = Vec::new();
    let mut pairs: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for plant in plants() {
        let mut is_planted = false;
        for image in images {
            match one(&plant, image) {
                Some(Ok(())) => {
                    is_planted = true;
                    let place = format!("{} in {}", plant.name, image.base.name);
                    pairs.entry(plant.code.id()).or_default().insert(place);
                }
                Some(Err(instead)) => {
                    missed.push(format!("{} ({}) in {}: {instead}", plant.code, plant.name, image.base.name));
                }
                None => {}
            }
        }
        if !is_planted {
            missed.push(format!("{} ({}) could be planted nowhere", plant.code, plant.name));
        }
    }
    for info in Code::all() {
        if !pairs.contains_key(info.id) {
            missed.push(format!("{} is never planted and found", info.id));
        }
    }
    let plants = plants().len();
    let count: usize = pairs.values().map(BTreeSet::len).sum();
    println!("{plants} kinds of damage, {} codes, {count} pairs of code and place", pairs.len());
    assert!(missed.is_empty(), "{} missed:\n{}", missed.len(), missed.join("\n"));
    assert!(count >= PAIRS_MIN, "{count} pairs");
}

/// `None` where the damage cannot be planted in this image.
fn one(plant: &Plant, image: &Image) -> Option<Result<(), String>> {
    let (device, editor) = image.base.copy();
    let planted = Planted { device: device.clone(), editor };
    let device = (plant.plant)(&planted)?;
    let counts = found(&device);
    if counts.iter().any(|(code, _)| *code == plant.code) {
        return Some(Ok(()));
    }
    let others: Vec<&str> = counts.iter().map(|(code, _)| code.id()).collect();
    Some(Err(if others.is_empty() { "nothing was found".to_owned() } else { format!("found {}", others.join(", ")) }))
}
