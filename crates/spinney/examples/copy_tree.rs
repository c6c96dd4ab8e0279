//! Copies a directory of the host into an image of any format: `copy_tree IMAGE DIRECTORY [TARGET]`.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::PathBuf;

use spinney::{Progress, VolumeOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let usage = "usage: copy_tree IMAGE DIRECTORY [TARGET]";
    let (image, source) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let target = arguments.next().unwrap_or_else(|| PathBuf::from("/copy"));

    let volume = spinney::open(image, &VolumeOptions::new())?;
    let mut watch = |progress: &Progress| {
        println!("{} entries, {} bytes", progress.inodes, progress.bytes);
        ControlFlow::Continue(())
    };
    volume.import(source, &target, &mut watch)?;
    volume.close()?;
    println!("copied to {}", target.display());
    Ok(())
}
