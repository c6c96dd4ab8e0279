//! Trees that the reference tool stored are read back.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use codec::compress::BlockCodec;
use f2fs::{Error, OpenOptions, Unsupported};
use f2fs_disk::flags::InodeFlags;
use f2fs_disk::{BlockAddr, Nid, hash};
use vfs::file_system::{Errno, ExtentKind, NodeFlags};
use vfs::{Blame, File};

use crate::edit::{Image, addresses_at, seal_superblock};
use crate::tool::{Bench, command, number_of, open, open_bytes, run};
use crate::walk;

/// Features that change the layout of an inode. With `flexible_inline_xattr` the tool overwrites addresses by inline
/// attributes, as its own check reports, so that is tested with small files only.
const EXTRA: &str = "extra_attr,inode_checksum,sb_checksum,inode_crtime,project_quota,lost_found";
const COMPRESSION: &str = "extra_attr,inode_checksum,sb_checksum,compression";
/// Enough for a file with indirect nodes: 923 + 2 * 1018 blocks and more.
const BIG_BYTES: usize = 14 << 20;

/// Bytes that look random and are the same each time.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..len).map(step).collect()
}

/// A tree with everything that `sload.f2fs` can store.
pub(crate) fn tree(bench: &Bench) -> PathBuf {
    let root = bench.path("tree");
    let deep = (0..40).fold(root.join("deep"), |dir, level| dir.join(format!("level {level}")));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("bottom"), "here\n").unwrap();
    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..2500 {
        fs::write(many.join(format!("{number:05}{}", "-long".repeat(number % 48))), number.to_string()).unwrap();
    }
    for (name, len) in [("empty", 0), ("inline", 3000), ("page", 4096), ("odd", 12_345), ("direct", 5 << 20)] {
        fs::write(root.join(name), noise(len)).unwrap();
    }
    fs::write(root.join("big"), noise(BIG_BYTES)).unwrap();
    fs::write(root.join("text"), "a line that repeats\n".repeat(20_000)).unwrap();
    std::os::unix::fs::symlink("many/00000", root.join("short link")).unwrap();
    std::os::unix::fs::symlink("l".repeat(4000), root.join("long link")).unwrap();
    fs::hard_link(root.join("odd"), many.join("another name")).unwrap();
    for (name, mode) in [("inline", 0o4751), ("page", 0o2640), ("many", 0o1777), ("empty", 0)] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(root.join("ümläut")).unwrap();
    for (name, time) in [("odd", "@1100000000"), ("deep", "@5"), ("short link", "@2500000000")] {
        run(Command::new("touch").args(["-h", "-d", time]).arg(root.join(name)));
    }
    let chowned = std::os::unix::fs::chown(root.join("page"), Some(1000), Some(2000));
    println!("chown: {chowned:?}");
    root
}

fn compare(mkfs: &[&str]) {
    let Some(bench) = Bench::new() else { return };
    let source = tree(&bench);
    let image = bench.load(&source, 128, mkfs);
    let (fs, volume) = open(&image);
    let mut found = walk::volume(&volume);
    // Made by `mkfs` on request.
    found.remove(&b"lost+found"[..]);
    walk::assert_same(&walk::host(&source), &found);
    let info = fs.info().unwrap();
    let dump = run(command("dump.f2fs").arg("-d").arg("1").arg(&image));
    assert_eq!(info.checkpoint, number_of(&dump, "checkpoint_ver"));
    assert_eq!(u64::from(info.inodes), number_of(&dump, "valid_inode_count"));
    assert_eq!(u64::from(info.nodes), number_of(&dump, "valid_node_count"));
    assert_eq!(info.used_bytes, number_of(&dump, "valid_block_count") << 12);
    assert_eq!(info.user_bytes, number_of(&dump, "user_block_count") << 12);
    for name in ["many/00000", "many/no such name", "deep/level 0/level 1"] {
        assert_eq!(volume.exists(name).unwrap(), !name.contains("no such"), "{name}");
    }
    read_in_parts(&volume, &fs::read(source.join("big")).unwrap());
}

