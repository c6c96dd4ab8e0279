//! Makes scenes that are running when the power is cut. Each ends with [`MARK`] on the console, and then waits to be
//! killed. `recipes` lists them.
//!
//! A line that begins with [`SYNCED`] is a promise: the record of a path in the form of a stored walk, taken after an
//! fsync. Later promises of a path replace earlier ones, and [`CHANGES`] before a path revokes them.

use super::scene::{BLOCK, Scene, checkpoint, open};
use crate::diff_walk::{kernel, walk_file};
use crate::images::metadata::{set_random_metadata, set_xattr};
use anyhow::{Context, Result, bail};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use testkit::Random;

/// Written to the console when the power may be cut.
pub(super) const MARK: &str = "spinney: cut the power";
/// Begins the line of a promise.
pub(super) const SYNCED: &str = "spinney: synced ";
/// Begins the line of a file that is about to change.
pub(super) const CHANGES: &str = "spinney: changes ";

/// Longest time until the guest is killed.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) const ORPHANS: Scene = Scene { name: "orphans", run: orphans };
pub(super) const CHECKPOINTED: Scene = Scene { name: "checkpointed", run: checkpointed };
pub(super) const FSYNCED: Scene = Scene { name: "fsynced", run: fsynced };
pub(super) const WRITING: Scene = Scene { name: "writing", run: writing };

fn cut() -> Result<()> {
    println!("{MARK}");
    std::thread::sleep(PATIENCE);
    bail!("the power was not cut");
}

/// Syncs a file and promises it.
fn promise(file: &File, path: &Path) -> Result<()> {
    file.sync_all().with_context(|| path.display().to_string())?;
    println!("{SYNCED}{}", walk_file::line(from_top(path)?, &kernel::record(path)?));
    Ok(())
}

/// Path from the top of the mount, where the scene's folder is.
fn from_top(path: &Path) -> Result<&[u8]> {
    let top = path.ancestors().nth(2).context("a scene has its folder in the mount")?;
    Ok(path.strip_prefix(top)?.as_os_str().as_encoded_bytes())
}

/// Open files and a directory that have no name when a checkpoint is made.
fn orphans(folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let mut held = Vec::new();
    for number in 0..20 {
        let path = folder.join(format!("{number}"));
        let len = if number % 2 == 0 { random.index(3000) } else { random.index(1 << 20) };
        std::fs::write(&path, random.content(len))?;
        set_xattr(&path, "user.large", &random.noise(500))?;
        held.push((open(&path)?, path));
    }
    let inner = folder.join("folder");
    std::fs::create_dir(&inner)?;
    let inner_held = File::open(&inner)?;
    checkpoint(folder)?;
    for (_, path) in held.iter().take(15) {
        std::fs::remove_file(path)?;
    }
    std::fs::remove_dir(&inner)?;
    checkpoint(folder)?;
    for (file, path) in held.iter().skip(15) {
        promise(file, path)?;
    }
    cut()?;
    drop((held, inner_held));
    Ok(())
}

/// Everything is in a checkpoint, except for changes without a promise.
fn checkpointed(folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    for number in 0..50 {
        let len = random.index(30_000);
        std::fs::write(folder.join(format!("{number}")), random.content(len))?;
    }
    checkpoint(folder)?;
    for number in 0..25 {
        std::fs::write(folder.join(format!("{number}")), "changed")?;
        std::fs::rename(folder.join(format!("{number}")), folder.join(format!("renamed-{number}")))?;
        std::fs::write(folder.join(format!("new-{number}")), random.noise(9000))?;
    }
    cut()
}

