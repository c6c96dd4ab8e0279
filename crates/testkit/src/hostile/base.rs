//! Makes the images that are mutated: small ones of every form, with something of everything in them, half of them with
//! a log. Called by `trial`, `small` and the tests of check, rescue and repair.

use super::editor::{BlockAt, Editor};
use crate::Random;
use anyhow::{Context, Result};
use blockdev::Device;
use blockdev::backends::{MemoryDevice, OverlayDevice};
use btrfs::VolumeOptions;
use btrfs::{Env, MakeOptions, Volume};
use btrfs_disk::flags::{CompatRo, Incompat};
use btrfs_disk::node::header;
use btrfs_disk::{Logical, TreeId};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use vfs::file_system::{AllocateFlags, XattrMode};
use vfs::{File, FileOptions, SnapshotMode};

const IMAGE_BYTES: u64 = 96 << 20;
/// Files in the widest directory.
const FILES: u64 = 70;
/// Bytes of changes that one mutated image may take in memory.
const CHANGES_MAX: usize = 48 << 20;

/// An image that is copied and mutated.
#[derive(Debug)]
pub struct Base {
    /// Its special properties.
    pub name: String,
    /// It has a log that is to be replayed.
    pub has_log: bool,
    device: Arc<dyn Device>,
    editor: Editor,
    /// Where the data of each file lies while nothing lies: hashes, made when they are asked for.
    pub(super) places: OnceLock<BTreeMap<PathBuf, u64>>,
    /// Blocks of each tree, those of logs as of one.
    blocks: BTreeMap<TreeId, Vec<BlockAt>>,
}

impl Base {
    /// A base of the caller's: an image at rest, or one that a crash left.
    ///
    /// # Errors
    /// When its trees cannot be read.
    pub fn new(name: &str, device: Arc<dyn Device>) -> Result<Self> {
        let editor = Editor::new(Arc::clone(&device))?;
        let mut blocks: BTreeMap<TreeId, Vec<BlockAt>> = BTreeMap::new();
        for block in editor.blocks()? {
            blocks.entry(block.tree).or_default().push(block);
        }
        let has_log = editor.superblock()?.log_root.get() != 0;
        let name = name.to_owned();
        Ok(Self { name, has_log, device, editor, places: OnceLock::new(), blocks })
    }

    /// A copy that can be changed, and its editor.
    #[must_use]
    pub fn copy(&self) -> (Arc<dyn Device>, Editor) {
        let below = Arc::clone(&self.device);
        let copy: Arc<dyn Device> = Arc::new(OverlayDevice::new(below, CHANGES_MAX));
        let editor = self.editor.on(Arc::clone(&copy));
        (copy, editor)
    }

    /// A block: each tree is as likely as the next, but those with files and the log are likelier.
    pub(super) fn pick(&self, random: &mut Random) -> Option<BlockAt> {
        let mut trees: Vec<&Vec<BlockAt>> = self.blocks.values().collect();
        let likely = [TreeId::FS, TreeId::TREE_LOG, TreeId::EXTENT];
        trees.extend(likely.iter().filter_map(|tree| self.blocks.get(tree)));
        random.pick(&trees).and_then(|blocks| random.pick(blocks)).copied()
    }

    /// Any block, with its generation, as a target of a pointer.
    pub(super) fn any(&self, random: &mut Random) -> Option<(Logical, u64)> {
        let block = self.pick(random)?;
        let bytes = self.editor.block(block.at).ok()?;
        Some((block.at, header(&bytes)?.generation.get()))
    }
}

/// How volumes are opened here: with little memory, and the same clock and numbers each time.
pub(super) fn options(seed: u64) -> VolumeOptions {
    Volume::options().workers(1).cache_bytes(4 << 20).dirty_bytes(1 << 20).env(Env::seeded(seed, (1_700_000_000, 0)))
}