/// Reads at odd places, which fall into direct and indirect nodes.
fn read_in_parts(volume: &vfs::Volume, expected: &[u8]) {
    let file = File::open(volume, "big").unwrap();
    for (offset, len) in [(0, 1), (4095, 2), (923 * 4096 - 3, 8), (7_900_001, 123_456), (expected.len() - 5, 100)] {
        let mut buf = vec![0xee; len];
        let count = file.read_at(&mut buf, u64::try_from(offset).unwrap()).unwrap();
        let end = (offset + len).min(expected.len());
        assert!(buf[..count] == expected[offset..end], "{len} bytes at {offset}");
    }
    let extents = file.extents().unwrap();
    assert!(extents.iter().all(|extent| extent.kind == ExtentKind::Data && extent.logical.is_some()));
    let total: u64 = extents.iter().map(|extent| extent.len).sum();
    assert_eq!(total, u64::try_from(expected.len().next_multiple_of(4096)).unwrap());
}

#[test]
fn a_tree_is_read_from_a_plain_image() {
    compare(&["-l", "plain"]);
}

#[test]
fn a_tree_is_read_from_an_image_with_extra_attributes() {
    compare(&["-O", EXTRA]);
}

#[test]
fn a_tree_is_read_from_an_image_with_other_features() {
    compare(&["-i", "-s", "2", "-C", "utf8", "-O", "extra_attr,casefold,compression,quota,verity,encrypt"]);
}

#[test]
fn label_uuid_and_features_are_told() {
    let Some(bench) = Bench::new() else { return };
    let uuid = "11112222-3333-4444-5555-666677778888";
    let image = bench.mkfs("image", 64, &["-l", "größer", "-U", uuid, "-O", EXTRA]);
    let (fs, volume) = open(&image);
    let info = fs.info().unwrap();
    assert_eq!(info.label, "größer");
    assert_eq!(info.uuid[..5], [0x11, 0x11, 0x22, 0x22, 0x33]);
    // `mkfs` adds the files of quotas to project quotas.
    let mut expected: Vec<&str> = EXTRA.split(',').chain(["quota"]).collect();
    let mut features: Vec<&str> = info.features.iter().map(String::as_str).collect();
    expected.sort_unstable();
    features.sort_unstable();
    assert_eq!(features, expected);
    assert_eq!((info.total_bytes, info.orphans, info.recovered_files), (64 << 20, 0, 0));
    let status = volume.status().unwrap();
    assert_eq!(status.blocks_free, (info.user_bytes - info.used_bytes) >> 12);
    let root = volume.metadata("/").unwrap();
    assert_eq!((root.ino, root.permissions), (3, 0o755));
    assert!(volume.metadata("lost+found").unwrap().is_dir());
}

#[test]
fn every_change_is_refused_in_words() {
    let Some(bench) = Bench::new() else { return };
    let source = bench.path("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "text").unwrap();
    let (_, volume) = open(&bench.load(&source, 64, &[]));
    assert!(volume.is_read_only());
    let refused = [
        volume.write("file", "other").unwrap_err(),
        volume.write("new", "other").unwrap_err(),
        volume.create_dir("dir").unwrap_err(),
        volume.symlink("a", "link").unwrap_err(),
        volume.hard_link("file", "other").unwrap_err(),
        volume.remove_file("file").unwrap_err(),
        volume.remove_dir("dir").unwrap_err(),
        volume.rename("file", "other").unwrap_err(),
        volume.set_permissions("file", 0o600).unwrap_err(),
        volume.set_flags("file", NodeFlags::IMMUTABLE).unwrap_err(),
        volume.remove_xattr("file", "user.a").unwrap_err(),
    ];
    for error in refused {
        // A missing name of a directory is looked up first.
        assert!(error.errno() == Errno::EROFS || error.errno() == Errno::ENOENT, "{error}");
        assert!(error.errno() == Errno::ENOENT || error.to_string().contains("read-only"), "{error}");
    }
    assert_eq!(volume.read("file").unwrap(), b"text");
    volume.sync().unwrap();
}

/// A volume with one file of these contents, and the file's inode.
fn with_file(bench: &Bench, mkfs: &[&str], contents: &[u8]) -> (Image, Nid) {
    let source = bench.path("source");
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("file"), contents).unwrap();
    let path = bench.load(&source, 64, mkfs);
    let ino = open(&path).1.metadata("file").unwrap().ino;
    (Image::read(&path), Nid(u32::try_from(ino).unwrap()))
}

