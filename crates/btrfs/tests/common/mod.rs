//! Image files that tests make volumes on.

#![allow(dead_code, reason = "no test uses all of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "each test is a crate of its own")]

pub mod served;
pub mod whole;

use std::path::Path;
use std::process::Command;

use btrfs::{MakeOptions, Volume};
use vfs::{Blame, Errno, Error};

/// Size of the images.
pub const IMAGE_BYTES: u64 = 256 << 20;

/// A volume's image file.
pub struct Image {
    pub file: tempfile::NamedTempFile,
}

impl Image {
    pub fn make() -> (Self, Volume) {
        Self::make_with(MakeOptions::default())
    }

    pub fn make_with(options: MakeOptions) -> (Self, Volume) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let options = MakeOptions { size: options.size.or(Some(IMAGE_BYTES)), ..options };
        let volume = Volume::make(file.path(), &options).unwrap();
        (Self { file }, volume)
    }

    /// Closes the volume, checks the image and opens it again.
    pub fn reopen(&self, volume: Volume) -> Volume {
        volume.close().unwrap();
        check(self.file.path());
        Volume::open(self.file.path()).unwrap()
    }
}

/// Runs `btrfs check` on an image, where that program is installed.
pub fn check(image: &Path) {
    let Ok(output) = Command::new("btrfs").args(["check", "--check-data-csum"]).arg(image).output() else {
        eprintln!("btrfs check is not installed: skipped");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stdout));
}

/// The caller's mistake.
pub fn what<T: std::fmt::Debug>(result: Result<T, Error>) -> Errno {
    result.unwrap_err().errno()
}

/// Writes files of `bytes` bytes until there is no space; returns their number.
pub fn fill(volume: &Volume, bytes: usize) -> usize {
    for number in 0..1_000_000 {
        let result = volume.write(format!("/{bytes}-{number}"), vec![7; bytes]).and_then(|()| match bytes {
            0..4096 => Ok(()),
            _ => volume.sync(),
        });
        match result {
            Ok(()) => {}
            Err(error) if error.blame() == Blame::Space => return number,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the volume has no end");
}

/// Removes all files at the top.
pub fn empty(volume: &Volume) {
    let names: Vec<_> = volume.read_dir("/").unwrap().map(|entry| entry.unwrap().file_name().to_owned()).collect();
    for name in names {
        volume.remove_file(&name).unwrap();
    }
    volume.sync().unwrap();
}
