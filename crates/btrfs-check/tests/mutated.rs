//! Images with random changes of fields and right checksums: a check of each ends, without a panic and within its
//! memory. With `SPINNEY_BTRFS_CHECK=1` the images are also given to `btrfs check` (as files, never mounted), and
//! images with findings of only one of the two are counted. `SPINNEY_CHECK_IMAGES` sets another number of images.

#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions, missing_docs, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use blockdev::Device;
use btrfs_check::{CodeTable as _, Options, Report, check};
use testkit::hostile::{bases, mutated};

const IMAGES: u64 = 150;
const SEED: u64 = 19;
/// Bytes that are copied at a time; those of zeros are left out.
const PIECE: usize = 64 << 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// `None` where there is no superblock.
fn ours(device: &Arc<dyn Device>) -> Option<Report> {
    let options = Options { threads: 2, ..Options::default() };
    check(&[Arc::clone(device)], &options, &()).ok()
}

/// Whether `btrfs check` reports no error.
fn theirs(device: &dyn Device) -> bool {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(device.size_bytes()).unwrap();
    let mut piece = vec![0; PIECE];
    for at in (0..device.size_bytes()).step_by(PIECE) {
        device.read_at(at, &mut piece).unwrap();
        if piece.iter().any(|byte| *byte != 0) {
            file.as_file().write_all_at(&piece, at).unwrap();
        }
    }
    let mut command = Command::new("timeout");
    command.args(["20", "btrfs", "check"]).arg(file.path()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap().success()
}

#[test]
fn a_check_of_any_image_ends() {
    let bases = bases().unwrap();
    let (count, seed) = (number("SPINNEY_CHECK_IMAGES").unwrap_or(IMAGES), number("SPINNEY_SEED").unwrap_or(SEED));
    let compares = number("SPINNEY_BTRFS_CHECK").is_some();
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    for index in 0..count {
        let device = mutated(&bases, seed, index).unwrap();
        let report = ours(&device);
        let is_clean = report.as_ref().is_some_and(|report| report.counts.is_empty());
        let theirs = if compares { theirs(&*device) } else { is_clean };
        let word = match (is_clean, theirs) {
            (true, true) => "both are content",
            (false, false) => "both find fault",
            (true, false) => "only btrfs check finds fault",
            (false, true) => "only this check finds fault",
        };
        if is_clean != theirs {
            let counts = report.map(|report| report.counts.iter().map(|(code, _)| code.id()).collect::<Vec<_>>());
            println!("image {index} of seed {seed}: {word}: {counts:?}");
        }
        *outcomes.entry(word.to_owned()).or_default() += 1;
    }
    println!("{count} images: {outcomes:?}");
}
