//! Changes a mounted image at random, with fsyncs, after which copies are taken. Called by `log_replay`.
//!
//! The names are few, so that the same names are made and removed often, and all kinds of changes between two commits
//! combine. Changes that fail (a missing name, a directory that is not empty) are skipped.

use super::dirty_image::Dirty;
use crate::system::{Mount, btrfs_program, make_image, run as run_program};
use anyhow::Result;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use testkit::Random;

const IMAGE_BYTES: u64 = 256 << 20;
/// Changes made and committed before the first copy.
const BASE_STEPS: u64 = 120;
/// Changes after that: half of them in each of two rounds, which begin with a commit.
const LOGGED_STEPS: u64 = 160;
/// Most copies taken of one image.
const COPIES_MAX: u64 = 4;
const FILE_BYTES_MAX: u64 = 1 << 20;
const FOLDERS: &[&str] = &["", "a/", "b/", "a/c/", "a/c/d/", "sub/", "sub/x/", "sub/y/"];
const NAMES: u64 = 12;
/// Links with long names to one file in one directory: enough that they need extended references.
const MANY_LINKS: u64 = 90;

/// Options of mkfs and of mount; the seed chooses the row.
const FORMS: &[(&[&str], &str)] = &[
    (&[], ""),
    (&["-O", "^no-holes"], ""),
    (&["--nodesize", "4096"], ""),
    (&[], ",compress-force=zstd"),
    (&["-M", "--nodesize", "4096"], ""),
    (&["-R", "free-space-tree"], ",max_inline=0"),
    (&["--csum", "xxhash"], ",compress=lzo"),
    (&["-O", "^no-holes", "--nodesize", "65536"], ",nodatasum"),
    (&["-R", "^free-space-tree"], ""),
    (&["--csum", "sha256", "-m", "single"], ",nodatacow"),
];

/// Runs one workload; returns the copies that have a log.
pub(super) fn run(seed: u64, folder: &Path, writer: Option<&Path>) -> Result<Vec<Dirty>> {
    let mut random = Random::new(seed);
    let form = usize::try_from(seed)? % FORMS.len();
    let (make, mount_options) = FORMS.get(form).copied().unwrap_or_default();
    let image = folder.join(format!("work-{seed}.img"));
    make_image(&image, IMAGE_BYTES, make)?;
    let mount = match writer {
        None => {
            let mount = Mount::new(&image, &format!("commit=300,noatime{mount_options}"))?;
            let subvolume = mount.path().join("sub").to_string_lossy().into_owned();
            run_program(&btrfs_program(), &["subvolume", "create", &subvolume])?;
            mount
        }
        Some(program) => {
            let name = program.to_string_lossy();
            run_program(&name, &["subvolume", "create", &image.to_string_lossy(), "/sub"])?;
            let options = mount_options.split(',').filter(|option| !option.starts_with("compress"));
            let options = options.collect::<Vec<_>>().join(",");
            Mount::served(program, &image, &format!("commit=300,noatime{options}"))?
        }
    };
    let mut work = Work { top: mount.path(), random: &mut random };
    work.make_folders();
    for _ in 0..BASE_STEPS {
        work.step();
    }
    let mut copies = Vec::new();
    let copy_every = LOGGED_STEPS / (2 * COPIES_MAX);
    for round in 0..2 {
        run_program("sync", &["-f", &mount.path().to_string_lossy()])?;
        for number in 0..LOGGED_STEPS / 2 {
            if work.step() == Step::Synced && work.random.one_in(copy_every / 2) {
                let name = format!("seed-{seed}-{round}-{number}");
                let story = format!("{name} (form {form}: {make:?}{mount_options})");
                let to = folder.join(format!("{name}.img"));
                copies.extend(Dirty::copy(&image, &to, story)?);
            }
        }
    }
    mount.unmount()?;
    std::fs::remove_file(image)?;
    Ok(copies)
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Done,
    /// A change is durable now.
    Synced,
}

struct Work<'a> {
    top: &'a Path,
    random: &'a mut Random,
}

