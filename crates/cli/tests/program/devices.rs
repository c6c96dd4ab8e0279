//! Volumes on several devices: made, written with one missing, brought up to date, and their set of devices changed;
//! volumes with parity, which are only read.

use std::fs::File;

use spinney::blockdev::Device as _;
use spinney::blockdev::backends::{FileDevice, FileOptions};
use spinney::btrfs::disk::Uuid;
use spinney::btrfs::pool::supers;

use crate::harness::{Bench, pattern};

/// A mirror of two files with some contents.
fn mirror(bench: &Bench) {
    for name in ["a.img", "b.img"] {
        File::create(bench.path(name)).unwrap().set_len(256 << 20).unwrap();
    }
    std::fs::create_dir(bench.path("in")).unwrap();
    for (name, len) in [("small", 900), ("large", 3_000_000)] {
        std::fs::write(bench.path("in").join(name), pattern(len)).unwrap();
    }
    bench.ok("mkfs -q -d raid1 a.img b.img");
    bench.ok("put -q a.img,b.img in /first");
}

/// Checks the set, and that each of these directories has the contents.
fn is_whole(bench: &Bench, set: &str, dirs: &[&str]) {
    let checked = bench.run(&format!("check --data {set}"));
    assert_eq!(checked.status, 0, "{set}: {}{}", String::from_utf8_lossy(&checked.out), checked.err);
    for dir in dirs {
        bench.ok(&format!("get -q {set} {dir} out"));
        for name in ["small", "large"] {
            let [there, out] = ["in", "out"].map(|dir| std::fs::read(bench.path(dir).join(name)).unwrap());
            assert!(there == out, "{set}: {dir}/{name}");
        }
        std::fs::remove_dir_all(bench.path("out")).unwrap();
    }
}

#[test]
fn a_member_that_missed_commits_is_refused_and_brought_up_to_date() {
    let bench = Bench::new();
    mirror(&bench);
    is_whole(&bench, "a.img,b.img", &["/first"]);
    let refused = bench.run("mkdir a.img /x");
    assert!(refused.status != 0 && refused.err.contains("1 of 2 devices"), "{}", refused.err);
    bench.ok("put -q --degraded a.img in /second");
    bench.ok("put -q --degraded a.img in /third");
    bench.ok("ls --degraded a.img /third");
    let stale = bench.run("ls a.img,b.img /");
    assert!(stale.status != 0 && stale.err.contains("it missed commits"), "{}", stale.err);
    let report: serde_json::Value =
        serde_json::from_str(&bench.ok("device resync --json a.img b.img")).expect("a report");
    let bytes = |name: &str| report[name].as_u64().unwrap();
    assert!(bytes("written_bytes") > 6_000_000 && bytes("same_bytes") > 3_000_000, "{report}");
    is_whole(&bench, "a.img,b.img", &["/first", "/second", "/third"]);
    // Each is enough by itself.
    for one in ["a.img", "b.img"] {
        bench.ok(&format!("get -q --degraded {one} /third out"));
        std::fs::remove_dir_all(bench.path("out")).unwrap();
    }
}

/// kdave/btrfs-progs#1077: what was written while a device was missing had one copy, also after the replace.
#[test]
fn everything_is_on_the_device_that_replaced_a_missing_one() {
    let bench = Bench::new();
    mirror(&bench);
    std::fs::remove_file(bench.path("b.img")).unwrap();
    std::fs::write(bench.path("in/more"), pattern(40_000_000)).unwrap();
    bench.ok("put -q --degraded a.img in /second");
    bench.ok("device replace -q a.img missing c.img");
    bench.ok("put -q a.img,c.img in /third");
    is_whole(&bench, "a.img,c.img", &["/first", "/second", "/third"]);
    std::fs::remove_file(bench.path("a.img")).unwrap();
    for dir in ["/first", "/second", "/third"] {
        bench.ok(&format!("get -q --degraded c.img {dir} out"));
        for name in ["small", "large"] {
            let [there, out] = ["in", "out"].map(|dir| std::fs::read(bench.path(dir).join(name)).unwrap());
            assert!(there == out, "{dir}/{name}");
        }
        std::fs::remove_dir_all(bench.path("out")).unwrap();
    }
    // fsck-tests/060 and misc-tests/023 of btrfs-progs: a check and the use of space without a device.
    for line in ["check c.img", "usage --degraded c.img"] {
        let run = bench.run(line);
        assert!(!run.err.contains("panic") && !run.out.is_empty(), "{line}: {} {}", run.status, run.err);
    }
}

