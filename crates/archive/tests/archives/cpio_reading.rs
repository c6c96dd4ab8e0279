//! Archives by GNU cpio and bsdtar, alone and behind one another, become the tree that they were made of.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::fs;
use std::path::Path;

use crate::common::{Extent, as_file, contents, differences, everything, has, read, read_bytes, sh};

fn check(dir: &Path, name: &str, bytes: &[u8]) {
    for (way, tree) in [("stream", read_bytes(bytes.to_vec())), ("file", read(as_file(bytes)))] {
        let tree = tree.unwrap_or_else(|error| panic!("{name}, {way}: {error}"));
        let differences = differences(dir, &tree, false);
        assert!(differences.is_empty(), "{name}, {way}: {differences:#?}");
    }
}

#[test]
fn archives_of_cpio_and_bsdtar() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("d");
    everything(&dir, Extent::Plain);
    fs::hard_link(dir.join("fifo"), dir.join("z-fifo")).unwrap();
    fs::hard_link(dir.join("dangling"), dir.join("z-dangling")).unwrap();
    if has("cpio") {
        for format in ["newc", "crc"] {
            check(&dir, format, &sh(&dir, &format!("find . -print0 | sort -z | cpio -0 -o -H {format} --quiet")));
        }
        for program in ["gzip", "zstd", "xz", "bzip2"].into_iter().filter(|program| has(program)) {
            let line = format!("find . | cpio -o -H newc --quiet | {program} -c");
            check(&dir, program, &sh(&dir, &line));
        }
    }
    if has("bsdtar") {
        check(&dir, "bsdtar", &sh(&dir, "bsdtar --format newc -cf - ."));
    }
}

#[test]
fn archives_behind_one_another_are_one() {
    if !has("cpio") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    sh(
        dir,
        "mkdir a b; echo early > a/one; ln a/one a/two; echo late > b/three; echo later > b/one; ln b/three b/four",
    );
    let line = |dir: &str| format!("(cd {dir}; find . | sort | cpio -o -H newc --quiet)");
    for (name, second) in [("plain", String::new()), ("gzip", " | gzip".into()), ("zstd", " | zstd -c".into())] {
        let bytes = sh(dir, &format!("{}; head -c 1000 /dev/zero; {}{second}", line("a"), line("b")));
        for tree in [read_bytes(bytes.clone()), read(as_file(&bytes))] {
            let tree = tree.unwrap_or_else(|error| panic!("{name}: {error}"));
            for (path, text) in [("one", "later\n"), ("two", "early\n"), ("three", "late\n"), ("four", "late\n")] {
                assert_eq!(contents(&tree, Path::new(path)), text.as_bytes(), "{name}: {path}");
            }
        }
    }
}

#[test]
fn a_wrong_checksum_and_a_missing_trailer_are_errors() {
    if !has("cpio") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    sh(temp.path(), "printf hello > file");
    let good = sh(temp.path(), "echo file | cpio -o -H crc --quiet");
    let at = good.windows(5).position(|part| part == b"hello").unwrap();
    let mut bad = good.clone();
    bad[at] = b'H';
    for tree in [read_bytes(bad.clone()), read(as_file(&bad))] {
        assert_eq!(tree.unwrap_err().to_string(), "`file` at byte 0: checksum: expected 500, found 532");
    }
    let error = read_bytes(good[..at + 8].to_vec()).unwrap_err().to_string();
    assert_eq!(error, "ends within a header at byte 124: expected 110 bytes more of the trailer, found 0");
    let error = read_bytes(good[..at + 2].to_vec()).unwrap_err().to_string();
    assert_eq!(error, "ends within `file` at byte 116: expected 5 bytes more of contents, found 2");
    let error = read_bytes(sh(temp.path(), "echo file | cpio -o -H odc --quiet")).unwrap_err().to_string();
    assert_eq!(error, "expected an archive of tar or cpio, found a cpio archive in its odc format");
}
