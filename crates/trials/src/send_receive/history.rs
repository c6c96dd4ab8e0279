//! Changes a subvolume at random between two snapshots, through a mount by the kernel. Called by `send_receive`.

use anyhow::{Context, Result};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use testkit::Random;

/// Largest file that is written at once, in bytes.
const WRITE_BYTES_MAX: u64 = 300_000;
/// Largest offset in a file, in bytes.
const OFFSET_MAX: u64 = 2 << 20;
/// An access control list with a named user: version 2, and five entries.
const ACL: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, 2, 0, 4, 0, 0xe8, 3, 0, 0, 4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, 16,
    0, 6, 0, 0xff, 0xff, 0xff, 0xff, 32, 0, 4, 0, 0xff, 0xff, 0xff, 0xff,
];

/// A subvolume and the randomness that changes it.
pub(super) struct History {
    top: PathBuf,
    random: Random,
    /// Number of the next name; names are never reused.
    names: u64,
}

impl History {
    pub(super) fn new(seed: u64, top: &Path) -> Self {
        Self { top: top.to_owned(), random: Random::new(seed), names: 0 }
    }

    /// Makes `steps` changes.
    pub(super) fn go_on(&mut self, steps: u64) -> Result<()> {
        for step in 0..steps {
            self.step().with_context(|| format!("step {step}"))?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        match self.random.below(20) {
            0..=3 => self.make_file(),
            4 => self.make_dir(),
            5 => self.make_special(),
            6..=8 => self.write(),
            9 => self.resize(),
            10 => self.allocate(),
            11 => self.share(),
            12..=14 => self.rename(),
            15 => self.link(),
            16 => self.remove(),
            17 => self.set_xattr(),
            18 => self.replace_by_dir(),
            _ => self.set_attributes(),
        }
    }

    /// An existing file of a kind; `None` if there is none.
    fn some(&mut self, fits: impl Fn(&std::fs::FileType) -> bool) -> Result<Option<PathBuf>> {
        let mut found = Vec::new();
        for entry in walkdir::WalkDir::new(&self.top).min_depth(1).sort_by_file_name() {
            let entry = entry?;
            if fits(&entry.file_type()) {
                found.push(entry.into_path());
            }
        }
        Ok(self.random.pick(&found).cloned())
    }

    fn some_file(&mut self) -> Result<Option<PathBuf>> {
        self.some(std::fs::FileType::is_file)
    }

    /// An existing directory: often the top.
    fn some_dir(&mut self) -> Result<PathBuf> {
        let below = if self.random.one_in(3) { None } else { self.some(std::fs::FileType::is_dir)? };
        Ok(below.unwrap_or_else(|| self.top.clone()))
    }

    fn new_path(&mut self) -> Result<PathBuf> {
        self.names += 1;
        let long = if self.random.one_in(15) { "-long".repeat(45) } else { String::new() };
        let kind = ["f", "name with space", "ä", "x\ny"].get(self.random.index(4)).copied().unwrap_or("f");
        Ok(self.some_dir()?.join(format!("{kind}{}{long}", self.names)))
    }

    /// Compressible or incompressible bytes.
    fn bytes(&mut self) -> Vec<u8> {
        let max = if self.random.one_in(2) { 3000 } else { WRITE_BYTES_MAX };
        let len = self.random.below(max);
        let compresses = self.random.one_in(2);
        let mut bytes = Vec::new();
        for at in 0..len {
            let number = if compresses { at / 97 } else { self.random.number() };
            bytes.push(number.to_le_bytes().first().copied().unwrap_or_default());
        }
        bytes
    }

    fn make_file(&mut self) -> Result<()> {
        let (path, bytes) = (self.new_path()?, self.bytes());
        Ok(std::fs::write(path, bytes)?)
    }

    fn make_dir(&mut self) -> Result<()> {
        Ok(std::fs::create_dir(self.new_path()?)?)
    }

    fn make_special(&mut self) -> Result<()> {
        let path = self.new_path()?;
        let kinds = [FileType::Fifo, FileType::Socket, FileType::CharacterDevice, FileType::BlockDevice];
        let number = u32::try_from(self.random.below(1000))?;
        match self.random.pick(&kinds) {
            Some(kind) if !self.random.clone().one_in(3) => {
                let device = rustix::fs::makedev(number, number * 7);
                Ok(rustix::fs::mknodat(CWD, &path, *kind, Mode::from_raw_mode(0o640), device)?)
            }
            _ => Ok(std::os::unix::fs::symlink(format!("../to/{number}"), path)?),
        }
    }

    fn write(&mut self) -> Result<()> {
        let Some(path) = self.some_file()? else { return Ok(()) };
        let (bytes, at) = (self.bytes(), self.random.below(OFFSET_MAX));
        // Often aligned to blocks, as by programs.
        let at = if self.random.one_in(2) { at & !0xfff } else { at };
        Ok(OpenOptions::new().write(true).open(path)?.write_all_at(&bytes, at)?)
    }

    fn resize(&mut self) -> Result<()> {
        let Some(path) = self.some_file()? else { return Ok(()) };
        let size = self.random.below(OFFSET_MAX);
        Ok(OpenOptions::new().write(true).open(path)?.set_len(size)?)
    }

    fn allocate(&mut self) -> Result<()> {
        let Some(path) = self.some_file()? else { return Ok(()) };
        let modes = [
            FallocateFlags::empty(),
            FallocateFlags::KEEP_SIZE,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocateFlags::ZERO_RANGE,
        ];
        let mode = self.random.pick(&modes).copied().unwrap_or(FallocateFlags::empty());
        let (at, len) = (self.random.below(OFFSET_MAX), self.random.between(1, 200_000));
        Ok(rustix::fs::fallocate(OpenOptions::new().write(true).open(path)?, mode, at, len)?)
    }

    /// Shares blocks of one file with another, or within one.
    fn share(&mut self) -> Result<()> {
        let (Some(from), Some(to)) = (self.some_file()?, self.some_file()?) else { return Ok(()) };
        let source = File::open(from)?;
        let target = OpenOptions::new().write(true).open(to)?;
        let blocks = source.metadata()?.len() / 4096;
        let mut offset = self.random.below(blocks + 1) * 4096;
        let len = usize::try_from(self.random.between(1, 64) * 4096)?;
        let mut to_offset = self.random.below(OFFSET_MAX / 4096) * 4096;
        // Overlapping ranges of one file are refused.
        let _ = rustix::fs::copy_file_range(&source, Some(&mut offset), &target, Some(&mut to_offset), len);
        Ok(())
    }

    /// Renames a file: to a new name, over another file, or in exchange for another one (so cycles arise).
    fn rename(&mut self) -> Result<()> {
        let Some(from) = self.some(|_| true)? else { return Ok(()) };
        let (to, flags) = match self.random.below(3) {
            0 => (self.some(|_| true)?.unwrap_or_else(|| from.clone()), RenameFlags::EXCHANGE),
            1 => (self.some_file()?.unwrap_or_else(|| from.clone()), RenameFlags::empty()),
            _ => (self.new_path()?, RenameFlags::empty()),
        };
        // A directory cannot be moved below itself, nor over a file.
        let _ = rustix::fs::renameat_with(CWD, &from, CWD, &to, flags);
        Ok(())
    }

    fn link(&mut self) -> Result<()> {
        let Some(from) = self.some(|kind| !kind.is_dir())? else { return Ok(()) };
        Ok(std::fs::hard_link(from, self.new_path()?)?)
    }

    fn remove(&mut self) -> Result<()> {
        let path = if self.random.one_in(4) { self.some(std::fs::FileType::is_dir)? } else { None };
        match path {
            Some(dir) => Ok(std::fs::remove_dir_all(dir)?),
            None => Ok(self.some(|kind| !kind.is_dir())?.map_or(Ok(()), std::fs::remove_file)?),
        }
    }

    /// A directory takes the name of a removed file.
    fn replace_by_dir(&mut self) -> Result<()> {
        let Some(path) = self.some_file()? else { return Ok(()) };
        std::fs::remove_file(&path)?;
        std::fs::create_dir(&path)?;
        Ok(std::fs::write(path.join("in it"), self.bytes())?)
    }

    fn set_xattr(&mut self) -> Result<()> {
        let Some(path) = self.some(|kind| kind.is_file() || kind.is_dir())? else { return Ok(()) };
        let name = format!("user.{}", self.random.below(3));
        match self.random.below(4) {
            0 => drop(rustix::fs::lremovexattr(&path, name)),
            1 => rustix::fs::lsetxattr(&path, "system.posix_acl_access", &ACL, XattrFlags::empty())?,
            _ => {
                let len = self.random.index(200);
                rustix::fs::lsetxattr(&path, name, &vec![b'v'; len], XattrFlags::empty())?;
            }
        }
        Ok(())
    }

    fn set_attributes(&mut self) -> Result<()> {
        let Some(path) = self.some(|_| true)? else { return Ok(()) };
        let is_link = path.symlink_metadata()?.is_symlink();
        match self.random.below(3) {
            0 if !is_link => {
                let mode = u32::try_from(self.random.below(0o10_000))?;
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
            }
            1 => {
                let (uid, gid) = (u32::try_from(self.random.below(2000))?, u32::try_from(self.random.below(2000))?);
                let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
                rustix::fs::chownat(CWD, &path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            _ => {
                let seconds = i64::try_from(self.random.below(1 << 33))?;
                let time = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
                let times = Timestamps { last_access: time, last_modification: time };
                rustix::fs::utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
            }
        }
        Ok(())
    }
}