/// Images of all forms, with a log and without.
///
/// # Errors
/// When one cannot be made.
pub fn bases() -> Result<Vec<Base>> {
    let plain = MakeOptions { nodesize: 4096, size: None, ..MakeOptions::default() };
    let no_group_tree = plain.compat_ro - CompatRo::BLOCK_GROUP_TREE;
    let forms = [
        ("plain", plain.clone()),
        ("large nodes", MakeOptions { nodesize: 16 << 10, ..plain.clone() }),
        ("mixed", MakeOptions { mixed: true, data_profile: plain.metadata_profile, ..plain.clone() }),
        ("no free-space tree", MakeOptions { compat_ro: CompatRo::empty(), ..plain.clone() }),
        ("groups in the extent tree", MakeOptions { compat_ro: no_group_tree, ..plain.clone() }),
        (
            "holes",
            MakeOptions { incompat: plain.incompat - Incompat::NO_HOLES, compat_ro: no_group_tree, ..plain.clone() },
        ),
    ];
    let mut bases = Vec::new();
    for (name, make) in forms {
        for with_log in [false, true] {
            bases.push(make_base(name, &make, with_log).context(name)?);
        }
    }
    Ok(bases)
}

fn make_base(name: &str, make: &MakeOptions, with_log: bool) -> Result<Base> {
    let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
    let volume = options(1).make_device(device.clone(), make)?;
    fill(&volume)?;
    let unnamed = File::unnamed(&volume, "/")?;
    unnamed.write_at(&[5; 20_000], 0)?;
    volume.sync()?;
    if with_log {
        log(&volume)?;
    } else {
        volume.remove_file("/a/file03")?;
        drop(unnamed);
        volume.sync()?;
    }
    let image = device.duplicate().into_read_only();
    let base = Base::new(name, Arc::new(image))?;
    anyhow::ensure!(base.has_log == with_log, "the log is missing");
    Ok(base)
}

/// Something of everything.
fn fill(volume: &Volume) -> Result<()> {
    let mut random = Random::new(7);
    volume.create_dir_all("/a/deep/er")?;
    volume.create_subvolume("/sub")?;
    for number in 0..FILES {
        let path = format!("/a/file{number:02}");
        let len = if number % 7 == 0 { 30_000 } else { 300 };
        volume.write(&path, random.noise(len))?;
        if number % 9 == 0 {
            volume.set_xattr(&path, "user.note", random.noise(40), XattrMode::Either)?;
            volume.hard_link(&path, format!("/a/deep/link{number:02}"))?;
        }
        if number % 5 == 0 {
            volume.symlink("../file01", format!("/a/deep/symlink{number:02}"))?;
            volume.write(format!("/sub/file{number:02}"), random.noise(5000))?;
        }
    }
    volume.create_dir("/sub/dir")?;
    volume.snapshot("/sub", "/snap", SnapshotMode::ReadWrite)?;
    volume.write("/snap/more", random.noise(9000))?;
    volume.snapshot("/snap", "/sub/frozen", SnapshotMode::ReadOnly)?;
    let options = FileOptions::new().read(true).write(true).create(true);
    let large = options.open(volume, "/large")?;
    for piece in 0..6u64 {
        large.write_at(&random.noise(64 << 10), piece * (80 << 10))?;
        volume.sync()?;
    }
    large.allocate(AllocateFlags::KEEP_SIZE, 1 << 20, 100_000)?;
    let shared = options.open(volume, "/shared")?;
    shared.reflink(&large, 0, 0, 128 << 10)?;
    let squeezed = options.open(volume, "/squeezed")?;
    volume.set_xattr("/squeezed", "btrfs.compression", "zlib", XattrMode::Either)?;
    squeezed.write_at(&b"all alike ".repeat(20_000), 0)?;
    volume.write("/a/deep/er/last", random.noise(100))?;
    Ok(())
}

/// Changes that a log says.
fn log(volume: &Volume) -> Result<()> {
    let mut random = Random::new(8);
    let options = FileOptions::new().read(true).write(true).create(true);
    for number in [1u64, 2, 14, 21] {
        let file = options.open(volume, format!("/a/file{number:02}"))?;
        file.write_at(&random.noise(9000), 100 * number)?;
        file.sync_all()?;
    }
    for name in ["/logged", "/a/deep/logged", "/sub/logged"] {
        volume.write(name, random.noise(6000))?;
        options.open(volume, name)?.sync_all()?;
    }
    volume.rename("/a/file30", "/a/deep/moved")?;
    volume.hard_link("/a/file31", "/a/deep/linked")?;
    volume.remove_file("/a/file32")?;
    for name in ["/a/deep/moved", "/a/file31", "/large"] {
        options.open(volume, name)?.sync_all()?;
    }
    Ok(())
}
