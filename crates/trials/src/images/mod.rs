//! Has the kernel and `mkfs.btrfs` make images, for Spinney to read.
//!
//! `recipes` is the table of images: one row names the options of `mkfs.btrfs`, the mount options and the scenes.
//! `populate` fills a directory with a random tree; `scenes` make files that a random tree lacks (fragments, snapshots,
//! hash collisions, thousands of links). One seed determines everything, so that two runs give the same names, metadata
//! and bytes; positions chosen by the kernel, and the times it sets itself, differ.
//!
//! `f2fs` has its own table and scenes, and makes its images in a guest: this kernel may have no f2fs.
//!
//! Needs root, loop devices, `mkfs.btrfs` and `btrfstune`. Fails on the first image that cannot be made. Images that
//! the installed `mkfs.btrfs` cannot make start from an empty image kept in `images/` (with notes on how it was made).
//! Called by `cargo trials images` and `.ci/run`; `cargo trials diff-walk` reads the results.

mod common;
pub(crate) mod f2fs;
mod metadata;
pub(crate) mod populate;
mod recipes;
mod scenes;

use crate::formats::Kind;
use crate::system::{self, Mount};
use anyhow::{Context, Result, bail};
use recipes::{RECIPES, Recipe, Start};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use testkit::Random;

/// Number of images made at once: each keeps a processor busy with hashing and the kernel with writing.
const PARALLEL: usize = 2;

/// Makes the images of one format; `cache` is the directory of the guest that makes those of f2fs.
pub(crate) fn make_kind(
    kind: Kind,
    root: &Path,
    folder: Option<PathBuf>,
    cache: &Path,
    only: Option<&str>,
) -> Result<()> {
    let folder = |usual: &str| folder.unwrap_or_else(|| PathBuf::from(usual));
    match kind {
        Kind::Btrfs => make_all(root, &folder("target/images"), only).map(drop),
        Kind::F2fs => f2fs::make_all(root, &folder("target/f2fs-images"), cache, only),
    }
}

/// Makes the images in `folder`, or those whose name has `only`; returns their paths.
pub(crate) fn make_all(root: &Path, folder: &Path, only: Option<&str>) -> Result<Vec<PathBuf>> {
    if !system::is_root() {
        bail!("making images needs root (loop devices and mounts)");
    }
    std::fs::create_dir_all(folder)?;
    let wanted: Vec<&Recipe> =
        RECIPES.iter().filter(|recipe| only.is_none_or(|only| recipe.name.contains(only))).collect();
    let next = AtomicUsize::new(0);
    let worker = || -> Result<u64> {
        let mut files: u64 = 0;
        while let Some(recipe) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            let image = path_of(folder, recipe);
            let count = make(root, recipe, &image).with_context(|| format!("image {}", recipe.name))?;
            println!("{:24} {count:6} names  {:5.1} s", recipe.name, start.elapsed().as_secs_f64());
            files = files.saturating_add(count);
        }
        Ok(files)
    };
    let counts: Vec<Result<u64>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..PARALLEL).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| bail!("a worker panicked"))).collect()
    });
    let total: u64 = counts.into_iter().sum::<Result<u64>>()?;
    println!("{} images, {total} names in {}", wanted.len(), folder.display());
    Ok(wanted.iter().map(|recipe| path_of(folder, recipe)).collect())
}

fn path_of(folder: &Path, recipe: &Recipe) -> PathBuf {
    folder.join(format!("{}.img", recipe.name))
}

/// Makes one image; returns the number of its names.
fn make(root: &Path, recipe: &Recipe, image: &Path) -> Result<u64> {
    let _ = std::fs::remove_file(image);
    start_image(root, recipe, image)?;
    let mut random = Random::new(u64::from(recipe.seed));
    let mut count = 0;
    for (index, session) in recipe.sessions.iter().enumerate() {
        let mount = Mount::new(image, session.options)?;
        let folder = mount.path().join(format!("session{index}"));
        if session.files > 0 {
            populate::populate(&folder, session.files, &mut random).context("random tree")?;
        }
        for scene in session.scenes {
            let folder = mount.path().join(scene.name);
            (scene.run)(&mount, &folder, &mut random).with_context(|| format!("scene {}", scene.name))?;
        }
        count = names_in(mount.path());
        mount.unmount()?;
    }
    for arguments in recipe.tune {
        let mut arguments = arguments.to_vec();
        let image = image.to_string_lossy();
        arguments.push(&image);
        system::run("btrfstune", &arguments)?;
    }
    Ok(count)
}

fn start_image(root: &Path, recipe: &Recipe, image: &Path) -> Result<()> {
    let path = image.to_string_lossy().into_owned();
    match recipe.start {
        Start::Mkfs(options) => {
            let file = std::fs::File::create(image)?;
            file.set_len(u64::from(recipe.megabytes) << 20)?;
            let mut arguments = vec!["--quiet"];
            arguments.extend_from_slice(options);
            arguments.push(&path);
            system::run(&system::mkfs_program(), &arguments)?;
        }
        Start::Kept(name) => {
            let kept = root.join("images").join(name);
            system::run("zstd", &["--quiet", "-d", "--sparse", &kept.to_string_lossy(), "-o", &path])?;
        }
    }
    Ok(())
}

fn names_in(folder: &Path) -> u64 {
    let count = walkdir::WalkDir::new(folder).into_iter().filter_map(Result::ok).count();
    u64::try_from(count).unwrap_or(u64::MAX)
}
