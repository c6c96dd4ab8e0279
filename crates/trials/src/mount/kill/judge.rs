//! Finds broken promises in the image of a killed server. The image is mounted, and so changed. Called by `kill` after
//! each kill, and by `ceph`.

use super::super::promises::{Diary, Ledger, Miss, Mounted, misses, print_histories};
use crate::formats::Kind;
use crate::system::{self, Mount};
use anyhow::Result;
use blockdev::backends::{FileDevice, FileOptions};
use std::path::Path;
use std::sync::Arc;

/// Promises that the kernel and Spinney find broken; and whether a log was replayed.
pub(in crate::mount) fn btrfs(program: &Path, image: &Path, diaries: &[Diary]) -> Result<(bool, Vec<String>)> {
    let ours = image.with_extension("img.ours");
    system::copy_sparse(image, &ours)?;
    // A damaged image must not be mounted by the kernel.
    if let Some(problem) = Kind::Btrfs.check(image)? {
        return Ok((false, vec![format!("btrfs check before any replay: {problem}")]));
    }
    let with_log = has_log(image)?;
    let mount = Mount::new(image, "noatime")?;
    let mut losses = told(diaries, &misses(ledgers(diaries), &Mounted(mount.path()), "the kernel")?);
    mount.unmount()?;
    losses.extend(by_spinney(program, &ours, diaries)?);
    for (who, image) in [("the kernel", image), ("Spinney", &ours)] {
        losses.extend(Kind::Btrfs.check(image)?.map(|problem| format!("btrfs check after {who}: {problem}")));
    }
    Ok((with_log, losses))
}

/// Promises that Spinney finds broken; and whether fsynced files were recovered.
pub(super) fn f2fs(program: &Path, image: &Path, diaries: &[Diary]) -> Result<(bool, Vec<String>)> {
    if let Some(problem) = Kind::F2fs.check(image)? {
        return Ok((false, vec![format!("fsck.f2fs before any recovery: {problem}")]));
    }
    let with_log = {
        let device = FileDevice::open(image, &FileOptions { read_only: true, ..FileOptions::default() })?;
        let volume = f2fs::OpenOptions::new().open(Arc::new(device))?;
        let found = volume.info()?;
        let volume = vfs::Volume::new(Arc::new(volume));
        let missed = misses(ledgers(diaries), &volume, "Spinney, reading")?;
        if !missed.is_empty() {
            return Ok((found.recovered_files > 0, told(diaries, &missed)));
        }
        found.recovered_files > 0
    };
    let mut losses = by_spinney(program, image, diaries)?;
    losses.extend(Kind::F2fs.check(image)?.map(|problem| format!("fsck.f2fs after Spinney: {problem}")));
    Ok((with_log, losses))
}

fn ledgers(diaries: &[Diary]) -> impl Iterator<Item = &Ledger> {
    diaries.iter().map(|diary| &diary.ledger)
}

fn by_spinney(program: &Path, image: &Path, diaries: &[Diary]) -> Result<Vec<String>> {
    let mount = Mount::served(program, image, "noatime")?;
    let missed = misses(ledgers(diaries), &Mounted(mount.path()), "Spinney")?;
    mount.unmount()?;
    Ok(told(diaries, &missed))
}

/// Broken promises as lines, after the history is printed.
fn told(diaries: &[Diary], missed: &[Miss]) -> Vec<String> {
    print_histories(ledgers(diaries), missed);
    missed.iter().map(ToString::to_string).collect()
}

fn has_log(image: &Path) -> Result<bool> {
    let words = ["inspect-internal", "dump-super", &image.to_string_lossy()];
    let said = system::run(&system::btrfs_program(), &words)?;
    Ok(said.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("log_root") && words.next().is_some_and(|at| at != "0")
    }))
}
