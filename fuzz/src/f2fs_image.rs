//! Whole f2fs images: a small real one with patches, opened, walked, read, and written to.
//!
//! The input is a byte of options and a list of patches, as those of the target `image`: which block (those that decide
//! first), where in it, how many bytes, and the bytes. Checksums of superblocks, checkpoints and inodes are made right
//! afterwards, except where a patch says not to.

use std::sync::{Arc, LazyLock};

use blockdev::Device;
use blockdev::backends::MemoryDevice;
use f2fs::OpenOptions;
use f2fs_disk::checkpoint::PackEnd;
use f2fs_disk::flags::Features;
use f2fs_disk::inode::{DiskInode, Inode, checksum};
use f2fs_disk::node::Footer;
use f2fs_disk::superblock::{SUPERBLOCK_SIZE, Superblock, UncheckedSuperblock};
use f2fs_disk::{BLOCK_SIZE, Block, BlockAddr, Nid, OnDisk, hash};
use host::Env;
use vfs::{File, Volume};

/// The packed image; see `make_base`.
static PACKED: &[u8] = include_bytes!("../images/f2fs.zst");
/// Names that a walk looks at: crafted directories may loop.
const NAMES_MAX: usize = 300;
/// Bytes read of each end of a file.
const READ_MAX: usize = 256 << 10;

/// How a block's checksum is made right.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seal {
    Superblock(usize),
    Checkpoint,
    Inode(Nid),
    /// It has none.
    Nothing,
}

struct Base {
    blocks_in_image: u32,
    /// Those that decide first.
    blocks: Vec<(u32, Seal, Block)>,
    deciding: usize,
    superblock: Superblock,
}

static BASE: LazyLock<Base> = LazyLock::new(|| {
    let packed = zstd::decode_all(PACKED).expect("packed by make_base");
    let (count, rest) = packed.split_first_chunk().expect("packed by make_base");
    let blocks: Vec<(u32, Block)> = rest
        .chunks_exact(BLOCK_SIZE + 4)
        .map(|entry| {
            let (number, block) = entry.split_first_chunk().expect("it has 4100 bytes");
            (u32::from_le_bytes(*number), block.try_into().expect("it has 4096 bytes"))
        })
        .collect();
    let first = &blocks.iter().find(|(number, _)| *number == 0).expect("the superblock").1;
    let superblock = UncheckedSuperblock::new(&first[1024..][..SUPERBLOCK_SIZE])
        .and_then(|raw| raw.verify(1024))
        .expect("the base image is right");
    let seal_of = |number: u32, block: &Block| match number {
        0 | 1 => Seal::Superblock(1024),
        _ if number < superblock.geometry().sit.0 && PackEnd::verify(block).is_ok() => Seal::Checkpoint,
        _ => {
            let ino = Footer::of(block).ino();
            let is_inode = superblock.geometry().is_main(BlockAddr(number))
                && Inode::verify(block, ino, superblock.features(), superblock.inode_checksum_seed()).is_ok();
            if is_inode { Seal::Inode(ino) } else { Seal::Nothing }
        }
    };
    let mut blocks: Vec<(u32, Seal, Block)> =
        blocks.into_iter().map(|(number, block)| (number, seal_of(number, &block), block)).collect();
    // Tables, summaries and names decide as well; files' contents come last.
    let is_deciding = |number: u32, seal: Seal| seal != Seal::Nothing || number < superblock.geometry().main.0;
    blocks.sort_by_key(|(number, seal, _)| (!is_deciding(*number, *seal), *seal));
    let deciding = blocks.iter().filter(|(number, seal, _)| is_deciding(*number, *seal)).count();
    Base { blocks_in_image: u32::from_le_bytes(*count), blocks, deciding, superblock }
});

/// Runs one input.
pub fn f2fs_image(data: &[u8]) {
    let Some((options, patches)) = data.split_first() else {
        return;
    };
    let device = Arc::new(patched(patches));
    let open = |is_writable: bool| {
        let device = Arc::<MemoryDevice>::clone(&device) as Arc<dyn Device>;
        let options = OpenOptions::new().writable(is_writable).env(Env::seeded(1, (1_700_000_000, 0)));
        let opened = options.open(device).ok()?;
        let _ = opened.info();
        Some(Volume::new(Arc::new(opened)))
    };
    if let Some(volume) = open(false) {
        walk(&volume);
    }
    if options & 1 == 1
        && let Some(volume) = open(true)
    {
        change(&volume);
        let _ = volume.close();
        if let Some(volume) = open(false) {
            walk(&volume);
        }
    }
}

