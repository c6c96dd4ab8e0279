//! The reference tools, and the images that they make.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use blockdev::backends::MemoryDevice;
use f2fs::{F2fs, OpenOptions};
use vfs::Volume;

/// Where Debian keeps programs of administrators.
const ADMIN_DIRS: &str = "/usr/sbin:/sbin";

/// A directory for a test, if the tools are installed.
pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
}

impl Bench {
    /// `None`, with a message, if a tool is missing.
    pub(crate) fn new() -> Option<Self> {
        for tool in ["mkfs.f2fs", "sload.f2fs", "dump.f2fs"] {
            if command(tool).arg("-V").output().is_err() {
                println!("SKIPPED: {tool} is missing (Debian: f2fs-tools)");
                return None;
            }
        }
        Some(Self { dir: tempfile::tempdir().unwrap() })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes an empty image of so many MiB.
    pub(crate) fn mkfs(&self, name: &str, mib: u64, options: &[&str]) -> PathBuf {
        let image = self.path(name);
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(mib << 20).unwrap();
        run(command("mkfs.f2fs").arg("-q").args(options).arg(&image));
        image
    }

    /// Makes an image with the files of a directory.
    pub(crate) fn load(&self, source: &Path, mib: u64, mkfs: &[&str]) -> PathBuf {
        let image = self.mkfs("image", mib, mkfs);
        // Its exit status says nothing: reading the image does.
        command("sload.f2fs").arg("-P").arg("-f").arg(source).arg(&image).output().unwrap();
        image
    }
}

pub(crate) fn command(tool: &str) -> Command {
    let mut command = Command::new(tool);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:{ADMIN_DIRS}"));
    command
}

/// Runs a tool, which must succeed; returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {}", tail(&text));
    text
}

fn tail(text: &str) -> String {
    text.lines().rev().take(30).map(|line| line.chars().take(200).collect::<String>() + "\n").collect()
}

/// A number in the output of `dump.f2fs`, behind its name: `name    [0x   10 : 16]`.
pub(crate) fn number_of(dump: &str, name: &str) -> u64 {
    let line = dump.lines().find(|line| line.split_whitespace().next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in {}", tail(dump)));
    let text = line.rsplit(':').next().unwrap().trim().trim_end_matches(']').trim();
    text.parse().unwrap_or_else(|_| panic!("{line}"))
}

pub(crate) fn open(image: &Path) -> (Arc<F2fs>, Volume) {
    open_bytes(&std::fs::read(image).unwrap(), OpenOptions::new()).unwrap()
}

pub(crate) fn open_bytes(bytes: &[u8], options: OpenOptions) -> f2fs::Result<(Arc<F2fs>, Volume)> {
    let fs = Arc::new(options.open(Arc::new(MemoryDevice::from_bytes(bytes)))?);
    let volume = Volume::new(Arc::<F2fs>::clone(&fs));
    Ok((fs, volume))
}
