//! Checks an image of any format, shows how far the check has come, and ends it early where asked to:
//! `check IMAGE [BYTES]` ends it after so many bytes were read.

use std::error::Error;
use std::ops::ControlFlow;

use spinney::{CheckOptions, Errno, Progress};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let image = arguments.next().ok_or("usage: check IMAGE [BYTES]")?;
    let bytes_max = match arguments.next() {
        Some(text) => text.to_str().ok_or("BYTES is no number")?.parse()?,
        None => u64::MAX,
    };
    let mut watch = |progress: &Progress| {
        println!("{} of {} bytes, {} inodes", progress.bytes, progress.bytes_total, progress.inodes);
        if progress.bytes > bytes_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let options = CheckOptions { data: true, ..CheckOptions::default() };
    let report = match spinney::check(image, &options, &mut watch) {
        Err(error) if error.errno() == Errno::ECANCELED => {
            println!("cancelled");
            return Ok(());
        }
        report => report?,
    };
    for finding in &report.findings {
        println!("{}: expected {}, found {}", finding.code, finding.expected, finding.found);
    }
    println!("{} errors, {} inodes", report.errors(), report.inodes);
    Ok(())
}