/// `sload.f2fs` writes no holes: they are cut here.
#[test]
fn holes_and_reserved_blocks_read_as_zeros() {
    let Some(bench) = Bench::new() else { return };
    let contents = noise(10 * 4096);
    let (mut image, ino) = with_file(&bench, &["-O", EXTRA], &contents);
    image.change_inode(ino, |block| {
        let at = addresses_at(block);
        block[at + 8..at + 16].fill(0);
        block[at + 20..at + 24].fill(0xff);
        // A file that continues behind its data with holes without nodes.
        block[16..24].copy_from_slice(&(3_u64 << 40).to_le_bytes());
    });
    let (_, volume) = open_bytes(&image.bytes, OpenOptions::new()).unwrap();
    let file = File::open(&volume, "file").unwrap();
    let mut expected = contents;
    expected[2 * 4096..4 * 4096].fill(0);
    expected[5 * 4096..6 * 4096].fill(0);
    expected.resize(20 * 4096, 0);
    let mut found = vec![1; expected.len()];
    assert_eq!(file.read_at(&mut found, 0).unwrap(), found.len());
    assert!(found == expected);
    assert_eq!(file.seek_hole(0).unwrap(), 2 * 4096);
    assert_eq!(file.seek_data(2 * 4096).unwrap(), 4 * 4096);
    assert_eq!(file.seek_hole(4 * 4096).unwrap(), 10 * 4096, "reserved blocks are no hole");
    assert_eq!(file.seek_data(10 * 4096).unwrap_err().errno(), Errno::ENXIO, "past terabytes without a node");
    let kinds: Vec<_> = file.extents().unwrap().iter().map(|extent| (extent.offset >> 12, extent.kind)).collect();
    assert!(kinds.contains(&(5, ExtentKind::Preallocated)) && kinds.iter().all(|(block, _)| !(2..4).contains(block)));
}

/// Compresses a cluster.
type Pack = dyn Fn(&[u8]) -> Vec<u8>;

/// Packs the file's blocks into compressed clusters of four, as the kernel lays them out.
fn compress(image: &mut Image, ino: Nid, contents: &[u8], algorithm: u8, pack: &Pack) {
    let inode = image.block(image.node_at(ino));
    let addresses_at = addresses_at(inode);
    let first = u32::from_le_bytes(*inode[addresses_at..].first_chunk().unwrap());
    let mut addresses = Vec::new();
    for (number, cluster) in contents.chunks(4 * 4096).enumerate() {
        let stream = pack(cluster);
        let mut packed = u32::try_from(stream.len()).unwrap().to_le_bytes().to_vec();
        packed.extend(hash::crc32(&stream).to_le_bytes());
        packed.resize(24, 0);
        packed.extend(stream);
        assert!(packed.len() <= 4096, "the sample packs well");
        packed.resize(4096, 0);
        let target = BlockAddr(first).plus(u32::try_from(number * 4).unwrap());
        image.block_mut(target).copy_from_slice(&packed);
        addresses.extend([BlockAddr::COMPRESS.0, target.0, 0, 0].map(u32::to_le_bytes).concat());
    }
    image.change_inode(ino, |block| {
        block[80..84].copy_from_slice(&InodeFlags::COMPR.bits().to_le_bytes());
        block[360 + 32..360 + 36].copy_from_slice(&[algorithm, 2, 1, 0]);
        block[addresses_at..][..addresses.len()].copy_from_slice(&addresses);
    });
}

#[test]
fn compressed_clusters_are_read() {
    let Some(bench) = Bench::new() else { return };
    let contents: Vec<u8> = (0..16 * 1024_u32).flat_map(|number| (number / 64).to_le_bytes()).collect();
    let (plain, ino) = with_file(&bench, &["-O", COMPRESSION], &contents);
    // One literal, then a match of the rest: what LZ4 makes of equal bytes is written here by hand.
    let lz4 = |cluster: &[u8]| lz4_of_runs(cluster);
    let zstd = |cluster: &[u8]| zstd_of(cluster);
    let lzo_rle = |cluster: &[u8]| lzo_rle_of_runs(cluster);
    let packers: [(u8, BlockCodec, &Pack); 3] =
        [(1, BlockCodec::Lz4, &lz4), (2, BlockCodec::Zstd, &zstd), (3, BlockCodec::LzoRle, &lzo_rle)];
    for (number, codec, pack) in packers {
        let mut image = plain.clone();
        compress(&mut image, ino, &contents, number, pack);
        let (_, volume) = open_bytes(&image.bytes, OpenOptions::new()).unwrap();
        assert!(volume.read("file").unwrap() == contents, "{codec}");
        let file = File::open(&volume, "file").unwrap();
        let mut part = vec![0; 5000];
        assert_eq!(file.read_at(&mut part, 14_000).unwrap(), 5000);
        assert!(part == contents[14_000..19_000]);
        let extents = file.extents().unwrap();
        assert_eq!(extents.len(), 4);
        assert_eq!((extents[1].compression, extents[1].disk_len), (Some(codec.name()), 4096));
        assert_eq!(file.seek_hole(0).unwrap(), 64 << 10);
        // A byte of the stream, which has a checksum.
        let inode = image.block(image.node_at(ino));
        let addresses = &inode[addresses_at(inode)..];
        let packed = BlockAddr(u32::from_le_bytes(*addresses[4..].first_chunk().unwrap()));
        image.block_mut(packed)[30] ^= 1;
        let (_, volume) = open_bytes(&image.bytes, OpenOptions::new()).unwrap();
        let error = volume.read("file").unwrap_err();
        assert_eq!((error.errno(), error.blame()), (Errno::EIO, Blame::Image));
        assert!(error.to_string().contains("compressed cluster chksum"), "{error}");
    }
}

