//! Has a kernel with f2fs make images, and walk them.
//!
//! `recipes` is the table; `scenes`, `contents` and `cuts` are run in a mount. The kernel here may lack f2fs: a guest
//! makes the images (`suites/f2fs-guest/run.sh`, which boots Debian's kernel in qemu), one boot for each, and runs this
//! program in it (`inside`). Beside each `NAME.img` are left: `NAME.walk`, the kernel's walk, which `diff-walk`
//! compares with ours; `NAME.fsck`, the output of `fsck.f2fs`; `NAME.console`. An image whose power was cut stays as it
//! was then. `NAME.walk` is of a copy that the kernel has recovered, `NAME.checkpoint` of the last checkpoint, without
//! recovery, and `NAME.synced` has the promises made before the power cut, which `NAME.walk` must keep.
//!
//! Needs the programs that `run.sh` needs; no root. Fails if an image cannot be made, if `fsck.f2fs` finds an error in
//! it, or if recovery breaks a promise. Called by `cargo trials images --format f2fs`.

mod contents;
mod cuts;
pub(crate) mod inside;
mod recipes;
mod scene;
mod scenes;

use crate::diff_walk::record::{Record, Walk, differences};
use crate::diff_walk::walk_file;
use anyhow::{Context, Result, bail, ensure};
use recipes::{End, RECIPES, Recipe};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Longest time of one boot in seconds; without KVM, and on a busy machine, everything is slow.
const SECONDS: &str = "1200";

/// Makes the images in `folder`, or those whose name has `only`.
pub(crate) fn make_all(root: &Path, folder: &Path, cache: &Path, only: Option<&str>) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let guest = Guest { root, cache, folder };
    let (mut count, mut failed) = (0usize, 0usize);
    for recipe in RECIPES.iter().filter(|recipe| only.is_none_or(|only| recipe.name.contains(only))) {
        let start = Instant::now();
        match make(&guest, recipe) {
            Ok(names) => println!("{:24} {names:6} names  {:5.1} s", recipe.name, start.elapsed().as_secs_f64()),
            Err(error) => {
                println!("{:24} FAILED: {error:#}", recipe.name);
                failed = failed.saturating_add(1);
            }
        }
        count = count.saturating_add(1);
    }
    ensure!(count > 0, "no image has such a name");
    println!("{count} images in {}, {failed} failed", folder.display());
    ensure!(failed == 0, "{failed} images failed");
    Ok(())
}

/// Makes one image; returns the number of its names.
fn make(guest: &Guest<'_>, recipe: &Recipe) -> Result<usize> {
    let image = guest.file(recipe, "img");
    for kind in ["img", "walk", "checkpoint", "fsck", "synced", "console"] {
        let _ = std::fs::remove_file(guest.file(recipe, kind));
    }
    std::fs::File::create(&image)?.set_len(u64::from(recipe.megabytes) << 20)?;
    match recipe.end {
        End::Unmounted => guest.run(recipe, &[&image], &[], &[])?,
        _ => cut(guest, recipe, &image)?,
    }
    Ok(walk_file::read(&guest.file(recipe, "walk"))?.len())
}

/// Cuts the power of the guest, and has another one recover a copy.
fn cut(guest: &Guest<'_>, recipe: &Recipe, image: &Path) -> Result<()> {
    guest.run(recipe, &[image], &["--cut-at", cuts::MARK], &[])?;
    let synced = guest.file(recipe, "synced");
    let console = String::from_utf8_lossy(&std::fs::read(guest.file(recipe, "console"))?).into_owned();
    let promised = promises(&console)?;
    walk_file::write(&promised, &mut std::fs::File::create(&synced)?)?;
    let copies = ["recovered", "looked-at"].map(|kind| guest.file(recipe, kind));
    for copy in &copies {
        crate::system::copy_sparse(image, copy)?;
    }
    let recovered = guest.run(recipe, &[&copies[0], &copies[1]], &[], &["--recover", "/dev/vdc"]);
    for copy in &copies {
        std::fs::remove_file(copy)?;
    }
    recovered?;
    keeps(&promised, &walk_file::read(&guest.file(recipe, "walk"))?)?;
    if recipe.end == End::PowerCutAfterFsync {
        let earlier = walk_file::read(&guest.file(recipe, "checkpoint"))?;
        ensure!(keeps(&promised, &earlier).is_err(), "the checkpoint has everything: nothing was rolled forward");
    }
    Ok(())
}

/// The promises of the scenes on the console.
fn promises(console: &str) -> Result<Walk> {
    let mut promised = Walk::new();
    // The power cut may have truncated the last line.
    let whole = console.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for line in whole.lines() {
        if let Some((_, record)) = line.split_once(cuts::SYNCED) {
            let (path, record) = walk_file::parse(record.trim_end()).with_context(|| line.to_owned())?;
            promised.insert(path, record);
        } else if let Some((_, path)) = line.split_once(cuts::CHANGES) {
            promised.remove(&walk_file::unescaped(path.trim_end())?);
        }
    }
    Ok(promised)
}

