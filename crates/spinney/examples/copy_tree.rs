//! Copies a directory of the host into an image: `copy_tree IMAGE DIRECTORY [TARGET]`.
//!
//! Each entry is made with all its metadata in one step, the way `spinney put` does it.

use std::error::Error;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use spinney::{NodeKind, OpenOptions, Time, Times, Volume, VolumeOptions, WholeNode};

const BUFFER_BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let usage = "usage: copy_tree IMAGE DIRECTORY [TARGET]";
    let (image, source) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let target = arguments.next().unwrap_or_else(|| PathBuf::from("/copy"));

    let volume = spinney::open(image, &VolumeOptions::new())?;
    let mut copied = 0_u64;
    let mut todo = vec![(source, target)];
    while let Some((from, to)) = todo.pop() {
        copy_one(&volume, &from, &to)?;
        copied += 1;
        if fs::symlink_metadata(&from)?.is_dir() {
            for entry in fs::read_dir(&from)? {
                let name = entry?.file_name();
                todo.push((from.join(&name), to.join(&name)));
            }
        }
    }
    volume.close()?;
    println!("{copied} entries copied");
    Ok(())
}

fn copy_one(volume: &Volume, from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let metadata = fs::symlink_metadata(from)?;
    let kind = NodeKind::from_mode(metadata.mode()).ok_or("an unknown kind of file")?;
    let link = if kind.is_symlink() { fs::read_link(from)? } else { PathBuf::new() };
    let node = WholeNode {
        kind,
        permissions: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime: Some(time(metadata.mtime(), metadata.mtime_nsec())?),
        atime: Some(time(metadata.atime(), metadata.atime_nsec())?),
        rdev: u32::try_from(metadata.rdev())?,
        target: link.as_os_str().as_bytes(),
        ..WholeNode::default()
    };
    volume.create_node(to, &node)?;
    if kind.is_file() {
        copy_contents(volume, from, to)?;
        volume.set_times(to, &Times { atime: node.atime, mtime: node.mtime, ..Times::default() })?;
    }
    Ok(())
}

fn copy_contents(volume: &Volume, from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let mut source = fs::File::open(from)?;
    let target = OpenOptions::new().write(true).append(true).open(volume, to)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match source.read(&mut buffer)? {
            0 => return Ok(()),
            len => target.write_at(&buffer[..len], 0)?,
        }
    }
}

fn time(sec: i64, nsec: i64) -> Result<Time, Box<dyn Error>> {
    Ok(Time::new(sec, u32::try_from(nsec)?))
}