/// Each run of 256 bytes: four literals, and a match with them.
fn lzo_rle_of_runs(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![17, 1];
    for (number, run) in bytes.chunks(256).enumerate() {
        out.push(if number == 0 { 17 + 4 } else { 1 });
        out.extend_from_slice(&run[..4]);
        // 252 is 2 and 31 and 219; the distance, four, is told less one and above two bits.
        out.extend([32, 219, 3 << 2, 0]);
    }
    out.extend([17, 0, 0]);
    out
}

/// Each run of equal groups of four bytes: four literals, and a match with what is before.
fn lz4_of_runs(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for run in bytes.chunk_by_groups() {
        let mut left = run.len() - 4 - 4;
        out.push(0x4f);
        out.extend_from_slice(&run[..4]);
        out.extend([4, 0]);
        left -= 15;
        while left >= 255 {
            out.push(255);
            left -= 255;
        }
        out.push(u8::try_from(left).unwrap());
    }
    // The last sequence has literals alone: none here, so the token says 0 of them.
    out.push(0);
    out
}

trait Groups {
    fn chunk_by_groups(&self) -> Vec<&[u8]>;
}

impl Groups for [u8] {
    /// Runs of equal groups of four bytes.
    fn chunk_by_groups(&self) -> Vec<&[u8]> {
        self.chunks(256).inspect(|run| assert!(run.chunks(4).all(|group| group == &run[..4]))).collect()
    }
}

/// A Zstandard frame of raw and repeated blocks (RFC 8878): one raw block.
fn zstd_of(bytes: &[u8]) -> Vec<u8> {
    let compressed = codec::compress::compress(
        codec::CompressionType::Zstd,
        bytes,
        &codec::compress::CompressOptions { level: 3, sector_size: 4096, output_size_max: bytes.len() },
    );
    compressed.unwrap().unwrap()
}

#[test]
fn either_superblock_and_either_checkpoint_are_enough() {
    let Some(bench) = Bench::new() else { return };
    let (image, _) = with_file(&bench, &["-O", EXTRA], b"text");
    let mut bytes = image.bytes.clone();
    bytes[1024 + 40] ^= 1;
    assert_eq!(open_bytes(&bytes, OpenOptions::new()).unwrap().1.read("file").unwrap(), b"text");
    let error = open_bytes(&bytes, OpenOptions::new().superblock(Some(0))).unwrap_err();
    assert!(error.to_string().starts_with("corrupt superblock checksum in the superblock at 1024: expected 0x"));
    assert!(open_bytes(&image.bytes, OpenOptions::new().superblock(Some(1))).is_ok());
    bytes[5120 + 40] ^= 1;
    assert!(matches!(open_bytes(&bytes, OpenOptions::new()), Err(Error::Corrupt(_))));
    // `sload.f2fs` writes the other pack too; without the newest the older one counts.
    let mut bytes = image.bytes.clone();
    let at = usize::try_from(image.checkpoint.at().byte()).unwrap();
    bytes[at + 200] ^= 1;
    assert!(open_bytes(&bytes, OpenOptions::new()).is_ok());
}