#[test]
fn both_halves_written_apart_are_refused_and_one_is_kept() {
    let bench = Bench::new();
    mirror(&bench);
    bench.ok("put -q --degraded a.img in /left");
    bench.ok("mkdir --degraded b.img /right");
    let split = bench.run("ls a.img,b.img /");
    assert!(split.status != 0, "{}", split.err);
    assert!(split.err.contains("written apart") || split.err.contains("missed commits"), "{}", split.err);
    bench.ok("device replace -q --force a.img missing b.img");
    is_whole(&bench, "a.img,b.img", &["/first", "/left"]);
    assert!(bench.run("ls a.img,b.img /right").status != 0);
}

/// Both sides had the same generation and the same address of the root, and were joined.
#[test]
fn halves_with_the_same_number_of_commits_are_refused() {
    let bench = Bench::new();
    mirror(&bench);
    for (image, text) in [("a.img", "of one"), ("b.img", "of the other")] {
        std::fs::write(bench.path("text"), text).unwrap();
        bench.ok(&format!("put -q --degraded text {image}:/"));
    }
    for (line, why) in [
        ("ls a.img,b.img", "written apart"),
        ("put text b.img,a.img:/more", "written apart"),
        ("device resync a.img b.img", "missed no commit"),
    ] {
        let split = bench.run(line);
        assert!(split.status != 0 && split.err.contains(why), "{line}: {}", split.err);
    }
    assert_eq!(bench.ok("cat --degraded a.img /text"), "of one");
}

/// The newer device was overwritten with the contents of the older one.
#[test]
fn a_device_that_is_ahead_is_not_brought_back() {
    let bench = Bench::new();
    mirror(&bench);
    bench.ok("put -q --degraded a.img in /second");
    let ahead = bench.run("device resync b.img a.img");
    assert!(ahead.status != 0 && ahead.err.contains("missed commits"), "{}", ahead.err);
    bench.ok("device resync -q a.img b.img");
    is_whole(&bench, "b.img,a.img", &["/first", "/second"]);
    assert!(bench.run("device resync a.img b.img").err.contains("missed no commit"));
}

/// The first device was empty before the second one was found to be in use.
#[test]
fn no_device_is_overwritten_unless_all_are_usable() {
    let bench = Bench::new();
    mirror(&bench);
    bench.ok("mkfs -q --size 64M c.img");
    std::fs::hard_link(bench.path("c.img"), bench.path("link.img")).unwrap();
    let twice = bench.run("mkfs -q -f -d raid1 c.img link.img");
    assert!(twice.status == 2 && twice.err.contains("given twice"), "{}", twice.err);
    let held = File::options().write(true).open(bench.path("b.img")).unwrap();
    held.lock().unwrap();
    let busy = bench.run("mkfs -q -f -d raid1 c.img b.img");
    assert!(busy.status == 7, "{} {}", busy.status, busy.err);
    bench.ok("ls c.img");
}

