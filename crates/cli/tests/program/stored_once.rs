//! New images whose files share data, or are protected by fs-verity.

use std::fs;
use std::process::Command;

use crate::harness::Bench;

/// A tree with three equal large files, two equal small ones, and others.
fn fill(bench: &Bench) {
    let dir = bench.path("dir");
    fs::create_dir_all(dir.join("usr/bin")).unwrap();
    fs::create_dir_all(dir.join("home")).unwrap();
    let noise = |len: usize, seed: usize| -> Vec<u8> {
        (0..len).map(|at| u8::try_from((at * at / 7 + at * seed) % 251).unwrap()).collect()
    };
    for name in ["usr/bin/one", "usr/two", "home/three"] {
        fs::write(dir.join(name), noise(3_000_000, 3)).unwrap();
    }
    fs::write(dir.join("home/other"), noise(3_000_000, 4)).unwrap();
    for name in ["usr/small", "home/small"] {
        fs::write(dir.join(name), noise(5000, 5)).unwrap();
    }
    fs::write(dir.join("home/inline"), "text").unwrap();
}

#[test]
fn equal_files_are_stored_once_in_every_image_the_same() {
    let bench = Bench::new();
    fill(&bench);
    let report = bench.ok("mkfs --rootdir dir --dedupe a.img");
    assert!(report.contains("Shared:      5.7"), "two of three large files and one small one: {report}");
    for threads in [1, 2, 16] {
        let options = "mkfs -q -f --deterministic --dedupe --rootdir dir";
        bench.ok(&format!("{options} --threads {threads} {threads}.img"));
        assert!(fs::read(bench.path("1.img")).unwrap() == fs::read(bench.path(&format!("{threads}.img"))).unwrap());
    }
    bench.ok("check --data a.img");
    for name in ["usr/bin/one", "usr/two", "home/three", "home/other", "usr/small", "home/small", "home/inline"] {
        let run = bench.run(&format!("cat a.img /{name}"));
        assert!(run.out == fs::read(bench.path("dir").join(name)).unwrap(), "{name}");
    }
    // A copy that is changed leaves the others.
    fs::write(bench.path("text"), "other").unwrap();
    bench.ok("put -q -f a.img text /usr/two");
    assert!(bench.run("cat a.img /home/three").out == fs::read(bench.path("dir/home/three")).unwrap());
    bench.ok("mkfs -q --size 200M b.img");
    bench.ok("put -q --dedupe b.img dir /");
    bench.ok("check --data b.img");
}

#[test]
fn protected_files_have_the_digests_of_fsverity() {
    let bench = Bench::new();
    fill(&bench);
    bench.ok("mkfs -q --rootdir dir --verity usr/** --verity **/inline a.img");
    bench.ok("check --data a.img");
    for (path, is_protected) in
        [("usr/bin/one", true), ("usr/small", true), ("home/inline", true), ("home/small", false)]
    {
        let stat = bench.ok(&format!("stat a.img /{path}"));
        assert_eq!(stat.contains("ro_verity"), is_protected, "{path}: {stat}");
    }
    fs::write(bench.path("text"), "other").unwrap();
    assert_eq!(bench.run("put -q -f a.img text /home/small").status, 0);
    bench.ok("rm a.img /usr/small");
    bench.ok("check a.img");
    let check = Command::new("btrfs").args(["check", "--check-data-csum"]).arg(bench.path("a.img")).output();
    if let Ok(output) = check {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    for (line, status) in [
        ("mkfs -q --rootdir dir --verity none b.img", 2),
        ("mkfs -q --rootdir dir --verity usr/** --verity-salt 0 b.img", 2),
        ("mkfs -q --rootdir dir --verity usr/** --verity-hash-alg md5 b.img", 2),
        ("mkfs -q -t f2fs --rootdir dir --verity usr/** b.img", 2),
        ("mkfs -q --verity usr/** --size 200M b.img", 2),
        ("mkfs -q --rootdir dir --reflink --compress zstd b.img", 2),
    ] {
        assert_eq!(bench.run(line).status, status, "{line}");
        assert!(!bench.path("b.img").exists(), "{line}");
    }
    for (options, names) in [("--verity-salt 0a0b", "1"), ("--verity-hash-alg sha512", "2")] {
        let made = |name: &str| {
            bench.ok(&format!("mkfs -q --deterministic --rootdir dir --verity usr/* {options} {name}"));
            fs::read(bench.path(name)).unwrap()
        };
        assert!(made(&format!("{names}.img")) == made(&format!("{names}-again.img")));
    }
}

#[test]
fn descriptions_with_missing_sources_and_small_partitions_are_refused() {
    let bench = Bench::new();
    fill(&bench);
    let write = |source: &str, size: &str| {
        let text = format!(
            "[[partition]]\nname = \"root\"\ntype = \"root-x86-64\"\nformat = \"btrfs\"\nsize = \"{size}\"\n\
             sources = [\"{source}\"]\nverity = [\"usr/**\"]\noptions = {{ dedupe = true }}\n\
             [output]\nfile = \"disk.img\"\n"
        );
        fs::write(bench.path("disk.toml"), text).unwrap();
    };
    for (source, size, status) in
        [("none", "200M", 2), ("oci:none:tag", "200M", 2), ("dir", "8M", 5), ("dir", "200M", 0), ("dir", "auto", 0)]
    {
        write(source, size);
        let run = bench.run("build --check disk.toml");
        assert_eq!(run.status, status, "{source} {size}: {}", run.err);
        assert!(!bench.path("disk.img").exists());
    }
    bench.ok("build -q disk.toml");
}
