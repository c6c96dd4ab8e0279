//! Implements btrfs for the property test: fresh images of many forms, ways to open them, and when a volume is full.
//! `testkit/tests/property.rs` runs it; `crash` makes its images here.

use crate::Random;
use crate::reference::{self, Checked};
use anyhow::{Context, Result, ensure};
use btrfs::{Compression, MakeOptions, QuotaKind, SpaceReport, Volume};
use btrfs_disk::flags::BlockGroupFlags;
use std::path::Path;
use std::time::Duration;
use vfs::Errno;
use vfs_conformance::model::Operation;
use vfs_conformance::property::Subject;

/// How often, and how far apart, an image is opened that is locked.
const LOCK_ATTEMPTS_MAX: u32 = 100;
const LOCK_WAIT: Duration = Duration::from_millis(10);

/// Forms made by `mkfs.btrfs`, where it is installed: Spinney has to write to those as well.
const FOREIGN_FORMS: &[&[&str]] = &[
    &[],
    &["-n", "4096", "--csum", "xxhash"],
    &["-n", "8192", "--csum", "sha256"],
    &["-n", "32768", "--csum", "blake2", "-m", "single"],
    &["-n", "65536", "-d", "dup"],
    &["--mixed"],
    &["--mixed", "-d", "dup", "-m", "dup"],
    &["-O", "^no-holes"],
    &["-O", "^no-holes,^skinny-metadata", "-R", "^free-space-tree"],
];

/// How data is compressed, where it is: each algorithm, and each class of levels.
const COMPRESSIONS: &[&str] = &["zlib:1", "zlib:9", "lzo", "zstd:-5", "zstd", "zstd:12"];

/// A volume with so many bytes in no chunk has to make a chunk before it says that there is no room.
const UNALLOCATED_BYTES: u64 = 4 << 20;
/// Most bytes that a block group of the needed kind may have beyond the requested ones.
const LEFT_BYTES: u64 = 1 << 20;
/// Most bytes of a file to defragment, all of which get new space.
const DEFRAG_BYTES: u64 = 8 << 20;
/// Most bytes reserved by an operation on names or attributes, for all trees that it may change.
const PROMISED_BYTES: u64 = 4 << 20;

/// btrfs, made by Spinney and by `mkfs.btrfs`; `btrfs check` checks the results.
#[derive(Debug, Clone, Copy, Default)]
pub struct Btrfs;

impl Subject for Btrfs {
    type Opened = Volume;

    fn make(&self, path: &Path, size_bytes: u64, random: &mut Random) -> Result<(Volume, String)> {
        let (volume, mut form) = make(path, size_bytes, random)?;
        if random.one_in(3) {
            // `btrfs check` compares their counts, too.
            volume.enable_quotas(QuotaKind::Shared)?;
            form.push_str(", quotas");
        }
        Ok((volume, form))
    }

    fn open(&self, path: &Path, random: &mut Random) -> Result<Volume> {
        open(path, random)
    }

    fn check_full(&self, opened: &Volume, operation: &Operation) -> Result<()> {
        let info = opened.info()?;
        let is_full = is_full_for(&info.space, operation);
        ensure!(is_full, "ENOSPC with room left: {} nodes, {:?}", info.node_bytes, info.space);
        Ok(())
    }

    fn check(&self, path: &Path) -> Result<bool> {
        Ok(reference::check(path)? == Checked::Clean)
    }
}

/// Makes an image and opens it; says how it was made.
pub(crate) fn make(path: &Path, size_bytes: u64, random: &mut Random) -> Result<(Volume, String)> {
    if random.one_in(2) || !reference::is_installed() {
        return make_own(path, size_bytes, random);
    }
    let form = random.pick(FOREIGN_FORMS).copied().unwrap_or_default();
    reference::mkfs(path, size_bytes, form)?;
    let form = format!("mkfs.btrfs {form:?}");
    Ok((open(path, random).with_context(|| form.clone())?, form))
}

/// Made by Spinney itself.
fn make_own(path: &Path, size_bytes: u64, random: &mut Random) -> Result<(Volume, String)> {
    let mut make = MakeOptions { size: Some(size_bytes), ..MakeOptions::default() };
    make.nodesize = random.pick(&[4096, 16_384, 16_384, 65_536]).copied().unwrap_or(16_384);
    Volume::make(path, &make).with_context(|| format!("making an image with {make:?}"))?.close()?;
    let form = format!("Spinney, {}-byte nodes", make.nodesize);
    Ok((open(path, random).with_context(|| form.clone())?, form))
}

/// Opens it with one of several sets of options.
fn open(path: &Path, random: &mut Random) -> Result<Volume> {
    let mut options = Volume::options();
    if random.one_in(3) {
        options = options.dirty_bytes(1 << 20).cache_bytes(4 << 20);
    }
    if random.one_in(4) {
        options = options.max_inline(0);
    }
    options = options.discard(random.one_in(4));
    if random.one_in(3) {
        let text = random.pick(COMPRESSIONS).copied().unwrap_or_default();
        let is_forced = random.one_in(4);
        options = options.compress(Compression::parse(text).map(|found| Compression { is_forced, ..found }));
    }
    // A thread of another seed may be starting `btrfs check`: between fork and exec the child holds our lock too.
    for _ in 0..LOCK_ATTEMPTS_MAX {
        match options.open(path) {
            Err(error) if error.errno() == Errno::EBUSY => std::thread::sleep(LOCK_WAIT),
            opened => return Ok(opened?),
        }
    }
    Ok(options.open(path)?)
}

/// No room for a chunk, and less than the operation needs in the groups for data or for tree blocks, the reserve for
/// commits aside.
fn is_full_for(space: &SpaceReport, operation: &Operation) -> bool {
    let mixed = BlockGroupFlags::DATA.union(BlockGroupFlags::METADATA);
    let is_mixed = space.profiles.iter().any(|profile| profile.flags.contains(mixed));
    let left_for = |kind: BlockGroupFlags| -> u64 {
        let groups = space.profiles.iter().filter(|profile| profile.flags.contains(kind));
        let left = groups.map(|profile| profile.total.saturating_sub(profile.used).saturating_sub(profile.pinned));
        let kept_back = match kind == BlockGroupFlags::METADATA || is_mixed {
            true => space.global_reserve.0.max(space.global_reserve.1),
            false => 0,
        };
        left.sum::<u64>().saturating_sub(kept_back)
    };
    let data = match operation {
        Operation::Write { len, .. } | Operation::Allocate { len, .. } => Some(*len),
        Operation::Defragment { .. } => Some(DEFRAG_BYTES),
        // Part of a page is written.
        Operation::SetLen { .. } | Operation::Reflink { .. } => Some(0),
        _ => None,
    };
    let lacks_data = data.is_some_and(|len| left_for(BlockGroupFlags::DATA) < len.saturating_add(LEFT_BYTES));
    let lacks_metadata = left_for(BlockGroupFlags::METADATA) < PROMISED_BYTES;
    space.unallocated < UNALLOCATED_BYTES && (lacks_data || lacks_metadata)
}
