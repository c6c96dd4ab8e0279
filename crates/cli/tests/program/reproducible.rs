//! The same image in other surroundings: time zones, locales, masks of modes, addresses in memory, processors, users,
//! and directories that list their names in another order.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::Bench;

const UUID: &str = "11111111-2222-3333-4444-555555555555";

/// Makes a tree below `dir`, its names from the first to the last or in the opposite order.
fn make_tree(dir: &Path, backwards: bool) {
    fs::create_dir_all(dir.join("names")).unwrap();
    let mut numbers: Vec<usize> = (0..300).collect();
    if backwards {
        numbers.reverse();
    }
    for number in numbers {
        let path = dir.join(format!("names/{number:03}"));
        match number % 4 {
            0 => fs::write(path, vec![7; number * 100]).unwrap(),
            1 => fs::write(path, "small").unwrap(),
            2 => fs::create_dir(path).unwrap(),
            _ => std::os::unix::fs::symlink("000", path).unwrap(),
        }
    }
}

/// The image that a shell makes of `source`, after `before` and below the program that `prefix` starts.
fn image(bench: &Bench, options: &str, source: &Path, before: &str, prefix: &str) -> Vec<u8> {
    let out = bench.path("out");
    fs::create_dir_all(&out).unwrap();
    Command::new("chmod").arg("1777").arg(&out).status().unwrap();
    let line = format!(
        "{before} export SOURCE_DATE_EPOCH=1700000000; \
         exec {prefix} {} mkfs -q {options} --all-root -U {UUID} -r {} {}/made.img",
        env!("CARGO_BIN_EXE_spinney"),
        source.display(),
        out.display(),
    );
    let run = Command::new("sh").args(["-c", &line]).output().unwrap();
    assert!(run.status.success(), "{line}: {}", String::from_utf8_lossy(&run.stderr));
    let bytes = fs::read(out.join("made.img")).unwrap();
    fs::remove_file(out.join("made.img")).unwrap();
    bytes
}

#[test]
fn surroundings_do_not_change_an_image() {
    let (bench, memory) = (Bench::new(), Bench::in_memory());
    for open in [bench.path(""), memory.path("")] {
        Command::new("chmod").arg("755").arg(open).status().unwrap();
    }
    make_tree(&bench.path("dir"), false);
    make_tree(&memory.path("dir"), true);
    let (dir, shuffled) = (bench.path("dir"), memory.path("dir"));
    let is_root = rustix::process::geteuid().is_root();
    for options in ["-t btrfs", "-t btrfs --compress zstd", "-t f2fs"] {
        let first = image(&bench, options, &dir, "", "");
        let others = [
            (&shuffled, "", ""),
            (&dir, "export TZ=Pacific/Kiritimati;", ""),
            (&dir, "export TZ=America/Adak LC_ALL=tr_TR.UTF-8 LANG=C;", ""),
            (&dir, "umask 077;", ""),
            (&dir, "umask 0;", ""),
            (&dir, "", "setarch -R"),
            (&dir, "", "taskset 1"),
            (&dir, "export HOME=/nowhere USER=nobody PATH=/usr/bin:/bin;", "nice -n 5"),
        ];
        for (source, before, prefix) in others {
            assert!(image(&bench, options, source, before, prefix) == first, "{options}: {before} {prefix}");
        }
        if is_root {
            let other = "setpriv --reuid 65534 --regid 65534 --clear-groups";
            assert!(image(&bench, options, &shuffled, "umask 027;", other) == first, "{options}: another user");
        }
    }
    if !is_root {
        println!("SKIPPED: only root makes images as another user");
    }
}
