//! Copies a tree into f2fs images by `mkfs --rootdir`, twice, and by `put`, and out again by `get`. This kernel may
//! lack f2fs: Spinney walks the images, and `fsck.f2fs` must find no error. `f2fs-guest` has another kernel walk them.
//! Called by `round_trip`.

use super::{comparable, same};
use crate::diff_walk::record::Walk;
use crate::diff_walk::{f2fs, kernel};
use crate::formats::Kind;
use crate::images::populate;
use crate::system::{self, is_root};
use anyhow::{Context, Result, ensure};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;
use testkit::Random;

/// Number of names of the default tree.
const FILES: u32 = 3000;
/// Free space beside the tree, in the image that `put` fills.
const SPARE_BYTES: u64 = 256 << 20;
/// Options that make two images of one tree equal.
const SAME: &[&str] = &["-U", "6f1c2c4e-8f31-4b6e-9a55-1a2b3c4d5e6f", "--threads", "1"];
const EPOCH: &str = "1700000000";

/// Runs the trial below `dir`.
pub(super) fn run(program: &Path, dir: &Path, tree: Option<&Path>) -> Result<ExitCode> {
    ensure!(is_root(), "keeping owners needs root");
    std::fs::create_dir_all(dir)?;
    let dir = dir.canonicalize()?;
    let source = Source::new(tree, &dir)?;
    let from = source.point.to_string_lossy().into_owned();
    let expected = arriving(kernel::walk(&source.point).context("the tree")?);
    let spinney = |what: &str, words: &[&str]| {
        let start = Instant::now();
        let output = Command::new(program).args(words).env("SOURCE_DATE_EPOCH", EPOCH).output()?;
        ensure!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr).trim());
        println!("{what}: {:.1} s", start.elapsed().as_secs_f64());
        Ok(())
    };
    let [first, second, put] = ["mkfs", "again", "put"].map(|name| dir.join(format!("f2fs-{name}.img")));
    for image in [&first, &second, &put] {
        let _ = std::fs::remove_file(image);
    }
    for image in [&first, &second] {
        let image = image.to_string_lossy();
        let words = [&["mkfs", "-q"], Kind::F2fs.mkfs_words(), SAME, &["--rootdir", &from, &image]].concat();
        spinney("mkfs --rootdir", &words)?;
    }
    let mut is_fine = are_equal(&first, &second)?;
    println!("the two images of mkfs: {}", if is_fine { "equal" } else { "FAILED: they differ" });
    std::fs::remove_file(&second)?;
    is_fine &= arrived("mkfs --rootdir", &first, &expected)?;

    let bytes = std::fs::metadata(&first)?.len().saturating_add(SPARE_BYTES).to_string();
    let image = put.to_string_lossy();
    spinney("mkfs", &[&["mkfs", "-q", "--size", &bytes], Kind::F2fs.mkfs_words(), &[&image]].concat())?;
    spinney("put", &["put", "-q", &image, &format!("{from}/."), "/"])?;
    is_fine &= arrived("put", &put, &expected)?;

    let out = dir.join("f2fs-out");
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir(&out)?;
    spinney("get", &["get", "-q", &image, "/.", &out.to_string_lossy()])?;
    is_fine &= same("get", &expected, &arriving(kernel::walk(&out)?));
    std::fs::remove_dir_all(out)?;
    println!("the images are in {}", dir.display());
    Ok(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks an image and compares Spinney's walk of it.
fn arrived(what: &str, image: &Path, expected: &Walk) -> Result<bool> {
    if let Some(problem) = Kind::F2fs.check(image)? {
        println!("{what}: FAILED: fsck.f2fs: {problem}");
        return Ok(false);
    }
    Ok(same(what, expected, &arriving(f2fs::walk(image)?)))
}

/// Data ranges are not compared: the file systems report holes differently. A walk changes the access times of
/// directories and links.
fn arriving(walk: Walk) -> Walk {
    const FILE: u32 = 0o100_000;
    const TYPE: u32 = 0o170_000;
    let mut walk = comparable(walk);
    for record in walk.values_mut() {
        record.extents.clear();
        if record.mode & TYPE != FILE {
            record.atime = (0, 0);
        }
        if record.mode & TYPE == 0o040_000 {
            record.links = 0;
        }
    }
    walk
}

fn are_equal(one: &Path, other: &Path) -> Result<bool> {
    let [mut one, mut other] = [std::fs::File::open(one)?, std::fs::File::open(other)?];
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let count = one.read(&mut left)?;
        other.read_exact(right.get_mut(..count).unwrap_or_default())?;
        if left.get(..count) != right.get(..count) {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
    }
}

/// The tree, readable without changing access times. Unmounted when dropped.
struct Source {
    point: PathBuf,
    made: Option<PathBuf>,
}

impl Source {
    fn new(tree: Option<&Path>, dir: &Path) -> Result<Self> {
        let made = tree.is_none().then(|| dir.join("f2fs-tree"));
        if let Some(made) = &made {
            let _ = std::fs::remove_dir_all(made);
            populate::populate(made, FILES, &mut Random::new(1)).context("a random tree")?;
        }
        let tree = tree.or(made.as_deref()).context("a tree")?;
        let point = dir.join("f2fs-source");
        std::fs::create_dir_all(&point)?;
        system::run("mount", &[Path::new("--bind"), tree, &point])?;
        let source = Self { point, made };
        system::run("mount", &["-o", "remount,bind,ro,noatime", &source.point.to_string_lossy()])?;
        Ok(source)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Err(error) = system::run("umount", &[&self.point]) {
            eprintln!("{error:#}");
            return;
        }
        let _ = std::fs::remove_dir(&self.point);
        if let Some(made) = &self.made {
            let _ = std::fs::remove_dir_all(made);
        }
    }
}