#[test]
fn a_set_of_devices_is_changed() {
    let bench = Bench::new();
    mirror(&bench);
    std::fs::remove_file(bench.path("b.img")).unwrap();
    bench.ok("device replace -q a.img missing c.img");
    is_whole(&bench, "a.img,c.img", &["/first"]);
    assert!(bench.ok("device add a.img,c.img d.img --size 300M").contains("device 3"));
    bench.ok("balance start a.img,c.img,d.img");
    bench.ok("device remove a.img,c.img,d.img a.img");
    is_whole(&bench, "c.img,d.img", &["/first"]);
    let rows: serde_json::Value = serde_json::from_str(&bench.ok("device list --json c.img,d.img")).unwrap();
    let ids: Vec<u64> = rows.as_array().unwrap().iter().map(|row| row["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [2, 3]);
    assert!(bench.run("ls a.img").status != 0, "a removed device is no volume");
    let few = bench.run("device remove c.img,d.img 2");
    assert!(few.status != 0 && few.err.contains("needs 2 devices"), "{}", few.err);
    bench.ok("balance start -f -dconvert=single -mconvert=dup c.img,d.img");
    bench.ok("device remove c.img,d.img 2");
    is_whole(&bench, "d.img", &["/first"]);
}

#[test]
fn wrong_sets_and_occupied_devices_are_refused() {
    let bench = Bench::new();
    mirror(&bench);
    std::fs::copy(bench.path("a.img"), bench.path("copy.img")).unwrap();
    std::fs::write(bench.path("full.img"), vec![7; 64 << 20]).unwrap();
    bench.ok("mkfs -q --size 64M other.img");
    for (line, what) in [
        ("ls a.img,copy.img", "both device 1"),
        ("ls a.img,a.img", "both device 1"),
        ("ls a.img,other.img", "of one file system"),
        ("device add a.img,b.img full.img", "is not empty"),
        ("device add a.img,b.img other.img", "holds btrfs"),
        ("device add a.img,b.img tiny.img --size 1M", "is too small: it has 1048576 bytes, and at least 16777216"),
        ("device replace status a.img,b.img", "no mount"),
        ("device cancel a.img", "no mount"),
        ("device replace a.img,b.img 7 new.img", "no device of this volume"),
        ("device resync --degraded a.img copy.img", "both device 1"),
        ("mkfs -d raid1c3 x.img y.img --size 64M", "needs 3 devices"),
        ("mkfs -d raid1 x.img x.img --size 64M", "given twice"),
        ("mkfs -t f2fs x.img y.img --size 64M", "only btrfs"),
        ("mkfs -d raid5 x.img y.img --size 64M", "not written"),
    ] {
        let run = bench.run(line);
        assert!(run.status != 0 && run.err.contains(what), "{line}: {} {}", run.status, run.err);
    }
    assert!(!bench.path("tiny.img").exists(), "a file that was made for nothing is removed");
    is_whole(&bench, "a.img,b.img", &["/first"]);
}

/// The same command wanted --force.
#[test]
fn a_replace_that_was_killed_is_repeated() {
    let bench = Bench::new();
    mirror(&bench);
    let uuid = |list: &str, index: usize| {
        let rows: serde_json::Value = serde_json::from_str(&bench.ok(&format!("device list --json {list}"))).unwrap();
        rows[index]["uuid"].as_str().unwrap().to_owned()
    };
    // As it is left: a mark with the UUID of the old device, and data.
    let mark = |path: &str, uuid: &str| {
        let digits: String = uuid.chars().filter(|digit| *digit != '-').collect();
        let uuid: Vec<u8> = (0..16).map(|at| u8::from_str_radix(&digits[2 * at..][..2], 16).unwrap()).collect();
        let device = FileDevice::open(bench.path(path), &FileOptions::default()).unwrap();
        supers::mark_target(&device, Uuid(uuid.try_into().unwrap())).unwrap();
        device.write_at(5 << 20, &[b"data"]).unwrap();
    };
    for name in ["new.img", "other.img"] {
        File::create(bench.path(name)).unwrap().set_len(256 << 20).unwrap();
    }
    mark("new.img", &uuid("a.img,b.img", 1));
    mark("other.img", &uuid("a.img,b.img", 0));
    let refused = bench.run("device replace -q a.img,b.img b.img other.img");
    assert!(refused.status != 0 && refused.err.contains("--force"), "{}", refused.err);
    bench.ok("device replace start -q a.img,b.img b.img new.img");
    is_whole(&bench, "a.img,new.img", &["/first"]);
}

#[test]
fn a_member_that_is_too_short_is_named() {
    let bench = Bench::new();
    mirror(&bench);
    for (len, why) in
        [(100 << 20, "b.img (device 2) has 104857600 bytes, and the file system uses 268435456"), (0, "b.img")]
    {
        File::options().write(true).open(bench.path("b.img")).unwrap().set_len(len).unwrap();
        for line in ["ls a.img,b.img", "mkdir a.img,b.img /x"] {
            let refused = bench.run(line);
            assert!(refused.status != 0 && refused.err.contains(why), "{line}: {}", refused.err);
        }
    }
    bench.ok("mkdir --degraded a.img /x");
    bench.ok("device replace -q --force a.img missing b.img");
    is_whole(&bench, "a.img,b.img", &["/first"]);
}

/// An empty volume with parity, made by `mkfs.btrfs`; false where that is not installed.
fn with_parity(bench: &Bench, profile: &str, names: &[&str]) -> bool {
    for name in names {
        File::create(bench.path(name)).unwrap().set_len(200 << 20).unwrap();
    }
    let mut make = std::process::Command::new("mkfs.btrfs");
    make.current_dir(bench.dir.path()).args(["-q", "-f", "-d", profile, "-m", profile]).args(names);
    let Ok(output) = make.output() else {
        println!("SKIPPED: this needs the program mkfs.btrfs");
        return false;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

/// Overwrites the contents of a device except its superblocks.
fn destroy(bench: &Bench, name: &str) {
    use std::os::unix::fs::FileExt as _;
    let file = File::options().write(true).open(bench.path(name)).unwrap();
    for mebi in (1..200).filter(|mebi| *mebi != 64) {
        file.write_all_at(&pattern(1 << 20), mebi << 20).unwrap();
    }
}

#[test]
fn volumes_with_parity_are_read_without_devices_and_not_written() {
    for (profile, names, may_lose) in
        [("raid5", &["a.img", "b.img", "c.img"][..], 1), ("raid6", &["a.img", "b.img", "c.img", "d.img"][..], 2)]
    {
        let bench = Bench::new();
        if !with_parity(&bench, profile, names) {
            return;
        }
        let all = names.join(",");
        let name = profile.to_uppercase();
        for line in ["mkdir ALL /x", "balance start ALL", "device add ALL new.img --size 200M", "scrub start ALL"] {
            let refused = bench.run(&line.replace("ALL", &all));
            assert_eq!(refused.status, 4, "{line}: {}", refused.err);
            assert!(refused.err.contains(&format!("writing with {name} block groups")), "{line}: {}", refused.err);
        }
        bench.ok(&format!("check --data {all}"));
        bench.ok(&format!("scrub start --readonly {all}"));
        let left = |lost: usize| names[lost..].join(",");
        for lost in 1..=may_lose {
            bench.ok(&format!("ls --degraded {}", left(lost)));
        }
        let too_few = bench.run(&format!("ls --degraded {}", left(may_lose + 1)));
        assert!(too_few.status != 0 && too_few.err.contains("missing: device"), "{}", too_few.err);
        for name in &names[..may_lose] {
            destroy(&bench, name);
            bench.ok(&format!("ls {all}"));
        }
        let report = bench.run(&format!("scrub start --readonly {all}"));
        let shown = String::from_utf8_lossy(&report.out);
        assert!(report.status == 3 && shown.contains("left") && shown.contains(" 0 lost"), "{shown}{}", report.err);
        let checked = bench.run(&format!("check {all}"));
        let shown = String::from_utf8_lossy(&checked.out);
        assert!(checked.status == 4 && shown.contains("parity gives"), "{}: {shown}", checked.status);
        // One more is beyond the profile: an error that names the place, and no panic.
        destroy(&bench, names[may_lose]);
        let lost = bench.run(&format!("ls {all}"));
        assert!(lost.status != 0 && lost.err.contains("no good copy"), "{}", lost.err);
    }
}

#[test]
fn a_seed_is_not_written_and_its_sprouts_are() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("in")).unwrap();
    for (name, len) in [("small", 900), ("large", 3_000_000)] {
        std::fs::write(bench.path("in").join(name), pattern(len)).unwrap();
    }
    bench.ok("mkfs -q --size 200M base.img");
    bench.ok("put -q base.img in /first");
    let early = bench.run("mkfs -q --seed base.img --size 200M early.img");
    assert!(early.status == 4 && early.err.contains("no seed"), "{}", early.err);
    assert!(!bench.path("early.img").exists());
    bench.ok("device seed base.img on");
    let before = std::fs::read(bench.path("base.img")).unwrap();
    let refused = bench.run("mkdir base.img /x");
    assert!(refused.status == 4 && refused.err.contains("seeding"), "{}", refused.err);
    let unforced = bench.run("device seed base.img off");
    assert!(unforced.status != 0 && unforced.err.contains("--force"), "{}", unforced.err);
    for new in ["a.img", "b.img"] {
        bench.ok(&format!("mkfs -q --seed base.img --size 200M {new}"));
        is_whole(&bench, &format!("{new},base.img"), &["/first"]);
    }
    bench.ok("put -q a.img,base.img in /second");
    bench.ok("rm a.img,base.img /first/small");
    is_whole(&bench, "base.img,a.img", &["/second"]);
    is_whole(&bench, "b.img,base.img", &["/first"]);
    assert!(bench.run("ls b.img,base.img /second").status != 0, "sprouts are apart");
    let alone = bench.run("ls a.img");
    assert!(alone.status != 0 && alone.err.contains("1 of 2 devices"), "{}", alone.err);
    let replaced = bench.run("device replace a.img,base.img 1 c.img");
    assert!(replaced.status == 4 && replaced.err.contains("is a seed of the volume"), "{}", replaced.err);
    // Another seed is not taken for the sprout's own.
    bench.ok("mkfs -q --size 200M other.img");
    bench.ok("device seed other.img on");
    let other = bench.run("ls a.img,other.img");
    assert!(other.status == 3 && other.err.contains("UUID of a device"), "{} {}", other.status, other.err);
    bench.ok("device add a.img,base.img c.img --size 200M");
    is_whole(&bench, "c.img,a.img,base.img", &["/second"]);
    // The sprouts become volumes of their own.
    bench.ok("device remove a.img,c.img,base.img base.img");
    is_whole(&bench, "a.img,c.img", &["/second"]);
    bench.ok("device remove b.img,base.img 1");
    is_whole(&bench, "b.img", &["/first"]);
    let gone = bench.run("ls b.img,base.img");
    assert!(gone.status != 0 && gone.err.contains("it was removed or replaced"), "{}", gone.err);
    assert!(std::fs::read(bench.path("base.img")).unwrap() == before, "the seed is as it was");
    bench.ok("device seed --force base.img off");
    bench.ok("mkdir base.img /x");
}

#[test]
fn balances_and_resizes_of_a_sprout_leave_what_the_seed_has() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("in")).unwrap();
    std::fs::write(bench.path("in/large"), pattern(12_000_000)).unwrap();
    std::fs::write(bench.path("in/small"), "small").unwrap();
    bench.ok("mkfs -q --size 300M base.img");
    bench.ok("put -q base.img in /first");
    bench.ok("device seed base.img on");
    let before = std::fs::read(bench.path("base.img")).unwrap();
    for work in ["balance start VOLUME", "balance start -m all VOLUME", "resize min VOLUME", "resize 400M VOLUME"] {
        bench.ok("mkfs -q -f --seed base.img --size 600M new.img");
        bench.ok("put -q new.img,base.img in /second");
        bench.ok(&work.replace("VOLUME", "new.img,base.img"));
        is_whole(&bench, "new.img,base.img", &["/first", "/second"]);
        if work.contains("min") {
            bench.ok("resize 600M new.img,base.img");
        }
        bench.ok("put -q new.img,base.img in /third");
        is_whole(&bench, "new.img,base.img", &["/first", "/second", "/third"]);
    }
    assert!(std::fs::read(bench.path("base.img")).unwrap() == before, "the seed is as it was");
    // A failure leaves the target as it was, and a seed is no target.
    bench.ok("mkfs -q --size 200M kept.img");
    for (seed, target) in [("kept.img", "kept.img"), ("missing.img", "kept.img"), ("base.img", "base.img")] {
        let refused = bench.run(&format!("mkfs -q -f --seed {seed} --size 200M {target}"));
        assert_ne!(refused.status, 0);
    }
    let small = bench.run("mkfs -q -f --seed base.img --size 1M kept.img");
    assert_ne!(small.status, 0);
    bench.check("kept.img");
    assert!(std::fs::read(bench.path("base.img")).unwrap() == before, "the seed is as it was");
}
