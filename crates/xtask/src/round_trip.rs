//! Does what Spinney writes arrive? A tree goes in by `mkfs --rootdir` and by `put`, and out again by `get`; the
//! kernel walks the results, and `btrfs check` looks at the images. Needs root, and the `spinney` program built.

use crate::diff_walk::kernel;
use crate::diff_walk::record::{self, Walk};
use crate::images;
use crate::system::{self, Mount};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::ExitCode;

/// The image whose contents are the tree: every kind of inode, attributes, sparse and preallocated files.
const SOURCE: &str = "crc32c-n16k";
const DIFFERENCES_SHOWN: usize = 10;

/// Runs all of it below `folder`, where the images are (or will be).
pub(crate) fn run(root: &Path, folder: &Path) -> Result<ExitCode> {
    let source_image = folder.join(format!("{SOURCE}.img"));
    if !source_image.exists() {
        images::make_all(root, folder, Some(SOURCE))?;
    }
    let source = Mount::new(&source_image, "ro,subvolid=5")?;
    let expected = comparable(kernel::walk(source.path())?);
    let from = source.path().to_string_lossy().into_owned();
    let image = |name: &str| folder.join(format!("round-trip-{name}.img"));
    let spinney = |arguments: &[&str]| {
        system::run(
            &root.join("target/release/spinney").to_string_lossy(),
            arguments,
        )
    };
    let mut failed = false;

    let by_mkfs = image("mkfs");
    let _ = std::fs::remove_file(&by_mkfs);
    spinney(&["mkfs", "--rootdir", &from, &by_mkfs.to_string_lossy()])?;
    failed |= !arrived("mkfs --rootdir", &by_mkfs, &expected)?;

    let by_put = image("put");
    let _ = std::fs::remove_file(&by_put);
    spinney(&["mkfs", "--size", "1G", &by_put.to_string_lossy()])?;
    spinney(&["put", &by_put.to_string_lossy(), &format!("{from}/."), "/"])?;
    failed |= !arrived("put", &by_put, &expected)?;

    let target_image = image("get");
    std::fs::File::create(&target_image)?.set_len(1 << 30)?;
    system::run(
        &system::mkfs_program(),
        &["--quiet", "--force", &target_image.to_string_lossy()],
    )?;
    let target = Mount::new(&target_image, "rw")?;
    spinney(&[
        "get",
        &by_mkfs.to_string_lossy(),
        "/.",
        &target.path().to_string_lossy(),
    ])?;
    failed |= !same("get", &expected, &comparable(kernel::walk(target.path())?));
    target.unmount()?;
    source.unmount()?;
    if !failed {
        for path in [by_mkfs, by_put, target_image] {
            std::fs::remove_file(path)?;
        }
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Checks the image and compares the kernel's view of it.
fn arrived(what: &str, image: &Path, expected: &Walk) -> Result<bool> {
    let checked = testkit::reference::check(image).with_context(|| what.to_owned())?;
    ensure!(
        checked == testkit::reference::Checked::Clean,
        "btrfs check is not installed"
    );
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
    println!(
        "{what}: {} names, {} differences",
        found.len(),
        differences.len()
    );
    differences.is_empty()
}

/// What a copy keeps: not the places of bytes, nor the times that only the file system sets. The top directory was
/// there before.
fn comparable(walk: Walk) -> Walk {
    const DIRECTORY: u32 = 0o040_000;
    const TYPE: u32 = 0o170_000;
    let keep = |mut record: record::Record| {
        (record.ino, record.blocks, record.flags) = (0, 0, None);
        (record.atime, record.ctime, record.btime) = Default::default();
        record.extents.clear();
        if record.mode & TYPE == DIRECTORY {
            record.size = 0;
        }
        record
    };
    walk.into_iter()
        .filter(|(path, _)| !path.is_empty())
        .map(|(path, record)| (path, keep(record)))
        .collect()
}