impl Work<'_> {
    fn make_folders(&mut self) {
        for folder in FOLDERS {
            let _ = std::fs::create_dir_all(self.top.join(folder));
        }
    }

    /// Takes one step at random; a change that fails is skipped.
    fn step(&mut self) -> Step {
        match self.random.below(100) {
            0..20 => return self.sync().unwrap_or(Step::Done),
            20..50 => drop(self.change_file()),
            50..85 => drop(self.change_names()),
            _ => drop(self.change_metadata()),
        }
        Step::Done
    }

    fn folder(&mut self) -> PathBuf {
        let folder = self.random.pick(FOLDERS).copied().unwrap_or_default();
        self.top.join(folder)
    }

    fn path(&mut self) -> PathBuf {
        let number = self.random.below(NAMES);
        // Some names are long, so that few references fill an item.
        let name = match number % 3 {
            0 => format!("{number}-{}", "long".repeat(50)),
            _ => format!("f{number}"),
        };
        self.folder().join(name)
    }

    /// An existing name, if a few tries find one.
    fn existing(&mut self) -> PathBuf {
        let mut path = self.path();
        for _ in 0..8 {
            if path.symlink_metadata().is_ok() {
                break;
            }
            path = self.path();
        }
        path
    }

    fn open(&mut self) -> Result<File> {
        let path = if self.random.one_in(3) { self.path() } else { self.existing() };
        Ok(OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?)
    }

    fn sync(&mut self) -> Result<Step> {
        if self.random.one_in(4) {
            File::open(self.folder())?.sync_all()?;
            return Ok(Step::Synced);
        }
        let path = self.existing();
        let kind = path.symlink_metadata()?.file_type();
        if !kind.is_file() && !kind.is_dir() {
            return Ok(Step::Done);
        }
        let file = open_to_read(&path)?;
        if self.random.one_in(4) {
            file.sync_data()?;
        } else {
            file.sync_all()?;
        }
        Ok(Step::Synced)
    }

    fn change_file(&mut self) -> Result<()> {
        let file = self.open()?;
        let offset = self.random.skewed(FILE_BYTES_MAX);
        let len = self.random.skewed(FILE_BYTES_MAX / 4).max(1);
        let whole = (offset & !4095, (len | 4095).saturating_add(1));
        match self.random.below(14) {
            0..5 => {
                let bytes = self.random.noise(usize::try_from(len)?);
                file.write_all_at(&bytes, offset)?;
            }
            5 => {
                let bytes = self.random.text(usize::try_from(len.min(3000))?);
                file.write_all_at(&bytes, 0)?;
            }
            6 => file.write_all_at(&self.random.text(200_000), whole.0)?,
            7 => file.set_len(offset)?,
            8 => file.set_len(0)?,
            9 => rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, offset, len)?,
            10 => rustix::fs::fallocate(&file, FallocateFlags::empty(), offset, len)?,
            11 => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&file, flags, whole.0, whole.1)?;
            }
            12 => rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, offset, len)?,
            _ => {
                let source = open_to_read(&self.existing())?;
                source.sync_data()?;
                rustix::fs::ioctl_ficlone(&file, &source)?;
            }
        }
        Ok(())
    }

    fn change_names(&mut self) -> Result<()> {
        let (old, new) = (self.existing(), self.path());
        match self.random.below(20) {
            0..4 => drop(File::create_new(new)?),
            4..7 => std::fs::hard_link(old, new)?,
            7..10 => std::fs::remove_file(old)?,
            10..14 => std::fs::rename(old, new)?,
            14 => rustix::fs::renameat_with(CWD, old, CWD, new, RenameFlags::EXCHANGE)?,
            15 => std::fs::create_dir(new)?,
            16 => std::fs::remove_dir(old)?,
            17 => match self.random.below(3) {
                0 => std::os::unix::fs::symlink("somewhere/else", new)?,
                1 => {
                    let kind = rustix::fs::FileType::Fifo;
                    rustix::fs::mknodat(CWD, new, kind, Mode::from_raw_mode(0o644), 0)?;
                }
                _ => self.make_unnamed(&new)?,
            },
            18 => self.move_folder()?,
            _ => self.link_often(&old)?,
        }
        Ok(())
    }

    /// A file that gets its name after its contents.
    fn make_unnamed(&mut self, name: &Path) -> Result<()> {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = File::from(rustix::fs::open(self.folder(), flags, Mode::from_raw_mode(0o600))?);
        file.write_all_at(&self.random.noise(5000), 0)?;
        if self.random.one_in(3) {
            file.sync_all()?;
        }
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, own, CWD, name, AtFlags::SYMLINK_FOLLOW)?;
        Ok(())
    }

    fn move_folder(&mut self) -> Result<()> {
        let (from, to) = match self.random.below(3) {
            0 => ("a/c/d", "b/d"),
            1 => ("b/d", "a/c/d"),
            _ => ("a/c/d", "a/c/e"),
        };
        Ok(std::fs::rename(self.top.join(from), self.top.join(to))?)
    }

    /// Adds or removes many links of one file.
    fn link_often(&mut self, file: &Path) -> Result<()> {
        let folder = self.folder();
        let adds = self.random.one_in(2);
        for number in 0..MANY_LINKS {
            let name = folder.join(format!("{}-{number}", "link".repeat(55)));
            if adds {
                std::fs::hard_link(file, name)?;
            } else if self.random.one_in(2) {
                let _ = std::fs::remove_file(name);
            }
        }
        Ok(())
    }

    fn change_metadata(&mut self) -> Result<()> {
        let path = self.existing();
        let name = format!("user.name{}", self.random.below(4));
        match self.random.below(6) {
            0..3 => {
                let len = self.random.index(300);
                let value = self.random.noise(len);
                rustix::fs::lsetxattr(path, name, &value, XattrFlags::empty())?;
            }
            3 => rustix::fs::lremovexattr(path, name)?,
            4 => {
                let mode = u32::try_from(self.random.below(0o1000))?;
                std::fs::set_permissions(path, PermissionsExt::from_mode(mode))?;
            }
            _ => {
                let owner = u32::try_from(self.random.below(3000))?;
                std::os::unix::fs::lchown(path, Some(owner), Some(owner / 2))?;
            }
        }
        Ok(())
    }
}

/// Opens a file for reading; for a pipe, without waiting for a writer.
fn open_to_read(path: &Path) -> Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits())?;
    Ok(OpenOptions::new().read(true).custom_flags(flags).open(path)?)
}
