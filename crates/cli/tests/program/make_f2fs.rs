//! `mkfs -t f2fs`.

use std::process::Command;

use crate::harness::Bench;

/// Passes an image through `fsck.f2fs`, if that is installed.
fn check(bench: &Bench, image: &str) {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("fsck.f2fs");
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).arg("--dry-run").arg(bench.path(image));
    let Ok(output) = command.output() else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !text.contains("[Fail]"), "fsck.f2fs {image}: {text}");
}

#[test]
fn an_image_is_made_and_read() {
    let bench = Bench::new();
    let made = bench.json("mkfs -t f2fs --json --size 100M -l phone -O lost_found,sb_checksum a.img");
    assert_eq!((&made["label"], &made["total_bytes"]), (&"phone".into(), &(100 << 20).into()));
    assert_eq!((made["is_clean"].as_bool(), made["inodes"].as_u64()), (Some(true), Some(2)));
    assert_eq!(made["features"], serde_json::json!(["lost_found", "sb_checksum"]));
    assert_eq!(made, bench.json("info --json a.img"), "mkfs reports what info does");
    assert_eq!(bench.ok("ls a.img"), "lost+found\n");
    check(&bench, "a.img");
    let text = bench.ok("mkfs -t f2fs --size 128M --owner 1000:100 -o 20 -s 2 -z 1 b.img");
    assert!(text.contains("Format:      f2fs 1.15") && text.contains("2 in a section"), "{text}");
    assert!(bench.ok("stat b.img /").contains("1000"));
    check(&bench, "b.img");
    assert_eq!(bench.ok("mkfs -q -t f2fs --size 64M c.img"), "");
}

#[test]
fn a_directory_becomes_an_image_and_the_same_one_again() {
    let bench = Bench::new();
    let dir = bench.path("dir");
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    for number in 0..300_u32 {
        let contents = vec![u8::try_from(number % 251).unwrap(); usize::try_from(number * 100).unwrap()];
        std::fs::write(dir.join("sub").join(format!("file {number}")), contents).unwrap();
    }
    std::fs::hard_link(dir.join("sub/file 7"), dir.join("other")).unwrap();
    std::os::unix::fs::symlink("sub/file 7", dir.join("link")).unwrap();
    let make = |image: &str| {
        let line = format!("mkfs -q -t f2fs -U {} --threads 1 --rootdir dir {image}", "1".repeat(32));
        let run = bench.run_with(&line, &[("SOURCE_DATE_EPOCH", "1700000000")]);
        assert_eq!(run.status, 0, "{}", run.err);
        std::fs::read(bench.path(image)).unwrap()
    };
    // Access times are kept too, and reading may set them.
    make("first.img");
    assert!(make("a.img") == make("b.img"), "the same contents make the same image");
    check(&bench, "a.img");
    bench.ok("get -q a.img / out");
    let status =
        Command::new("diff").args(["-r", "--no-dereference"]).args([&dir, &bench.path("out")]).status().unwrap();
    assert!(status.success());
    assert_eq!(bench.json("stat --json a.img /other")["files"][0]["nlink"], 2);
    let run = bench.run_with("mkfs -q -t f2fs --rootdir dir c.img", &[("SOURCE_DATE_EPOCH", "tomorrow")]);
    assert!(run.status == 2 && run.err.contains("expected seconds since 1970, found tomorrow"), "{}", run.err);
}

#[test]
fn an_image_is_changed() {
    let bench = Bench::new();
    bench.ok("mkfs -q -t f2fs --size 100M -O extra_attr,inode_checksum,inode_crtime a.img");
    std::fs::write(bench.path("file"), "contents").unwrap();
    bench.ok("mkdir a.img /dir");
    bench.ok("put -q a.img file /dir/");
    bench.ok("ln a.img /dir/file /again");
    bench.ok("mv a.img /dir/file /dir/moved");
    assert_eq!(bench.ok("cat a.img /dir/moved"), "contents");
    check(&bench, "a.img");
    bench.ok("rm -r a.img /dir");
    assert_eq!(bench.ok("ls a.img"), "again\n");
    assert!(bench.ok("info a.img").contains("unmounted cleanly"));
    for line in [
        "label a.img",
        "usage a.img",
        "subvolume list a.img",
        "resize 200M a.img",
        "quota enable a.img",
        "dump super a.img",
    ] {
        let run = bench.run(line);
        assert_eq!(run.status, 4, "{line}: {}", run.err);
        assert!(run.err.contains("holds f2fs: this command is for btrfs alone"), "{line}: {}", run.err);
    }
    check(&bench, "a.img");
}

#[test]
fn quotas_are_counted_and_told() {
    let bench = Bench::new();
    bench.ok("mkfs -q -t f2fs --size 100M -O quota,extra_attr,project_quota --owner 1000:100 a.img");
    std::fs::write(bench.path("file"), vec![1; 10_000]).unwrap();
    bench.ok("put -q a.img file /");
    check(&bench, "a.img");
    bench.ok("check a.img");
    let text = bench.ok("info a.img");
    assert!(text.contains("Quotas:") && text.contains("user 1000") && text.contains("project 0"), "{text}");
    let info = bench.json("info --json a.img");
    let quotas = info["quotas"].as_array().unwrap();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    for (kind, id) in [("user", uid), ("group", gid)] {
        let found = quotas.iter().find(|quota| quota["kind"] == kind && quota["id"] == id).unwrap();
        assert_eq!((found["inodes"].as_u64(), found["bytes"].as_u64()), (Some(1), Some(12_288)), "{kind}");
    }
}

