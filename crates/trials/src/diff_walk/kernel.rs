//! Walks a mount through the kernel, and records each path. Called by `diff_walk`, and by most trials that compare
//! images with the kernel's view.

use super::content::{self, Readable};
use super::in_parallel;
use super::record::{Extent, Record, Time, Walk, merge};
use anyhow::{Context, Result};
use fiemap::{Fiemap, FiemapExtentFlags};
use rustix::fs::{AtFlags, FileType, OFlags, SeekFrom, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Longest value, and longest list of names, that the kernel returns.
const XATTR_BYTES_MAX: usize = 64 << 10;

/// Every path below the mount point.
pub(crate) fn walk(top: &Path) -> Result<Walk> {
    let mut paths = Vec::new();
    for entry in walkdir::WalkDir::new(top) {
        let entry = entry?;
        let path = entry.path().strip_prefix(top).unwrap_or(entry.path());
        paths.push(path.as_os_str().as_bytes().to_vec());
    }
    let records = in_parallel(&paths, |path| record(&top.join(std::ffi::OsStr::from_bytes(path))))?;
    Ok(records.into_iter().collect())
}

/// The record of one path.
pub(crate) fn record(path: &Path) -> Result<Record> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
    let kind = FileType::from_raw_mode(stat.stx_mode.into());
    let mut record = Record {
        mode: stat.stx_mode.into(),
        ino: stat.stx_ino,
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        rdev: rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
        btime: time(stat.stx_btime),
        xattrs: xattrs(path).context("xattrs")?,
        ..Record::default()
    };
    match kind {
        FileType::Symlink => record.target = Some(std::fs::read_link(path)?.into_os_string().into_vec()),
        FileType::RegularFile => {
            let file = open(path)?;
            record.flags = Some(rustix::fs::ioctl_getflags(&file)?.bits());
            record.extents = extents(&file).context("fiemap")?;
            record.sha256 = Some(content::sha256(&file, stat.stx_size)?);
        }
        FileType::Directory => {
            // The empty directory in place of a nested subvolume has no such call.
            record.flags = rustix::fs::ioctl_getflags(open(path)?).ok().map(|flags| flags.bits());
        }
        _ => {}
    }
    Ok(record.without_invented_times())
}

fn open(path: &Path) -> Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NOATIME).bits();
    Ok(std::fs::OpenOptions::new().read(true).custom_flags(i32::try_from(flags)?).open(path)?)
}

fn time(time: StatxTimestamp) -> Time {
    (time.tv_sec, time.tv_nsec)
}

fn xattrs(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0u8; XATTR_BYTES_MAX];
    let len = match rustix::fs::llistxattr(path, &mut names) {
        Err(Errno::OPNOTSUPP) => 0,
        len => len?,
    };
    names.truncate(len);
    let mut all = BTreeMap::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; XATTR_BYTES_MAX];
        let len = rustix::fs::lgetxattr(path, name, &mut value)?;
        value.truncate(len);
        all.insert(name.to_vec(), value);
    }
    Ok(all)
}

fn extents(file: &File) -> Result<Vec<Extent>> {
    let mut all = Vec::new();
    for extent in Fiemap::new(file) {
        let extent = match extent {
            // A file system without a disk, such as tmpfs, has none.
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => break,
            extent => extent?,
        };
        let has = |flag| extent.fe_flags.contains(flag);
        all.push(Extent {
            offset: extent.fe_logical,
            len: extent.fe_length,
            place: extent.fe_physical,
            is_inline: has(FiemapExtentFlags::DATA_INLINE),
            is_unwritten: has(FiemapExtentFlags::UNWRITTEN),
            is_compressed: has(FiemapExtentFlags::ENCODED),
        });
    }
    Ok(merge(all))
}

impl Readable for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        Ok(FileExt::read_at(self, buffer, offset)?)
    }

    fn data_ranges(&self) -> Result<Vec<(u64, u64)>> {
        let mut ranges = Vec::new();
        let mut position = 0;
        loop {
            match rustix::fs::seek(self, SeekFrom::Data(position)) {
                Ok(start) => {
                    let end = rustix::fs::seek(self, SeekFrom::Hole(start))?;
                    ranges.push((start, end));
                    position = end;
                }
                Err(Errno::NXIO) => return Ok(ranges),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
