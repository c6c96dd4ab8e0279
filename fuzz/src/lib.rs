//! What the fuzz targets share: every hostile input of the on-disk format.
//!
//! A target calls one function of this file with the fuzzer's bytes. Each function does what the
//! engine would do with such bytes: verify them, read them in every way there is, and show them.
//! Nothing may panic, whether the bytes were accepted or not; and what was accepted must come
//! out unchanged when it is built again from its parts.
//!
//! `make_seeds` writes the seeds of `corpus/` from real images.

mod apply;
mod archive;
mod backup;
mod damaged;
mod ends;
pub mod f2fs;
mod f2fs_image;
mod image;
mod nbd;
mod nfs;
mod stream;
mod walk;
mod web;
mod whole;

use std::fmt::{self, Write};

use btrfs_disk::flags::Incompat;
use btrfs_disk::items::{
    ChunkItem, CsumGeometry, DirEntry, ExtentView, FileExtent, InlineRef, InodeExtrefEntry, InodeRefEntry, RootItem,
    RootRefEntry, ShowItem, bitmap_runs, system_chunks, uuid_subvolumes,
};
use btrfs_disk::key::item_type;
use btrfs_disk::node::{BlockView, HEADER_SIZE, ITEM_SIZE, Item, LeafView, NodeView, header};
use btrfs_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, UncheckedSuperblock};
use btrfs_disk::verify::{self, Expect, Format};
use btrfs_disk::{Generation, InodeNo, Key, Logical, TreeId, Uuid};
use codec::ChecksumType;
use zerocopy::IntoBytes;

pub use self::nbd::{nbd_replies, nbd_requests, nbd_wire};
pub use self::nfs::{nfs_calls, nfs_wire};
#[allow(unused_imports, reason = "not by all who take this file in")]
pub use apply::Applier;
pub use apply::apply;
#[allow(unused_imports, reason = "not by all who take this file in")]
pub use archive::{cpio_read, tar_read};
pub use backup::backup_manifest;
pub use damaged::{check, repair, rescue};
pub use f2fs_image::f2fs_image;
pub use image::image;
pub use stream::stream;
pub use web::{web_range, web_request, web_settings};

/// Address, file system and newest generation that all fuzzed blocks claim to have.
const AT: Logical = Logical(1 << 20);
const FSID: Uuid = Uuid([0x5a; 16]);
const GENERATION_MAX: Generation = Generation(1 << 32);

/// The two formats that differ most; bit 0 of a seed's first byte chooses.
pub fn format(choice: u8) -> Format {
    let old = Incompat::MIXED_BACKREF | Incompat::MIXED_GROUPS;
    let new = Incompat::MIXED_BACKREF | Incompat::SKINNY_METADATA | Incompat::NO_HOLES;
    let is_old = choice & 1 == 1;
    Format {
        fsid: FSID,
        nodesize: 4096,
        sectorsize: 4096,
        csum_type: if is_old { ChecksumType::Sha256 } else { ChecksumType::Crc32c },
        incompat: if is_old { old } else { new },
        checks_csum_items: true,
        seeds: Default::default(),
    }
}

/// Formats a value and forgets the text.
fn show(value: impl fmt::Display) {
    struct Sink;
    impl Write for Sink {
        fn write_str(&mut self, _: &str) -> fmt::Result {
            Ok(())
        }
    }
    write!(Sink, "{value}").expect("the sink never fails");
}

/// A superblock. Magic, address and checksum are made right, or no input would pass them.
pub fn superblock(data: &[u8]) {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    let len = data.len().min(SUPERBLOCK_SIZE);
    bytes[..len].copy_from_slice(&data[..len]);
    if let Ok(raw) = UncheckedSuperblock::new(&bytes) {
        show(raw.fields());
        raw.fields().super_roots.iter().for_each(show);
        system_chunks(&raw.fields().sys_chunk_array).for_each(show_result);
        let _ = raw.verify(SUPERBLOCK_OFFSET);
    }
    bytes[48..56].copy_from_slice(&SUPERBLOCK_OFFSET.to_le_bytes());
    bytes[64..72].copy_from_slice(b"_BHRfS_M");
    let raw = u16::from_le_bytes([bytes[196], bytes[197]]);
    if let Some(csum_type) = ChecksumType::from_raw(raw) {
        verify::seal(&mut bytes, csum_type);
    }
    let raw = UncheckedSuperblock::new(&bytes).expect("the size is right");
    match raw.verify(SUPERBLOCK_OFFSET) {
        Ok(superblock) => {
            superblock.system_chunks().for_each(show_result);
            let sealed = superblock.sealed(SUPERBLOCK_OFFSET).expect("it was verified");
            assert_eq!(sealed.as_bytes(), bytes, "an unchanged superblock seals to its bytes");
            let _ = Format::of(superblock.fields());
        }
        Err(error) => show(error),
    }
}

