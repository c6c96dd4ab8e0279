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
use vfs::Volume;

use super::walk::walk;
use super::whole;

/// The packed image; see `make_base`.
static PACKED: &[u8] = include_bytes!("../images/f2fs.zst");

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
    let (blocks_in_image, blocks) = whole::unpacked(PACKED);
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
    Base { blocks_in_image, blocks, deciding, superblock }
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

fn patched(input: &[u8]) -> MemoryDevice {
    let base = &*BASE;
    let mut changed: Vec<(usize, bool, Block)> = Vec::new();
    for patch in whole::patches(input, base.deciding, base.blocks.len()) {
        let known = changed.iter().position(|(known, ..)| *known == patch.index);
        let place = known.unwrap_or_else(|| {
            changed.push((patch.index, false, base.blocks[patch.index].2));
            changed.len() - 1
        });
        changed[place].1 |= patch.is_broken;
        changed[place].2[patch.at..][..patch.bytes.len()].copy_from_slice(patch.bytes);
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
