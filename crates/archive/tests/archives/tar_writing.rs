//! Archives are those of GNU tar, byte for byte, whether the tree comes from a directory or from an archive.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common;
use crate::common::{Extent, everything, has, read_bytes, sh};
use archive::tar::{Prefix, TarWriter, WriteOptions, write};
use transfer::{HostSource, Loss, NewNode, Observer, Source, plain_metadata};
use vfs::file_system::{NodeKind, Time};

/// The command that the writer imitates.
const CANONICAL: &str = "tar --sort=name --format=posix \
    --pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime --numeric-owner --xattrs --acls";

fn written(source: &impl Source, options: &WriteOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(source, &mut bytes, options, &()).unwrap();
    bytes
}

/// Replaces the process number in names of sparse files, and mends the checksums.
fn without_process_numbers(mut archive: Vec<u8>) -> Vec<u8> {
    let mark = b"GNUSparseFile.";
    let mut at = 0;
    while at + 512 <= archive.len() {
        let block = &mut archive[at..at + 512];
        at += 512;
        let is_header = &block[257..262] == b"ustar";
        let Some(found) = block[..100].windows(mark.len()).position(|part| part == mark).filter(|_| is_header) else {
            continue;
        };
        let name = block[..100].to_vec();
        let digits = found + mark.len();
        let slash = digits + name[digits..].iter().position(|byte| *byte == b'/').unwrap();
        let new = [&name[..digits], b"0", &name[slash..]].concat();
        block[..100].fill(0);
        block[..new.len()].copy_from_slice(&new);
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
    archive
}

/// The members of an archive and its first different block, for messages.
fn assert_same(found: &[u8], expected: &[u8], what: &str) {
    if found == expected {
        return;
    }
    let at =
        found.iter().zip(expected).position(|(a, b)| a != b).unwrap_or(found.len().min(expected.len())) / 512 * 512;
    let block =
        |bytes: &[u8]| bytes.get(at..(at + 512).min(bytes.len())).unwrap_or_default().escape_ascii().to_string();
    let (found, expected) = (block(found), block(expected));
    panic!("{what}: at {at}:\nfound    {found}\nexpected {expected}");
}

#[test]
fn an_archive_is_that_of_gnu_tar() {
    if !has("tar") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("d");
    everything(&dir, Extent::Pax);
    let source = HostSource::open(&dir).unwrap();
    let expected = sh(&dir, &format!("{CANONICAL} -cf - ."));
    assert_same(&written(&source, &WriteOptions::default()), &expected, "of a directory");
    let tree = read_bytes(expected.clone()).unwrap();
    assert_same(&written(&tree, &WriteOptions::default()), &expected, "of a tree");

    // A file that ends with a hole, one that begins with one, one that is nothing else, and a large one.
    let file = fs::File::create(dir.join("tail")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[1; 5000], 0).unwrap();
    file.set_len(1 << 20).unwrap();
    fs::File::create(dir.join("nothing")).unwrap().set_len(123_456).unwrap();
    fs::File::create(dir.join("huge")).unwrap().set_len(9 << 30).unwrap();
    let file = fs::File::create(dir.join("head")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[2; 8192], 1 << 20).unwrap();
    fs::create_dir(dir.join("l".repeat(99))).unwrap();
    fs::File::create(dir.join("l".repeat(99)).join("hole")).unwrap().set_len(77_777).unwrap();
    let expected = without_process_numbers(sh(&dir, &format!("{CANONICAL} -S -cf - .")));
    let options = WriteOptions { keeps_holes: true, ..WriteOptions::default() };
    let source = HostSource::open(&dir).unwrap();
    let found = written(&source, &options);
    assert_same(&found, &expected, "sparse, of a directory");
    let tree = read_bytes(expected.clone()).unwrap();
    assert_same(&written(&tree, &options), &expected, "sparse, of a tree");
    let archive = temp.path().join("found.tar");
    fs::write(&archive, &found).unwrap();
    let line = format!("tar --compare --numeric-owner --xattrs --acls --exclude=./huge -f {} 2>&1", archive.display());
    assert_eq!(String::from_utf8_lossy(&sh(&dir, &line)), "");
}

#[test]
fn a_size_that_no_octal_field_holds_is_in_a_record() {
    if !has("tar") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("d");
    fs::create_dir(&dir).unwrap();
    fs::File::create(dir.join("huge")).unwrap().set_len(9 << 30).unwrap();
    common::set_time(&dir.join("huge"), 1_700_000_000, 5);
    let start = sh(&dir, &format!("{CANONICAL} -cf - huge | head -c 5000"));
    let mut writer =
        TarWriter::new(Limited(Vec::new()), WriteOptions { prefix: Prefix::None, ..WriteOptions::default() });
    let mut node = NewNode {
        attr: plain_metadata(NodeKind::File, 0o644, Time::new(1_700_000_000, 5)),
        target: None,
        xattrs: Vec::new(),
        contents: None,
    };
    node.attr.size = 9 << 30;
    writer.append(Path::new("huge"), &node).unwrap();
    let found = writer.finish().unwrap().0;
    assert_same(&found[..5000], &start, "huge");
}

/// Takes any number of bytes and keeps the first ones.
struct Limited(Vec<u8>);

impl std::io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() < 10_000 {
            self.0.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn archives_of_others_become_the_same_one() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("d");
    everything(&dir, Extent::Pax);
    // bsdtar and Python write such times wrongly.
    common::drop_old_fractions(&dir);
    if has("bsdtar") {
        let expected = sh(&dir, &format!("{CANONICAL} -cf - ."));
        let theirs = sh(&dir, "bsdtar --format pax --numeric-owner --acls --xattrs -cf - .");
        assert_same(&written(&read_bytes(theirs).unwrap(), &WriteOptions::default()), &expected, "bsdtar");
    }
    let plain = temp.path().join("p");
    everything(&plain, Extent::Plain);
    if has("python3") {
        let expected = sh(&plain, &format!("{CANONICAL} -cf - ."));
        let line = "python3 -c 'import tarfile, sys; t = tarfile.open(fileobj=sys.stdout.buffer, mode=\"w|\", \
            format=tarfile.PAX_FORMAT); t.add(\".\"); t.close()'";
        let theirs = sh(&plain, line);
        assert_same(&written(&read_bytes(theirs).unwrap(), &WriteOptions::default()), &expected, "python");
    }
}

/// Counts sockets.
struct Watch(AtomicUsize);

impl Observer for Watch {
    fn lost(&self, what: Loss) {
        assert_eq!(what, Loss::Socket);
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn options_change_owner_times_and_names_and_sockets_are_left_out() {
    if !has("tar") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("d");
    everything(&dir, Extent::Plain);
    let line = format!(
        "{CANONICAL} --no-xattrs --no-acls --owner=:7 --group=:3000000 --mtime=@1500000003 --clamp-mtime -cf - *"
    );
    let expected = sh(&dir, &line.replace("--xattrs --acls --no-xattrs", "--no-xattrs"));
    let _socket = UnixListener::bind(dir.join("socket")).unwrap();
    let options = WriteOptions {
        owner: Some((7, 3_000_000)),
        mtime_max: Some(Time::new(1_500_000_003, 0)),
        without_xattrs: true,
        prefix: Prefix::None,
        ..WriteOptions::default()
    };
    let (mut found, watch) = (Vec::new(), Watch(AtomicUsize::new(0)));
    write(&HostSource::open(&dir).unwrap(), &mut found, &options, &watch).unwrap();
    assert_same(&found, &expected, "options");
    assert_eq!(watch.0.into_inner(), 1);
}
