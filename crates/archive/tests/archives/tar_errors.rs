//! An error of an archive is told with the member, the byte, what was expected and what was found.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::io::Cursor;
use std::path::Path;

use crate::common;
use crate::common::{as_file, contents, read, read_bytes};
use archive::{Input, ReadOptions, read_into};
use transfer::Tree;
use vfs::file_system::Time;

fn header(name: &str, kind: u8, size: usize, more: &[(usize, &[u8])]) -> Vec<u8> {
    common::header(name, kind, size, false, more)
}

fn file(name: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = [&header(name, b'0', data.len(), &[]), data].concat();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn pax(records: &str) -> Vec<u8> {
    let mut bytes = [&header("pax", b'x', records.len(), &[]), records.as_bytes()].concat();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// The message, which is the same from a stream and from a file.
fn error(bytes: &[u8]) -> String {
    let streamed = read_bytes(bytes.to_vec()).unwrap_err().to_string();
    assert_eq!(read(as_file(bytes)).unwrap_err().to_string(), streamed);
    streamed
}

#[test]
fn what_is_no_archive_is_named() {
    assert_eq!(error(b""), "expected an archive of tar or cpio, found an empty input");
    assert_eq!(error(b"hello"), "expected an archive of tar or cpio, found something that begins with `hello`");
    assert_eq!(
        error(&[b'x'; 2000]),
        "expected an archive of tar or cpio, found something that begins with `xxxxxxxxxxxxxxxx`"
    );
    assert_eq!(error(b"PK\x03\x04zip"), "expected an archive of tar or cpio, found a zip archive");
    assert_eq!(error(b"\x04\x22\x4d\x18..."), "expected an archive of tar or cpio, found data compressed by lz4");
    assert!(read_bytes(vec![0; 10_240]).is_ok(), "an archive without members");
}

#[test]
fn ends_that_come_too_early() {
    let whole = [file("a", b"first"), file("b", &[1; 1000])].concat();
    assert!(read_bytes(whole.clone()).is_ok(), "without blocks of zeros at the end");
    assert!(read_bytes([&whole[..], &[0; 512], b"garbage"].concat()).is_ok(), "what follows zeros is ignored");
    let cut = |at: usize| error(&whole[..at]);
    assert_eq!(cut(2000), "ends within `b` at byte 1536: expected 1000 bytes more of contents, found 464");
    assert_eq!(cut(1200), "ends within a header at byte 1024: expected 512 bytes more of a header, found 176");
    assert_eq!(cut(600), "ends within `a` at byte 517: expected 507 bytes more of contents, found 83");
    let named = [pax("9 path=x\n"), Vec::new()].concat();
    assert_eq!(error(&named), "ends within a header at byte 1024: expected 512 bytes more of a header, found 0");
}

#[test]
fn headers_that_lie() {
    let good = [file("a", b""), file("b", b"data")].concat();
    let mut bad = good.clone();
    bad[512 + 10] = b'x';
    assert_eq!(error(&bad), "`b` at byte 512: checksum: expected 3259, found 3139");
    let bad = header("f", b'0', 0, &[(124, b"99999999999\0")]);
    assert_eq!(
        error(&bad),
        "`f` at byte 0: size: expected a number in octal digits or base 256, found `99999999999\\0`"
    );
    let bad = header("f", b'0', 0, &[(124, &[0xff; 12])]);
    assert!(error(&bad).starts_with("`f` at byte 0: size: expected a number in octal digits or base 256, found"));
    let bad = header("f", b'0', 0, &[(124, b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff")]);
    assert!(error(&bad).starts_with("`f` at byte 0: size: expected fewer than 2^63 bytes, found"));
    assert_eq!(error(&header("f", b'Q', 0, &[])), "`f` at byte 0: not supported: members of type `Q`");
    let volume = "`f` at byte 0: not supported: a file that begins in another volume of the archive";
    assert_eq!(error(&header("f", b'M', 0, &[])), volume);
    assert_eq!(error(&header("", b'0', 0, &[])), "a header at byte 0: name: expected a path, found ``");
    let device = header("f", b'3', 0, &[(329, b"7777777\0")]);
    assert_eq!(error(&device), "`f` at byte 0: device number: expected 12 and 20 bits, found `2097151:0`");
    let link = header("f", b'1', 0, &[(157, b"missing")]);
    assert_eq!(error(&link), "f: a hard link to `missing`, which is not there");
}

#[test]
fn records_that_lie() {
    let after = |records: &str| error(&[pax(records), file("f", b"")].concat());
    let form = "`pax` at byte 0: PAX record: expected `LENGTH KEYWORD=VALUE` and a line end, found";
    assert_eq!(after("99 path=x\n"), format!("{form} `99 path=x\\n`"));
    assert_eq!(after("8 path=x\n"), format!("{form} `8 path=x\\n`"));
    assert_eq!(after("10 size=x\n"), "`f` at byte 1024: size: expected a number, found `x`");
    assert_eq!(after("11 mtime=x\n"), "`f` at byte 1024: mtime: expected seconds since 1970, found `x`");
    let big = format!("{} path={}\n", 5011, "p".repeat(5000));
    assert_eq!(
        after(&big),
        format!("`{}` at byte 5632: name: expected at most 4096 bytes, found `5000 bytes`", "p".repeat(200))
    );
    let header = header("pax", b'x', (1 << 20) + 1, &[]);
    let limit = "not supported: an extended header of 1048577 bytes, after 0 bytes of others (limit 1048576)";
    assert_eq!(error(&header), format!("`pax` at byte 0: {limit}"));
    let sparse = "22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n25 GNU.sparse.realsize=9\n";
    let lies = [pax(sparse), file("f", b"1\n5\n100\n")].concat();
    assert_eq!(
        error(&lies),
        "`f` at byte 1024: sparse map: expected parts within the file, found `100 bytes at 5 in 9 bytes`"
    );
}

#[test]
fn the_limit_of_bytes_holds_for_bombs() {
    let bomb = file("zeros", &vec![0; 50 << 20]);
    let compressed = zstd::encode_all(Cursor::new(bomb.clone()), 1).unwrap();
    assert!(compressed.len() < 10_000);
    let options = ReadOptions { max_bytes: 1 << 20, ..ReadOptions::default() };
    for input in [Input::stream(Cursor::new(compressed)), as_file(&bomb)] {
        let mut tree = Tree::new(Time::default());
        let error = read_into(&mut tree, input, &options, &()).unwrap_err().to_string();
        assert_eq!(error, "more than the 1048576 bytes that are allowed after decompression");
    }
}

#[test]
fn names_stay_below_the_root() {
    let bytes = [file("../../etc/passwd", b"1"), file("/abs", b"2"), file("a/../../b", b"3")].concat();
    let tree = read_bytes(bytes).unwrap();
    let mut paths: Vec<_> = tree.walk().map(|(path, _)| path.display().to_string()).collect();
    paths.sort();
    assert_eq!(paths, ["", "a", "abs", "b", "etc", "etc/passwd"]);
}

#[test]
fn links_with_sizes_and_with_contents() {
    // Old programs name the size of the file, and write no contents.
    let bytes = [file("a", b"12345"), header("b", b'1', 5, &[(157, b"a")]), file("c", b"x")].concat();
    let tree = read_bytes(bytes).unwrap();
    assert_eq!(contents(&tree, Path::new("b")), b"12345");
    // With PAX records there are contents.
    let mut link = header("b", b'1', 3, &[(157, b"a")]);
    link.extend(b"new");
    link.resize(1024, 0);
    let bytes = [file("a", b"12345"), pax("9 path=b\n"), link, file("c", b"x")].concat();
    for tree in [read_bytes(bytes.clone()), read(as_file(&bytes))] {
        let tree = tree.unwrap();
        assert_eq!(contents(&tree, Path::new("a")), b"new");
        assert_eq!(contents(&tree, Path::new("c")), b"x");
    }
}