fn patched(mut patches: &[u8]) -> MemoryDevice {
    let base = &*BASE;
    let mut changed: Vec<(usize, bool, Block)> = Vec::new();
    while let Some(([which, high, low, len, how], rest)) = patches.split_first_chunk() {
        let (bytes, rest) = rest.split_at(usize::from(*len % 32).min(rest.len()));
        patches = rest;
        let range = if how & 0x80 == 0 { base.deciding } else { base.blocks.len() };
        let index = (usize::from(*which) | usize::from(how & 3) << 8) % range.max(1);
        let at = (usize::from(*high) << 8 | usize::from(*low)) % BLOCK_SIZE;
        let end = (at + bytes.len()).min(BLOCK_SIZE);
        let known = changed.iter().position(|(known, ..)| *known == index);
        let place = known.unwrap_or_else(|| {
            changed.push((index, false, base.blocks[index].2));
            changed.len() - 1
        });
        changed[place].1 |= how & 0x40 != 0;
        changed[place].2[at..end].copy_from_slice(&bytes[..end - at]);
    }
    let device = WHOLE.duplicate();
    for (index, is_broken, mut block) in changed {
        let (number, seal, _) = base.blocks[index];
        if !is_broken {
            make_right(&base.superblock, seal, &mut block);
        }
        device.write_at(u64::from(number) * 4096, &[&block]).expect("it lies inside");
    }
    device
}

/// The image without patches; copies share what is not written.
static WHOLE: LazyLock<MemoryDevice> = LazyLock::new(|| {
    let device = MemoryDevice::new(u64::from(BASE.blocks_in_image) * 4096);
    for (number, _, block) in &BASE.blocks {
        device.write_at(u64::from(*number) * 4096, &[block]).expect("it lies inside");
    }
    device
});

fn make_right(superblock: &Superblock, seal: Seal, block: &mut Block) {
    match seal {
        Seal::Superblock(at) => {
            let sum = hash::crc32(&block[at..at + 3068]);
            block[at + 3068..at + 3072].copy_from_slice(&sum.to_le_bytes());
        }
        Seal::Checkpoint => {
            let offset = u32::from_le_bytes([block[164], block[165], block[166], block[167]]);
            if let Some(offset) = usize::try_from(offset).ok().filter(|offset| *offset <= BLOCK_SIZE - 4) {
                let sum = hash::crc32_from(hash::crc32(&block[..offset]), &block[offset + 4..]);
                block[offset..offset + 4].copy_from_slice(&sum.to_le_bytes());
            }
        }
        Seal::Inode(ino) if superblock.features().contains(Features::INODE_CHKSUM) && block[3] & 0x20 != 0 => {
            let generation = DiskInode::parse(&block[..]).expect("a block holds one").i_generation;
            let sum = checksum(block, ino, generation, superblock.inode_checksum_seed());
            block[368..372].copy_from_slice(&sum.to_le_bytes());
        }
        Seal::Inode(_) | Seal::Nothing => {}
    }
}

/// Looks at everything, within limits.
fn walk(volume: &Volume) {
    let mut todo = vec![std::path::PathBuf::from("/")];
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

fn look(volume: &Volume, path: &std::path::Path) {
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
    let _ = volume.write("/dir/name-1", [8; 5000]);
    let _ = volume.create_dir("/dir/sub/new");
    let _ = volume.rename("/dir/name-2", "/dir/sub/moved");
    let _ = volume.hard_link("/dir/name-3", "/dir/third");
    let _ = volume.remove_file("/dir/name-4");
    let _ = volume.set_xattr("/inline", "user.new", b"value", vfs::file_system::XattrMode::Either);
    if let Ok(file) = vfs::FileOptions::new().write(true).open(volume, "/file") {
        let _ = file.write_at(&[1; 6000], 10_000);
        let _ = file.sync_all();
        let _ = file.set_len(20_000);
    }
    if let Ok(file) = vfs::FileOptions::new().write(true).open(volume, "/large") {
        let _ = file.write_at(&[2; 6000], 4 << 20);
        let _ = file.set_len(100);
    }
    let _ = volume.sync();
    let _ = volume.remove_dir_all("/dir");
    let _ = volume.sync();
}
