//! Files that fs-verity protects: contents are compared with the tree, nobody writes to them, and nothing is left when
//! they are removed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use btrfs::{TreeOptions, VerityAlgorithm, Volume};
use btrfs_disk::flags::InodeFlags;
use common::{Image, what};
use std::path::Path;
use std::process::Command;
use vfs::file_system::{Errno, NodeFlags, XattrMode};
use vfs::{File, FileOptions, SnapshotMode};

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 31 + at / 4096 * 7) % 251).unwrap()).collect()
}

/// The digest that `fsverity digest` prints; `None` where it is not installed.
fn digest_of(contents: &[u8], options: &[&str]) -> Option<String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), contents).unwrap();
    let output = Command::new("fsverity").arg("digest").args(options).arg(file.path()).output().ok()?;
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned())
}

/// All items of fs-verity in the image.
fn item_count(image: &Path) -> usize {
    let output = Command::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(image).output();
    let Ok(output) = output else { return 0 };
    String::from_utf8_lossy(&output.stdout).matches("VERITY_").count()
}

#[test]
fn contents_of_every_size_are_protected_and_read() {
    let (image, volume) = Image::make();
    let sizes = [0, 1, 100, 4096, 4097, 300_000, 128 * 4096, 128 * 4096 + 1, 9_000_000];
    let mut digests = Vec::new();
    for size in sizes {
        let path = format!("/{size}");
        volume.write(&path, bytes(size)).unwrap();
        let digest = volume.enable_verity(&path, &TreeOptions::default()).unwrap().to_string();
        match digest_of(&bytes(size), &[]) {
            Some(expected) => assert_eq!(digest, expected, "{size}"),
            None => println!("SKIPPED: digests of fsverity, which is not installed"),
        }
        digests.push(digest);
    }
    let volume = image.reopen(volume);
    assert!(volume.info().unwrap().features.iter().any(|names| names.contains("verity")));
    for (size, digest) in sizes.into_iter().zip(digests) {
        let path = format!("/{size}");
        assert_eq!(volume.read(&path).unwrap(), bytes(size));
        assert_eq!(volume.verity_digest(&path).unwrap().unwrap().to_string(), digest);
        let file = File::open(&volume, &path).unwrap();
        for at in [0, 1, 4095, 4096, 299_990] {
            let mut buffer = vec![0; 5000];
            let count = file.read_at(&mut buffer, at).unwrap();
            let expected: Vec<u8> = bytes(size).into_iter().skip(usize::try_from(at).unwrap()).take(5000).collect();
            assert_eq!(buffer[..count], expected);
        }
    }
    volume.close().unwrap();
}

#[test]
fn other_hashes_and_holes() {
    let (image, volume) = Image::make();
    let options = TreeOptions { algorithm: VerityAlgorithm::Sha512, salt: vec![1, 2, 0xff] };
    let file = FileOptions::new().write(true).create(true).open(&volume, "/holes").unwrap();
    file.write_at(b"end", 2_000_000).unwrap();
    file.write_at(&bytes(10_000), 500_000).unwrap();
    drop(file);
    let contents = volume.read("/holes").unwrap();
    let digest = volume.enable_verity("/holes", &options).unwrap().to_string();
    if let Some(expected) = digest_of(&contents, &["--hash-alg=sha512", "--salt=0102ff"]) {
        assert_eq!(digest, expected);
    }
    let volume = image.reopen(volume);
    assert_eq!(volume.read("/holes").unwrap(), contents);
    let long = TreeOptions { salt: vec![0; 33], ..TreeOptions::default() };
    volume.write("/plain", "x").unwrap();
    assert_eq!(what(volume.enable_verity("/plain", &long)), Errno::EINVAL);
    assert_eq!(what(volume.enable_verity("/", &TreeOptions::default())), Errno::EINVAL);
    assert_eq!(what(volume.enable_verity("/missing", &TreeOptions::default())), Errno::ENOENT);
    assert_eq!(volume.verity_digest("/plain").unwrap(), None);
}

