//! Fresh images of many forms, and ways to open them.

use crate::Random;
use crate::reference;
use anyhow::{Context, Result};
use spinney::{Error, MakeOptions, Volume};
use std::path::Path;
use std::time::Duration;

/// How often, and how far apart, an image is opened that is locked.
const LOCK_ATTEMPTS_MAX: u32 = 100;
const LOCK_WAIT: Duration = Duration::from_millis(10);

/// Forms made by `mkfs.btrfs`, where it is installed: Spinney has to write to those as well.
const FOREIGN_FORMS: &[&[&str]] = &[
    &[],
    &["-n", "4096", "--csum", "xxhash"],
    &["-n", "8192", "--csum", "sha256"],
    &["-n", "32768", "--csum", "blake2", "-m", "single"],
    &["-n", "65536", "-d", "dup"],
    &["--mixed"],
    &["--mixed", "-d", "dup", "-m", "dup"],
    &["-O", "^no-holes"],
    &["-O", "^no-holes,^skinny-metadata", "-R", "^free-space-tree"],
];

/// Makes an image and opens it; says how it was made.
pub(crate) fn make(path: &Path, size_bytes: u64, random: &mut Random) -> Result<(Volume, String)> {
    if random.one_in(2) || !reference::is_installed() {
        return make_own(path, size_bytes, random);
    }
    let form = random.pick(FOREIGN_FORMS).copied().unwrap_or_default();
    reference::mkfs(path, size_bytes, form)?;
    let form = format!("mkfs.btrfs {form:?}");
    Ok((open(path, random).with_context(|| form.clone())?, form))
}

/// Made by Spinney itself.
fn make_own(path: &Path, size_bytes: u64, random: &mut Random) -> Result<(Volume, String)> {
    let mut make = MakeOptions { size: Some(size_bytes), ..MakeOptions::default() };
    make.nodesize = random.pick(&[4096, 16_384, 16_384, 65_536]).copied().unwrap_or(16_384);
    Volume::make(path, &make).with_context(|| format!("making an image with {make:?}"))?.close()?;
    let form = format!("Spinney, {}-byte nodes", make.nodesize);
    Ok((open(path, random).with_context(|| form.clone())?, form))
}

/// Opens it with one of several sets of options.
pub(super) fn open(path: &Path, random: &mut Random) -> Result<Volume> {
    let mut options = Volume::options();
    if random.one_in(3) {
        options = options.dirty_bytes(1 << 20).cache_bytes(4 << 20);
    }
    if random.one_in(4) {
        options = options.max_inline(0);
    }
    // A thread of another seed may be starting `btrfs check`: between fork and exec the child holds our lock too.
    for _ in 0..LOCK_ATTEMPTS_MAX {
        match options.open(path) {
            Err(Error::Io { source: blockdev::Error::Locked { .. }, .. }) => std::thread::sleep(LOCK_WAIT),
            opened => return Ok(opened?),
        }
    }
    Ok(options.open(path)?)
}