/// Asserts that a recovered image keeps the promises.
fn keeps(promised: &Walk, recovered: &Walk) -> Result<()> {
    // All of a promised file but the positions of its blocks: recovery rewrites inodes, which may hold inline data.
    let plain = |record: &Record| Record { extents: Vec::new(), blocks: 0, ..record.clone() };
    let found = recovered.iter().filter(|(path, _)| promised.contains_key(*path));
    let found: Walk = found.map(|(path, record)| (path.clone(), plain(record))).collect();
    let promised: Walk = promised.iter().map(|(path, record)| (path.clone(), plain(record))).collect();
    let broken = differences(&promised, &found);
    ensure!(broken.is_empty(), "{} promises were broken: {}", broken.len(), broken.join("\n"));
    Ok(())
}

/// How guests are run.
struct Guest<'a> {
    root: &'a Path,
    cache: &'a Path,
    folder: &'a Path,
}

impl Guest<'_> {
    fn file(&self, recipe: &Recipe, kind: &str) -> PathBuf {
        self.folder.join(format!("{}.{kind}", recipe.name))
    }

    /// Runs this program in a guest that has `disks`; its output files go beside the images.
    fn run(&self, recipe: &Recipe, disks: &[&Path], options: &[&str], more: &[&str]) -> Result<()> {
        let results = self.file(recipe, "results");
        let own = std::env::current_exe()?;
        let mut command = Command::new(self.root.join("crates/trials/suites/f2fs-guest/run.sh"));
        command.args(["--seconds", SECONDS, "--cache"]).arg(self.cache);
        for disk in disks {
            command.arg("--disk").arg(disk);
        }
        let status = command
            .arg("--program")
            .arg(&own)
            .arg("--results")
            .arg(&results)
            .args(options)
            .args(["--", "trials", "f2fs-image", recipe.name, "/dev/vdb"])
            .args(more)
            .stdin(Stdio::null())
            .status()?;
        for kind in ["walk", "checkpoint", "fsck"] {
            let made = results.join(format!("{}.{kind}", recipe.name));
            if made.exists() {
                std::fs::rename(made, self.file(recipe, kind))?;
            }
        }
        std::fs::rename(results.join("console"), self.file(recipe, "console"))?;
        std::fs::remove_dir_all(&results)?;
        if !status.success() {
            bail!("the guest: {status}; see {}", self.file(recipe, "console").display());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff_walk::record::Extent;
    use std::collections::BTreeSet;

    #[test]
    fn a_promise_is_broken_by_another_size_and_by_no_file_but_not_by_another_place() {
        let extent = Extent { offset: 0, len: 1, place: 9, is_inline: true, is_unwritten: false, is_compressed: false };
        let promised = Walk::from([(b"a".to_vec(), Record { size: 1, ..Record::default() })]);
        let with = |size, path: &[u8]| {
            let record = Record { size, blocks: 3, extents: vec![extent], ..Record::default() };
            keeps(&promised, &Walk::from([(path.to_vec(), record), (b"other".to_vec(), Record::default())]))
        };
        assert!(with(1, b"a").is_ok());
        assert!(with(2, b"a").unwrap_err().to_string().contains("size"));
        assert!(with(1, b"b").is_err());
    }

    #[test]
    fn a_promise_is_taken_back_by_a_change_and_a_line_that_was_cut_promises_nothing() {
        let line = |path: &[u8]| format!("{}{}\r\n", cuts::SYNCED, walk_file::line(path, &Record::default()));
        let (a, b, c) = (line(b"w/a"), line(b"w/b\n"), line(b"w/c"));
        let cut = c.trim_end().to_owned();
        let console = format!("boots\r\n{a}{b}{}w/a\r\n{}w/b\\n\r\n{b}{cut}", cuts::CHANGES, cuts::CHANGES);
        assert_eq!(promises(&console).unwrap().into_keys().collect::<Vec<_>>(), [b"w/b\n".to_vec()]);
        assert!(promises(&format!("{}{{}}\n", cuts::SYNCED)).is_err());
    }

    #[test]
    fn every_image_has_a_name_and_a_seed_of_its_own() {
        let names: BTreeSet<&str> = RECIPES.iter().map(|recipe| recipe.name).collect();
        let seeds: BTreeSet<u32> = RECIPES.iter().map(|recipe| recipe.seed).collect();
        assert_eq!((names.len(), seeds.len()), (RECIPES.len(), RECIPES.len()));
    }
}
