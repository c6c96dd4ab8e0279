//! Defines a scene, and the calls that scenes share. Used by `scenes`, `contents` and `cuts`.

use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use testkit::Random;

/// Bytes of a block.
pub(super) const BLOCK: u64 = 4096;

/// A named change of a mounted image; it gets a directory of its own, not yet made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene {
    pub(super) name: &'static str,
    pub(super) run: fn(&Path, &mut Random) -> Result<()>,
}

/// Opens a file for reading and writing; creates it if it is missing.
pub(super) fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true);
    options.open(path).with_context(|| path.display().to_string())
}

/// Has the file system make a checkpoint.
pub(super) fn checkpoint(folder: &Path) -> Result<()> {
    Ok(rustix::fs::syncfs(File::open(folder)?)?)
}

/// A file in /sys of the one mounted f2fs volume.
pub(super) fn knob(name: &str) -> Result<PathBuf> {
    let all = std::fs::read_dir("/sys/fs/f2fs")?;
    let paths = all.filter_map(Result::ok).map(|entry| entry.path().join(name));
    paths.into_iter().find(|path| path.exists()).with_context(|| format!("no {name} in /sys/fs/f2fs"))
}

/// Runs f2fs_io, for operations particular to f2fs.
pub(super) fn f2fs_io(words: &[&str], path: &Path) -> Result<()> {
    let path = path.to_string_lossy();
    crate::system::run("f2fs_io", &[words, &[&*path]].concat()).map(drop)
}
