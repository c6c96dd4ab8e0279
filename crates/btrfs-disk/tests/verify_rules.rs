//! Each rule of the verifier rejects its violation by name and accepts valid items.

use btrfs_disk::convert::{u16_len, u32_len, usize_from};
use btrfs_disk::error::At;
use btrfs_disk::flags::{BlockGroupFlags, ExtentFlags, HeaderFlags, Incompat};
use btrfs_disk::hash::{extref_hash, name_hash};
use btrfs_disk::items::*;
use btrfs_disk::key::{item_type as t, objectid};
use btrfs_disk::node::{HEADER_SIZE, Header, ITEM_SIZE, Item, KeyPtr};
use btrfs_disk::superblock::{DiskSuperblock, SUPERBLOCK_OFFSET, Superblock, UncheckedSuperblock};
use btrfs_disk::verify::{self, Expect, Format};
use btrfs_disk::{Corrupt, Generation, InodeNo, Key, Logical, TreeId, Uuid};
use codec::ChecksumType;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

const FSID: Uuid = Uuid([7; 16]);
const AT: Logical = Logical(1 << 20);
const NODESIZE: u32 = 4096;

fn format() -> Format {
    Format {
        fsid: FSID,
        nodesize: NODESIZE,
        sectorsize: 4096,
        csum_type: ChecksumType::Crc32c,
        incompat: Incompat::SKINNY_METADATA | Incompat::NO_HOLES,
        checks_csum_items: true,
        seeds: [btrfs_disk::Uuid::NIL; btrfs_disk::verify::SEEDS_MAX],
    }
}

fn header(owner: TreeId, level: u8, count: usize) -> Header {
    let mut header = Header::new_zeroed();
    header.fsid = FSID;
    header.bytenr = U64::new(AT.0);
    header.flags = U64::new((HeaderFlags::WRITTEN | HeaderFlags::MIXED_BACKREF_REV).bits());
    header.generation = U64::new(9);
    header.owner = U64::new(owner.0);
    header.nritems = U32::new(u32_len(count));
    header.level = level;
    header
}

fn leaf(owner: TreeId, items: &[(Key, Vec<u8>)]) -> Vec<u8> {
    let mut block = vec![0; usize_from(NODESIZE)];
    block[..HEADER_SIZE].copy_from_slice(header(owner, 0, items.len()).as_bytes());
    let mut start = block.len() - HEADER_SIZE;
    for (slot, (key, data)) in items.iter().enumerate() {
        start -= data.len();
        let at = HEADER_SIZE + slot * ITEM_SIZE;
        let item = Item::new(*key, u32_len(start), u32_len(data.len()));
        block[at..at + ITEM_SIZE].copy_from_slice(item.as_bytes());
        block[HEADER_SIZE + start..][..data.len()].copy_from_slice(data);
    }
    verify::seal(&mut block, ChecksumType::Crc32c);
    block
}

fn node(ptrs: &[KeyPtr]) -> Vec<u8> {
    let mut block = vec![0; usize_from(NODESIZE)];
    block[..HEADER_SIZE].copy_from_slice(header(TreeId::FS, 1, ptrs.len()).as_bytes());
    block[HEADER_SIZE..][..ptrs.as_bytes().len()].copy_from_slice(ptrs.as_bytes());
    block
}

fn check(block: &[u8]) -> Result<(), Corrupt> {
    let format = format();
    verify::content(block, &Expect::at(&format, AT, Generation(10)))
}

/// The violation that the verifier reports for a leaf of these items.
fn complaint(owner: TreeId, items: &[(Key, Vec<u8>)]) -> &'static str {
    check(&leaf(owner, items)).map_or_else(|error| error.what, |()| "nothing")
}

fn inode_item() -> InodeItem {
    let mut item = InodeItem::new_zeroed();
    item.mode = U32::new(0o100_644);
    item.nlink = U32::new(1);
    item.generation = U64::new(9);
    item
}

fn inode(number: u64) -> (Key, Vec<u8>) {
    (Key::new(number, t::INODE_ITEM, 0), inode_item().bytes().to_vec())
}

