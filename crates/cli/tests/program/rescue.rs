//! Tests that `get`, `ls` and other commands work on partly damaged images: bad files, a zeroed superblock, a log that
//! is left out; and that they walk deep trees fast.

use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Bench, pattern};

/// Offsets of the copies of the superblock.
const SUPERBLOCKS: [u64; 2] = [64 << 10, 64 << 20];

/// An image with one file of damaged data among sound ones.
fn damaged() -> Bench {
    let bench = Bench::new();
    let src = bench.path("src");
    std::fs::create_dir_all(src.join("dir/below")).unwrap();
    for name in ["dir/a", "dir/bad", "dir/below/c", "z"] {
        std::fs::write(src.join(name), pattern(20_000 + name.len())).unwrap();
    }
    std::fs::set_permissions(src.join("dir"), std::fs::Permissions::from_mode(0o750)).unwrap();
    bench.ok("mkfs -q --rootdir src a.img");
    let image = std::fs::read(bench.path("a.img")).unwrap();
    let bad = pattern(20_000 + "dir/bad".len());
    // The last sectors of the files differ.
    let at = image.windows(4096).step_by(4096).position(|sector| {
        sector.starts_with(&bad[16_384..]) && sector[bad.len() - 16_384..].iter().all(|byte| *byte == 0)
    });
    let file = std::fs::OpenOptions::new().write(true).open(bench.path("a.img")).unwrap();
    file.write_all_at(b"rot", u64::try_from(at.unwrap()).unwrap() * 4096).unwrap();
    bench
}

/// In an earlier version the first bad file ended the copy, and directories did not get their modes.
#[test]
fn a_bad_file_does_not_end_the_copy() {
    let bench = damaged();
    let run = bench.run("get -q a.img / out");
    assert_eq!(run.status, 3, "{}", run.err);
    assert!(run.err.contains("out/dir/bad"), "{}", run.err);
    assert!(run.err.contains("one entry could not be copied"), "{}", run.err);
    for name in ["dir/a", "dir/below/c", "z"] {
        let copied = std::fs::read(bench.path("out").join(name)).unwrap();
        assert_eq!(copied, pattern(20_000 + name.len()), "{name}");
    }
    let mode = |name: &str| std::fs::metadata(bench.path(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("out/dir"), mode("out/dir/below")), (0o750, 0o755));
}

#[test]
fn fail_fast_ends_the_copy_at_the_first_failure() {
    let bench = damaged();
    let run = bench.run("get -q --fail-fast --threads 1 a.img / out");
    assert_eq!(run.status, 3, "{}", run.err);
    assert!(run.err.contains("out/dir/bad"), "{}", run.err);
    assert!(!bench.path("out/dir/below/c").exists());
    let mode = std::fs::metadata(bench.path("out/dir")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o750);
}

/// In an earlier version every operation on a name looked up its directory from the root again.
#[test]
fn deep_trees_are_walked_fast() {
    const LEVELS: usize = 8000;
    const SECONDS_MAX: u64 = 40;
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    let start = Instant::now();
    let volume = spinney::btrfs::Volume::open(bench.path("a.img")).unwrap();
    let mut path = std::path::PathBuf::from("/");
    for _ in 0..LEVELS {
        path.push("d");
        volume.create_dir(&path).unwrap();
    }
    volume.write(path.join("leaf"), "hi").unwrap();
    volume.close().unwrap();
    let listed = bench.ok("ls -lR a.img");
    assert!(listed.ends_with(" leaf\n"));
    // `tree` draws 512 levels, and fails because there are more.
    assert_eq!(bench.run("tree a.img").status, 4);
    bench.ok("get -q a.img / out");
    assert!(start.elapsed() < Duration::from_secs(SECONDS_MAX), "{:?}", start.elapsed());
    let mut find = Command::new("find");
    find.args(["out", "-name", "leaf", "-printf", "%d"]);
    let depth = find.current_dir(&bench.dir).output().unwrap().stdout;
    assert_eq!(String::from_utf8(depth).unwrap(), (LEVELS + 1).to_string());
    // Removing by path would be slow again.
    let removed = Command::new("rm").arg("-rf").arg(bench.path("out")).status();
    assert!(removed.unwrap().success());
}

/// Zeroes one copy of the superblock.
fn zero_superblock(bench: &Bench, copy: usize) {
    let file = std::fs::OpenOptions::new().write(true).open(bench.path("a.img")).unwrap();
    file.write_all_at(&[0; 4096], SUPERBLOCKS[copy]).unwrap();
}

#[test]
fn a_copy_replaces_a_zeroed_superblock() {
    let bench = Bench::new();
    bench.fill("src");
    bench.ok("mkfs -q --size 256M --rootdir src a.img");
    zero_superblock(&bench, 0);
    // A command that only reads chooses a good copy by itself.
    assert!(bench.ok("ls a.img").contains("a.txt"));
    let run = bench.run("mkdir a.img /new");
    assert_eq!(run.status, 3, "{}", run.err);
    assert!(run.err.contains("--super 1"), "{}", run.err);
    assert!(run.err.contains("67108864"), "{}", run.err);
    assert!(bench.ok("ls --super 1 a.img").contains("a.txt"));
    assert_eq!(bench.run("ls --super 0 a.img").status, 3);
    assert_eq!(bench.run("ls --super 2 a.img").status, 4);
    bench.ok("mkdir --super 1 a.img /new");
    // All copies are valid again.
    bench.ok("mkdir a.img /newer");
    assert!(bench.ok("ls --super 0 a.img").contains("newer"));
    bench.check("a.img");
}

#[test]
fn the_log_may_be_left_out() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    let volume = spinney::btrfs::Volume::open(bench.path("a.img")).unwrap();
    volume.write("/committed", "a").unwrap();
    volume.sync().unwrap();
    volume.write("/logged", "b").unwrap();
    let file = spinney::OpenOptions::new().write(true).open(&volume, "/logged").unwrap();
    file.sync_all().unwrap();
    std::fs::copy(bench.path("a.img"), bench.path("crashed.img")).unwrap();
    assert_eq!(bench.ok("ls crashed.img"), "committed\nlogged\n");
    assert_eq!(bench.ok("ls --nologreplay crashed.img"), "committed\n");
    assert_eq!(bench.ok("cat --norecovery crashed.img /committed"), "a");
    bench.ok("info --nologreplay crashed.img");
}
