//! `make_seeds CORPUS IMAGE...`: writes a few small seeds for each target from real images.
//!
//! Blocks are found by looking for the file system's UUID at every sector, so that no chunk map
//! is needed. Of each tree and level one block becomes a seed (images with 4 KiB nodes only), and
//! of each type of item the first few of different sizes.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::path::Path;

use btrfs_disk::key::item_type as t;
use btrfs_disk::node::{LeafView, header};
use btrfs_disk::superblock::UncheckedSuperblock;
use btrfs_disk::verify::{self, Expect, Format};
use btrfs_disk::{DiskKey, Generation, Key, Logical, TreeId};
use codec::ChecksumType;
use zerocopy::IntoBytes;

/// Seeds of one type of item.
const ITEM_SEEDS_MAX: usize = 3;
/// Longest item that becomes a seed.
const ITEM_SIZE_MAX: usize = 700;

/// What has become a seed already.
#[derive(Default)]
struct Seen {
    blocks: BTreeSet<(u64, u8, bool)>,
    items: BTreeSet<(u8, usize)>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let corpus = arguments.next().ok_or("usage: make_seeds CORPUS IMAGE...")?;
    let corpus = Path::new(&corpus);
    let mut seen = Seen::default();
    for (number, image) in arguments.enumerate() {
        image_seeds(corpus, number, &fs::read(&image)?, &mut seen)?;
    }
    Ok(())
}

fn write(corpus: &Path, target: &str, name: &str, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(corpus.join(target))?;
    Ok(fs::write(corpus.join(target).join(name), bytes)?)
}

fn image_seeds(corpus: &Path, number: usize, image: &[u8], seen: &mut Seen) -> Result<(), Box<dyn Error>> {
    let superblock = UncheckedSuperblock::new(image.get(65536..).ok_or("short image")?)?.verify(65536)?;
    write(corpus, "superblock", &format!("image{number}"), &image[65536..65536 + 4096])?;
    let format = Format::of(superblock.fields()).ok_or("unknown checksum type")?;
    let nodesize = usize::try_from(format.nodesize)?;
    let generation_max = Generation(superblock.generation().0 + 1);
    let last = image.len().saturating_sub(nodesize);
    for bytes in (0..=last).step_by(4096).map(|at| &image[at..at + nodesize]) {
        let Some(head) = header(bytes).filter(|head| head.fsid == format.fsid) else {
            continue;
        };
        let at = Logical(head.bytenr.get());
        if verify::block(bytes, &Expect::at(&format, at, generation_max)).is_err() {
            continue;
        }
        let tree = TreeId(head.owner.get());
        let tree = if tree.is_subvolume() { TreeId::FS } else { tree };
        let is_old = u8::from(format.csum_type == ChecksumType::Sha256);
        if nodesize == 4096 && seen.blocks.insert((tree.0, head.level, is_old == 1)) {
            let name = format!("tree{}_level{}_{is_old}", tree.0, head.level);
            write(corpus, "block", &name, &[&[is_old], bytes].concat())?;
        }
        for (key, data) in LeafView::new(bytes).iter() {
            item_seed(corpus, is_old, &key, data, seen)?;
        }
    }
    Ok(())
}

fn item_seed(corpus: &Path, is_old: u8, key: &Key, data: &[u8], seen: &mut Seen) -> Result<(), Box<dyn Error>> {
    let Some(target) = target_of(key.item_type) else {
        return Ok(());
    };
    let kind = key.item_type;
    let known = seen.items.range((kind, 0)..=(kind, usize::MAX)).count();
    if data.len() > ITEM_SIZE_MAX || known >= ITEM_SEEDS_MAX || !seen.items.insert((kind, data.len())) {
        return Ok(());
    }
    let seed = [&[is_old], DiskKey::from(*key).as_bytes(), data].concat();
    write(corpus, target, &format!("type{kind}_{}", data.len()), &seed)?;
    if matches!(target, "item_dir" | "item_inode_ref") {
        write(corpus, "names", &format!("type{kind}_{}", data.len()), data)?;
    }
    // A leaf seed: the item's type, a key of small numbers, its length in pairs of bytes.
    let len = u8::try_from(data.len() / 2).unwrap_or(u8::MAX);
    let seed = [&[is_old | 10, kind, 1, 0, 0, 0, len], data].concat();
    write(corpus, "leaf", &format!("type{kind}_{}", data.len()), &seed)
}

fn target_of(kind: u8) -> Option<&'static str> {
    Some(match kind {
        t::INODE_ITEM => "item_inode",
        t::INODE_REF | t::INODE_EXTREF => "item_inode_ref",
        t::DIR_ITEM | t::DIR_INDEX | t::XATTR_ITEM => "item_dir",
        t::EXTENT_DATA => "item_file_extent",
        t::EXTENT_CSUM => "item_csum",
        t::EXTENT_ITEM
        | t::METADATA_ITEM
        | t::EXTENT_DATA_REF
        | t::TREE_BLOCK_REF
        | t::SHARED_BLOCK_REF
        | t::SHARED_DATA_REF => "item_extent",
        t::ROOT_ITEM | t::ROOT_REF | t::ROOT_BACKREF => "item_root",
        t::CHUNK_ITEM => "item_chunk",
        t::DEV_ITEM | t::DEV_EXTENT | t::PERSISTENT_ITEM => "item_device",
        t::BLOCK_GROUP_ITEM => "item_block_group",
        t::FREE_SPACE_INFO | t::FREE_SPACE_EXTENT | t::FREE_SPACE_BITMAP => "item_free_space",
        t::ORPHAN_ITEM
        | t::UUID_KEY_SUBVOL
        | t::UUID_KEY_RECEIVED_SUBVOL
        | t::QGROUP_STATUS
        | t::QGROUP_INFO
        | t::QGROUP_LIMIT
        | t::QGROUP_RELATION
        | t::TEMPORARY_ITEM => "item_small",
        _ => return None,
    })
}
