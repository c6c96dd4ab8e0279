//! Checks an image and prints the findings: `check_image IMAGE... [--data]`.

use std::sync::Arc;

use blockdev::{Access, Device, Locator};
use btrfs_check::{Options, Pass, PassTable as _, check};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    let mut passes = Vec::new();
    for word in std::env::args().skip(1) {
        if word == "--data" {
            passes = Pass::all().iter().map(|info| info.pass).collect();
        } else {
            devices.push(blockdev::open(&Locator::parse(&word)?, Access::READ)?);
        }
    }
    let options =
        Options { passes, memory_bytes: 256 << 20, folder: std::env::temp_dir(), threads: 0, ..Options::default() };
    let report = check(&devices, &options, &())?;
    for finding in &report.findings {
        println!("{finding:?}");
    }
    println!("{:?} {:?}; {} inodes, {} bytes", report.counts, report.notes, report.inodes, report.bytes);
    Ok(())
}
