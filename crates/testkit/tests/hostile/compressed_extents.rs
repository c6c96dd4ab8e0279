//! Small compressed extents of every length: those that a reader refuses are those that a check reports. Linux 7.1
//! compresses a whole sector where an older kernel compresses up to the end of the file, and `ram_bytes` says how much
//! of it counts.

use super::{Image, found};
use btrfs_disk::convert::to_u64;
use btrfs_disk::items::FileExtent;
use btrfs_disk::key::item_type::{EXTENT_DATA, INODE_ITEM};
use btrfs_disk::{Generation, Key, TreeId};
use codec::CompressionType;
use codec::compress::{CompressOptions, compress};
use std::sync::Arc;
use vfs::FileOptions;
use vfs::file_system::XattrMode;

/// The stream of a number of bytes of text.
fn stream(codec: CompressionType, text: &[u8]) -> Vec<u8> {
    let options = CompressOptions { level: 0, sector_size: 4096, output_size_max: usize::MAX };
    compress(codec, text, &options).unwrap().unwrap()
}

fn text(len: usize) -> Vec<u8> {
    b"some compressible text; ".iter().copied().cycle().take(len).collect()
}

/// A file with inline contents: `data`, which claims to be of length `len`.
fn lie(image: &Image, (codec, data, len): (CompressionType, &[u8], u64)) {
    let ino = image.read_only().symlink_metadata("/file").unwrap().home.ino;
    let edit = image.edit();
    let sizes = |bytes: &mut [u8]| {
        bytes[16..24].copy_from_slice(&len.to_le_bytes());
        bytes[24..32].copy_from_slice(&len.to_le_bytes());
    };
    edit.change_item(TreeId::FS, &Key::new(ino, INODE_ITEM, 0), sizes).unwrap();
    let item = FileExtent::build_inline(Generation(1), codec.to_raw(), len, data);
    edit.put_item(TreeId::FS, &Key::new(ino, EXTENT_DATA, 0), &item).unwrap();
}

/// Whether a check finds nothing and all readers have the first bytes of the text; panics where they differ.
fn is_read(image: &Image, len: usize, what: &str) -> bool {
    let counts = found(image);
    let volume = image.read_only();
    let read = volume.read("/file");
    let rescue = btrfs_rescue::Rescue::open(&[image.any_device()], 1, Arc::new(())).unwrap();
    let view = rescue.view(None).unwrap();
    let rescued = view.volume().read("/file").unwrap();
    let is_rescued = view.losses().is_empty();
    match read {
        Ok(bytes) => {
            assert_eq!(counts, Vec::<String>::new(), "{what}");
            assert!(bytes == text(len), "{what}");
            assert!(is_rescued && rescued == bytes, "{what}");
            true
        }
        Err(_) => {
            assert_eq!(counts, ["file-stream"], "{what}");
            assert!(!is_rescued, "{what}");
            false
        }
    }
}

#[test]
fn a_check_reports_what_readers_refuse() {
    let image = Image::new(|volume| volume.write("/file", b"small").unwrap());
    for codec in CompressionType::ALL {
        for unpacked in [299, 300, 301, 2048, 4095, 4096, 4097, 8192] {
            let data = stream(codec, &text(unpacked));
            for len in [1, 299, 300, 301, 4095, 4096] {
                lie(&image, (codec, &data, to_u64(len)));
                let what = format!("{codec}: {unpacked} bytes for {len}");
                // zstd brings the first of a longer frame, as in the kernel.
                let is_right = unpacked >= len && (unpacked <= 4096 || codec == CompressionType::Zstd);
                assert_eq!(is_read(&image, len, &what), is_right, "{what}");
            }
        }
        // Cut short, longer than its frame, and another algorithm's.
        let data = stream(codec, &text(4096));
        lie(&image, (codec, &data[..data.len() - 7], 300));
        is_read(&image, 300, &format!("{codec}, cut short"));
        lie(&image, (codec, &[&data[..], &[0; 9]].concat(), 300));
        is_read(&image, 300, &format!("{codec}, with more behind it"));
        let other = if codec == CompressionType::Zlib { CompressionType::Zstd } else { CompressionType::Zlib };
        lie(&image, (other, &data, 300));
        assert!(!is_read(&image, 300, &format!("{codec} as {other}")));
    }
}

#[test]
fn so_it_is_outside_of_items() {
    const LEN: usize = 64 << 10;
    for codec in CompressionType::ALL {
        let image = Image::new(|volume| {
            let file = FileOptions::new().read(true).write(true).create(true).open(volume, "/file").unwrap();
            volume.set_xattr("/file", "btrfs.compression", codec.name(), XattrMode::Either).unwrap();
            file.write_at(&text(LEN), 0).unwrap();
        });
        let ino = image.read_only().symlink_metadata("/file").unwrap().home.ino;
        let key = Key::new(ino, EXTENT_DATA, 0);
        let edit = image.edit();
        let change = |compression: u8, ram_bytes: u64, len: u64| {
            let sizes = |bytes: &mut [u8]| {
                bytes[16..24].copy_from_slice(&len.to_le_bytes());
                bytes[24..32].copy_from_slice(&len.to_le_bytes());
            };
            edit.change_item(TreeId::FS, &Key::new(ino, INODE_ITEM, 0), sizes).unwrap();
            let extent = |bytes: &mut [u8]| {
                assert_eq!((bytes[20], bytes[16] > 0), (1, true), "a compressed extent");
                bytes[8..16].copy_from_slice(&ram_bytes.to_le_bytes());
                bytes[16] = compression;
                bytes[45..53].copy_from_slice(&len.to_le_bytes());
            };
            edit.change_item(TreeId::FS, &key, extent).unwrap();
        };
        // The stream is as long, longer, and shorter: zeros follow.
        for len in [LEN, 4096, LEN - 4096, LEN + 4096, 2 * LEN] {
            change(codec.to_raw(), to_u64(len), to_u64(len));
            let mut expected = text(len.min(LEN));
            expected.resize(len, 0);
            assert_eq!(found(&image), Vec::<String>::new(), "{codec}: {len} bytes");
            assert!(image.read_only().read("/file").unwrap() == expected, "{codec}: {len} bytes");
        }
        let other = if codec == CompressionType::Zlib { CompressionType::Zstd } else { CompressionType::Zlib };
        change(other.to_raw(), to_u64(LEN), to_u64(LEN));
        assert!(image.read_only().read("/file").is_err());
        assert_eq!(found(&image), ["data-stream"], "{codec} as {other}");
        change(codec.to_raw(), 256 << 10, to_u64(LEN));
        assert!(image.read_only().read("/file").is_err());
        assert_eq!(found(&image), ["file-stream"], "{codec}: more than is read");
    }
}

#[test]
fn small_compressed_files_of_a_whole_sector_are_sent() {
    for codec in CompressionType::ALL {
        let image = Image::new(|volume| volume.write("/file", b"small").unwrap());
        lie(&image, (codec, &stream(codec, &[text(300), vec![0; 3796]].concat()), 300));
        let sent = super::sent(&image);
        let (at, wanted) = (text(300), sent.windows(300));
        assert!(wanted.into_iter().any(|window| window == at), "{codec}: the text is not in the stream");
    }
}