#[test]
fn what_cannot_be_read_is_named() {
    let Some(bench) = Bench::new() else { return };
    let (image, ino) = with_file(&bench, &["-O", "extra_attr,sb_checksum,encrypt"], b"text");
    let with_features = |bits: u32| {
        let mut bytes = image.bytes.clone();
        for start in [1024, 5120] {
            let raw = u32::from_le_bytes(*bytes[start + 2180..].first_chunk().unwrap()) | bits;
            bytes[start + 2180..start + 2184].copy_from_slice(&raw.to_le_bytes());
            seal_superblock(&mut bytes[start..start + 3072]);
        }
        open_bytes(&bytes, OpenOptions::new()).map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(with_features(0x2), "f2fs feature not supported: blkzoned");
    assert_eq!(with_features(0x8000_0000), "f2fs feature not supported: unknown 0x80000000");
    let mut bytes = image.bytes.clone();
    for start in [1024, 5120] {
        bytes[start + 16] = 14;
        seal_superblock(&mut bytes[start..start + 3072]);
    }
    let error = open_bytes(&bytes, OpenOptions::new()).unwrap_err();
    assert!(matches!(error, Error::Unsupported(Unsupported::BlockSize(14))), "{error}");
    let mut encrypted = image.clone();
    encrypted.change_inode(ino, |block| block[2] |= 4);
    let (_, volume) = open_bytes(&encrypted.bytes, OpenOptions::new()).unwrap();
    let error = volume.read("file").unwrap_err();
    assert!(error.errno() == Errno::EOPNOTSUPP && error.to_string().contains("is encrypted"), "{error}");
    assert_eq!(volume.metadata("file").unwrap().size, 4, "unencrypted properties are readable");
}

/// Names whose hashes differ from those of their folded form, as a kernel with other tables stores them, are found by a
/// full search.
#[test]
fn directories_that_ignore_case_are_searched_as_a_whole() {
    let Some(bench) = Bench::new() else { return };
    let source = bench.path("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    for number in 0..600 {
        fs::write(source.join(format!("dir/Name {number}")), "x").unwrap();
    }
    let path = bench.load(&source, 64, &["-C", "utf8", "-O", "casefold,extra_attr"]);
    let ino = open(&path).1.metadata("dir").unwrap().ino;
    let mut image = Image::read(&path);
    image.change_inode(Nid(u32::try_from(ino).unwrap()), |block| {
        block[80..84].copy_from_slice(&InodeFlags::CASEFOLD.bits().to_le_bytes());
        // One level: a search by hash would not find names in the others.
        block[72..76].copy_from_slice(&1_u32.to_le_bytes());
    });
    let (_, volume) = open_bytes(&image.bytes, OpenOptions::new()).unwrap();
    for number in 0..600 {
        assert!(volume.exists(format!("dir/Name {number}")).unwrap(), "{number}");
        assert!(volume.exists(format!("dir/nAME {number}")).unwrap(), "{number}");
    }
    assert!(!volume.exists("dir/name 600").unwrap());
}

#[test]
fn attributes_are_read_from_the_inode() {
    let Some(bench) = Bench::new() else { return };
    let (mut image, ino) = with_file(&bench, &["-O", "extra_attr,inode_checksum"], b"text");
    let entry = |index: u8, name: &[u8], value: &[u8]| {
        let mut bytes = vec![index, u8::try_from(name.len()).unwrap(), u8::try_from(value.len()).unwrap(), 0];
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let acl = [1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 4, 0, 0xe8, 3, 0, 0, 4, 0, 4, 0, 0x10, 0, 4, 0, 0x20, 0, 0, 0];
    let mut bytes = 0xf2f5_2011_u32.to_le_bytes().to_vec();
    bytes.resize(24, 0);
    bytes.extend(entry(1, b"name", b"value"));
    bytes.extend(entry(2, b"", &acl));
    bytes.extend(entry(4, b"secret", b""));
    bytes.resize(200, 0);
    image.change_inode(ino, |block| {
        block[3] |= 1;
        block[360 + 873 * 4..][..200].copy_from_slice(&bytes);
    });
    let (_, volume) = open_bytes(&image.bytes, OpenOptions::new()).unwrap();
    let names: Vec<_> = volume.list_xattrs("file").unwrap();
    let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    assert_eq!(names, [&b"user.name"[..], b"system.posix_acl_access", b"trusted.secret"]);
    assert_eq!(volume.get_xattr("file", "user.name").unwrap().unwrap(), b"value");
    assert_eq!(volume.get_xattr("file", "trusted.secret").unwrap().unwrap(), b"");
    assert_eq!(volume.get_xattr("file", "user.other").unwrap(), None);
    let shown = volume.get_xattr("file", "system.posix_acl_access").unwrap().unwrap();
    assert!(vfs::Acl::parse(&shown).unwrap().is_some(), "the kernel would take it");
}
