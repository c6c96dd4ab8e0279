//! The steps of the dimension of snapshots: each of the same thousand files, one of which is changed before. `growth`
//! runs them.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use btrfs::{MakeOptions, Volume};
use vfs::SnapshotMode;

use super::step::{self, At, Mount, Outcome, Step};
use crate::row::as_u64;

pub(super) const STEPS: &[Step] = &[
    Step::whole("make", make),
    Step::single("open", step::open),
    Step::single("open to write", step::open_to_write),
    Step::whole("list", list),
    Step::whole("list as a tree", list_tree),
    Step::single("list one", show),
    Step::single("snapshot", snapshot),
    Step::single("fsync", fsync),
    Step::whole("check", step::check),
    Step::whole("scrub", step::scrub),
    Step::single("send", send),
    Step::single("diff", diff),
    Step::single("mount", mount),
    Step::whole("list of mount", list_of_mount),
    Step::whole("ls of mount", ls_of_mount),
    Step::single("snapshot of mount", snapshot_of_mount),
    Step::single("create on mount", create_on_mount),
    Step::single("delete one", delete_one),
    Step::whole("balance", balance).up_to(1000),
    Step::whole("delete", delete),
];

/// Files of the subvolume.
const FILES: u64 = 1000;
/// Bytes of each, which lie in the leaves.
const FILE_BYTES: usize = 100;
/// Bytes that a snapshot takes of its own, both copies.
const SNAPSHOT_BYTES: u64 = 256 << 10;
const IMAGE_BYTES_MIN: u64 = 1 << 30;
/// Snapshots that are timed one by one; files that are synced, or made.
const TIMED: u64 = 20;
/// Files made through a mount.
const CREATED: u32 = 200;

fn name(number: u64) -> PathBuf {
    PathBuf::from(format!("snapshots/{number:06}"))
}

fn file(number: u64) -> String {
    format!("s/f{:04}", number % FILES)
}

/// One snapshot after a change, with its commit.
fn take(volume: &Volume, number: u64) -> Result<()> {
    volume.write(file(number), [b'y'; FILE_BYTES])?;
    volume.snapshot("s", name(number), SnapshotMode::ReadOnly)?;
    Ok(volume.sync()?)
}

fn make(at: &At<'_>) -> Result<Outcome> {
    let size = IMAGE_BYTES_MIN + at.count * SNAPSHOT_BYTES;
    let volume = Volume::make(at.image(), &MakeOptions { size: Some(size), ..MakeOptions::default() })?;
    volume.create_subvolume("s")?;
    volume.create_dir("snapshots")?;
    for number in 0..FILES {
        volume.write(file(number), [b'x'; FILE_BYTES])?;
    }
    volume.sync()?;
    let start = Instant::now();
    for number in 0..at.count {
        take(&volume, number)?;
    }
    let time = start.elapsed();
    volume.close()?;
    Ok(time.into())
}

fn list(at: &At<'_>) -> Result<Outcome> {
    step::on_image(at, &["subvolume", "list"], &[])
}

fn list_tree(at: &At<'_>) -> Result<Outcome> {
    step::on_image(at, &["subvolume", "list", "--tree"], &[])
}

fn show(at: &At<'_>) -> Result<Outcome> {
    let last = name(at.count - 1);
    step::on_image(at, &["subvolume", "find"], &[last.as_os_str()])
}

/// The mean of some more.
fn snapshot(at: &At<'_>) -> Result<Outcome> {
    let volume = at.volume()?;
    let start = Instant::now();
    for number in 0..TIMED {
        take(&volume, at.count + number)?;
    }
    let time = start.elapsed();
    volume.close()?;
    Ok(step::each(time, TIMED))
}

fn fsync(at: &At<'_>) -> Result<Outcome> {
    let volume = at.volume()?;
    let mut time = Duration::ZERO;
    for number in 0..TIMED {
        let file = vfs::FileOptions::new().write(true).open(&volume, file(number * 7))?;
        let start = Instant::now();
        file.write_at(b"changed", 0)?;
        file.sync_all()?;
        time += start.elapsed();
    }
    volume.close()?;
    Ok(step::each(time, TIMED))
}

