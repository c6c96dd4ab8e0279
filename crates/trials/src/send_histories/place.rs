//! Carries out the changes of a history in its place: a subvolume mounted by the kernel, or opened by the library.
//! `history` and `cases` draw the changes.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Result;
use btrfs::Volume;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags};
use vfs::file_system::{AllocateFlags, NodeKind, Time, XattrMode};
use vfs::{FileOptions, SnapshotMode, Times};

use crate::system::run;

/// Name of the changing subvolume.
pub(super) const WORK: &str = "work";

/// One change. Paths are those in the subvolume.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Make(PathBuf, Vec<u8>),
    MakeDir(PathBuf),
    Write(PathBuf, u64, Vec<u8>),
    Truncate(PathBuf, u64),
    Punch(PathBuf, u64, u64),
    Allocate(PathBuf, u64, u64),
    /// Source, offset, target, offset, bytes.
    Reflink(PathBuf, u64, PathBuf, u64, u64),
    Rename(PathBuf, PathBuf),
    Exchange(PathBuf, PathBuf),
    Remove(PathBuf),
    RemoveAll(PathBuf),
    Link(PathBuf, PathBuf),
    Symlink(Vec<u8>, PathBuf),
    /// 0: fifo, 1: socket, 2: character device, 3: block device.
    Node(PathBuf, u8),
    SetXattr(PathBuf, String, Vec<u8>),
    RemoveXattr(PathBuf, String),
    Mode(PathBuf, u32),
    Owner(PathBuf, u32, u32),
    Times(PathBuf, i64),
    Sync,
}

/// An existing path, and whether it is a directory, or a regular file.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) is_dir: bool,
    pub(super) is_file: bool,
}

/// A subvolume that can be changed.
pub(super) trait Place {
    /// Makes a change.
    fn apply(&self, op: &Op) -> Result<()>;
    /// All files, without the top.
    fn list(&self) -> Result<Vec<Found>>;
    /// Makes a read-only snapshot beside the subvolume.
    fn snapshot(&self, name: &str) -> Result<()>;
}

/// The top of a mount by the kernel.
pub(super) struct Kernel<'a>(pub(super) &'a Path);

impl Kernel<'_> {
    fn at(&self, path: &Path) -> PathBuf {
        self.0.join(WORK).join(path)
    }
}