fn name(name: &[u8]) -> Vec<u8> {
    DirEntry::build(Key::new(257, t::INODE_ITEM, 0), Generation(9), FileKind::File, name)
}

#[test]
fn a_right_leaf_passes_and_a_flipped_bit_does_not() {
    let format = format();
    let mut block = leaf(TreeId::FS, &[inode(256)]);
    let expect = Expect {
        level: Some(0),
        owner: Some(TreeId(300)),
        generation: Some(Generation(9)),
        first_key: Some(Key::new(256, t::INODE_ITEM, 0)),
        ..Expect::at(&format, AT, Generation(10))
    };
    assert_eq!(verify::block(&block, &expect), Ok(()));
    block[4000] ^= 1;
    let error = verify::block(&block, &expect).unwrap_err();
    assert_eq!((error.what, error.at), ("tree block checksum", At::Block(AT)));
    assert_eq!(verify::block(&block[1..], &expect).unwrap_err().what, "tree block size");
}

#[test]
fn the_header_must_be_what_the_parent_says() {
    let format = format();
    let block = leaf(TreeId::FS, &[inode(256)]);
    let base = Expect::at(&format, AT, Generation(10));
    let cases: [(Expect<'_>, &str); 6] = [
        (Expect { at: Logical(4096), ..base }, "address in the tree block"),
        (Expect { level: Some(1), ..base }, "tree block level"),
        (Expect { owner: Some(TreeId::EXTENT), ..base }, "tree block owner"),
        (Expect { generation: Some(Generation(8)), ..base }, "tree block generation"),
        (Expect { generation_max: Generation(8), ..base }, "tree block generation"),
        (Expect { first_key: Some(Key::MIN), ..base }, "first key of the tree block"),
    ];
    for (expect, what) in cases {
        assert_eq!(verify::content(&block, &expect).unwrap_err().what, what);
    }
    let other = Format { fsid: Uuid::NIL, ..format };
    let error = verify::content(&block, &Expect::at(&other, AT, Generation(10))).unwrap_err();
    assert_eq!(error.what, "file system UUID in the tree block");
    let mut unwritten = block.clone();
    unwritten[56] = 0;
    assert_eq!(check(&unwritten).unwrap_err().what, "tree block flags");
}

#[test]
fn keys_ascend_and_data_is_packed() {
    let orphan = |number| (Key::new(objectid::ORPHAN, t::ORPHAN_ITEM, number), Vec::new());
    assert_eq!(complaint(TreeId::FS, &[orphan(1), orphan(2)]), "nothing");
    assert_eq!(complaint(TreeId::FS, &[orphan(2), orphan(1)]), "key of a leaf");
    assert_eq!(complaint(TreeId::FS, &[orphan(2), orphan(2)]), "key of a leaf");
    let mut block = leaf(TreeId::FS, &[inode(256), inode(257)]);
    block[HEADER_SIZE + ITEM_SIZE + 17] ^= 1;
    assert_eq!(check(&block).unwrap_err().what, "end of an item's data");
    let mut block = leaf(TreeId::FS, &[inode(256)]);
    block[96..100].copy_from_slice(&160u32.to_le_bytes());
    assert_eq!(check(&block).unwrap_err().what, "number of items in a leaf");
    assert_eq!(complaint(TreeId::FS, &[]), "number of items in the leaf of a tree that is never empty");
    assert_eq!(complaint(TreeId::CSUM, &[]), "nothing");
}

#[test]
fn item_data_must_not_run_into_the_headers() {
    let key = |offset| Key::new(objectid::BALANCE, t::TEMPORARY_ITEM, offset);
    let full = usize_from(NODESIZE) - HEADER_SIZE - ITEM_SIZE;
    assert_eq!(complaint(TreeId::ROOT, &[(key(0), vec![0; full])]), "nothing");
    let mut block = leaf(TreeId::ROOT, &[(key(0), vec![0; full])]);
    let item = Item::new(key(0), 20, u32_len(full + 5));
    block[HEADER_SIZE..HEADER_SIZE + ITEM_SIZE].copy_from_slice(item.as_bytes());
    assert_eq!(check(&block).unwrap_err().what, "start of an item's data");
}

#[test]
fn node_pointers_ascend_and_lead_somewhere() {
    let ptr = |key, at| KeyPtr::new(Key::new(key, 1, 0), Logical(at), Generation(9));
    assert_eq!(check(&node(&[ptr(1, 4096), ptr(2, 8192)])), Ok(()));
    let cases = [
        (vec![ptr(2, 4096), ptr(2, 8192)], "key of a node"),
        (vec![ptr(1, 0)], "address in a node"),
        (vec![ptr(1, 4096), ptr(2, 8193)], "address in a node"),
        (vec![], "number of pointers in a node"),
    ];
    for (ptrs, what) in cases {
        assert_eq!(check(&node(&ptrs)).unwrap_err().what, what);
    }
}

#[test]
fn inodes() {
    let key = Key::new(256, t::INODE_ITEM, 0);
    let broken = |change: fn(&mut InodeItem)| {
        let mut item = inode_item();
        change(&mut item);
        complaint(TreeId::FS, &[(key, item.bytes().to_vec())])
    };
    assert_eq!(broken(|_| ()), "nothing");
    assert_eq!(broken(|item| item.mode = U32::new(0o644)), "inode mode");
    assert_eq!(broken(|item| item.mode = U32::new(0o1_100_644)), "inode mode");
    assert_eq!(broken(|item| item.size = U64::new(1 << 63)), "file size");
    assert_eq!(broken(|item| item.flags = U64::new(1 << 20)), "inode flags");
    assert_eq!(broken(|item| item.flags = U64::new(1 << 50)), "nothing");
    assert_eq!(broken(|item| item.generation = U64::new(11)), "inode generation");
    assert_eq!(
        broken(|item| {
            item.mode = U32::new(0o040_755);
            item.nlink = U32::new(2);
        }),
        "links to a directory"
    );
    assert_eq!(complaint(TreeId::FS, &[(key, vec![0; 159])]), "inode item size");
    let (_, data) = inode(256);
    assert_eq!(complaint(TreeId::FS, &[(Key::new(7, t::INODE_ITEM, 0), data)]), "inode number");
}

#[test]
fn names_in_directories() {
    let item = |bytes: &[u8]| {
        let hash = DirEntry::iter(bytes).next().map_or(0, |e| name_hash(e.unwrap().name));
        complaint(TreeId::FS, &[inode(256), (Key::new(256, t::DIR_ITEM, hash), bytes.to_vec())])
    };
    assert_eq!(item(&name(b"fine")), "nothing");
    assert_eq!(item(&name(b"a/b")), "name");
    assert_eq!(item(&name(b"a\0b")), "name");
    assert_eq!(item(&name(b".")), "name");
    assert_eq!(item(&name(b"..")), "name");
    assert_eq!(item(&name(b"")), "length of a name");
    assert_eq!(item(&name(&[b'x'; 256])), "length of a name");
    assert_eq!(item(&DirEntry::build_xattr(Generation(9), b"x", b"")), "inode number");
    let mut long = name(b"fine");
    long[27] = 200;
    let key = Key::new(256, t::DIR_INDEX, 2);
    assert_eq!(complaint(TreeId::FS, &[inode(256), (key, long)]), "directory entry name");
    let key = Key::new(256, t::DIR_ITEM, 1);
    assert_eq!(complaint(TreeId::FS, &[inode(256), (key, name(b"fine"))]), "hash of a name");
    let key = Key::new(257, t::DIR_INDEX, 2);
    assert_eq!(complaint(TreeId::FS, &[inode(256), (key, name(b"fine"))]), "inode of the item before");
    assert_eq!(complaint(TreeId::TREE_LOG, &[inode(256), (key, name(b"fine"))]), "nothing");
}

#[test]
fn attributes_may_have_slashes_but_must_be_attributes() {
    let attribute = DirEntry::build_xattr(Generation(9), b"user.a/b", b"value");
    let key = Key::new(256, t::XATTR_ITEM, name_hash(b"user.a/b"));
    assert_eq!(complaint(TreeId::FS, &[inode(256), (key, attribute)]), "nothing");
    let key = Key::new(256, t::XATTR_ITEM, name_hash(b"x"));
    assert_eq!(complaint(TreeId::FS, &[inode(256), (key, name(b"x"))]), "location of an attribute");
}

#[test]
fn references_of_inodes() {
    let single = InodeRefEntry { index: 2, name: b"x" }.build();
    let key = Key::new(257, t::INODE_REF, 256);
    assert_eq!(complaint(TreeId::FS, &[inode(257), (key, single.clone())]), "nothing");
    assert_eq!(complaint(TreeId::FS, &[inode(257), (key, single[..10].to_vec())]), "inode reference name");
    assert_eq!(complaint(TreeId::FS, &[inode(257), (key, Vec::new())]), "size of an inode reference");
    let parent = InodeRefEntry { index: 0, name: b".." }.build();
    assert_eq!(complaint(TreeId::FS, &[inode(257), (key, parent.clone())]), "name");
    let key = Key::new(256, t::INODE_REF, 256);
    assert_eq!(complaint(TreeId::FS, &[inode(256), (key, parent)]), "nothing");
    let long = InodeExtrefEntry { parent: InodeNo(256), index: 5, name: b"x" }.build();
    let key = Key::new(257, t::INODE_EXTREF, extref_hash(256, b"x"));
    assert_eq!(complaint(TreeId::FS, &[inode(257), (key, long.clone())]), "nothing");
    let key = Key::new(257, t::INODE_EXTREF, 1);
    assert_eq!(complaint(TreeId::FS, &[inode(257), (key, long)]), "hash of an extended inode reference");
}

fn extent(offset: u64, len: u64) -> NewFileExtent {
    NewFileExtent {
        generation: Generation(9),
        compression: 0,
        disk: Logical(1 << 24),
        disk_len: 65536,
        ram_len: 65536,
        offset,
        len,
    }
}

#[test]
fn file_extents() {
    let at = |offset, item: &FileExtentItem| (Key::new(256, t::EXTENT_DATA, offset), item.bytes().to_vec());
    let one = |item: &FileExtentItem| complaint(TreeId::FS, &[inode(256), at(0, item)]);
    assert_eq!(one(&FileExtentItem::regular(&extent(0, 65536))), "nothing");
    assert_eq!(one(&FileExtentItem::prealloc(&extent(4096, 61440))), "nothing");
    assert_eq!(one(&FileExtentItem::regular(&extent(4096, 65536))), "used end of a file extent");
    assert_eq!(one(&FileExtentItem::regular(&extent(0, 0))), "length of a file extent");
    assert_eq!(one(&FileExtentItem::regular(&extent(0, 5))), "length of a file extent");
    let wrapping = 0u64.wrapping_sub(4096);
    assert_eq!(one(&FileExtentItem::regular(&extent(wrapping, 8192))), "used end of a file extent");
    let on_disk = NewFileExtent { disk: Logical(wrapping), ..extent(0, 4096) };
    assert_eq!(one(&FileExtentItem::regular(&on_disk)), "end of a file extent on disk");
    let zstd = NewFileExtent { compression: 3, disk_len: 4096, ..extent(0, 65536) };
    assert_eq!(one(&FileExtentItem::regular(&zstd)), "nothing");
    let unknown = NewFileExtent { compression: 4, ..zstd };
    assert_eq!(one(&FileExtentItem::regular(&unknown)), "compression of a file extent");
    let hole = FileExtentItem::hole(Generation(9), 8192);
    assert_eq!(complaint(TreeId::FS, &[inode(256), at(0, &hole), at(4096, &hole)]), "file offset of an extent");
    assert_eq!(complaint(TreeId::FS, &[inode(256), at(0, &hole), at(8192, &hole)]), "nothing");
    assert_eq!(complaint(TreeId::FS, &[inode(256), at(wrapping, &hole)]), "end of a file extent in its file");
    assert_eq!(complaint(TreeId::FS, &[inode(256), at(1, &hole)]), "file offset of an extent");
}

#[test]
fn inline_extents() {
    let one = |offset, data: Vec<u8>| {
        let key = Key::new(256, t::EXTENT_DATA, offset);
        complaint(TreeId::FS, &[inode(256), (key, data)])
    };
    let plain = FileExtent::build_inline(Generation(9), 0, 0, b"hello");
    assert_eq!(one(0, plain.clone()), "nothing");
    assert_eq!(one(4096, plain.clone()), "file offset of an inline extent");
    assert_eq!(one(0, [plain, vec![0]].concat()), "length of an inline extent");
    let packed = FileExtent::build_inline(Generation(9), 1, 4096, b"...");
    assert_eq!(one(0, packed), "nothing");
    let bomb = FileExtent::build_inline(Generation(9), 1, 1 << 40, b"...");
    assert_eq!(one(0, bomb), "length of a compressed inline extent");
}

#[test]
fn checksum_items() {
    let at = |offset, size| (Key::new(objectid::EXTENT_CSUM, t::EXTENT_CSUM, offset), vec![0; size]);
    assert_eq!(complaint(TreeId::CSUM, &[at(0, 8), at(8192, 4)]), "nothing");
    assert_eq!(complaint(TreeId::CSUM, &[at(0, 12), at(8192, 4)]), "address of checksums");
    assert_eq!(complaint(TreeId::CSUM, &[at(0, 7)]), "size of a checksum item");
    assert_eq!(complaint(TreeId::CSUM, &[at(1, 8)]), "address of checksums");
    assert_eq!(complaint(TreeId::CSUM, &[at(0u64.wrapping_sub(4096), 8)]), "end of the checksums");
}

fn data_extent(refs: u64, list: &[InlineRef]) -> Vec<u8> {
    ExtentView::build(&ExtentItem::new(refs, Generation(9), ExtentFlags::DATA), None, list)
}

fn data_ref(inode: u64) -> InlineRef {
    InlineRef::Data { root: TreeId::FS, inode: InodeNo(inode), offset: 0, count: 1 }
}

#[test]
fn extent_items_and_their_references() {
    let key = Key::new(1 << 24, t::EXTENT_ITEM, 65536);
    let one = |data| complaint(TreeId::EXTENT, &[(key, data)]);
    let mut refs = [data_ref(257), data_ref(258)];
    refs.sort_by_key(|one| std::cmp::Reverse(one.sequence()));
    assert_eq!(one(data_extent(2, &refs)), "nothing");
    assert_eq!(one(data_extent(1, &refs)), "references of an extent");
    refs.reverse();
    assert_eq!(one(data_extent(2, &refs)), "order of inline references of one type");
    let shared = InlineRef::SharedData { parent: Logical(4096), count: 1 };
    assert_eq!(one(data_extent(2, &[data_ref(257), shared])), "nothing");
    assert_eq!(one(data_extent(2, &[shared, data_ref(257)])), "order of inline references");
    let none = InlineRef::SharedData { parent: Logical(4096), count: 0 };
    assert_eq!(one(data_extent(2, &[none])), "count of a data reference");
    assert_eq!(one(data_extent(1, &[data_ref(5)])), "inode of a data reference");
    let mut short = data_extent(1, &[data_ref(257)]);
    short.pop();
    assert_eq!(one(short), "extent data reference size");
    let both = ExtentFlags::DATA | ExtentFlags::TREE_BLOCK;
    let item = ExtentItem::new(1, Generation(9), both);
    let info = TreeBlockInfo { key: Key::MIN.into(), level: 0 };
    assert_eq!(one(ExtentView::build(&item, Some(&info), &[])), "extent flags");
}

#[test]
fn tree_block_extents() {
    let item = ExtentItem::new(1, Generation(9), ExtentFlags::TREE_BLOCK);
    let list = [InlineRef::TreeBlock { root: TreeId::FS }];
    let skinny = |level| {
        let key = Key::new(1 << 24, t::METADATA_ITEM, level);
        complaint(TreeId::EXTENT, &[(key, ExtentView::build(&item, None, &list))])
    };
    assert_eq!(skinny(7), "nothing");
    assert_eq!(skinny(8), "level of a tree block");
    let fat = |size, level| {
        let info = TreeBlockInfo { key: Key::MIN.into(), level };
        let key = Key::new(1 << 24, t::EXTENT_ITEM, size);
        complaint(TreeId::EXTENT, &[(key, ExtentView::build(&item, Some(&info), &list))])
    };
    assert_eq!(fat(u64::from(NODESIZE), 7), "nothing");
    assert_eq!(fat(u64::from(NODESIZE), 8), "level of a tree block");
    assert_eq!(fat(8192, 0), "length of a tree block");
    let at = |start| (Key::new(start, t::METADATA_ITEM, 0), ExtentView::build(&item, None, &list));
    assert_eq!(complaint(TreeId::EXTENT, &[at(4096), at(8192)]), "nothing");
    let data = (Key::new(4096, t::EXTENT_ITEM, 8192), data_extent(1, &[data_ref(257)]));
    assert_eq!(complaint(TreeId::EXTENT, &[data, at(8192)]), "extent address");
}

#[test]
fn roots() {
    let mut item = RootItem::new_zeroed();
    item.generation = U64::new(9);
    item.generation_v2 = U64::new(9);
    let one = |id, item: &RootItem| complaint(TreeId::ROOT, &[(Key::new(id, t::ROOT_ITEM, 0), item.bytes().to_vec())]);
    assert_eq!(one(256, &item), "nothing");
    assert_eq!(one(0, &item), "tree number");
    assert_eq!(one(TreeId::TREE_RELOC.0, &item), "subvolume of a relocation tree");
    assert_eq!(one(256, &RootItem { level: 8, ..item }), "root level");
    assert_eq!(one(256, &RootItem { bytenr: U64::new(1), ..item }), "root address");
    assert_eq!(one(256, &RootItem { flags: U64::new(2), ..item }), "root flags");
    assert_eq!(one(256, &RootItem { generation: U64::new(11), ..item }), "root generation");
    let legacy = item.bytes()[..RootItem::LEGACY_SIZE].to_vec();
    assert_eq!(complaint(TreeId::ROOT, &[(Key::new(256, t::ROOT_ITEM, 0), legacy)]), "nothing");
}

#[test]
fn block_groups_and_free_space() {
    let group = |used, len, flags| {
        let data = BlockGroupItem::new(used, flags).bytes().to_vec();
        complaint(TreeId::EXTENT, &[(Key::new(1 << 20, t::BLOCK_GROUP_ITEM, len), data)])
    };
    assert_eq!(group(5, 1 << 20, BlockGroupFlags::DATA), "nothing");
    assert_eq!(group(5, 1 << 20, BlockGroupFlags::MIXED | BlockGroupFlags::DUP), "nothing");
    assert_eq!(group(5, 4, BlockGroupFlags::DATA), "used bytes");
    assert_eq!(group(0, 0, BlockGroupFlags::DATA), "block group length");
    assert_eq!(group(0, u64::MAX, BlockGroupFlags::DATA), "end of the block group");
    assert_eq!(group(5, 1 << 20, BlockGroupFlags::DUP), "block group type");
    let raid = BlockGroupFlags::RAID0 | BlockGroupFlags::RAID1;
    assert_eq!(group(5, 1 << 20, BlockGroupFlags::DATA | raid), "block group profile");

    let free = |kind, start, len, size| (Key::new(start, kind, len), vec![0; size]);
    let space = |items: &[(Key, Vec<u8>)]| complaint(TreeId::FREE_SPACE, items);
    assert_eq!(space(&[free(t::FREE_SPACE_BITMAP, 0, 9 * 4096, 2)]), "nothing");
    assert_eq!(space(&[free(t::FREE_SPACE_BITMAP, 0, 9 * 4096, 3)]), "size of a free space bitmap");
    let first = free(t::FREE_SPACE_EXTENT, 0, 8192, 0);
    assert_eq!(space(&[first.clone(), free(t::FREE_SPACE_EXTENT, 8192, 4096, 0)]), "nothing");
    assert_eq!(space(&[first, free(t::FREE_SPACE_EXTENT, 4096, 4096, 0)]), "start of free space");
}

fn chunk() -> (Chunk, Stripe) {
    let mut chunk = Chunk::new_zeroed();
    chunk.length = U64::new(8 << 20);
    chunk.owner = U64::new(2);
    chunk.stripe_len = U64::new(STRIPE_LEN);
    chunk.chunk_type = U64::new(BlockGroupFlags::SYSTEM.bits());
    chunk.sector_size = U32::new(4096);
    (chunk, Stripe { devid: U64::new(1), offset: U64::new(1 << 20), dev_uuid: Uuid::NIL })
}

#[test]
fn chunks() {
    let (good, stripe) = chunk();
    let with = |change: fn(&mut Chunk), stripes: usize| {
        let mut chunk = good;
        change(&mut chunk);
        let bytes = ChunkItem::build(&chunk, &vec![stripe; stripes]);
        verify::chunk(&format(), Logical(1 << 20), &bytes).map_or_else(|e| e.what, |()| "nothing")
    };
    assert_eq!(with(|_| (), 1), "nothing");
    assert_eq!(with(|_| (), 2), "number of stripes");
    assert_eq!(with(|_| (), 0), "number of stripes");
    assert_eq!(with(|chunk| chunk.stripe_len = U64::new(4096), 1), "chunk stripe length");
    assert_eq!(with(|chunk| chunk.length = U64::ZERO, 1), "chunk length");
    assert_eq!(with(|chunk| chunk.length = U64::new(1 << 60), 1), "chunk length");
    assert_eq!(with(|chunk| chunk.sector_size = U32::new(512), 1), "chunk sector size");
    assert_eq!(with(|chunk| chunk.chunk_type = U64::new(5), 1), "chunk type");
    assert_eq!(with(|chunk| chunk.chunk_type = U64::new(1 << 40 | 1), 1), "chunk type");
    assert_eq!(with(|chunk| chunk.chunk_type = U64::new(0x18 | 1), 2), "chunk profile");
    assert_eq!(
        with(
            |chunk| {
                chunk.chunk_type = U64::new(0x40 | 1);
                chunk.sub_stripes = U16::new(1);
            },
            4
        ),
        "number of sub-stripes"
    );
}

#[test]
fn devices() {
    let mut item = DevItem::new_zeroed();
    item.devid = U64::new(1);
    item.total_bytes = U64::new(100);
    let one = |key, item: &DevItem| complaint(TreeId::CHUNK, &[(key, item.bytes().to_vec())]);
    let key = Key::new(objectid::DEV_ITEMS, t::DEV_ITEM, 1);
    assert_eq!(one(key, &item), "nothing");
    assert_eq!(one(Key { offset: 2, ..key }, &item), "device number");
    item.bytes_used = U64::new(101);
    assert_eq!(one(key, &item), "used bytes of a device");

    let extent = DevExtent {
        chunk_tree: U64::new(3),
        chunk_objectid: U64::new(256),
        chunk_offset: U64::new(1 << 20),
        length: U64::new(8192),
        chunk_tree_uuid: Uuid::NIL,
    };
    let at = |start| (Key::new(1, t::DEV_EXTENT, start), extent.bytes().to_vec());
    assert_eq!(complaint(TreeId::DEV, &[at(0), at(8192)]), "nothing");
    assert_eq!(complaint(TreeId::DEV, &[at(0), at(4096)]), "start of a device extent");
    assert_eq!(complaint(TreeId::DEV, &[at(0u64.wrapping_sub(4096))]), "end of a device extent");
}

fn superblock() -> DiskSuperblock {
    let mut fields = DiskSuperblock::new_zeroed();
    fields.fsid = FSID;
    fields.dev_item.fsid = FSID;
    fields.dev_item.devid = U64::new(1);
    fields.sectorsize = U32::new(4096);
    fields.nodesize = U32::new(16384);
    fields.leafsize = U32::new(16384);
    fields.stripesize = U32::new(4096);
    fields.num_devices = U64::new(1);
    fields.total_bytes = U64::new(1 << 30);
    fields.bytes_used = U64::new(1 << 20);
    let (chunk, stripe) = chunk();
    let key: btrfs_disk::DiskKey = Key::new(256, t::CHUNK_ITEM, 1 << 20).into();
    let array = [key.as_bytes(), &ChunkItem::build(&chunk, &[stripe])].concat();
    fields.sys_chunk_array[..array.len()].copy_from_slice(&array);
    fields.sys_chunk_array_size = U32::new(u32::from(u16_len(array.len())));
    fields
}

#[test]
fn a_sealed_superblock_verifies_at_its_own_place_only() {
    let superblock = Superblock::new(superblock()).unwrap();
    assert_eq!(superblock.system_chunks().filter(Result::is_ok).count(), 1);
    for offset in [SUPERBLOCK_OFFSET, 64 << 20] {
        let sealed = superblock.sealed(offset).unwrap();
        let unchecked = UncheckedSuperblock::new(sealed.bytes()).unwrap();
        assert_eq!(unchecked.clone().verify(offset).unwrap().fields().bytenr.get(), offset);
        assert_eq!(unchecked.verify(4096).unwrap_err().what, "superblock address");
    }
    let mut sealed = superblock.sealed(SUPERBLOCK_OFFSET).unwrap();
    sealed.label[0] = b'x';
    let unchecked = UncheckedSuperblock::new(sealed.bytes()).unwrap();
    assert_eq!(unchecked.verify(SUPERBLOCK_OFFSET).unwrap_err().what, "superblock checksum");
}

#[test]
fn superblock_fields_are_checked() {
    let broken = |change: fn(&mut DiskSuperblock)| {
        let mut fields = superblock();
        change(&mut fields);
        Superblock::new(fields).map_or_else(|error| error.what, |_| "nothing")
    };
    assert_eq!(broken(|_| ()), "nothing");
    assert_eq!(broken(|fields| fields.csum_type = U16::new(4)), "checksum type");
    assert_eq!(broken(|fields| fields.nodesize = U32::new(12288)), "node size");
    assert_eq!(broken(|fields| fields.nodesize = U32::new(1 << 20)), "node size");
    assert_eq!(broken(|fields| fields.sectorsize = U32::new(0)), "sector size");
    assert_eq!(broken(|fields| fields.root_level = 8), "level of the root tree");
    assert_eq!(broken(|fields| fields.root = U64::new(1)), "address of the root tree");
    assert_eq!(broken(|fields| fields.num_devices = U64::ZERO), "number of devices");
    assert_eq!(broken(|fields| fields.bytes_used = U64::ZERO), "bytes used");
    assert_eq!(broken(|fields| fields.dev_item.fsid = Uuid::NIL), "file system UUID of the device");
    assert_eq!(broken(|fields| fields.sys_chunk_array_size = U32::new(5000)), "size of the system chunk array");
    assert_eq!(broken(|fields| fields.sys_chunk_array[8] = 1), "key of a system chunk");
    assert_eq!(broken(|fields| fields.sys_chunk_array_size = U32::new(100)), "system chunk key size");
}

#[test]
fn unknown_features_and_flags_survive_a_rewrite() {
    let mut fields = superblock();
    fields.incompat_flags = U64::new(1 << 60);
    fields.reserved[5] = 9;
    let superblock = Superblock::new(fields).unwrap();
    let sealed = superblock.sealed(SUPERBLOCK_OFFSET).unwrap();
    assert_eq!(sealed.incompat().to_string(), "bit 60");
    assert_eq!(sealed.reserved[5], 9);
}
