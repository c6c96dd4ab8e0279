//! Image files that tests make volumes on.

#![allow(dead_code, reason = "no test uses all of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "each test is a crate of its own")]

pub mod served;

use std::path::Path;
use std::process::Command;

use btrfs::{MakeOptions, Volume};
use vfs::{Errno, Error};

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
        let options = MakeOptions { size: Some(IMAGE_BYTES), ..options };
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

/// Has `btrfs check` look at an image, where that program is installed.
pub fn check(image: &Path) {
    let Ok(output) = Command::new("btrfs").args(["check", "--check-data-csum"]).arg(image).output() else {
        eprintln!("btrfs check is not installed: skipped");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stdout));
}

/// What the caller did wrong.
pub fn what<T: std::fmt::Debug>(result: Result<T, Error>) -> Errno {
    result.unwrap_err().errno()
}
