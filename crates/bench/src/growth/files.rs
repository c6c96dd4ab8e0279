//! The steps of the dimensions of files: all in one directory, or a thousand in each. `growth` runs them.
//!
//! Files are empty: their names and inodes are what grows, and trees on the host would take the machine's memory.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use btrfs::{MakeOptions, Volume};
use vfs::file_system::WholeNode;
use vfs::{FileOptions, SnapshotMode};

use super::step::{self, At, Outcome, Step, each};

/// All in one directory.
pub(super) const IN_ONE: &[Step] = &steps(source_in_one);
/// A thousand in each directory.
pub(super) const IN_MANY: &[Step] = &steps(source_in_many);

const fn steps(source: fn(&At<'_>) -> Result<Outcome>) -> [Step; 20] {
    [
        Step::prepares("source", source),
        Step::whole("make and import", make),
        Step::single("open", step::open),
        Step::single("open to write", step::open_to_write),
        Step::whole("ls", list),
        Step::single("first names", first_names),
        Step::single("create", create),
        Step::single("fsync", fsync),
        Step::single("commit", commit),
        Step::single("snapshot", snapshot),
        Step::whole("check", step::check),
        Step::whole("scrub", step::scrub),
        Step::whole("du", usage_of_files),
        Step::whole("send", send),
        Step::single("diff", diff),
        Step::whole("export", export),
        Step::whole("tar out", archive),
        Step::whole("tar in", unpack),
        Step::whole("balance", balance),
        Step::whole("delete", delete),
    ]
}

/// Files of a directory where there are several.
const DIR_FILES: u64 = 1000;
/// Bytes that an inode and its names take, both copies, with room for copies of the tree and for its balance.
const FILE_BYTES: u64 = 6000;
const IMAGE_BYTES_MIN: u64 = 1 << 30;
/// Files made at a time: so few that in the smallest tree, too, most get a leaf of their own.
const NEW: u64 = 100;
/// Files that are synced one by one.
const SYNCED: u64 = 100;
/// Commits that are timed, each after some new files.
const COMMITS: u32 = 5;
/// Names that are listed first.
const FIRST: usize = 100;

fn source(at: &At<'_>, per_dir: u64) -> Result<Outcome> {
    for number in 0..at.count {
        let dir = at.dir.join("source").join(format!("d{:05}", number / per_dir));
        if number % per_dir == 0 {
            fs::create_dir_all(&dir)?;
        }
        fs::File::create(dir.join(format!("f{number:07}")))?;
    }
    Ok(0.0.into())
}

fn source_in_one(at: &At<'_>) -> Result<Outcome> {
    source(at, u64::MAX)
}

fn source_in_many(at: &At<'_>) -> Result<Outcome> {
    source(at, DIR_FILES)
}

fn size(at: &At<'_>) -> u64 {
    at.count.saturating_mul(FILE_BYTES).max(IMAGE_BYTES_MIN)
}

fn make(at: &At<'_>) -> Result<Outcome> {
    let (size, source) = (size(at).to_string(), at.dir.join("source"));
    let before = ["mkfs", "-q", "-f", "--nodiscard", "--size", &size, "--rootdir"];
    let (source, image) = (source.as_os_str(), at.image());
    let words: Vec<&OsStr> = before.iter().map(OsStr::new).chain([source, image.as_os_str()]).collect();
    let outcome = step::command(&words)?;
    fs::remove_dir_all(at.dir.join("source"))?;
    Ok(outcome)
}

fn list(at: &At<'_>) -> Result<Outcome> {
    step::on_image(at, &["ls", "-lR"], &[])
}

/// Opens the image, and lists the begin of a directory.
fn first_names(at: &At<'_>) -> Result<Outcome> {
    let start = Instant::now();
    let volume = at.to_read()?;
    for entry in volume.read_dir(dirs(&volume)?.pop().unwrap_or_default())?.take(FIRST) {
        entry?;
    }
    Ok(start.elapsed().into())
}

/// The directories.
fn dirs(volume: &Volume) -> Result<Vec<PathBuf>> {
    let mut dirs = Vec::new();
    for entry in volume.read_dir("/")? {
        let entry = entry?;
        if entry.name_bytes().first() == Some(&b'd') {
            dirs.push(entry.file_name().into());
        }
    }
    Ok(dirs)
}

/// Makes files all over the directories.
fn make_new(volume: &Volume, dirs: &[PathBuf], prefix: &str, count: u64) -> Result<Duration> {
    let start = Instant::now();
    for (number, dir) in (0..count).zip(dirs.iter().cycle()) {
        let node = WholeNode { permissions: 0o644, ..WholeNode::default() };
        volume.create_node(dir.join(format!("{prefix}{number}")), &node)?;
    }
    Ok(start.elapsed())
}

fn create(at: &At<'_>) -> Result<Outcome> {
    let volume = at.volume()?;
    let time = make_new(&volume, &dirs(&volume)?, "new", NEW)?;
    volume.close()?;
    Ok(each(time, NEW))
}

fn fsync(at: &At<'_>) -> Result<Outcome> {
    let volume = at.volume()?;
    let dirs = dirs(&volume)?;
    let start = Instant::now();
    for (number, dir) in (0..SYNCED).zip(dirs.iter().cycle()) {
        let file = FileOptions::new().write(true).create(true).open(&volume, dir.join(format!("synced{number}")))?;
        file.write_at(b"contents", 0)?;
        file.sync_all()?;
    }
    let time = start.elapsed();
    volume.close()?;
    Ok(each(time, SYNCED))
}

fn commit(at: &At<'_>) -> Result<Outcome> {
    let volume = at.volume()?;
    let dirs = dirs(&volume)?;
    let mut time = Duration::ZERO;
    for round in 0..COMMITS {
        make_new(&volume, &dirs, &format!("round{round}-"), NEW)?;
        let start = Instant::now();
        volume.sync()?;
        time += start.elapsed();
    }
    volume.close()?;
    Ok((time / COMMITS).into())
}

/// Two snapshots, with some new files in between; the mean.
fn snapshot(at: &At<'_>) -> Result<Outcome> {
    let volume = at.volume()?;
    let dirs = dirs(&volume)?;
    let mut time = Duration::ZERO;
    for name in ["before", "after"] {
        make_new(&volume, &dirs, name, NEW)?;
        volume.sync()?;
        let start = Instant::now();
        volume.snapshot("/", name, SnapshotMode::ReadOnly)?;
        volume.sync()?;
        time += start.elapsed();
    }
    volume.close()?;
    Ok((time / 2).into())
}

/// Of the snapshot: it has all files.
fn usage_of_files(at: &At<'_>) -> Result<Outcome> {
    step::on_image(at, &["du", "-s"], &[OsStr::new("/before")])
}

fn send(at: &At<'_>) -> Result<Outcome> {
    step::on_image(at, &["send", "-q"], &[OsStr::new("/before")])
}

fn diff(at: &At<'_>) -> Result<Outcome> {
    step::on_image(at, &["diff"], &["/before", "/after"].map(OsStr::new))
}

fn export(at: &At<'_>) -> Result<Outcome> {
    let to = at.dir.join("exported");
    let outcome = step::on_image(at, &["get"], &[OsStr::new("/before"), to.as_os_str()])?;
    fs::remove_dir_all(&to)?;
    Ok(outcome)
}

fn tar(at: &At<'_>) -> PathBuf {
    at.dir.join("files.tar")
}

fn archive(at: &At<'_>) -> Result<Outcome> {
    let tar = tar(at);
    let (tar, image) = (tar.as_os_str(), at.image());
    step::command(&[OsStr::new("get"), OsStr::new("--tar"), tar, image.as_os_str(), OsStr::new("/before")])
}

/// Unpacks the archive into an image of its own.
fn unpack(at: &At<'_>) -> Result<Outcome> {
    let (tar, image) = (tar(at), at.dir.join("unpacked"));
    Volume::make(&image, &MakeOptions { size: Some(size(at)), ..MakeOptions::default() })?.close()?;
    let words = [OsStr::new("put"), OsStr::new("--tar"), tar.as_os_str(), image.as_os_str(), OsStr::new("/")];
    let outcome = step::command(&words)?;
    fs::remove_file(&tar)?;
    fs::remove_file(&image)?;
    Ok(outcome)
}

fn balance(at: &At<'_>) -> Result<Outcome> {
    step::on_image(at, &["balance", "start", "-q"], &[])
}

/// Deletes all files; the snapshots have gone before.
fn delete(at: &At<'_>) -> Result<Outcome> {
    let volume = at.volume()?;
    for name in ["before", "after"] {
        volume.delete_subvolume(name)?;
    }
    volume.sync()?;
    let dirs = dirs(&volume)?;
    let start = Instant::now();
    for dir in dirs {
        volume.remove_dir_all(dir)?;
    }
    volume.sync()?;
    let time = start.elapsed();
    volume.close()?;
    Ok(time.into())
}
