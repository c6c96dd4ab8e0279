//! Runs the part of `f2fs-guest` in a kernel with f2fs: mounts devices one after the other, walks each, changes it and
//! walks it again. Called in the guest by `cargo trials f2fs-judge`.
//!
//! For `/dev/NAME` it leaves `NAME.walk` in the current directory, `NAME.changed` (the walk after the changes) and,
//! after a failure, `NAME.failed` with the reason; it continues with the next device.

use crate::diff_walk::record::{Record, Walk};
use crate::diff_walk::{kernel, walk_file};
use crate::images::populate;
use crate::system::{is_root, run};
use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use testkit::Random;

/// The directory of new files.
pub(super) const FOLDER: &str = "by-the-kernel";
/// Names made in it.
const NEW_FILES: u32 = 60;
/// Most names that are changed: a guest is slow.
const CHANGED_MAX: usize = 150;
/// Bytes of the longest write.
const WRITE_BYTES_MAX: u64 = 100_000;

/// Options of the guest's part.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The block devices.
    devices: Vec<PathBuf>,
    /// Seed of the changes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Change nothing.
    #[arg(long)]
    only_walk: bool,
}

/// Walks and changes each of the devices.
pub(crate) fn judge(options: &Options) -> Result<()> {
    ensure!(is_root(), "mounting needs root");
    let point = std::env::temp_dir().join("spinney-judge");
    std::fs::create_dir_all(&point)?;
    for (number, device) in (0..).zip(&options.devices) {
        let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut random = Random::new(options.seed.wrapping_add(number));
        if let Err(error) = one(options, device, &name, &point, &mut random) {
            std::fs::write(format!("{name}.failed"), format!("{error:#}"))?;
            // It may still be mounted; the next device needs the mount point.
            let _ = run("umount", &[&point]);
        }
    }
    Ok(())
}

fn one(options: &Options, device: &Path, name: &str, point: &Path, random: &mut Random) -> Result<()> {
    let mount = |options: &str| -> Result<()> {
        run("mount", &["-t", "f2fs", "-o", options, &device.to_string_lossy(), &point.to_string_lossy()]).map(drop)
    };
    mount("rw,noatime").context("mounting, which recovers")?;
    let walk = kernel::walk(point).context("walking")?;
    store(&walk, &format!("{name}.walk"))?;
    if !options.only_walk {
        change(point, &walk, random).context("changing")?;
        run("umount", &[point])?;
        mount("ro").context("mounting the changed volume")?;
        store(&kernel::walk(point).context("walking the changed volume")?, &format!("{name}.changed"))?;
    }
    run("umount", &[point]).map(drop)
}

fn store(walk: &Walk, file: &str) -> Result<()> {
    walk_file::write(walk, &mut io::BufWriter::new(File::create(file)?))
}

/// Changes some of the files, and makes a directory of new ones.
fn change(point: &Path, walk: &Walk, random: &mut Random) -> Result<()> {
    let paths: Vec<(&Vec<u8>, &Record)> = walk.iter().filter(|(path, _)| !path.is_empty()).collect();
    for _ in 0..paths.len().min(CHANGED_MAX) {
        let Some((path, record)) = random.pick(&paths) else { break };
        let kind = FileType::from_raw_mode(record.mode);
        let changed = change_one(&point.join(OsStr::from_bytes(path)), kind, random);
        excused(changed).with_context(|| path.escape_ascii().to_string())?;
    }
    let folder = point.join(FOLDER);
    match populate::populate(&folder, NEW_FILES, random) {
        Err(error) if error.downcast_ref::<io::Error>().and_then(Errno::from_io_error) == Some(Errno::NOSPC) => {}
        Err(error) if error.downcast_ref::<Errno>() == Some(&Errno::NOSPC) => {}
        made => made.context("new files")?,
    }
    excused(File::open(point).and_then(|top| Ok(rustix::fs::syncfs(top)?)))?;
    Ok(())
}

/// Ignores refusals: the image is full, its flags forbid the change, or an earlier change removed the path.
fn excused(changed: io::Result<()>) -> io::Result<()> {
    let refusals =
        [Errno::PERM, Errno::NOSPC, Errno::NOENT, Errno::DQUOT, Errno::EXIST, Errno::NOTEMPTY, Errno::TOOBIG];
    match changed {
        Err(error) if Errno::from_io_error(&error).is_some_and(|errno| refusals.contains(&errno)) => Ok(()),
        other => other,
    }
}

fn change_one(path: &Path, kind: FileType, random: &mut Random) -> io::Result<()> {
    match (random.below(10), kind) {
        (0, FileType::Directory) => std::fs::remove_dir(path),
        (0, _) => std::fs::remove_file(path),
        (1, _) => {
            let owner = Uid::from_raw(u32::try_from(random.below(60_000)).unwrap_or(0));
            let group = Gid::from_raw(7);
            Ok(rustix::fs::chownat(CWD, path, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)?)
        }
        (2, _) => std::fs::rename(path, renamed(path, random)),
        (3, FileType::RegularFile | FileType::Directory) => {
            let len = random.index(600);
            Ok(rustix::fs::lsetxattr(path, "user.kernel", &random.noise(len), XattrFlags::empty())?)
        }
        (4, FileType::RegularFile | FileType::Directory) => {
            Ok(rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(0o640), AtFlags::empty())?)
        }
        (5, FileType::RegularFile) => std::fs::hard_link(path, renamed(path, random)),
        (6, FileType::RegularFile) => OpenOptions::new().write(true).open(path)?.set_len(random.below(200_000)),
        (_, FileType::RegularFile) => {
            let file = OpenOptions::new().write(true).open(path)?;
            let len = usize::try_from(random.skewed(WRITE_BYTES_MAX)).unwrap_or(1);
            file.write_all_at(&random.content(len), random.below(300_000))?;
            if random.one_in(3) { file.sync_all() } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

/// Another name in the same directory.
fn renamed(path: &Path, random: &mut Random) -> PathBuf {
    path.with_file_name(format!("kernel-{:x}", random.number()))
}