/// The difference of the last two.
fn send(at: &At<'_>) -> Result<Outcome> {
    let (parent, last) = (name(at.count - 2), name(at.count - 1));
    let words = [OsStr::new("--parent"), parent.as_os_str(), last.as_os_str()];
    step::on_image(at, &["send", "-q"], &words)
}

fn diff(at: &At<'_>) -> Result<Outcome> {
    let (parent, last) = (name(at.count - 2), name(at.count - 1));
    step::on_image(at, &["diff"], &[parent.as_os_str(), last.as_os_str()])
}

/// The time until it is mounted, and its root was listed.
fn mount(at: &At<'_>) -> Result<Outcome> {
    let start = Instant::now();
    let mount = Mount::new(at)?;
    ensure!(std::fs::read_dir(&mount.dir)?.count() > 0, "names");
    mount.outcome(start.elapsed())
}

fn list_of_mount(at: &At<'_>) -> Result<Outcome> {
    let mount = Mount::new(at)?;
    let start = Instant::now();
    step::command(&[OsStr::new("subvolume"), OsStr::new("list"), mount.dir.as_os_str()])?;
    mount.outcome(start.elapsed())
}

/// Names and attributes of all snapshots.
fn ls_of_mount(at: &At<'_>) -> Result<Outcome> {
    let mount = Mount::new(at)?;
    let start = Instant::now();
    let mut count = 0;
    for entry in std::fs::read_dir(mount.dir.join("snapshots"))? {
        count += u64::from(entry?.metadata()?.is_dir());
    }
    let time = start.elapsed();
    ensure!(count >= at.count, "{count} snapshots");
    mount.outcome(time)
}

fn snapshot_of_mount(at: &At<'_>) -> Result<Outcome> {
    let mount = Mount::new(at)?;
    let mut time = Duration::ZERO;
    for number in 0..TIMED {
        std::fs::write(mount.dir.join(file(number)), [b'z'; FILE_BYTES])?;
        let (source, dest) = (mount.dir.join("s"), mount.dir.join(format!("snapshots/of-mount-{number}")));
        let start = Instant::now();
        step::command(
            &["subvolume", "snapshot", "-r"]
                .map(OsStr::new)
                .into_iter()
                .chain([source.as_os_str(), dest.as_os_str()])
                .collect::<Vec<_>>(),
        )?;
        time += start.elapsed();
    }
    mount.outcome(time / u32::try_from(TIMED)?)
}

fn create_on_mount(at: &At<'_>) -> Result<Outcome> {
    let mount = Mount::new(at)?;
    let start = Instant::now();
    for number in 0..CREATED {
        std::fs::File::create(mount.dir.join(format!("s/new{number}")))?;
    }
    mount.outcome(start.elapsed() / CREATED)
}

/// One snapshot, until its space is free.
fn delete_one(at: &At<'_>) -> Result<Outcome> {
    let volume = at.volume()?;
    let start = Instant::now();
    volume.delete_subvolume(name(at.count / 2))?;
    volume.close()?;
    Ok(start.elapsed().into())
}

fn balance(at: &At<'_>) -> Result<Outcome> {
    step::on_image(at, &["balance", "start", "-q"], &[])
}

/// All that are left, until their space is free.
fn delete(at: &At<'_>) -> Result<Outcome> {
    let volume = at.volume()?;
    let entries: Vec<_> = volume.read_dir("snapshots")?.collect::<Result<_, _>>()?;
    ensure!(as_u64(entries.len()) + 1 >= at.count, "{} snapshots", entries.len());
    let start = Instant::now();
    for entry in &entries {
        volume.delete_subvolume(PathBuf::from("snapshots").join(entry.file_name()))?;
    }
    volume.close()?;
    Ok(start.elapsed().into())
}
