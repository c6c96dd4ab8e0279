//! Growing and shrinking images, and reports of their space.

use std::process::Command;

use crate::harness::Bench;
use crate::mounted::Mounted;

const MIB: u64 = 1 << 20;

fn len(bench: &Bench) -> u64 {
    std::fs::metadata(bench.path("a.img")).unwrap().len()
}

fn total(bench: &Bench) -> u64 {
    bench.json("info --json a.img")["total_bytes"].as_u64().unwrap()
}

#[test]
fn an_image_grows_and_shrinks_with_all_that_is_in_it() {
    let bench = Bench::new();
    bench.filled_image();
    let before = (len(&bench), total(&bench));
    assert_eq!(before.0, before.1);
    let report = bench.json("resize --json +1G a.img");
    assert_eq!(
        (report["before_bytes"].as_u64(), report["total_bytes"].as_u64()),
        (Some(before.0), Some(before.0 + (1 << 30)))
    );
    assert_eq!((len(&bench), total(&bench)), (before.0 + (1 << 30), before.0 + (1 << 30)));
    bench.check("a.img");
    // Now there is space for the file that did not fit.
    let large = vec![5; usize::try_from(before.0).unwrap()];
    std::fs::write(bench.path("large"), &large).unwrap();
    bench.ok("put a.img large /");
    let full = bench.run(&format!("resize {} a.img", before.0));
    assert_eq!(full.status, 5, "{}", full.err);
    assert!(full.err.contains("not enough free space") && full.err.contains("a.img"), "{}", full.err);
    assert_eq!(len(&bench), before.0 + (1 << 30));
    // Its space is returned.
    bench.ok("rm a.img /large");
    bench.ok("resize -q min a.img");
    let least = len(&bench);
    assert!(least < before.0 + (1 << 30) && least == total(&bench), "{least}");
    bench.check("a.img");
    assert_eq!(bench.ok("cat a.img /a.txt /sub/again.txt"), "hello\nhello\n");
    assert_eq!(bench.ok("resize min a.img").lines().count(), 1);
    assert_eq!(len(&bench), least);
    bench.ok("resize -q 2G a.img");
    bench.ok("resize -q -512M a.img");
    assert_eq!((len(&bench), total(&bench)), (1536 * MIB, 1536 * MIB));
    // A file that is longer than its file system.
    std::fs::OpenOptions::new().write(true).open(bench.path("a.img")).unwrap().set_len(3 << 30).unwrap();
    bench.ok("resize -q max a.img");
    assert_eq!(total(&bench), 3 << 30);
    bench.check("a.img");
    assert_eq!(bench.ok("cat a.img /a.txt"), "hello\n");
    let wrong =
        ["resize 1x a.img", "resize -4G a.img", "resize a.img", "resize 1G", "resize 8E a.img", "resize +15E a.img"];
    for wrong in wrong {
        let run = bench.run(wrong);
        assert_eq!(run.status, 2, "{wrong}: {}", run.err);
    }
    assert_eq!((len(&bench), total(&bench)), (3 << 30, 3 << 30));
}

#[test]
fn a_part_of_a_file_keeps_its_size() {
    let bench = Bench::new();
    bench.filled_image();
    let bytes = std::fs::read(bench.path("a.img")).unwrap();
    let part = [vec![7; 8192], bytes.clone(), vec![9; 4096]].concat();
    std::fs::write(bench.path("disk"), &part).unwrap();
    let image = format!("disk?offset=8192&size={}", bytes.len());
    let run = bench.run_words(&["resize", "+1G", &image]);
    assert_eq!(run.status, 5, "{}", run.err);
    assert!(run.err.contains("cannot grow"), "{}", run.err);
    let run = bench.run_words(&["resize", "-q", "min", &image]);
    assert_eq!(run.status, 0, "{}", run.err);
    let after = std::fs::read(bench.path("disk")).unwrap();
    assert_eq!(after.len(), part.len());
    assert!(after[..8192] == part[..8192] && after[part.len() - 4096..] == part[part.len() - 4096..]);
    let cat = bench.run_words(&["cat", &image, "/a.txt"]);
    assert_eq!(cat.out, b"hello\n");
}