/// Files that were synced after the last checkpoint: recovery has to roll forward.
fn fsynced(folder: &Path, random: &mut Random) -> Result<()> {
    const OLD: [&str; 9] =
        ["overwritten", "appended", "cut", "grown-inline", "xattrs", "attributes", "punched", "twice", "unsynced"];
    std::fs::create_dir(folder)?;
    std::fs::create_dir(folder.join("inner"))?;
    for name in OLD {
        let len = if name == "grown-inline" { 900 } else { 200_000 };
        std::fs::write(folder.join(name), random.content(len))?;
    }
    checkpoint(folder)?;
    new_files(folder, random)?;
    let file = |name: &str| -> Result<_> { Ok((open(&folder.join(name))?, folder.join(name))) };
    let (overwritten, path) = file("overwritten")?;
    overwritten.write_all_at(&random.noise(20_000), 77_777)?;
    promise(&overwritten, &path)?;
    let (appended, path) = file("appended")?;
    appended.write_all_at(&random.noise(70_000), 200_000)?;
    promise(&appended, &path)?;
    let (shorter, path) = file("cut")?;
    shorter.set_len(50_001)?;
    promise(&shorter, &path)?;
    let (grown, path) = file("grown-inline")?;
    grown.write_all_at(&random.noise(40_000), 500)?;
    promise(&grown, &path)?;
    let (attributed, path) = file("xattrs")?;
    set_xattr(&path, "user.small", b"value")?;
    set_xattr(&path, "user.large", &random.noise(2000))?;
    promise(&attributed, &path)?;
    let (other, path) = file("attributes")?;
    set_random_metadata(&path, random)?;
    promise(&other, &path)?;
    let (punched, path) = file("punched")?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&punched, punch, 2 * BLOCK, 9 * BLOCK)?;
    promise(&punched, &path)?;
    let (twice, path) = file("twice")?;
    for position in [1000, 150_000, 300_000] {
        twice.write_all_at(&random.noise(5000), position)?;
        promise(&twice, &path)?;
    }
    open(&folder.join("unsynced"))?.write_all_at(&random.noise(30_000), 10_000)?;
    std::fs::write(folder.join("new-unsynced"), random.noise(30_000))?;
    // Written before the last fsync of another file: its node may be in the chain, without the mark of an fsync.
    let (last, path) = file("inner/last")?;
    last.write_all_at(b"the last one", 0)?;
    last.sync_all().with_context(|| path.display().to_string())?;
    cut()
}

/// New files: inline, in blocks, long, sparse, preallocated, with attributes.
fn new_files(folder: &Path, random: &mut Random) -> Result<()> {
    let file = |name: &str| -> Result<_> { Ok((open(&folder.join(name))?, folder.join(name))) };
    for (name, len) in [("new-empty", 0), ("new-inline", 700), ("new-plain", 50_000), ("new-long", 5 << 20)] {
        let (new, path) = file(name)?;
        new.write_all_at(&random.content(len), 0)?;
        promise(&new, &path)?;
    }
    let (sparse, path) = file("new-sparse")?;
    for block in [3, 900, 2000, 4000, 1_000_000, 3_000_000] {
        sparse.write_all_at(&random.noise(6000), block * BLOCK)?;
    }
    promise(&sparse, &path)?;
    let (reserved, path) = file("new-prealloc")?;
    rustix::fs::fallocate(&reserved, FallocateFlags::empty(), 0, 1 << 20)?;
    reserved.write_all_at(&random.noise(10_000), 300_000)?;
    promise(&reserved, &path)?;
    let (attributed, path) = file("new-xattrs")?;
    set_xattr(&path, "user.small", b"value")?;
    set_xattr(&path, "user.large", &random.noise(1000))?;
    promise(&attributed, &path)?;
    for number in 0..40 {
        let (new, path) = file(&format!("new-many-{number}"))?;
        new.write_all_at(&random.content(number * 100), 0)?;
        set_random_metadata(&path, random)?;
        promise(&new, &path)?;
    }
    let (removed, path) = file("new-removed")?;
    removed.write_all_at(&random.content(10_000), 0)?;
    removed.sync_all()?;
    Ok(std::fs::remove_file(path)?)
}

/// Files are written, some synced, with checkpoints in between, until the power is cut.
fn writing(folder: &Path, random: &mut Random) -> Result<()> {
    const ROUNDS_BEFORE: u64 = 150;
    const ROUNDS_MAX: u64 = 5000;
    std::fs::create_dir(folder)?;
    checkpoint(folder)?;
    for round in 0..ROUNDS_MAX {
        let path = folder.join(format!("file-{}", random.below(40)));
        println!("{CHANGES}{}", from_top(&path)?.escape_ascii());
        let file = open(&path)?;
        let len = random.index(30_000);
        file.write_all_at(&random.noise(len), random.below(200_000))?;
        if random.one_in(5) {
            file.set_len(random.below(100_000))?;
        }
        promise(&file, &path)?;
        std::fs::write(folder.join(format!("unsynced-{}", random.below(40))), random.content(len))?;
        if round % 60 == 59 {
            checkpoint(folder)?;
        }
        if round == ROUNDS_BEFORE {
            println!("{MARK}");
        }
    }
    bail!("the power was not cut");
}
