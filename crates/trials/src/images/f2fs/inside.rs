//! Runs the part of `images` in a kernel with f2fs: makes one image of the table on a block device, checks and walks
//! it.
//!
//! Needs root and f2fs-tools. Leaves `NAME.walk` (the kernel's walk of a read-only mount) and `NAME.fsck` (the output
//! of `fsck.f2fs`) in the current directory; of an image whose power was cut also `NAME.checkpoint`, the kernel's walk
//! of the last checkpoint, without recovery (unless checkpoints were off). Fails if `fsck.f2fs` finds an error. Called
//! by `super` in the guest, and by users with such a kernel as `cargo trials f2fs-image NAME DEVICE`.

use super::recipes::{End, RECIPES, Recipe};
use crate::diff_walk::{kernel, walk_file};
use crate::images::metadata::set_random_metadata;
use crate::images::populate;
use crate::system::{is_root, run};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use testkit::Random;

/// The image to make.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Its name in the table.
    name: String,
    /// The block device for it
    device: PathBuf,
    /// The device has the image already, as a power cut left it: have the kernel recover it. Another device has a copy,
    /// to read the last checkpoint: even a mount without recovery writes to it
    #[arg(long, value_name = "COPY")]
    recover: Option<PathBuf>,
}

/// Makes, or recovers, an image on a device.
pub(crate) fn make(options: &Options) -> Result<()> {
    ensure!(is_root(), "mounting {} needs root", options.device.display());
    let recipe = RECIPES.iter().find(|recipe| recipe.name == options.name);
    let recipe = recipe.with_context(|| format!("no image is called {}", options.name))?;
    let point = std::env::temp_dir().join(format!("spinney-f2fs-{}", std::process::id()));
    std::fs::create_dir(&point)?;
    if let Some(copy) = &options.recover {
        if recipe.end != End::PowerCutWithoutCheckpoints {
            walk(copy, &point, "ro,norecovery", &format!("{}.checkpoint", recipe.name)).context("last checkpoint")?;
        }
        Mounted::new(&options.device, &point, "rw").context("recovery")?.unmount()?;
    } else {
        fresh(recipe, &options.device, &point)?;
        ensure!(recipe.end == End::Unmounted, "the power was not cut");
    }
    let names = walk(&options.device, &point, "ro", &format!("{}.walk", recipe.name))?;
    println!("{}: {names} names", recipe.name);
    check(&options.device, Path::new(&format!("{}.fsck", recipe.name)))?;
    Ok(std::fs::remove_dir(&point)?)
}

/// Writes the kernel's walk of a mount to a file; returns the number of names.
fn walk(device: &Path, point: &Path, options: &str, file: &str) -> Result<usize> {
    let mounted = Mounted::new(device, point, options).context("walk")?;
    let walk = kernel::walk(point).context("walk")?;
    mounted.unmount()?;
    let mut file = std::io::BufWriter::new(std::fs::File::create(file)?);
    walk_file::write(&walk, &mut file)?;
    Ok(walk.len())
}

/// Runs mkfs, and every mount of the recipe.
fn fresh(recipe: &Recipe, device: &Path, point: &Path) -> Result<()> {
    let mut random = Random::new(u64::from(recipe.seed));
    let path = device.to_string_lossy();
    run("mkfs.f2fs", &[&["-q", "-f"], recipe.mkfs, &[&*path]].concat())?;
    if recipe.loaded > 0 {
        let tree = point.with_extension("tree");
        tree_to_load(&tree, recipe.loaded, &mut random).context("tree to be loaded")?;
        run("sload.f2fs", &["-P", "-f", &tree.to_string_lossy(), "-t", "/loaded", &path])?;
    }
    for (index, session) in recipe.sessions.iter().enumerate() {
        let mounted = Mounted::new(device, point, session.options)?;
        if session.files > 0 {
            populate::populate(&point.join(format!("session{index}")), session.files, &mut random)
                .context("random tree")?;
        }
        for scene in session.scenes {
            (scene.run)(&point.join(scene.name), &mut random).with_context(|| format!("scene {}", scene.name))?;
        }
        mounted.unmount()?;
    }
    Ok(())
}

/// A tree for `sload.f2fs`: without attributes, which the file system that holds it may lack.
fn tree_to_load(folder: &Path, files: u32, random: &mut Random) -> Result<()> {
    let mut inner = folder.to_path_buf();
    std::fs::create_dir(folder)?;
    for number in 0..files {
        if number % 20 == 0 {
            let parent = if number % 60 == 0 { folder } else { &inner };
            inner = parent.join(format!("folder-{number}"));
            std::fs::create_dir(&inner)?;
        }
        let path = inner.join(format!("{number}"));
        if number % 15 == 7 {
            std::os::unix::fs::symlink("s".repeat(1 + random.index(300)), &path)?;
        } else {
            let len = random.index(40_000);
            std::fs::write(&path, random.content(len))?;
        }
        set_random_metadata(&path, random)?;
    }
    Ok(())
}

/// Fails if `fsck.f2fs` finds an error.
fn check(device: &Path, report: &Path) -> Result<()> {
    let said = run("fsck.f2fs", &["-f", "--dry-run", &device.to_string_lossy()]).context("fsck.f2fs")?;
    std::fs::write(report, &said)?;
    ensure!(said.contains("[Ok..]"), "fsck.f2fs did not look: {said}");
    let complaints: Vec<&str> =
        said.lines().filter(|line| line.contains("[Fail]") || line.contains("[ASSERT]")).collect();
    ensure!(complaints.is_empty(), "fsck.f2fs: {}", complaints.join("; "));
    Ok(())
}

/// A mount of a device; unmounted when dropped.
#[derive(Debug)]
struct Mounted<'a> {
    point: &'a Path,
    is_mounted: bool,
}

impl<'a> Mounted<'a> {
    fn new(device: &Path, point: &'a Path, options: &str) -> Result<Self> {
        run("mount", &["-t", "f2fs", "-o", options, &device.to_string_lossy(), &point.to_string_lossy()])?;
        Ok(Self { point, is_mounted: true })
    }

    fn unmount(mut self) -> Result<()> {
        self.is_mounted = false;
        run("umount", &[self.point]).map(drop)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.is_mounted
            && let Err(error) = run("umount", &[self.point])
        {
            eprintln!("{error:#}");
        }
    }
}
