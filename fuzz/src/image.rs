//! Whole images: a small real one with patches, opened, walked, read, and written to.
//!
//! The input is a byte of options and a list of patches: which sector (tree blocks and the
//! superblock first), where in it, how many bytes, and the bytes. Checksums are made right
//! afterwards, so that the patches reach the code behind them, except where a patch says not to.
//! Everything a caller may do with such an image ends in an answer or an error, soon.

use std::sync::{Arc, LazyLock};

use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{Env, Volume};
use btrfs_disk::superblock::UncheckedSuperblock;
use btrfs_disk::{Uuid, node, verify};
use codec::ChecksumType;

use super::whole::{self, SECTOR};

/// The packed image; see `make_base`.
static PACKED: &[u8] = include_bytes!("../images/base.zst");

struct Base {
    sectors_in_image: u32,
    /// Tree blocks and superblocks first, then data.
    sectors: Vec<(u32, [u8; SECTOR])>,
    tree_blocks: usize,
    csum_type: ChecksumType,
}

static BASE: LazyLock<Base> = LazyLock::new(|| {
    let (sectors_in_image, mut sectors) = whole::unpacked(PACKED);
    let first = &sectors.iter().find(|(number, _)| *number == 16).expect("the superblock").1;
    let superblock =
        UncheckedSuperblock::new(first).and_then(|raw| raw.verify(65536)).expect("the base image is right");
    let fsid = superblock.fields().fsid;
    let csum_type = superblock.csum_type();
    sectors.sort_by_key(|(_, sector)| !is_sealed(sector, fsid));
    let tree_blocks = sectors.iter().filter(|(_, sector)| is_sealed(sector, fsid)).count();
    Base { sectors_in_image, sectors, tree_blocks, csum_type }
});

/// Superblocks and tree blocks carry the UUID at the same place.
fn is_sealed(sector: &[u8], fsid: Uuid) -> bool {
    node::header(sector).is_some_and(|header| header.fsid == fsid)
}

/// Runs one input.
pub fn image(data: &[u8]) {
    let Some((options, patches)) = data.split_first() else {
        return;
    };
    let device = Arc::new(patched(patches));
    let read_only = Volume::options().read_only(true);
    if let Ok(volume) = common(read_only).open_device(device.clone() as Arc<dyn Device>) {
        walk(&volume);
    }
    if options & 1 == 1
        && let Ok(volume) = common(Volume::options()).open_device(device.clone())
    {
        change(&volume);
        let _ = volume.close();
        let read_only = Volume::options().read_only(true);
        if let Ok(volume) = common(read_only).open_device(device) {
            walk(&volume);
        }
    }
}

fn common(options: btrfs::VolumeOptions) -> btrfs::VolumeOptions {
    options.workers(1).cache_bytes(4 << 20).dirty_bytes(1 << 20).env(Env::seeded(1, (1_700_000_000, 0)))
}

/// The base image with the patches of an input.
pub(crate) fn patched(input: &[u8]) -> MemoryDevice {
    let base = &*BASE;
    let mut sectors = base.sectors.clone();
    let mut is_broken = vec![false; sectors.len()];
    // Tree blocks are what decides.
    for patch in whole::patches(input, base.tree_blocks, sectors.len()) {
        sectors[patch.index].1[patch.at..][..patch.bytes.len()].copy_from_slice(patch.bytes);
        is_broken[patch.index] |= patch.is_broken;
    }
    let device = MemoryDevice::new(u64::from(base.sectors_in_image) * 4096);
    for (index, (number, sector)) in sectors.iter_mut().enumerate() {
        if index < base.tree_blocks && !is_broken[index] {
            verify::seal(sector, base.csum_type);
        }
        device.write_at(u64::from(*number) * 4096, &[sector]).expect("it lies inside");
    }
    device
}

/// Looks at everything, within limits.
fn walk(volume: &Volume) {
    let _ = volume.info();
    let _ = volume.default_subvolume();
    let _ = volume.subvolumes();
    super::walk::walk(volume);
}

/// Changes a little of everything. Each step may fail on its own.
fn change(volume: &Volume) {
    let _ = volume.write("/new", [7; 9000]);
    let _ = volume.write("/a/f1", [8; 5000]);
    let _ = volume.create_dir("/a/dir");
    let _ = volume.rename("/a/f2", "/a/dir/moved");
    let _ = volume.hard_link("/a/f3", "/a/third");
    let _ = volume.remove_file("/a/f4");
    let _ = volume.set_xattr("/inline", "user.new", b"value", vfs::file_system::XattrMode::Either);
    if let Ok(file) = vfs::FileOptions::new().write(true).open(volume, "/zeros") {
        let _ = file.write_at(&[1; 6000], 10_000);
        let _ = file.set_len(20_000);
    }
    let _ = volume.sync();
    let _ = volume.snapshot("/sv", "/sv2", vfs::SnapshotMode::ReadWrite);
    let _ = volume.delete_subvolume("/snap");
    let _ = volume.remove_dir_all("/a");
    let _ = volume.sync();
}
