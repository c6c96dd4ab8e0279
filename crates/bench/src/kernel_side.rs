//! Runs the workloads of `bench run` through the kernel's btrfs on a loop device, and `mkfs.btrfs`, for comparison with
//! `spinney_side`. `main` calls it for `bench one`.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::row::{FILES, One, PIECE, RANDOM_BYTES, SEQUENTIAL_BYTES, Workload, as_float, as_u64};
use crate::spinney_side::{block_of, files, piece_of, random_data, random_offsets};
use crate::tree;

/// Seconds, and bytes or operations.
pub(crate) fn run(one: &One) -> Result<(f64, f64)> {
    if one.row == Workload::Rootdir {
        return rootdir(one);
    }
    let mut mount = Mount::new(one)?;
    let result = workload(one, &mut mount);
    mount.end()?;
    result
}

fn rootdir(one: &One) -> Result<(f64, f64)> {
    let amount = tree::size(&one.source)?;
    let start = Instant::now();
    let mut command = Command::new(&one.mkfs);
    check(command.args(["-q", "-f", "-K", "--rootdir"]).arg(&one.source).arg(one.image()))?;
    Ok((start.elapsed().as_secs_f64(), amount))
}

fn check(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// A mounted image.
struct Mount {
    device: String,
    dir: PathBuf,
}

impl Mount {
    fn new(one: &One) -> Result<Self> {
        let output = Command::new("losetup").args(["-f", "--show"]).arg(one.image()).output()?;
        ensure!(output.status.success(), "losetup: {}", String::from_utf8_lossy(&output.stderr));
        let device = String::from_utf8(output.stdout)?.trim().to_owned();
        let dir = one.dir.join("mnt");
        fs::create_dir_all(&dir)?;
        let mount = Self { device, dir };
        check(Command::new(&one.mkfs).args(["-q", "-f", "-K", "-m", "dup", &mount.device]))?;
        mount.attach()?;
        Ok(mount)
    }

    fn attach(&self) -> Result<()> {
        check(Command::new("mount").args(["-t", "btrfs", "-o", "ssd,nodiscard", &self.device]).arg(&self.dir))
    }

    fn detach(&self) -> Result<()> {
        check(Command::new("umount").arg(&self.dir))
    }

    fn end(&self) -> Result<()> {
        self.detach()?;
        check(Command::new("losetup").args(["-d", &self.device]))
    }

    fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.dir)?)?)
    }

    fn name(&self, index: u64) -> PathBuf {
        self.dir.join(format!("d/file-{index:06}"))
    }
}

fn workload(one: &One, mount: &mut Mount) -> Result<(f64, f64)> {
    match one.row {
        Workload::Tree => {
            let start = Instant::now();
            let bytes = tree::copy(&tree::Directory(mount.dir.clone()), &one.source, one.threads)?;
            mount.sync()?;
            Ok((start.elapsed().as_secs_f64(), bytes))
        }
        Workload::Seqwrite | Workload::Seqread => sequential(one, mount),
        Workload::Randwrite => randwrite(one, mount),
        _ => metadata(one, mount),
    }
}

fn metadata(one: &One, mount: &Mount) -> Result<(f64, f64)> {
    let create = |index| File::create(mount.name(index)).map(drop).map_err(Into::into);
    fs::create_dir(mount.dir.join("d"))?;
    if one.row != Workload::Create {
        files(1, create)?;
        mount.sync()?;
    }
    let start = Instant::now();
    match one.row {
        Workload::Create => files(one.threads, create)?,
        Workload::Stat => files(one.threads, |index| {
            ensure!(fs::metadata(mount.name(index))?.len() == 0, "an empty file");
            Ok(())
        })?,
        _ => files(one.threads, |index| Ok(fs::remove_file(mount.name(index))?))?,
    }
    if one.row != Workload::Stat {
        mount.sync()?;
    }
    Ok((start.elapsed().as_secs_f64(), as_float(FILES)))
}

fn sequential(one: &One, mount: &Mount) -> Result<(f64, f64)> {
    let share = SEQUENTIAL_BYTES / as_u64(PIECE) / as_u64(one.threads);
    let data = random_data();
    let start = Instant::now();
    each(one.threads, |thread| {
        let file = File::create(mount.dir.join(format!("big{thread}")))?;
        (0..share).try_for_each(|n| Ok(file.write_all_at(piece_of(&data, n), n * as_u64(PIECE))?))
    })?;
    mount.sync()?;
    let written = start.elapsed().as_secs_f64();
    if one.row == Workload::Seqwrite {
        return Ok((written, as_float(SEQUENTIAL_BYTES)));
    }
    mount.detach()?;
    mount.attach()?;
    let start = Instant::now();
    each(one.threads, |thread| {
        let file = File::open(mount.dir.join(format!("big{thread}")))?;
        let mut piece = vec![0; PIECE];
        (0..share).try_for_each(|n| Ok(file.read_exact_at(&mut piece, n * as_u64(PIECE))?))
    })?;
    Ok((start.elapsed().as_secs_f64(), as_float(SEQUENTIAL_BYTES)))
}

fn randwrite(one: &One, mount: &Mount) -> Result<(f64, f64)> {
    let count = RANDOM_BYTES / 4096;
    let path = mount.dir.join("random");
    open(&path)?.set_len(RANDOM_BYTES)?;
    let data = random_data();
    let start = Instant::now();
    each(one.threads, |thread| {
        let file = open(&path)?;
        random_offsets(as_u64(thread), as_u64(one.threads), count)
            .try_for_each(|offset| Ok(file.write_all_at(block_of(&data, offset), offset)?))
    })?;
    mount.sync()?;
    Ok((start.elapsed().as_secs_f64(), as_float(count)))
}

fn open(path: &Path) -> Result<File> {
    Ok(OpenOptions::new().write(true).create(true).truncate(false).open(path)?)
}

fn each(threads: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let work = &work;
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        handles.into_iter().try_for_each(|handle| handle.join().expect("a worker does not panic"))
    })
}