#[test]
fn usage_adds_up_and_says_what_btrfs_progs_say() {
    let bench = Bench::new();
    bench.filled_image();
    let report = bench.json("usage --json a.img");
    let number = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(number("device_bytes"), len(&bench));
    let groups = report["groups"].as_array().unwrap();
    let on_devices: u64 = groups.iter().map(|group| group["device_bytes"].as_u64().unwrap()).sum();
    assert_eq!(on_devices, number("allocated_bytes"));
    assert_eq!(number("allocated_bytes") + number("unallocated_bytes"), number("device_bytes"));
    assert_eq!((number("data_percent"), number("metadata_percent")), (100, 200));
    assert!(number("free_min_bytes") < number("free_bytes"));
    assert!(groups.iter().all(|group| group["used_bytes"].as_u64() <= group["total_bytes"].as_u64()));
    let text = bench.ok("usage a.img");
    for wanted in ["Device size:", "Unallocated:", "data, single:", "metadata, dup:"] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
    assert!(text.lines().any(|line| line.starts_with("Metadata ratio:") && line.ends_with(" 2.00")), "{text}");
    let Ok(other) =
        Command::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "dev"]).arg(bench.path("a.img")).output()
    else {
        return;
    };
    let text = String::from_utf8_lossy(&other.stdout).into_owned();
    let lens = text.lines().filter_map(|line| line.trim().split_once(" length ").map(|(_, rest)| rest));
    let sum: u64 = lens.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum();
    if !text.is_empty() {
        assert_eq!(sum, number("allocated_bytes"), "{text}");
    }
}

#[test]
fn an_image_is_made_as_small_as_its_contents() {
    let bench = Bench::new();
    bench.filled_image();
    std::fs::write(bench.path("src/large"), vec![3; 150 << 20]).unwrap();
    bench.ok("mkfs -q --rootdir src wide.img");
    bench.ok("mkfs -q -f --rootdir src --shrink a.img");
    let wide = std::fs::metadata(bench.path("wide.img")).unwrap().len();
    assert!(len(&bench) < wide && len(&bench) == total(&bench), "{} of {wide}", len(&bench));
    bench.check("a.img");
    assert_eq!(bench.ok("cat a.img /a.txt"), "hello\n");
    // A file that was longer before, and one whose size is given.
    for words in ["mkfs -q -f --rootdir src --shrink wide.img", "mkfs -q -f --size 1G --rootdir src --shrink wide.img"]
    {
        bench.ok(words);
        let found = std::fs::metadata(bench.path("wide.img")).unwrap().len();
        assert!(found < 1 << 30, "{words}: {found}");
        bench.check("wide.img");
    }
    assert_eq!(bench.run("mkfs --shrink --size 1G -f a.img").status, 2);
    // Nothing is cut unasked: a file system has whole sectors.
    bench.ok("mkfs -q -f --size 1000000001 --rootdir src wide.img");
    assert_eq!(std::fs::metadata(bench.path("wide.img")).unwrap().len(), 1_000_000_001);
}

#[test]
fn a_mount_tells_what_takes_its_space() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let bench = &mounted.bench;
    let used = || bench.json("usage --json mnt")["used_bytes"].as_u64().unwrap();
    let before = used();
    std::fs::write(mounted.dir().join("large"), vec![7; 20 << 20]).unwrap();
    std::fs::create_dir(mounted.dir().join("d")).unwrap();
    std::fs::File::open(mounted.dir().join("large")).unwrap().sync_all().unwrap();
    assert!((before + (20 << 20)..before + (22 << 20)).contains(&used()), "{before}, then {}", used());
    let (root, below) = (bench.ok("usage mnt"), bench.ok("usage mnt/d"));
    assert!(root.contains("Device size:") && below.contains("Unallocated:"), "{root}{below}");
    std::fs::create_dir(bench.path("plain")).unwrap();
    for line in ["usage plain", "usage --subvolume /x mnt"] {
        assert!(bench.run(line).status > 0, "{line}");
    }
    mounted.unmount();
    let image = bench.json("usage --json a.img");
    assert!(image["used_bytes"].as_u64().unwrap() >= before + (20 << 20));
}

fn cut(bench: &Bench, bytes: u64) {
    std::fs::OpenOptions::new().write(true).open(bench.path("a.img")).unwrap().set_len(len(bench) - bytes).unwrap();
}

