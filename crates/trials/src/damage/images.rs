//! Finds or makes the damaged images, copies them, and compares copies. Called by `commands` and `compare`.

use super::Options;
use crate::system;
use anyhow::{Context, Result, bail};
use blockdev::Device;
use blockdev::backends::{FileDevice, FileOptions};
use btrfs_disk::flags::SuperFlags;
use btrfs_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, UncheckedSuperblock, mirror_offsets};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::hostile::{bases, mutated};

/// The first bytes of a file of `btrfs-image`.
const DUMP_MAGIC: u64 = 0xbd5c_25e2_7295_668b;
/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;

/// Makes each image in turn, as a separate writable file, and calls `work` with it and its name.
pub(super) fn each(options: &Options, scratch: &Path, mut work: impl FnMut(&Path, &str) -> Result<()>) -> Result<()> {
    let is_wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only));
    let image = scratch.join("image");
    for dir in &options.dirs {
        let parent = dir.parent().unwrap_or(dir);
        for entry in walkdir::WalkDir::new(dir).sort_by_file_name() {
            let entry = entry?;
            let name = entry.path().strip_prefix(parent).unwrap_or(entry.path()).display().to_string();
            if is_wanted(&name) && unpack(entry.path(), &image, &options.btrfs_image())? {
                work(&image, &name)?;
                std::fs::remove_file(&image)?;
            }
        }
    }
    let bases = if options.mutated > 0 { bases()? } else { Vec::new() };
    for number in 0..options.mutated {
        let name = format!("image {number} of seed {}", options.seed);
        if is_wanted(&name) {
            write(&*mutated(&bases, options.seed, number)?, &image)?;
            work(&image, &name)?;
            std::fs::remove_file(&image)?;
        }
    }
    Ok(())
}

/// Writes a device to a file, without its zeros.
fn write(device: &dyn Device, path: &Path) -> Result<()> {
    let (file, mut piece, mut at) = (std::fs::File::create(path)?, vec![0; PIECE], 0);
    file.set_len(device.size_bytes())?;
    while at < device.size_bytes() {
        let len = usize::try_from(device.size_bytes() - at)?.min(PIECE);
        let part = piece.get_mut(..len).context("a piece")?;
        device.read_at(at, part)?;
        if part.iter().any(|byte| *byte != 0) {
            file.write_all_at(part, at)?;
        }
        at += u64::try_from(len)?;
    }
    Ok(())
}

/// Makes `image` a plain copy of the image behind `path`; false if there is none.
fn unpack(path: &Path, image: &Path, btrfs_image: &Path) -> Result<bool> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let plain = name.trim_end_matches(".xz").trim_end_matches(".zst");
    if !path.is_file() || !(plain.ends_with(".img") || plain.ends_with(".raw")) {
        return Ok(false);
    }
    let unpacker = match name.rsplit_once('.').map(|(_, end)| end) {
        Some("xz") => Some("xz"),
        Some("zst") => Some("zstd"),
        _ => None,
    };
    match unpacker {
        Some(program) => {
            let output = std::fs::File::create(image)?;
            let status = Command::new(program).arg("-dc").arg(path).stdout(output).status().context(program)?;
            if !status.success() {
                bail!("{program} cannot unpack {}", path.display());
            }
        }
        None => system::copy_sparse(path, image)?,
    }
    let mut start = [0; 8];
    let is_dump = std::io::Read::read(&mut std::fs::File::open(image)?, &mut start)? == start.len()
        && u64::from_le_bytes(start) == DUMP_MAGIC;
    if is_dump {
        let dump = image.with_extension("dump");
        std::fs::rename(image, &dump)?;
        let restored = system::run(&btrfs_image.to_string_lossy(), &[Path::new("-r"), &dump, image]);
        std::fs::remove_file(&dump)?;
        if let Err(error) = restored {
            let why = error.to_string();
            println!("{}: left out: {}", path.display(), why.lines().next().unwrap_or_default());
            let _ = std::fs::remove_file(image);
            return Ok(false);
        }
    }
    Ok(true)
}

fn open(path: &Path, read_only: bool) -> Result<FileDevice> {
    Ok(FileDevice::open(path, &FileOptions { read_only, ..FileOptions::default() })?)
}

