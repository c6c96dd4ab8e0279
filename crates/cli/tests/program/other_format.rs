//! A program with one more format, which has no face: the behaviour of every command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::Bench;

/// The example `with_memory`, which is built with the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples/with_memory")
}

/// Runs a command line in `dir`; its exit status, and everything that it printed.
fn run(dir: &Path, line: &str) -> (i32, String) {
    let mut command = Command::new(program());
    command.args(line.split_whitespace()).current_dir(dir).stdin(Stdio::null());
    let output = command.output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(printed).unwrap())
}

fn ok(dir: &Path, line: &str) -> String {
    let (status, printed) = run(dir, line);
    assert_eq!(status, 0, "{line}: {printed}");
    printed
}

#[test]
fn a_format_that_is_one_row_has_every_command() {
    let bench = Bench::new();
    let dir = bench.dir.path();
    bench.fill("src");
    assert!(ok(dir, "mkfs -t memory --size 128M --label ignored a.img").starts_with("Format:      memory\n"));
    ok(dir, "put -q a.img src /");
    assert_eq!(ok(dir, "ls a.img /src"), "a.txt\nempty\nmiddle\nnothing\noutside\npipe\nsock\nsparse\nsub\n");
    assert_eq!(ok(dir, "cat a.img /src/sub/link"), "hello\n");
    ok(dir, "mkdir -p a.img /b/c");
    ok(dir, "mv a.img /src/a.txt /b/moved");
    ok(dir, "cp a.img /b/moved /b/c/again");
    ok(dir, "ln -s a.img moved /b/short");
    assert!(ok(dir, "tree a.img /b").contains("short -> moved"));
    ok(dir, "get -q --no-owner a.img /src out");
    assert_eq!(fs::read(dir.join("out/sub/large")).unwrap(), fs::read(dir.join("src/sub/large")).unwrap());
    assert!(ok(dir, "check a.img").contains("No errors found."));
    assert!(ok(dir, "info --json a.img").contains("\"format\": \"memory\""));
    ok(dir, "rm -r a.img /b");
    assert_eq!(ok(dir, "ls a.img /"), "src\n");

    ok(dir, "mkfs -t memory --size 64M --rootdir src b.img");
    assert!(ok(dir, "ls b.img /sub").contains("large"));
    let (status, printed) = run(dir, "mkfs -t memory --nodesize 16k --size 64M c.img");
    assert!(status == 2 && printed.contains("only btrfs has it"), "{printed}");
    let (status, printed) = run(dir, "mkfs -t zfs --size 64M c.img");
    assert!(status == 2 && printed.contains("there are btrfs or f2fs or memory"), "{printed}");
    // The program without it does not know the format.
    assert_eq!(bench.run("ls a.img").status, 3);
}

#[test]
fn what_the_format_lacks_is_refused_by_name() {
    let bench = Bench::new();
    let dir = bench.dir.path();
    fs::write(dir.join("other"), "x").unwrap();
    ok(dir, "mkfs -q -t memory --size 64M a.img");
    ok(dir, "put -q a.img other /file");
    for (line, expected) in [
        ("ls --subvolume x a.img", "the format memory has no option `subvol`"),
        ("info --super 1 a.img", "the format memory has no option `super`"),
        ("stat --extents a.img /file", "operation not supported"),
        ("put -q --compress zstd a.img other /compressed", "the format memory has no option `compress`"),
        ("defrag a.img /file", "not supported"),
        ("snapshot a.img / /s", ""),
        ("cp --reflink a.img /file /shared", "not supported"),
        ("check --device a.img a.img", "memory volumes on several devices are not supported"),
        ("check --pass extents a.img", "memory has none of that name"),
    ] {
        let (status, printed) = run(dir, line);
        assert!(status != 0 && printed.contains(expected), "{line}: {status}: {printed}");
    }
}

#[test]
fn the_format_is_mounted() {
    let bench = Bench::new();
    let dir = bench.dir.path();
    ok(dir, "mkfs -q -t memory --size 64M a.img");
    fs::create_dir(dir.join("mnt")).unwrap();
    let (status, printed) = run(dir, "mount a.img mnt");
    if status != 0 && !Path::new("/dev/fuse").exists() {
        println!("skipped: no /dev/fuse ({printed})");
        return;
    }
    assert_eq!(status, 0, "{printed}");
    let written = fs::write(dir.join("mnt/hello"), "there\n");
    let listed = run(dir, "ls mnt");
    let ended = run(dir, "umount mnt");
    written.unwrap();
    assert_eq!((listed.0, listed.1.as_str(), ended.0), (0, "hello\n", 0), "{ended:?}");
    assert_eq!(ok(dir, "cat a.img /hello"), "there\n");
}
