//! Trees copied into an image and out again are unchanged.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;

use crate::harness::{Bench, assert_same, pattern};

#[test]
fn a_directory_survives_mkfs_and_get() {
    let bench = Bench::new();
    bench.filled_image();
    bench.check("a.img");
    bench.ok("get a.img / out");
    assert_same(&bench.path("src"), &bench.path("out"));
    let sparse = std::fs::metadata(bench.path("out/sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 1 << 20, "the holes were filled");
}

#[test]
fn a_directory_survives_put_and_get() {
    let bench = Bench::new();
    bench.fill("src");
    bench.ok("mkfs -q --size 200M a.img");
    bench.ok("put a.img src /copy");
    bench.check("a.img");
    bench.ok("get --threads 1 a.img /copy out");
    assert_same(&bench.path("src"), &bench.path("out"));
    bench.ok("rm -r a.img /copy");
    bench.ok("put --threads 1 a.img src/. /");
    bench.ok("get a.img / out2");
    assert_same(&bench.path("src"), &bench.path("out2"));
    bench.check("a.img");
}

#[test]
fn every_checksum_profile_and_node_size_is_made() {
    let bench = Bench::new();
    bench.fill("src");
    for options in [
        "--csum xxhash64 -d dup -m dup",
        "--csum sha256 -n 4K -m single",
        "--csum blake2b -n 64K",
        "--mixed",
        "--mixed -d dup -m dup",
        "-O ^block-group-tree,^free-space-tree,^no-holes",
        "-O ^extref,^skinny-metadata",
    ] {
        bench.ok(&format!("mkfs -q -f {options} --rootdir src a.img"));
        bench.check("a.img");
        bench.ok("get a.img / out");
        assert_same(&bench.path("src"), &bench.path("out"));
        let out = bench.path("out");
        // A directory without write permission stands in the way of anyone but root.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(out.join("sub/deep/er"), open).unwrap();
        std::fs::remove_dir_all(out).unwrap();
    }
}

#[test]
fn one_thread_always_gives_the_same_order() {
    let bench = Bench::new();
    bench.fill("src");
    let inodes = |image: &str| {
        bench.ok(&format!("mkfs -q --threads 1 --rootdir src {image}"));
        let report = bench.json(&format!("ls -R --json {image}"));
        let entries = report["entries"].as_array().unwrap().clone();
        entries.iter().map(|e| (e["path"].clone(), e["ino"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(inodes("a.img"), inodes("b.img"));
}

#[test]
fn cat_writes_what_is_there() {
    let bench = Bench::new();
    bench.filled_image();
    assert_eq!(bench.run("cat a.img /sub/large").out, pattern(3_500_001));
    assert_eq!(bench.ok("cat a.img /a.txt /sub/link"), "hello\nhello\n");
    let sparse = bench.run("cat a.img /sparse").out;
    assert_eq!(sparse, std::fs::read(bench.path("src/sparse")).unwrap());
    let out = std::fs::File::create(bench.path("copy")).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_spinney"));
    command.args(["cat", "a.img", "/sparse"]).current_dir(&bench.dir).stdout(out);
    assert!(command.status().unwrap().success());
    assert_eq!(std::fs::read(bench.path("copy")).unwrap(), sparse);
    assert!(std::fs::metadata(bench.path("copy")).unwrap().blocks() * 512 < 1 << 20);
}

#[test]
fn names_that_are_no_text_survive() {
    let bench = Bench::new();
    bench.fill("src");
    let name = std::ffi::OsStr::from_bytes(b"na\xffme\n\x1b[2J");
    std::fs::write(bench.path("src").join(name), "odd").unwrap();
    bench.ok("mkfs -q --rootdir src a.img");
    bench.ok("get a.img / out");
    assert_same(&bench.path("src"), &bench.path("out"));
    let report = bench.json("ls --json a.img");
    let entries = report["entries"].as_array().unwrap();
    let odd = entries.iter().find(|entry| entry.get("name_hex").is_some()).unwrap();
    assert_eq!(odd["name_hex"], "6e61ff6d650a1b5b324a");
}

#[test]
fn a_link_in_the_target_is_not_followed() {
    let bench = Bench::new();
    bench.filled_image();
    std::fs::create_dir(bench.path("victim")).unwrap();
    std::fs::create_dir(bench.path("out")).unwrap();
    std::os::unix::fs::symlink(bench.path("victim"), bench.path("out/sub")).unwrap();
    std::fs::write(bench.path("victim/file"), "mine").unwrap();
    std::os::unix::fs::symlink(bench.path("victim/file"), bench.path("out/a.txt")).unwrap();
    assert_ne!(bench.run("get a.img / out").status, 0);
    assert_ne!(bench.run("get --force a.img / out").status, 0);
    assert_eq!(std::fs::read_dir(bench.path("victim")).unwrap().count(), 1);
    assert_eq!(std::fs::read(bench.path("victim/file")).unwrap(), b"mine");
}

#[test]
fn the_image_may_lie_in_its_own_source() {
    let bench = Bench::new();
    bench.fill("src");
    bench.ok("mkfs -q --rootdir src src/a.img");
    let listed = bench.ok("ls src/a.img");
    assert!(!listed.contains("a.img"), "{listed}");
    bench.ok("put src/a.img src/. /again -f");
    bench.check("src/a.img");
}

#[test]
fn a_partition_of_a_disk_is_an_image() {
    let bench = Bench::new();
    bench.fill("src");
    let disk = std::fs::File::create(bench.path("disk")).unwrap();
    disk.set_len(200 << 20).unwrap();
    let image = "disk?offset=1048576&size=199229440";
    bench.ok(&format!("mkfs -q --rootdir src {image}"));
    assert_eq!(bench.ok("cat disk?offset=1048576 /a.txt"), "hello\n");
    bench.ok("mkdir disk?offset=1048576 /new");
    bench.ok("get disk?offset=1048576 /sub/deep out");
    assert_same(&bench.path("src/sub/deep"), &bench.path("out"));
    assert_eq!(std::fs::metadata(bench.path("disk")).unwrap().len(), 200 << 20);
    assert_eq!(bench.run("ls disk").status, 3);
}

#[test]
fn a_file_whose_size_is_said_too_large_arrives_as_it_is_read() {
    // Every file of sysfs has a reported size of 4096 bytes.
    let source = "/sys/devices/system/cpu/online";
    let contents = std::fs::read(source).unwrap();
    let said = std::fs::metadata(source).unwrap().len();
    assert!(said > u64::try_from(contents.len()).unwrap());
    let bench = Bench::new();
    bench.ok("mkfs -q --size 200M a.img");
    bench.ok(&format!("put a.img {source} /cpus"));
    assert_eq!(bench.run("cat a.img /cpus").out, contents);
    bench.check("a.img");
}
