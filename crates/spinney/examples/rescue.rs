//! Copies what can be read of a damaged btrfs image into a directory: `rescue IMAGE DIRECTORY`.

use std::error::Error;
use std::ops::ControlFlow;

use spinney::blockdev::{Access, Locator, open};
use spinney::btrfs::{RescueOptions, rescue};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(image), Some(directory)) = (arguments.next(), arguments.next()) else {
        return Err("usage: rescue IMAGE DIRECTORY".into());
    };
    let devices = Locator::parse_list(image)?;
    let devices = devices.iter().map(|device| open(device, Access::READ)).collect::<Result<Vec<_>, _>>()?;
    let report = rescue(devices, directory, RescueOptions::default(), &mut |progress| {
        eprintln!("{} bytes, {} files", progress.bytes, progress.inodes);
        ControlFlow::Continue(())
    })?;
    report.notes.iter().for_each(|note| println!("{note}"));
    println!("{} files are damaged or lost", report.losses.len());
    Ok(())
}
