//! Compressed data in a stream: stored unchanged where possible, and decompressed otherwise.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "tests fail by panicking"
)]

use btrfs::{MakeOptions, Volume};
use btrfs_receive::{Options, Receiver};
use btrfs_stream::{Command, Compression, EncodedWrite, Encoder, Version};
use codec::CompressionType;
use codec::compress::{CompressOptions, compress};
use std::path::Path;
use vfs::{File, FileOptions};

const KINDS: [(CompressionType, Compression); 3] = [
    (CompressionType::Zlib, Compression::Zlib),
    (CompressionType::Lzo, Compression::Lzo { sector_size: 4096 }),
    (CompressionType::Zstd, Compression::Zstd),
];
/// Length of an extent.
const LEN: u64 = 128 << 10;

/// Text that differs for each number.
fn text(number: u64, len: u64) -> Vec<u8> {
    let line = format!("{number} streams go into the sea; ").into_bytes();
    line.into_iter().cycle().take(usize::try_from(len).unwrap()).collect()
}

fn compressed(kind: CompressionType, plain: &[u8]) -> Vec<u8> {
    let options = CompressOptions { level: 0, sector_size: 4096, output_size_max: plain.len() };
    compress(kind, plain, &options).unwrap().unwrap()
}

/// Receives one file named `f`. Returns its contents, its number of compressed extents and of all extents.
fn receive(commands: &[Command<'_>], options: Options) -> (Vec<u8>, usize, usize) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    let volume = Volume::make(&image, &MakeOptions { size: Some(256 << 20), ..MakeOptions::default() }).unwrap();
    let mut encoder = Encoder::new(Vec::new(), Version::V2).unwrap();
    encoder.command(&Command::Subvol { path: b"s", uuid: [1; 16], ctransid: 1 }).unwrap();
    encoder.command(&Command::Mkfile { path: b"f", ino: None }).unwrap();
    for command in commands {
        encoder.command(command).unwrap();
    }
    encoder.command(&Command::End).unwrap();
    let stream = encoder.into_inner();
    let mut receiver = Receiver::new(&volume, Path::new("/"), options).unwrap();
    receiver.receive(&stream[..], &(), &mut ()).unwrap();
    drop(receiver);
    volume.close().unwrap();
    println!("{:?}", testkit::reference::check(&image).unwrap());
    let volume = Volume::options().read_only(true).open(&image).unwrap();
    let file: File = FileOptions::new().read(true).open(&volume, "s/f").unwrap();
    let extents = file.extents().unwrap();
    let count = extents.iter().filter(|extent| extent.compression.is_some()).count();
    (volume.read("s/f").unwrap(), count, extents.len())
}

fn write(offset: u64, len: u64, compression: Compression, data: &[u8]) -> EncodedWrite<'_> {
    EncodedWrite {
        path: b"f",
        offset,
        unencoded_file_len: len,
        unencoded_len: len,
        unencoded_offset: 0,
        compression,
        data,
    }
}

#[test]
fn extents_arrive_as_they_were() {
    for (kind, compression) in KINDS {
        let (first, last) = (text(1, LEN), text(2, 50_001));
        let (data, tail) = (compressed(kind, &first), compressed(kind, &last));
        let commands = [
            Command::EncodedWrite(write(0, LEN, compression, &data)),
            Command::EncodedWrite(write(LEN, 50_001, compression, &tail)),
        ];
        let expected = [first, last].concat();
        let plain = Options { force_decompress: true, ..Options::default() };
        assert!(receive(&commands, Options::default()) == (expected.clone(), 2, 2), "{kind}");
        let (found, compressed, _) = receive(&commands, plain);
        assert!(found == expected && compressed == 0, "{kind}");
    }
}

#[test]
fn a_part_of_an_extent_arrives() {
    let whole = text(3, LEN);
    let data = compressed(CompressionType::Zstd, &whole);
    let part =
        EncodedWrite { unencoded_offset: 8192, unencoded_len: LEN, ..write(4096, 40_960, Compression::Zstd, &data) };
    let commands = [
        // An earlier write that overlaps the encoded one, and a size within the first sector.
        Command::Write { path: b"f", offset: 0, data: b"small" },
        Command::EncodedWrite(part),
        Command::Truncate { path: b"f", size: 60_000 },
        Command::EncodedWrite(EncodedWrite { unencoded_offset: 0, ..part }),
        Command::EncodedWrite(part),
    ];
    let mut expected = vec![0; 60_000];
    expected[..5].copy_from_slice(b"small");
    expected[4096..45_056].copy_from_slice(&whole[8192..49_152]);
    let (found, compressed, _) = receive(&commands, Options::default());
    assert!(found == expected);
    assert_eq!(compressed, 1);
}

#[test]
fn what_does_not_fit_is_decompressed() {
    let plain = text(4, LEN);
    let data = compressed(CompressionType::Zlib, &plain);
    // Not sector-aligned, and not up to the end of the file.
    let commands = [
        Command::Truncate { path: b"f", size: 200_000 },
        Command::EncodedWrite(write(100, LEN, Compression::Zlib, &data)),
        Command::EncodedWrite(EncodedWrite { unencoded_file_len: 5000, ..write(8192, LEN, Compression::Zlib, &data) }),
    ];
    let mut expected = vec![0; 200_000];
    let len = usize::try_from(LEN).unwrap();
    expected[100..100 + len].copy_from_slice(&plain);
    expected[8192..13_192].copy_from_slice(&plain[..5000]);
    let (found, compressed, _) = receive(&commands, Options::default());
    assert!(found == expected);
    assert_eq!(compressed, 0);
}
