//! Makes small hostile images quickly, for millions of runs of code that must cope with any image. Called by
//! `cargo trials fuzz-images` and `testkit/tests/hostile`.

use super::base::{Base, options};
use super::damage::{self, Used};
use super::mutate::mutate;
use super::witness::ReadWitness;
use crate::Random;
use anyhow::{Context, Result};
use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, QuotaKind, Volume};
use btrfs_disk::flags::{CompatRo, Incompat};
use codec::ChecksumType;
use std::sync::Arc;
use vfs::file_system::XattrMode;
use vfs::{File, FileOptions, SnapshotMode};

/// The smallest that can be made.
const IMAGE_BYTES: u64 = 16 << 20;
/// Separates the mutations of images from other numbers that follow from the same seed.
const STREAM: u64 = 0x9e6c_63d0_876a_6b4d;

/// A small image with every kind of structure, and its special properties.
#[derive(Debug)]
pub struct SmallBase {
    base: Base,
    /// First bytes of the pages that are not zeros.
    pages: Vec<u64>,
}

/// A hostile image.
#[derive(Debug)]
pub struct HostileImage {
    /// The base that was changed.
    pub base: String,
    /// Read-only: a write to it panics. A writer puts an overlay over it.
    pub device: Arc<dyn Device>,
    /// Descriptions of the changes.
    pub changes: Vec<String>,
}

/// A hostile image that follows from these numbers: the first chooses the base, and each adds some changes.
///
/// # Errors
/// When there is no base, or one cannot be read.
pub fn hostile_image(bases: &[SmallBase], seed: u64, numbers: &[u64]) -> Result<HostileImage> {
    let first = numbers.first().copied().unwrap_or(0);
    let random_of = |number: u64| Random::new(seed ^ STREAM ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let small = random_of(first).pick(bases).context("no base image")?;
    let (device, editor) = small.base.copy();
    let used = Used { base: &small.base, pages: &small.pages };
    let mut size_bytes = device.size_bytes();
    let mut changes = Vec::new();
    for number in numbers {
        let mut random = random_of(*number);
        // The number that chose the base.
        random.number();
        let (regular, is_rough) = (!random.one_in(4), random.one_in(2));
        if regular {
            // After another change a tree may not be found any more.
            match mutate(&small.base, &editor, &mut random) {
                Ok(said) => changes.extend(said),
                Err(error) => changes.push(error.to_string()),
            }
        }
        if is_rough || !regular {
            changes.push(damage::change(&used, (&*device, &editor), &mut random)?);
        }
        if random.one_in(50) {
            size_bytes = size_bytes.min(damage::shorter(&used, &mut random));
            changes.push(format!("the device ends after {size_bytes} bytes"));
        }
    }
    let device = Arc::new(ReadWitness::new(device, size_bytes));
    Ok(HostileImage { base: small.base.name.clone(), device, changes })
}

impl SmallBase {
    fn new(name: &str, device: &MemoryDevice) -> Result<Self> {
        let mut page = vec![0; usize::try_from(damage::PAGE_BYTES)?];
        let mut pages = Vec::new();
        for at in (0..device.size_bytes()).step_by(page.len()) {
            device.read_at(at, &mut page)?;
            if page.iter().any(|byte| *byte != 0) {
                pages.push(at);
            }
        }
        let base = Base::new(name, Arc::new(device.duplicate().into_read_only()))?;
        Ok(Self { base, pages })
    }

    /// The image before anything was changed.
    #[must_use]
    pub fn base(&self) -> &Base {
        &self.base
    }
}

/// Small images of several forms.
///
/// # Errors
/// When one cannot be made.
pub fn small_bases() -> Result<Vec<SmallBase>> {
    let plain = MakeOptions { nodesize: 4096, size: None, ..MakeOptions::default() };
    let twice = plain.metadata_profile;
    let no_group_tree = plain.compat_ro - CompatRo::BLOCK_GROUP_TREE;
    let forms = [
        ("plain", plain.clone(), false),
        ("data twice", MakeOptions { data_profile: twice, ..plain.clone() }, false),
        ("large nodes", MakeOptions { nodesize: 16 << 10, ..plain.clone() }, false),
        ("other checksums", MakeOptions { csum: ChecksumType::Xxhash64, ..plain.clone() }, false),
        ("mixed", MakeOptions { mixed: true, data_profile: twice, ..plain.clone() }, false),
        ("one copy", MakeOptions { metadata_profile: plain.data_profile, ..plain.clone() }, false),
        ("no free-space tree", MakeOptions { compat_ro: CompatRo::empty(), ..plain.clone() }, false),
        (
            "holes",
            MakeOptions { incompat: plain.incompat - Incompat::NO_HOLES, compat_ro: no_group_tree, ..plain.clone() },
            false,
        ),
        ("log", plain.clone(), true),
        ("mixed with log", MakeOptions { mixed: true, data_profile: twice, ..plain.clone() }, true),
    ];
    forms.iter().map(|(name, make, with_log)| small_base(name, make, *with_log).context(*name)).collect()
}

fn small_base(name: &str, make: &MakeOptions, with_log: bool) -> Result<SmallBase> {
    let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    let volume = options(1).make_device(device.clone(), make)?;
    fill(&volume)?;
    match name {
        "data twice" => volume.enable_quotas(QuotaKind::Shared)?,
        "other checksums" => volume.enable_quotas(QuotaKind::Simple)?,
        _ => {}
    }
    let unnamed = File::unnamed(&volume, "/")?;
    unnamed.write_at(&[5; 5000], 0)?;
    volume.sync()?;
    if with_log {
        for name in ["/dir/inline", "/logged"] {
            let file = FileOptions::new().read(true).write(true).create(true).open(&volume, name)?;
            file.write_at(&[6; 5000], 0)?;
            file.sync_all()?;
        }
        return SmallBase::new(name, &device);
    }
    drop(unnamed);
    volume.remove_file("/dir/gone")?;
    volume.sync()?;
    SmallBase::new(name, &device)
}

/// A little of everything: trees of few leaves.
fn fill(volume: &Volume) -> Result<()> {
    let mut random = Random::new(7);
    volume.create_dir_all("/dir/below")?;
    volume.write("/dir/inline", random.noise(300))?;
    volume.write("/dir/gone", random.noise(5000))?;
    volume.hard_link("/dir/inline", "/dir/below/link")?;
    volume.symlink("../inline", "/dir/below/symlink")?;
    volume.set_xattr("/dir/inline", "user.note", random.noise(40), XattrMode::Either)?;
    volume.create_subvolume("/sub")?;
    volume.write("/sub/file", random.noise(9000))?;
    volume.snapshot("/sub", "/snap", SnapshotMode::ReadWrite)?;
    volume.write("/snap/more", random.noise(100))?;
    let options = FileOptions::new().read(true).write(true).create(true);
    let pieces = options.open(volume, "/pieces")?;
    for piece in 0..3u64 {
        pieces.write_at(&random.noise(8 << 10), piece * (20 << 10))?;
        volume.sync()?;
    }
    options.open(volume, "/shared")?.reflink(&pieces, 0, 0, 28 << 10)?;
    let squeezed = options.open(volume, "/squeezed")?;
    volume.set_xattr("/squeezed", "btrfs.compression", "zlib", XattrMode::Either)?;
    squeezed.write_at(&b"all alike ".repeat(3000), 0)?;
    for number in 0..20 {
        volume.write(format!("/dir/many{number:02}"), random.noise(60))?;
    }
    Ok(())
}
