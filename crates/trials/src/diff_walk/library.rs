//! Walks an image through Spinney's library, and records each path. Called by `diff_walk`, `log_replay`,
//! `crash_explore` and others.

use super::content::{self, Readable};
use super::in_parallel;
use super::record::{Extent, Record, Time, Walk, merge};
use anyhow::Result;
use btrfs::TreeId;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use vfs::file_system::{self, ExtentKind, NodeKind};
use vfs::{File, FileOptions, Volume};

/// Every path from the top-level subvolume down.
pub(crate) fn walk(image: &Path) -> Result<Walk> {
    let options = btrfs::Volume::options().read_only(true).subvolume_id(TreeId::FS);
    let volume = options.open(image)?;
    walk_volume(&volume)
}

/// Every path of a volume of any format; one with subvolumes was opened at its top-level subvolume.
pub(crate) fn walk_volume(volume: &Volume) -> Result<Walk> {
    let mut paths = vec![Vec::new()];
    let mut folders = vec![Vec::new()];
    while let Some(folder) = folders.pop() {
        for entry in volume.read_dir(from_top(&folder))? {
            let entry = entry?;
            let mut path = folder.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(entry.name_bytes());
            if entry.file_type().is_dir() {
                folders.push(path.clone());
            }
            paths.push(path);
        }
    }
    let records = in_parallel(&paths, |path| record(volume, &from_top(path)))?;
    Ok(records.into_iter().collect())
}

/// The SHA-256 of a file's contents.
pub(crate) fn sha256(volume: &Volume, path: &[u8], size: u64) -> Result<[u8; 32]> {
    let file = FileOptions::new().read(true).open(volume, from_top(path))?;
    content::sha256(&file, size)
}

/// Paths start at the top; an empty path is invalid.
fn from_top(path: &[u8]) -> PathBuf {
    Path::new("/").join(OsStr::from_bytes(path))
}

fn record(volume: &Volume, path: &Path) -> Result<Record> {
    let metadata = volume.symlink_metadata(path)?;
    let mut xattrs = BTreeMap::new();
    for name in volume.list_xattrs(path)? {
        let value = volume.get_xattr(path, name.as_bytes())?.unwrap_or_default();
        xattrs.insert(name.into_vec(), value);
    }
    let mut record = Record {
        mode: metadata.mode(),
        ino: metadata.home.ino,
        links: metadata.nlink,
        uid: metadata.uid,
        gid: metadata.gid,
        size: metadata.size,
        blocks: metadata.blocks,
        rdev: u64::from(metadata.rdev),
        atime: time(metadata.atime),
        mtime: time(metadata.mtime),
        ctime: time(metadata.ctime),
        btime: time(metadata.btime),
        xattrs,
        ..Record::default()
    };
    match metadata.kind {
        NodeKind::Symlink => record.target = Some(volume.read_link(path)?.into_os_string().into_vec()),
        NodeKind::File => {
            let file = FileOptions::new().read(true).open(volume, path)?;
            record.flags = Some(metadata.flags.bits());
            record.extents = extents(&file)?;
            record.sha256 = Some(content::sha256(&file, metadata.size)?);
        }
        NodeKind::Directory if metadata.home.ino != STUB_INO => record.flags = Some(metadata.flags.bits()),
        _ => {}
    }
    Ok(record.without_invented_times())
}

/// Inode number of the empty directory that a snapshot has in place of a nested subvolume.
const STUB_INO: u64 = 2;

fn time(time: file_system::Time) -> Time {
    (time.sec, time.nsec)
}

fn extents(file: &File) -> Result<Vec<Extent>> {
    let all = file.extents()?.into_iter().map(|extent| Extent {
        offset: extent.offset,
        len: extent.len,
        place: extent.logical.unwrap_or(0),
        is_inline: extent.kind == ExtentKind::Inline,
        is_unwritten: extent.kind == ExtentKind::Preallocated,
        is_compressed: extent.compression.is_some(),
    });
    Ok(merge(all))
}

impl Readable for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        Ok(File::read_at(self, buffer, offset)?)
    }

    fn data_ranges(&self) -> Result<Vec<(u64, u64)>> {
        let ranges = self.extents()?.into_iter().filter(|extent| extent.kind != ExtentKind::Preallocated);
        Ok(ranges.map(|extent| (extent.offset, extent.offset.saturating_add(extent.len))).collect())
    }
}