/// Turns a restored dump into the dumped image, without data: removes the mark in the superblock, and adds the mirrors,
/// which `btrfs-image -r` writes or not, depending on its threads.
pub(super) fn complete(image: &Path) -> Result<()> {
    let (device, mut bytes) = (open(image, false)?, [0; SUPERBLOCK_SIZE]);
    let mark = SuperFlags::METADUMP.union(SuperFlags::METADUMP_V2);
    if device.read_at(SUPERBLOCK_OFFSET, &mut bytes).is_err() {
        return Ok(());
    }
    // An image with a wrong superblock stays as it is.
    let Ok(mut superblock) = UncheckedSuperblock::new(&bytes)?.verify(SUPERBLOCK_OFFSET) else { return Ok(()) };
    let flags = superblock.fields().flags.get();
    if flags & mark.bits() == 0 {
        return Ok(());
    }
    superblock.fields_mut().flags.set(flags & !mark.bits());
    for offset in mirror_offsets(device.size_bytes()) {
        let sealed = superblock.sealed(offset)?;
        device.write_at(offset, &[btrfs_disk::items::OnDisk::bytes(&*sealed)])?;
    }
    Ok(())
}

/// Mirrors of the superblock that were never written.
pub(super) fn missing_mirrors(image: &Path) -> Result<u64> {
    let (device, mut bytes, mut count) = (open(image, true)?, [0; SUPERBLOCK_SIZE], 0);
    for offset in mirror_offsets(device.size_bytes()).skip(1) {
        device.read_at(offset, &mut bytes)?;
        count += u64::from(bytes.iter().all(|byte| *byte == 0));
    }
    Ok(count)
}

/// Whether two images are equal to the last byte. Common holes are not read.
pub(super) fn are_same(one: &Path, other: &Path) -> Result<bool> {
    let (one, other) = (open(one, true)?, open(other, true)?);
    let size = one.size_bytes();
    if size != other.size_bytes() {
        return Ok(false);
    }
    let (mut left, mut right, mut at) = (vec![0; PIECE], vec![0; PIECE], 0);
    loop {
        at = one.next_data(at).min(other.next_data(at));
        let len = usize::try_from(size.saturating_sub(at)).unwrap_or(usize::MAX).min(PIECE);
        let (left, right) = (left.get_mut(..len).context("a piece")?, right.get_mut(..len).context("a piece")?);
        if len == 0 {
            return Ok(true);
        }
        one.read_at(at, left)?;
        other.read_at(at, right)?;
        if left != right {
            return Ok(false);
        }
        at += u64::try_from(len)?;
    }
}

/// Path for a copy of an image that a repair may change.
pub(super) fn copy(image: &Path) -> Result<PathBuf> {
    let copy = image.with_extension("copy");
    system::copy_sparse(image, &copy)?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sparse files of a tebibyte that differ in one byte, or in their sizes; reading them would take minutes.
    #[test]
    fn sparse_images_are_compared_to_the_last_byte() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, size: u64, writes: &[(u64, u8)]| {
            let file = std::fs::File::create(dir.path().join(name)).unwrap();
            file.set_len(size).unwrap();
            for (at, byte) in writes {
                file.write_all_at(&[*byte], *at).unwrap();
            }
            dir.path().join(name)
        };
        let image = make("image", 1 << 40, &[(5000, 1), (1 << 39, 2)]);
        let zeros = make("zeros", 1 << 40, &[(5000, 1), (1 << 30, 0), (1 << 39, 2)]);
        let other = make("other", 1 << 40, &[(5000, 1), (1 << 39, 2), ((1 << 40) - 1, 3)]);
        let longer = make("longer", (1 << 40) + 1, &[(5000, 1), (1 << 39, 2)]);
        assert!(are_same(&image, &zeros).unwrap() && are_same(&image, &copy(&image).unwrap()).unwrap());
        assert!(!are_same(&image, &other).unwrap() && !are_same(&other, &image).unwrap());
        assert!(!are_same(&image, &longer).unwrap());
        assert_eq!(missing_mirrors(&image).unwrap(), 2);
    }
}