impl Place for Kernel<'_> {
    fn apply(&self, op: &Op) -> Result<()> {
        let open = |path: &Path| File::options().read(true).write(true).open(self.at(path));
        match op {
            Op::Make(path, data) => {
                // Opening a fifo of that name would wait for a reader.
                let flags = i32::try_from((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits())?;
                let mut options = File::options();
                let file = options.write(true).create(true).truncate(true).custom_flags(flags).open(self.at(path))?;
                file.write_all_at(data, 0)?;
            }
            Op::MakeDir(path) => std::fs::create_dir(self.at(path))?,
            Op::Write(path, offset, data) => open(path)?.write_all_at(data, *offset)?,
            Op::Truncate(path, size) => open(path)?.set_len(*size)?,
            Op::Punch(path, offset, len) => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(open(path)?, flags, *offset, *len)?;
            }
            Op::Allocate(path, offset, len) => {
                rustix::fs::fallocate(open(path)?, FallocateFlags::empty(), *offset, *len)?;
            }
            Op::Reflink(from, from_offset, to, offset, len) => {
                // This is how btrfs copies within itself.
                let (from, to) = (open(from)?, open(to)?);
                let (mut from_offset, mut offset) = (*from_offset, *offset);
                let len = usize::try_from(*len)?;
                rustix::fs::copy_file_range(from, Some(&mut from_offset), to, Some(&mut offset), len)?;
            }
            Op::Rename(from, to) => std::fs::rename(self.at(from), self.at(to))?,
            Op::Exchange(from, to) => {
                rustix::fs::renameat_with(CWD, self.at(from), CWD, self.at(to), RenameFlags::EXCHANGE)?;
            }
            Op::Remove(path) => std::fs::remove_file(self.at(path))?,
            Op::RemoveAll(path) => std::fs::remove_dir_all(self.at(path))?,
            Op::Link(from, to) => std::fs::hard_link(self.at(from), self.at(to))?,
            Op::Symlink(target, path) => {
                std::os::unix::fs::symlink(&*String::from_utf8_lossy(target), self.at(path))?;
            }
            Op::Node(path, kind) => {
                let (kind, device) = match kind {
                    0 => (FileType::Fifo, 0),
                    1 => (FileType::Socket, 0),
                    2 => (FileType::CharacterDevice, rustix::fs::makedev(5, 300)),
                    _ => (FileType::BlockDevice, rustix::fs::makedev(300, 1)),
                };
                rustix::fs::mknodat(CWD, self.at(path), kind, Mode::from_raw_mode(0o640), device)?;
            }
            Op::SetXattr(path, name, value) => {
                rustix::fs::lsetxattr(self.at(path), name.as_str(), value, XattrFlags::empty())?;
            }
            Op::RemoveXattr(path, name) => rustix::fs::lremovexattr(self.at(path), name.as_str())?,
            Op::Mode(path, mode) => {
                rustix::fs::chmodat(CWD, self.at(path), Mode::from_raw_mode(*mode), AtFlags::empty())?;
            }
            Op::Owner(path, uid, gid) => {
                std::os::unix::fs::lchown(self.at(path), Some(*uid), Some(*gid))?;
            }
            Op::Times(path, second) => {
                let time = Timespec { tv_sec: *second, tv_nsec: 123_456_789 };
                let times = Timestamps { last_access: time, last_modification: time };
                rustix::fs::utimensat(CWD, self.at(path), &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Op::Sync => drop(run("btrfs", &["filesystem", "sync", &self.0.to_string_lossy()])?),
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<Found>> {
        let top = self.0.join(WORK);
        let mut all = Vec::new();
        for entry in walkdir::WalkDir::new(&top).min_depth(1).sort_by_file_name() {
            let entry = entry?;
            let (path, kind) = (entry.path().strip_prefix(&top)?.to_path_buf(), entry.file_type());
            all.push(Found { path, is_dir: kind.is_dir(), is_file: kind.is_file() });
        }
        Ok(all)
    }

    fn snapshot(&self, name: &str) -> Result<()> {
        let (from, to) = (self.0.join(WORK), self.0.join(name));
        run("btrfs", &["subvolume", "snapshot", "-r", &from.to_string_lossy(), &to.to_string_lossy()]).map(drop)
    }
}

/// The library.
pub(super) struct Library<'a>(pub(super) &'a Volume);

impl Library<'_> {
    fn at(path: &Path) -> PathBuf {
        Path::new("/").join(WORK).join(path)
    }
}

impl Place for Library<'_> {
    fn apply(&self, op: &Op) -> Result<()> {
        let (volume, at) = (self.0, Self::at);
        let open = |path: &Path| FileOptions::new().read(true).write(true).open(volume, at(path));
        match op {
            Op::Make(path, data) => volume.write(at(path), data)?,
            Op::MakeDir(path) => volume.create_dir(at(path))?,
            Op::Write(path, offset, data) => open(path)?.write_at(data, *offset)?,
            Op::Truncate(path, size) => open(path)?.set_len(*size)?,
            Op::Punch(path, offset, len) => {
                open(path)?.allocate(AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE, *offset, *len)?;
            }
            Op::Allocate(path, offset, len) => open(path)?.allocate(AllocateFlags::empty(), *offset, *len)?,
            Op::Reflink(from, from_offset, to, offset, len) => {
                open(to)?.copy_range(&open(from)?, *from_offset, *offset, *len)?;
            }
            Op::Rename(from, to) => volume.rename(at(from), at(to))?,
            Op::Exchange(from, to) => {
                volume.rename_with(at(from), at(to), vfs::file_system::RenameFlags::EXCHANGE)?;
            }
            Op::Remove(path) => volume.remove_file(at(path))?,
            Op::RemoveAll(path) => volume.remove_dir_all(at(path))?,
            Op::Link(from, to) => volume.hard_link(at(from), at(to))?,
            Op::Symlink(target, path) => volume.symlink(&*String::from_utf8_lossy(target), at(path))?,
            Op::Node(path, kind) => {
                let (kind, device) = match kind {
                    0 => (NodeKind::Fifo, 0),
                    1 => (NodeKind::Socket, 0),
                    2 => (NodeKind::CharDevice, rustix::fs::makedev(5, 300)),
                    _ => (NodeKind::BlockDevice, rustix::fs::makedev(300, 1)),
                };
                volume.mknod(at(path), kind, 0o640, u32::try_from(device)?)?;
            }
            Op::SetXattr(path, name, value) => volume.set_xattr(at(path), name, value, XattrMode::Either)?,
            Op::RemoveXattr(path, name) => volume.remove_xattr(at(path), name)?,
            Op::Mode(path, mode) => volume.set_permissions(at(path), *mode)?,
            Op::Owner(path, uid, gid) => volume.set_owner(at(path), Some(*uid), Some(*gid))?,
            Op::Times(path, sec) => {
                let time = Some(Time { sec: *sec, nsec: 123_456_789 });
                volume.set_times(at(path), &Times { atime: time, mtime: time, ..Times::default() })?;
            }
            Op::Sync => volume.sync()?,
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<Found>> {
        let mut all = Vec::new();
        let mut dirs = vec![PathBuf::new()];
        while let Some(dir) = dirs.pop() {
            for entry in self.0.read_dir(Self::at(&dir))? {
                let entry = entry?;
                let (path, kind) = (dir.join(entry.file_name()), entry.file_type());
                if kind.is_dir() {
                    dirs.push(path.clone());
                }
                all.push(Found { path, is_dir: kind.is_dir(), is_file: kind == NodeKind::File });
            }
        }
        Ok(all)
    }

    fn snapshot(&self, name: &str) -> Result<()> {
        Ok(self.0.snapshot(Self::at(Path::new("")), Path::new("/").join(name), SnapshotMode::ReadOnly)?)
    }
}
