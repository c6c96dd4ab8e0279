//! `mkfs` of btrfs with contents: the same bytes each time, subvolumes and flags of paths, and the names of other
//! programs.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::Bench;

const EPOCH: (&str, &str) = ("SOURCE_DATE_EPOCH", "1700000000");
const UUID: &str = "11111111-2222-3333-4444-555555555555";

/// Passes an image through `btrfs check`, if that is installed.
fn check(bench: &Bench, image: &str) {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("btrfs");
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).arg("check").arg(bench.path(image));
    let Ok(output) = command.output() else { return };
    assert!(output.status.success(), "btrfs check {image}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A tree with a file of every size class, in directories, with links.
fn make_tree(dir: &Path) {
    fs::create_dir_all(dir.join("home/user")).unwrap();
    fs::create_dir_all(dir.join("usr/lib")).unwrap();
    for number in 0..600_usize {
        let contents: Vec<u8> = (0..number * 97).map(|at| u8::try_from(at * number % 251).unwrap()).collect();
        fs::write(dir.join("usr/lib").join(format!("file {number}")), contents).unwrap();
    }
    fs::write(dir.join("usr/large"), vec![7; 9 << 20]).unwrap();
    fs::hard_link(dir.join("usr/lib/file 9"), dir.join("usr/again")).unwrap();
    fs::hard_link(dir.join("usr/lib/file 9"), dir.join("home/user/cut")).unwrap();
    fs::hard_link(dir.join("usr/lib/file 9"), dir.join("home/cut too")).unwrap();
    std::os::unix::fs::symlink("usr/lib", dir.join("lib")).unwrap();
}

#[test]
fn the_same_contents_make_the_same_image() {
    let bench = Bench::new();
    make_tree(&bench.path("dir"));
    for options in ["-t btrfs", "-t btrfs --compress zstd:3 --shrink", "-t f2fs"] {
        let make = |threads: usize| {
            let line = format!("mkfs -q -f {options} -U {UUID} --threads {threads} --rootdir dir a.img");
            let run = bench.run_with(&line, &[EPOCH]);
            assert_eq!(run.status, 0, "{}", run.err);
            let made = fs::read(bench.path("a.img")).unwrap();
            fs::remove_file(bench.path("a.img")).unwrap();
            made
        };
        // Access times do not count, although reading changes them.
        let first = make(1);
        assert!([2, 16, 1].into_iter().all(|threads| make(threads) == first), "{options}");
    }
    bench.ok("mkfs -q --deterministic -L x --rootdir dir a.img");
    bench.ok("mkfs -q --deterministic -L x --rootdir dir b.img");
    assert!(fs::read(bench.path("a.img")).unwrap() == fs::read(bench.path("b.img")).unwrap(), "without variables");
    check(&bench, "a.img");
    let seconds = &bench.json("stat --json a.img /usr/large")["files"][0]["mtime"]["sec"];
    assert!(seconds.as_i64().unwrap() > 1_700_000_000, "without the variable times stay: {seconds}");
    let run = bench.run_with("mkfs -q --rootdir dir c.img", &[EPOCH]);
    assert_eq!(run.status, 0, "{}", run.err);
    assert_eq!(bench.json("stat --json c.img /usr/large")["files"][0]["mtime"]["sec"], 1_700_000_000);
}

#[test]
fn paths_become_subvolumes_and_get_flags() {
    let bench = Bench::new();
    make_tree(&bench.path("dir"));
    bench.ok("mkfs -q --rootdir dir -u default:home --subvol ro:usr --subvol usr/lib --inode-flags nodatasum:usr/lib \
              --inode-flags nodatacow:usr/large --device-uuid 99999999-2222-3333-4444-555555555555 a.img");
    check(&bench, "a.img");
    let listed = bench.json("subvolume list --json a.img");
    let subvolumes = listed["subvolumes"].as_array().unwrap();
    let row = |path: &str| subvolumes.iter().find(|row| row["path"] == path).unwrap_or_else(|| panic!("{listed}"));
    assert_eq!((&listed["default_id"], &row("usr")["read_only"]), (&row("home")["id"], &true.into()));
    assert_eq!(row("usr/lib")["read_only"], false);
    let usr = row("usr")["id"].as_u64().unwrap();
    let dump = bench.ok(&format!("dump tree a.img {usr}"));
    assert!(dump.contains("nodatacow"), "{dump}");
    assert!(bench.ok("dump super a.img").contains("99999999-2222-3333-4444-555555555555"));
    for (line, expected) in [
        ("--subvol nope", "`nope` is no directory of the contents"),
        ("--subvol usr/large", "`usr/large` is no directory of the contents"),
        ("--subvol usr --subvol usr/", "`usr` is given twice"),
        ("--subvol default:usr --subvol default-ro:home", "more than one default"),
        ("--inode-flags nodatacow:nope", "`nope` is no file or directory of the contents"),
        ("--inode-flags nodatacow:lib", "`lib` is no file or directory of the contents"),
    ] {
        let run = bench.run(&format!("mkfs -q --rootdir dir {line} b.img"));
        assert!(run.status == 2 && run.err.contains(expected), "{line}: {} {}", run.status, run.err);
        assert!(!bench.path("b.img").exists(), "{line}: nothing is left");
    }
}

#[test]
fn links_have_the_names_of_other_programs() {
    let bench = Bench::new();
    make_tree(&bench.path("dir"));
    fs::create_dir(bench.path("bin")).unwrap();
    bench.ok("install-links bin");
    bench.ok("install-links bin mkfs.btrfs");
    let run = |line: &str| {
        let mut words = line.split(' ');
        let program = bench.path("bin").join(words.next().unwrap());
        let output = Command::new(program).args(words).current_dir(bench.path("")).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    };
    let (status, out, err) = run(&format!("mkfs.btrfs -L root -U {UUID} -r dir --sectorsize=4096 a.img --subvol usr"));
    assert_eq!((status, err.as_str()), (0, ""));
    for line in ["Label:              root", &format!("UUID:               {UUID}"), "  Metadata:         DUP"] {
        assert!(out.contains(line), "{line}: {out}");
    }
    check(&bench, "a.img");
    let (status, _, err) = run("mkfs.btrfs a.img");
    assert!(
        status == 1 && err.starts_with("mkfs.btrfs: a.img: appears to contain an existing filesystem (btrfs)"),
        "{err}"
    );
    assert_eq!(run("mkfs.btrfs -fq a.img"), (0, String::new(), String::new()));
    for line in [
        "mkfs.btrfs",
        "mkfs.btrfs none.img",
        "mkfs.btrfs -x a.img",
        "mkfs.btrfs -f --reflink a.img",
        "mkfs.btrfs -f --reflink --compress zstd -r dir a.img",
        "mkfs.f2fs -C utf8 a.img",
    ] {
        assert_eq!(run(line).0, 1, "{line}");
    }
    assert!(run("mkfs.btrfs --version").1.contains("v6.19"));
    assert_eq!(run("mkfs.f2fs -q -l data b.img 204800").0, 0);
    assert_eq!(run("sload.f2fs -f dir -t /in b.img").0, 0);
    assert!(bench.ok("ls b.img /").contains("usr"));
}
