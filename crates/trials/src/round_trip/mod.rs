//! Tests copies: a tree goes in by `mkfs --rootdir` and by `put`, and out again by `get`; the kernel walks the results,
//! and `btrfs check` checks the images. [`f2fs`] does the same with images of that format.
//!
//! Needs root, and the `spinney` program built. Fails if an image cannot be made, a checker finds an error, or a name
//! differs; differences are printed. Called by `cargo trials round-trip`.

mod f2fs;

use crate::diff_walk::kernel;
use crate::diff_walk::record::{self, Extent, Walk};
use crate::formats::Kind;
use crate::images;
use crate::system::{self, Mount};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The image with the source tree: every kind of inode, attributes, sparse and preallocated files.
const SOURCE: &str = "crc32c-n16k";
/// Each algorithm, and each class of levels.
const COMPRESSIONS: &[&str] = &["zlib:1", "zlib:9", "lzo", "zstd:-7", "zstd:3", "zstd:15"];
const DIFFERENCES_SHOWN: usize = 10;
/// An extent without position and flags: only data ranges are compared.
const NOWHERE: Extent =
    Extent { offset: 0, len: 0, place: 0, is_inline: false, is_unwritten: false, is_compressed: false };

/// Options of the trial.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Directory for the images
    #[arg(long, default_value = "target/images")]
    dir: PathBuf,
    /// Their format.
    #[arg(long, value_enum, default_value_t = Kind::Btrfs)]
    format: Kind,
    /// The tree for f2fs images; by default a random one
    #[arg(long)]
    tree: Option<PathBuf>,
    /// The `spinney` program, if not target/release/spinney.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Runs the trial.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let program = options.program.clone().unwrap_or_else(|| root.join("target/release/spinney"));
    match options.format {
        Kind::Btrfs => btrfs(root, &program, &options.dir),
        Kind::F2fs => f2fs::run(&program, &options.dir, options.tree.as_deref()),
    }
}

/// Runs it below `folder`, the directory of the images.
fn btrfs(root: &Path, program: &Path, folder: &Path) -> Result<ExitCode> {
    let source_image = folder.join(format!("{SOURCE}.img"));
    if !source_image.exists() {
        images::make_all(root, folder, Some(SOURCE))?;
    }
    let source = Mount::new(&source_image, "ro,subvolid=5")?;
    let expected = comparable(kernel::walk(source.path())?);
    let from = source.path().to_string_lossy().into_owned();
    let image = |name: &str| folder.join(format!("round-trip-{name}.img"));
    let spinney = |arguments: &[&str]| system::run(&program.to_string_lossy(), arguments);
    let mut failed = false;

    let by_mkfs = image("mkfs");
    let _ = std::fs::remove_file(&by_mkfs);
    spinney(&["mkfs", "--rootdir", &from, &by_mkfs.to_string_lossy()])?;
    failed |= !arrived("mkfs --rootdir", &by_mkfs, &expected)?;

    for compression in COMPRESSIONS {
        let path = image("compressed");
        let _ = std::fs::remove_file(&path);
        spinney(&["mkfs", "--rootdir", &from, "--compress", compression, &path.to_string_lossy()])?;
        failed |= !arrived(&format!("mkfs --compress {compression}"), &path, &expected)?;
        if !failed {
            std::fs::remove_file(path)?;
        }
    }

    let by_put = image("put");
    let _ = std::fs::remove_file(&by_put);
    spinney(&["mkfs", "--size", "1G", &by_put.to_string_lossy()])?;
    spinney(&["put", &by_put.to_string_lossy(), &format!("{from}/."), "/"])?;
    failed |= !arrived("put", &by_put, &expected)?;

    let target_image = image("get");
    std::fs::File::create(&target_image)?.set_len(1 << 30)?;
    system::run(&system::mkfs_program(), &["--quiet", "--force", &target_image.to_string_lossy()])?;
    let target = Mount::new(&target_image, "rw")?;
    spinney(&["get", &by_mkfs.to_string_lossy(), "/.", &target.path().to_string_lossy()])?;
    target.unmount()?;
    // Reading a writable mount changes access times.
    let target = Mount::new(&target_image, "ro")?;
    failed |= !same("get", &expected, &comparable(kernel::walk(target.path())?));
    target.unmount()?;
    source.unmount()?;
    if !failed {
        for path in [by_mkfs, by_put, target_image] {
            std::fs::remove_file(path)?;
        }
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Checks the image and compares the kernel's walk of it.
fn arrived(what: &str, image: &Path, expected: &Walk) -> Result<bool> {
    let checked = testkit::reference::check(image).with_context(|| what.to_owned())?;
    ensure!(checked == testkit::reference::Checked::Clean, "btrfs check is not installed");
    let mount = Mount::new(image, "ro,subvolid=5")?;
    let found = comparable(kernel::walk(mount.path())?);
    mount.unmount()?;
    Ok(same(what, expected, &found))
}

fn same(what: &str, expected: &Walk, found: &Walk) -> bool {
    let differences = record::differences(expected, found);
    for difference in differences.iter().take(DIFFERENCES_SHOWN) {
        println!("  {difference}");
    }
    println!("{what}: {} names, {} differences", found.len(), differences.len());
    differences.is_empty()
}

/// The properties that a copy keeps: of extents only which bytes are data; no times that only the file system sets, no
/// inode flags. The top directory existed before.
fn comparable(walk: Walk) -> Walk {
    const DIRECTORY: u32 = 0o040_000;
    const TYPE: u32 = 0o170_000;
    let keep = |mut record: record::Record| {
        (record.ino, record.blocks, record.flags) = (0, 0, None);
        (record.ctime, record.btime) = Default::default();
        record.extents = data_of(&record.extents);
        if record.mode & TYPE == DIRECTORY {
            record.size = 0;
        }
        record
    };
    walk.into_iter().filter(|(path, _)| !path.is_empty()).map(|(path, record)| (path, keep(record))).collect()
}

/// Ranges of data, as whole blocks; preallocated space counts as a hole.
fn data_of(extents: &[Extent]) -> Vec<Extent> {
    let mut runs: Vec<Extent> = Vec::new();
    for extent in extents.iter().filter(|extent| !extent.is_unwritten) {
        match runs.last_mut().filter(|last| last.offset.saturating_add(last.len) == extent.offset) {
            Some(last) => last.len = last.len.saturating_add(extent.len),
            None => runs.push(Extent { offset: extent.offset, len: extent.len, ..NOWHERE }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_that_was_filled_is_a_difference() {
        let extent = |offset, len, is_unwritten| Extent { offset, len, is_unwritten, place: offset + 77, ..NOWHERE };
        let sparse = [extent(0, 4096, false), extent(8192, 4096, false), extent(12288, 4096, false)];
        let filled = [extent(0, 16384, false)];
        let preallocated = [sparse[0], extent(4096, 4096, true), sparse[1], sparse[2]];
        assert_eq!(data_of(&sparse), data_of(&preallocated));
        assert_ne!(data_of(&sparse), data_of(&filled));
        let runs: Vec<_> = data_of(&sparse).iter().map(|run| (run.offset, run.len)).collect();
        assert_eq!(runs, [(0, 4096), (8192, 8192)]);
    }
}