/// The first superblock lost its magic number, as a volume does whose start is overwritten.
#[test]
fn the_second_superblock_is_enough() {
    let bench = Bench::new();
    bench.ok("mkfs -q -t f2fs --size 100M -l kept a.img");
    let image = std::fs::OpenOptions::new().write(true).open(bench.path("a.img")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&image, &[0; 512], 1024).unwrap();
    assert_eq!(bench.json("info --json a.img")["label"], "kept");
    bench.ok("mkdir a.img /dir");
    assert_eq!(bench.ok("ls a.img"), "dir\n");
    let run = bench.run("mkfs -q -t f2fs a.img");
    assert!(run.status == 1 && run.err.contains("holds f2fs"), "{}", run.err);
}

#[test]
fn a_part_of_a_disk_becomes_one() {
    let bench = Bench::new();
    std::fs::File::create(bench.path("disk.img")).unwrap().set_len(200 << 20).unwrap();
    bench.ok("mkfs -q -t f2fs disk.img?offset=1048576&size=104857600");
    assert_eq!(bench.json("info --json disk.img?offset=1048576")["total_bytes"], 100 << 20);
    assert_eq!(std::fs::metadata(bench.path("disk.img")).unwrap().len(), 200 << 20);
    assert_eq!(bench.run("info disk.img").status, 3);
}

#[test]
fn nothing_is_overwritten_without_being_asked() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    bench.ok("mkfs -q -t f2fs --size 256M b.img");
    std::fs::write(bench.path("c.img"), "precious").unwrap();
    for (line, holds) in [
        ("mkfs -q -t f2fs a.img", "holds btrfs"),
        ("mkfs -q -t f2fs b.img", "holds f2fs"),
        ("mkfs -q b.img", "holds f2fs"),
        ("mkfs -q -t f2fs --size 64M c.img", "is not empty: there is data at byte 0"),
    ] {
        let run = bench.run(line);
        assert_eq!(run.status, 1, "{line}: {}", run.err);
        assert!(run.err.contains(holds) && run.err.contains("--force overwrites it"), "{line}: {}", run.err);
    }
    bench.ok("mkfs -q -f -t f2fs a.img");
    bench.ok("mkfs -q -f b.img");
    check(&bench, "a.img");
    bench.check("b.img");
    // Kept blocks have contents.
    bench.ok("mkfs -q -f -K -t f2fs b.img");
    check(&bench, "b.img");
    assert_eq!(bench.ok("ls b.img"), "");
}

#[test]
fn what_makes_no_sense_is_refused_and_leaves_nothing() {
    let bench = Bench::new();
    for (line, status, text) in [
        ("mkfs -t f2fs new.img", 2, "--size is needed"),
        ("mkfs -t f2fs --size 30M new.img", 5, "is too small: the least is 52.0 MiB"),
        ("mkfs -t f2fs --size 64M -s 9 new.img", 5, "is too small: the least is"),
        ("mkfs -t f2fs --size 64M -s 5000 new.img", 2, "segments of a section: expected 1 to 4096"),
        ("mkfs -t f2fs --size 64M -o 0 new.img", 2, "overprovision: expected more than 0"),
        ("mkfs -t f2fs --size 20T new.img", 4, "at most 16 TiB"),
        ("mkfs -t f2fs --size 64M -O nonsense new.img", 2, "no such feature; `-t f2fs -O list-all`"),
        ("mkfs -t f2fs --size 64M -O ro new.img", 4, "ro: not supported"),
        ("mkfs -t f2fs --size 64M -O inode_checksum new.img", 2, "extra_attr"),
        ("mkfs -t f2fs --size 64M --nodesize 4K new.img", 2, "--nodesize: only btrfs has it"),
        ("mkfs -t f2fs --size 64M --rootdir . --shrink new.img", 2, "--shrink: only btrfs has it"),
        ("mkfs -t f2fs --rootdir nothing new.img", 1, "nothing: No such file"),
        ("mkfs --size 256M -s 2 new.img", 2, "--section-segments: only f2fs has it: -t f2fs"),
        ("mkfs -t ext4 --size 64M new.img", 2, "f2fs"),
    ] {
        let run = bench.run(line);
        assert_eq!(run.status, status, "{line}: {}", run.err);
        assert!(run.err.contains(text), "{line}: {}", run.err);
        assert!(!bench.path("new.img").exists(), "{line}");
    }
}

#[test]
fn the_features_and_options_are_listed() {
    let bench = Bench::new();
    let list = bench.ok("mkfs -t f2fs -O list-all");
    assert!(list.contains("inode_checksum") && !list.contains("block-group-tree"), "{list}");
    let help = bench.ok("mkfs --help");
    assert!(help.contains("Options of f2fs:") && help.contains("--section-segments"), "{help}");
    assert!(bench.ok("completions bash").contains("--section-segments"));
}