fn show_result(entry: Result<(Key, ChunkItem<'_>), btrfs_disk::Corrupt>) {
    match entry {
        Ok((_, chunk)) => show(chunk),
        Err(error) => show(error),
    }
}

/// A whole tree block behind one byte that chooses the format. Its identity is made right.
pub fn block(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    let format = format(*choice);
    let mut bytes = vec![0; 4096];
    let len = data.len().min(bytes.len());
    bytes[..len].copy_from_slice(&data[..len]);
    bytes[32..48].copy_from_slice(&FSID.0);
    bytes[48..56].copy_from_slice(&AT.0.to_le_bytes());
    bytes[56] |= 1;
    verify_and_read(&format, &mut bytes);
    // Views are safe on bytes of any length.
    read_block(&bytes[..len]);
    read_block(data);
}

/// A leaf built from the fuzzer's bytes, so that its items are in place and their contents and
/// order are what is tried. Each item is a type, two bytes for each number of its key that pick
/// or extend a plausible one, a length and its data.
pub fn leaf(data: &[u8]) {
    let Some((choice, mut rest)) = data.split_first() else {
        return;
    };
    let format = format(*choice);
    let mut bytes = vec![0; 4096];
    let mut start = bytes.len() - HEADER_SIZE;
    let mut count = 0;
    while let Some(([kind, object, object_low, offset, offset_low, len], after)) = rest.split_first_chunk() {
        let wanted = usize::from(*len) * 2;
        let (item, after) = after.split_at(wanted.min(after.len()));
        rest = after;
        let end_of_items = (count + 1) * ITEM_SIZE;
        let Some(new_start) = start.checked_sub(item.len()).filter(|at| *at >= end_of_items) else {
            break;
        };
        start = new_start;
        let key = Key::new(number(*object, *object_low), *kind, number(*offset, *offset_low));
        let head = Item::new(key, small(start), small(item.len()));
        let at = HEADER_SIZE + count * ITEM_SIZE;
        bytes[at..at + ITEM_SIZE].copy_from_slice(head.as_bytes());
        bytes[HEADER_SIZE + start..][..item.len()].copy_from_slice(item);
        count += 1;
    }
    bytes[32..48].copy_from_slice(&FSID.0);
    bytes[48..56].copy_from_slice(&AT.0.to_le_bytes());
    bytes[56] = 1;
    bytes[88] = *choice >> 1;
    bytes[96..100].copy_from_slice(&small(count).to_le_bytes());
    verify_and_read(&format, &mut bytes);
}

/// A number of a key: small, sector aligned, or near one of the ends.
fn number(high: u8, low: u8) -> u64 {
    let low = u64::from(low);
    match high >> 6 {
        0 => u64::from(high) << 8 | low,
        1 => (u64::from(high & 63) << 8 | low) << 12,
        2 => 0u64.wrapping_sub(u64::from(high & 63) << 8 | low),
        _ => low << (high & 63),
    }
}

fn small(value: usize) -> u32 {
    u32::try_from(value).expect("smaller than a block")
}

fn verify_and_read(format: &Format, bytes: &mut [u8]) {
    verify::seal(bytes, format.csum_type);
    let expect = Expect::at(format, AT, GENERATION_MAX);
    let verdict = verify::block(bytes, &expect);
    if let Err(error) = verdict {
        show(error);
    }
    assert_eq!(verdict, verify::content(bytes, &expect), "reading and writing judge alike");
    read_block(bytes);
}

/// Reads a block in every way, whether it is right or not.
fn read_block(bytes: &[u8]) {
    if let Some(header) = header(bytes) {
        show(header);
    }
    let leaf = LeafView::new(bytes);
    for (slot, (key, data)) in leaf.iter().enumerate() {
        show(ShowItem(key, data));
        let _ = (leaf.find(&key), leaf.key(slot + 1), leaf.get(&key));
    }
    let _ = leaf.free_bytes();
    let node = NodeView::new(bytes);
    for (slot, ptr) in node.ptrs().iter().enumerate() {
        show(ptr);
        let _ = (node.ptr(slot), node.child_slot(&node.key(slot)), node.key(slot + 1));
    }
    let _ = BlockView::new(bytes);
}

/// One item: a byte for the format and the owner, its key, its data. `kinds` are the types that
/// the target is about; the type in the input picks among them.
pub fn item(kinds: &[u8], data: &[u8]) {
    let Some((head, data)) = data.split_first_chunk::<18>() else {
        return;
    };
    let kind = kinds[usize::from(head[9]) % kinds.len()];
    // A seed's own type stays what it is.
    let kind = if kinds.contains(&head[9]) { head[9] } else { kind };
    let objectid = u64::from_le_bytes(head[1..9].try_into().expect("eight bytes"));
    let offset = u64::from_le_bytes(head[10..18].try_into().expect("eight bytes"));
    let key = Key::new(objectid, kind, offset);
    let format = format(head[0]);
    let owner = TreeId(u64::from(head[0] >> 1));
    let expect = Expect::at(&format, AT, GENERATION_MAX);
    show(ShowItem(key, data));
    match verify::item(&key, data, owner, &expect) {
        Ok(()) => rebuild(&format, &key, data),
        Err(error) => show(error),
    }
}

/// What was accepted comes out unchanged when it is built again.
fn rebuild(format: &Format, key: &Key, data: &[u8]) {
    match key.item_type {
        item_type::DIR_ITEM | item_type::DIR_INDEX | item_type::XATTR_ITEM => names(data),
        item_type::INODE_REF | item_type::INODE_EXTREF => names(data),
        item_type::CHUNK_ITEM => {
            let item = ChunkItem::parse(data).expect("it was verified");
            assert_eq!(ChunkItem::build(item.chunk, item.stripes), data);
        }
        item_type::EXTENT_ITEM | item_type::METADATA_ITEM => {
            let view = ExtentView::parse(key, data).expect("it was verified");
            let refs: Vec<_> = view.refs().map(|one| one.expect("it was verified")).collect();
            assert_eq!(ExtentView::build(view.item, view.block_info, &refs), data);
        }
        item_type::TREE_BLOCK_REF | item_type::SHARED_BLOCK_REF | item_type::SHARED_DATA_REF => {
            let one = InlineRef::parse_keyed(key, data).expect("it was verified");
            assert_eq!(one.keyed(Logical(key.objectid)), (*key, data.to_vec()));
        }
        item_type::EXTENT_DATA => {
            let extent = FileExtent::parse(data).expect("it was verified");
            assert!(key.offset.checked_add(extent.file_len()).is_some());
        }
        item_type::EXTENT_CSUM => {
            let csum_len = u32::try_from(format.csum_type.len()).expect("at most 32");
            let geometry = CsumGeometry { sectorsize: format.sectorsize, csum_len };
            let covered = geometry.covered_bytes(data.len());
            assert_eq!(geometry.item_size(covered), data.len() as u64);
        }
        item_type::ROOT_ITEM => show(RootItem::read(data).expect("it was verified")),
        item_type::ROOT_REF | item_type::ROOT_BACKREF => {
            assert_eq!(RootRefEntry::parse(data).expect("it was verified").build(), data);
        }
        item_type::UUID_KEY_SUBVOL | item_type::UUID_KEY_RECEIVED_SUBVOL => {
            assert_eq!(uuid_subvolumes(data).expect("it was verified").count(), data.len() / 8);
        }
        item_type::FREE_SPACE_BITMAP => {
            let sectors: u64 = bitmap_runs(data).map(|(_, len)| len).sum();
            assert!(sectors <= data.len() as u64 * 8);
        }
        _ => {}
    }
}

/// The iterators over names and references, on any bytes. Whatever parses to the end comes out
/// unchanged when it is built again.
pub fn names(data: &[u8]) {
    let entries: Result<Vec<_>, _> = DirEntry::iter(data).collect();
    if let Ok(entries) = entries {
        let built: Vec<u8> = entries.iter().flat_map(|e| [e.item.as_bytes(), e.name, e.data].concat()).collect();
        assert_eq!(built, data);
        for entry in &entries {
            show(entry);
            let (found, range) = DirEntry::find(data, entry.name).expect("it was parsed").expect("the name is there");
            assert_eq!((found.name, range.len() <= data.len()), (entry.name, true));
        }
    }
    let entries: Result<Vec<_>, _> = InodeRefEntry::iter(data).collect();
    if let Ok(entries) = entries {
        assert_eq!(entries.iter().flat_map(InodeRefEntry::build).collect::<Vec<_>>(), data);
        entries.iter().for_each(show);
    }
    let entries: Result<Vec<_>, _> = InodeExtrefEntry::iter(data).collect();
    if let Ok(entries) = entries {
        assert_eq!(entries.iter().flat_map(InodeExtrefEntry::build).collect::<Vec<_>>(), data);
        entries.iter().for_each(show);
    }
    let _ = InodeRefEntry::find(data, b"x");
    let _ = InodeExtrefEntry::find(data, InodeNo(256), b"x");
    let refs: Result<Vec<_>, _> = InlineRef::iter(data).collect();
    if let Ok(refs) = refs {
        let mut built = Vec::new();
        refs.iter().for_each(|one| one.write_to(&mut built));
        assert_eq!(built, data);
    }
}
