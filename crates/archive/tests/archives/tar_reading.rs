//! Archives by GNU tar, bsdtar and Python's tarfile in all their formats become the tree that they were made of.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::fs;
use std::path::Path;

use crate::common;
use crate::common::{Extent, as_file, differences, everything, has, read, read_bytes, sh};
use archive::Input;

const GNU: &str = "tar --sort=name --numeric-owner --xattrs --xattrs-include='*' --acls -S";

fn check(dir: &Path, name: &str, bytes: &[u8], exactly: bool) {
    for (way, tree) in [("stream", read_bytes(bytes.to_vec())), ("file", read(as_file(bytes)))] {
        let tree = tree.unwrap_or_else(|error| panic!("{name}, {way}: {error}"));
        let differences = differences(dir, &tree, exactly);
        assert!(differences.is_empty(), "{name}, {way}: {differences:#?}");
    }
}

#[test]
fn archives_of_gnu_tar() {
    if !has("tar") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("d");
    everything(&dir, Extent::Pax);
    for format in ["posix", "posix --sparse-version=0.0", "posix --sparse-version=0.1"] {
        check(&dir, format, &sh(&dir, &format!("{GNU} --format={format} -cf - .")), true);
    }
    check(&dir, "gnu", &sh(&dir, "tar --numeric-owner --format=gnu -S -cf - ."), false);
    check(&dir, "gnu incremental", &sh(&dir, "tar --numeric-owner --format=gnu -g ../snapshot -cf - ."), false);
    let plain = temp.path().join("p");
    everything(&plain, Extent::Plain);
    for format in ["ustar", "v7", "oldgnu", "gnu -S", "posix --pax-option=comment=x,mtime:=1500000000"] {
        if format == "v7" {
            for name in ["fifo", "char", "disk"] {
                fs::remove_file(plain.join(name)).unwrap();
            }
            common::set_time(&plain, 1_500_000_000, 0);
        }
        if format.starts_with("posix") {
            common::walk(&plain).iter().for_each(|name| common::set_time(&plain.join(name), 1_500_000_000, 0));
        }
        check(&plain, format, &sh(&plain, &format!("tar --numeric-owner --format={format} -cf - .")), true);
    }
}

#[test]
fn a_file_of_many_parts_in_all_forms() {
    if !has("tar") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("d");
    fs::create_dir(&dir).unwrap();
    let file = fs::File::create(dir.join("parts")).unwrap();
    file.set_len(200 * 65_536).unwrap();
    for part in 0..150_u64 {
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 5000], part * 65_536).unwrap();
    }
    for way in ["gnu", "oldgnu", "posix", "posix --sparse-version=0.0", "posix --sparse-version=0.1"] {
        check(&dir, way, &sh(&dir, &format!("tar --numeric-owner --format={way} -S -cf - .")), false);
    }
}

#[test]
fn archives_of_bsdtar_and_python() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("d");
    everything(&dir, Extent::Pax);
    // bsdtar writes the seconds of such times without regard to the fraction, so that others read them wrongly.
    common::drop_old_fractions(&dir);
    if has("bsdtar") {
        check(&dir, "bsdtar pax", &sh(&dir, "bsdtar --format pax --numeric-owner --acls --xattrs -cf - ."), true);
    }
    let plain = temp.path().join("p");
    everything(&plain, Extent::Plain);
    if has("bsdtar") {
        for format in ["gnutar", "ustar", "pax"] {
            let line = format!("bsdtar --format {format} --numeric-owner -cf - .");
            check(&plain, &line, &sh(&plain, &line), true);
        }
    }
    if has("python3") {
        for format in ["PAX", "GNU", "USTAR"] {
            let line = format!(
                "python3 -c 'import tarfile, sys; t = tarfile.open(fileobj=sys.stdout.buffer, mode=\"w|\", \
                 format=tarfile.{format}_FORMAT); t.add(\".\"); t.close()'"
            );
            check(&plain, format, &sh(&plain, &line), true);
        }
    }
}

#[test]
fn compressions_are_recognised_by_their_first_bytes() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("d");
    everything(&dir, Extent::Plain);
    for program in ["gzip", "zstd", "xz", "bzip2"] {
        if !has(program) {
            continue;
        }
        let archive = temp.path().join("whole.tar");
        let line = format!("tar --numeric-owner -S -cf {} .", archive.display());
        sh(&dir, &line);
        // Two compressed streams behind each other are one archive.
        let halves = format!(
            "size=$(stat -c %s whole.tar); half=$((size / 3)); \
             head -c $half whole.tar | {program} -c; tail -c +$((half + 1)) whole.tar | {program} -c"
        );
        let bytes = sh(temp.path(), &halves);
        check(&dir, program, &bytes, true);
        // Cut off, it is an error and no shorter tree.
        let error = read_bytes(bytes[..bytes.len() - 5].to_vec()).unwrap_err().to_string();
        assert!(error.contains(&format!("{program} data is damaged or cut off")), "{error}");
    }
}

#[test]
fn a_file_of_nine_gib_is_mostly_holes() {
    if !has("tar") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("d");
    fs::create_dir(&dir).unwrap();
    let file = fs::File::create(dir.join("huge")).unwrap();
    file.set_len(9 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", (9 << 30) - 3).unwrap();
    for line in ["--format=posix -S", "--format=gnu -S"] {
        let tree = read_bytes(sh(&dir, &format!("tar {line} -cf - ."))).unwrap();
        let node = tree.node(tree.find(Path::new("huge")).unwrap().unwrap());
        assert_eq!(node.attr.size, 9 << 30);
        let contents = node.contents.as_ref().unwrap().open().unwrap();
        let (start, end) = contents.next_data(0, 9 << 30).unwrap().unwrap();
        assert!(start > (8 << 30) && end == 9 << 30, "{start} {end}");
        let mut last = [0; 8];
        assert_eq!(contents.read_at(&mut last, (9 << 30) - 8).unwrap(), 8);
        assert_eq!(&last, b"\0\0\0\0\0end");
    }
    let _ = Input::stream(std::io::empty());
}
