//! Images that other programs made from a directory: `mkfs.btrfs --rootdir` and `btrfs-convert`, with each option that
//! changes their output. `check` reports nothing in them, and their files can be copied out, sent and received.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::harness::{Bench, pattern};

/// A directory with the kinds of files that these programs store differently, without nodes that need root.
fn fill(bench: &Bench) {
    let base = bench.path("src");
    std::fs::create_dir_all(base.join("dir/sub")).unwrap();
    for (name, len) in [("empty", 0), ("small", 700), ("page", 4096), ("large", 300_001)] {
        std::fs::write(base.join(name), pattern(len)).unwrap();
    }
    for (name, len) in [("l7", 7), ("l59", 59), ("l60", 60), ("l300", 300)] {
        std::os::unix::fs::symlink("x".repeat(len), base.join("dir").join(name)).unwrap();
    }
    std::fs::hard_link(base.join("small"), base.join("dir/again")).unwrap();
    let sparse = std::fs::File::create(base.join("sparse")).unwrap();
    sparse.write_all_at(b"island", 1 << 20).unwrap();
    sparse.set_len(3 << 20).unwrap();
}

/// The paths of all below a directory.
fn walk(base: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(base.join(&dir)).unwrap() {
            let path = dir.join(entry.unwrap().file_name());
            if base.join(&path).symlink_metadata().unwrap().is_dir() {
                todo.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}

/// Runs a program; false where it is not installed, or does not know its options.
fn run(bench: &Bench, line: &str) -> bool {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).current_dir(&bench.dir).stdin(Stdio::null());
    command.output().is_ok_and(|output| output.status.success())
}

/// Checks that every command that reads an image agrees with the directory it was made from.
fn is_right(bench: &Bench, how: &str) {
    let checked = bench.run("check --data a.img");
    assert_eq!(checked.status, 0, "{how}: {}{}", String::from_utf8_lossy(&checked.out), checked.err);
    bench.ok("get a.img / copy");
    let is_of_ext = |path: &Path| path.starts_with("lost+found") || path.starts_with("ext2_saved");
    let names = |dir: &str| {
        let mut names: Vec<_> = walk(&bench.path(dir)).into_iter().filter(|path| !is_of_ext(path)).collect();
        names.sort();
        names
    };
    assert_eq!(names("src"), names("copy"), "{how}");
    for name in names("src") {
        let [from, to] = ["src", "copy"].map(|dir| bench.path(dir).join(&name));
        if from.is_symlink() {
            assert_eq!(std::fs::read_link(from).unwrap(), std::fs::read_link(to).unwrap(), "{how}");
        } else if from.is_file() {
            assert!(std::fs::read(from).unwrap() == std::fs::read(to).unwrap(), "{how}: {}", name.display());
        }
    }
    assert!(bench.ok("repair a.img").contains("nothing to repair"), "{how}");
    bench.ok("subvolume snapshot -r a.img / /snapshot");
    bench.ok("send -f stream a.img /snapshot");
    bench.ok("mkfs -q --size 300M b.img");
    bench.ok("receive -f stream b.img");
    let listed = bench.ok("ls -l b.img /snapshot/dir");
    for (name, len) in [("l7", 7), ("l300", 300)] {
        assert!(listed.contains(&format!(" {name} -> {}\n", "x".repeat(len))), "{how}: {listed}");
    }
    for name in ["a.img", "b.img", "stream"] {
        std::fs::remove_file(bench.path(name)).unwrap();
    }
    std::fs::remove_dir_all(bench.path("copy")).unwrap();
}

fn empty_file(bench: &Bench) {
    std::fs::File::create(bench.path("a.img")).unwrap().set_len(300 << 20).unwrap();
}

#[test]
fn images_of_mkfs_rootdir_are_right() {
    let bench = Bench::in_memory();
    fill(&bench);
    let mut count = 0;
    for options in ["", "-O ^no-holes", "-R ^free-space-tree", "--compress zstd"] {
        empty_file(&bench);
        if run(&bench, &format!("mkfs.btrfs -q --rootdir src {options} a.img")) {
            is_right(&bench, options);
            count += 1;
        }
    }
    if count == 0 {
        println!("SKIPPED: needs mkfs.btrfs");
    }
}

#[test]
fn images_of_btrfs_convert_are_right() {
    let bench = Bench::in_memory();
    fill(&bench);
    let mut count = 0;
    for (kind, options) in [("ext4", ""), ("ext4", "-n"), ("ext3", "-d"), ("ext2", "-i"), ("ext4", "-N 4096")] {
        empty_file(&bench);
        let made = run(&bench, &format!("mke2fs -q -F -t {kind} -b 4096 -d src a.img"));
        if made && run(&bench, &format!("btrfs-convert {options} a.img")) {
            is_right(&bench, &format!("{kind}, {options}"));
            count += 1;
        }
    }
    if count == 0 {
        println!("SKIPPED: needs mke2fs and btrfs-convert");
    }
}
