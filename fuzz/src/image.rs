//! Whole images: a small real one with patches, opened, walked, read, and written to.
//!
//! The input is a byte of options and a list of patches: which sector (tree blocks and the
//! superblock first), where in it, how many bytes, and the bytes. Checksums are made right
//! afterwards, so that the patches reach the code behind them, except where a patch says not to.
//! Everything a caller may do with such an image ends in an answer or an error, soon.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{Env, Volume};
use btrfs_disk::superblock::UncheckedSuperblock;
use btrfs_disk::{Uuid, node, verify};
use codec::ChecksumType;
use vfs::File;

const SECTOR: usize = 4096;
/// The packed image; see `make_base`.
static PACKED: &[u8] = include_bytes!("../images/base.zst");
/// Names that a walk looks at: crafted directories may loop.
const NAMES_MAX: usize = 300;
/// Bytes read of each end of a file.
const READ_MAX: usize = 256 << 10;

struct Base {
    sectors_in_image: u32,
    /// Tree blocks and superblocks first, then data.
    sectors: Vec<(u32, [u8; SECTOR])>,
    tree_blocks: usize,
    csum_type: ChecksumType,
}

static BASE: LazyLock<Base> = LazyLock::new(|| {
    let packed = zstd::decode_all(PACKED).expect("packed by make_base");
    let (count, rest) = packed.split_first_chunk().expect("packed by make_base");
    let mut sectors: Vec<(u32, [u8; SECTOR])> = rest
        .chunks_exact(SECTOR + 4)
        .map(|entry| {
            let (number, sector) = entry.split_first_chunk().expect("it has 4100 bytes");
            (u32::from_le_bytes(*number), sector.try_into().expect("it has 4096 bytes"))
        })
        .collect();
    let first = &sectors.iter().find(|(number, _)| *number == 16).expect("the superblock").1;
    let superblock =
        UncheckedSuperblock::new(first).and_then(|raw| raw.verify(65536)).expect("the base image is right");
    let fsid = superblock.fields().fsid;
    let csum_type = superblock.csum_type();
    sectors.sort_by_key(|(_, sector)| !is_sealed(sector, fsid));
    let tree_blocks = sectors.iter().filter(|(_, sector)| is_sealed(sector, fsid)).count();
    Base { sectors_in_image: u32::from_le_bytes(*count), sectors, tree_blocks, csum_type }
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

fn patched(mut patches: &[u8]) -> MemoryDevice {
    let base = &*BASE;
    let mut sectors = base.sectors.clone();
    let mut is_broken = vec![false; sectors.len()];
    while let Some(([which, high, low, len, how], rest)) = patches.split_first_chunk() {
        let (bytes, rest) = rest.split_at(usize::from(*len % 32).min(rest.len()));
        patches = rest;
        // Most patches go to tree blocks, which are what decides.
        let range = if how & 0x80 == 0 { base.tree_blocks } else { sectors.len() };
        let index = (usize::from(*which) | usize::from(how & 3) << 8) % range.max(1);
        let at = (usize::from(*high) << 8 | usize::from(*low)) % SECTOR;
        let end = (at + bytes.len()).min(SECTOR);
        sectors[index].1[at..end].copy_from_slice(&bytes[..end - at]);
        is_broken[index] |= how & 0x40 != 0;
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
    let mut todo = vec![PathBuf::from("/")];
    let mut names = 0;
    while let Some(dir) = todo.pop() {
        let Ok(entries) = volume.read_dir(&dir) else {
            continue;
        };
        for entry in entries {
            names += 1;
            if names > NAMES_MAX {
                return;
            }
            let Ok(entry) = entry else {
                break;
            };
            let path = dir.join(entry.file_name());
            look(volume, &path);
            todo.push(path);
        }
    }
}

fn look(volume: &Volume, path: &Path) {
    let Ok(metadata) = volume.symlink_metadata(path) else {
        return;
    };
    for name in volume.list_xattrs(path).unwrap_or_default() {
        let _ = volume.get_xattr(path, name.as_encoded_bytes());
    }
    let _ = volume.read_link(path);
    let Ok(file) = File::open(volume, path) else {
        return;
    };
    let mut buffer = vec![0; READ_MAX];
    let _ = file.read_at(&mut buffer, 0);
    let _ = file.read_at(&mut buffer[..8192], metadata.size.saturating_sub(5000));
    let _ = (file.extents(), file.seek_data(0), file.seek_hole(0));
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