#[test]
fn nobody_writes_and_attributes_change() {
    let (image, volume) = Image::make();
    volume.write("/file", bytes(50_000)).unwrap();
    volume.write("/other", bytes(50_000)).unwrap();
    volume.enable_verity("/file", &TreeOptions::default()).unwrap();
    assert_eq!(what(volume.enable_verity("/file", &TreeOptions::default())), Errno::EEXIST);
    let open = |options: FileOptions| options.open(&volume, "/file").map(drop);
    assert_eq!(what(open(FileOptions::new().write(true))), Errno::EPERM);
    assert_eq!(what(open(FileOptions::new().append(true))), Errno::EPERM);
    assert_eq!(what(open(FileOptions::new().write(true).truncate(true))), Errno::EPERM);
    assert_eq!(what(volume.write("/file", "other")), Errno::EPERM);
    assert!(volume.metadata("/file").unwrap().flags.contains(NodeFlags::from_bits_retain(0x10_0000)));
    volume.set_flags("/file", volume.metadata("/file").unwrap().flags | NodeFlags::NODUMP).unwrap();
    volume.set_xattr("/file", "user.note", b"kept", XattrMode::Either).unwrap();
    volume.set_permissions("/file", 0o600).unwrap();
    volume.rename("/file", "/renamed").unwrap();
    volume.hard_link("/renamed", "/linked").unwrap();
    volume.copy("/renamed", "/copied").unwrap();
    assert_eq!(volume.verity_digest("/copied").unwrap(), None, "a copy is a plain file");
    volume.write("/copied", "changed").unwrap();
    volume.snapshot("/", "/kept", SnapshotMode::ReadOnly).unwrap();
    let volume = image.reopen(volume);
    for path in ["/renamed", "/linked", "/kept/renamed"] {
        assert_eq!(volume.read(path).unwrap(), bytes(50_000));
        assert!(volume.verity_digest(path).unwrap().is_some(), "{path}");
    }
}

#[test]
fn removal_leaves_no_items() {
    let (image, volume) = Image::make();
    for (name, size) in [("/small", 5000), ("/large", 30_000_000)] {
        volume.write(name, bytes(size)).unwrap();
        volume.enable_verity(name, &TreeOptions::default()).unwrap();
    }
    let volume = image.reopen(volume);
    volume.remove_file("/small").unwrap();
    volume.remove_file("/large").unwrap();
    let volume = image.reopen(volume);
    assert_eq!(item_count(image.file.path()), 0);
    volume.close().unwrap();
}

#[test]
fn changed_contents_are_not_read() {
    let (image, volume) = Image::make();
    // Without checksums only the tree finds the change.
    volume.write("/file", "").unwrap();
    volume.set_data_flags("/file", InodeFlags::NODATACOW | InodeFlags::NODATASUM).unwrap();
    let file = FileOptions::new().write(true).open(&volume, "/file").unwrap();
    let mut contents = bytes(700_000);
    contents[600_000..600_010].copy_from_slice(b"needle-1-2");
    file.write_at(&contents, 0).unwrap();
    drop(file);
    volume.enable_verity("/file", &TreeOptions::default()).unwrap();
    volume.close().unwrap();

    let mut disk = std::fs::read(image.file.path()).unwrap();
    let at = disk.windows(10).position(|window| window == b"needle-1-2").unwrap();
    disk[at] ^= 1;
    std::fs::write(image.file.path(), &disk).unwrap();
    let volume = Volume::open(image.file.path()).unwrap();
    let error = volume.read("/file").unwrap_err();
    assert_eq!(error.errno(), Errno::EIO);
    assert!(error.to_string().contains("fs-verity"), "{error}");
    let file = File::open(&volume, "/file").unwrap();
    let mut buffer = vec![0; 8192];
    assert_eq!(what(file.read_at(&mut buffer, 600_000)), Errno::EIO);
    assert_eq!(file.read_at(&mut buffer, 100_000).unwrap(), 8192, "other blocks can be read");
}

#[test]
fn a_file_that_changes_meanwhile_stays_as_it_is() {
    let (image, volume) = Image::make();
    volume.write("/file", bytes(20_000_000)).unwrap();
    volume.sync().unwrap();
    let ends = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let file = FileOptions::new().write(true).open(&volume, "/file").unwrap();
            (0..40).for_each(|_| drop(file.write_at(b"other", 19_000_000)));
        });
        let enabled = volume.enable_verity("/file", &TreeOptions::default());
        writer.join().unwrap();
        enabled.map(drop)
    });
    let volume = image.reopen(volume);
    match ends {
        Ok(()) => drop(volume.read("/file").unwrap()),
        Err(error) => {
            assert_eq!(error.errno(), Errno::EBUSY);
            assert_eq!(item_count(image.file.path()), 0);
            volume.write("/file", "changed").unwrap();
        }
    }
}