#[test]
fn an_image_that_was_cut_short_is_read_and_shortened() {
    let bench = Bench::new();
    bench.fill("src");
    bench.ok("mkfs -q --size 256M --rootdir src a.img");
    cut(&bench, 16 * MIB + 512);
    std::fs::copy(bench.path("a.img"), bench.path("cut.img")).unwrap();
    for (line, is_read) in [
        ("ls a.img /", true),
        ("cat a.img /a.txt", true),
        ("get a.img / out", true),
        ("info a.img", true),
        ("usage a.img", true),
        ("du -s a.img", true),
        ("tree a.img", true),
        ("put a.img src/a.txt /new", false),
        ("rm a.img /a.txt", false),
        ("balance start a.img", false),
    ] {
        let run = bench.run(line);
        let said = run.err.lines().next().unwrap_or_default();
        match is_read {
            true => assert!(
                run.status == 0 && said.contains("16777728 bytes are missing at the end"),
                "{line}: {}",
                run.err
            ),
            false => assert!(run.status == 3 && said.contains("expected at least 268435456"), "{line}: {}", run.err),
        }
        assert!(said.contains("`spinney repair IMAGE` shrinks"), "{line}: {said}");
    }
    assert!(std::fs::read(bench.path("a.img")).unwrap() == std::fs::read(bench.path("cut.img")).unwrap());
    crate::harness::assert_same(&bench.path("src/sub"), &bench.path("out/sub"));
    // Either command shortens it, to whole sectors.
    assert_eq!(bench.run("repair --apply a.img").status, 1, "repaired");
    assert_eq!(total(&bench), 240 * MIB - 4096);
    bench.check("a.img");
    bench.ok("put a.img src/a.txt /new");
    for (size, expected) in [("max", 240 * MIB - 4096), ("-32M", 224 * MIB), ("200M", 200 * MIB), ("256M", 256 * MIB)] {
        std::fs::copy(bench.path("cut.img"), bench.path("a.img")).unwrap();
        bench.ok(&format!("resize -q {size} a.img"));
        assert_eq!(total(&bench), expected, "{size}");
        bench.check("a.img");
        assert_eq!(bench.ok("cat a.img /a.txt"), "hello\n");
    }
}

#[test]
fn an_image_of_which_something_lies_beyond_the_cut_stays_as_it_is() {
    let bench = Bench::new();
    bench.fill("src");
    bench.ok("mkfs -q --size 256M --rootdir src a.img");
    std::fs::write(bench.path("filling"), vec![7; 100 << 20]).unwrap();
    bench.ok("put a.img filling /filling");
    bench.ok("resize -q min a.img");
    cut(&bench, 8 * MIB);
    let before = std::fs::read(bench.path("a.img")).unwrap();
    for line in ["resize max a.img", "resize 512M a.img", "repair --apply a.img"] {
        let run = bench.run(line);
        assert!(run.status != 0, "{line}");
        assert!(std::fs::read(bench.path("a.img")).unwrap() == before, "{line} has written");
    }
    // Data before the cut is intact.
    assert_eq!(bench.ok("cat a.img /a.txt"), "hello\n");
}

#[test]
fn an_f2fs_image_that_was_cut_short_is_read() {
    let bench = Bench::new();
    bench.fill("src");
    bench.ok("mkfs -q -t f2fs --size 128M --rootdir src a.img");
    cut(&bench, 16 * MIB);
    for line in ["ls a.img /", "cat a.img /a.txt", "info a.img", "get a.img / out"] {
        let run = bench.run(line);
        assert!(run.status == 0 && run.err.contains("16777216 bytes are missing at the end"), "{line}: {}", run.err);
    }
    crate::harness::assert_same(&bench.path("src/sub"), &bench.path("out/sub"));
    let run = bench.run("put a.img src/a.txt /new");
    assert!(run.status == 3 && run.err.contains("expected at least 134217728"), "{}", run.err);
    // A volume without all its tables is not opened.
    std::fs::OpenOptions::new().write(true).open(bench.path("a.img")).unwrap().set_len(4 * MIB).unwrap();
    assert_eq!(bench.run("ls a.img /").status, 3);
}
