//! Balances of images and of mounts.

use crate::harness::Bench;
use crate::mounted::Mounted;

fn word<'a>(report: &'a serde_json::Value, name: &str) -> &'a str {
    report[name].as_str().unwrap_or_default()
}

#[test]
fn an_image_is_balanced_with_the_words_of_btrfs() {
    let bench = Bench::new();
    bench.filled_image();
    assert_eq!(bench.ok("balance status a.img"), "no balance\n");
    let report = bench.json("balance start --json a.img");
    assert_eq!(word(&report, "state"), "none");
    assert_eq!(report["completed"], report["expected"]);
    assert!(report["completed"].as_u64() >= Some(3), "{report}");
    bench.check("a.img");
    assert_eq!(bench.ok("cat a.img /a.txt /sub/again.txt"), "hello\nhello\n");
    let none = bench.json("balance start --json a.img -dusage=0 -m usage=0..0,limit=2");
    assert_eq!(none["expected"].as_u64(), Some(0), "{none}");
    // Reducing the number of copies has to be requested.
    let run = bench.run("balance start a.img -m convert=single");
    assert_eq!(run.status, 1, "{}", run.err);
    assert!(run.err.contains("fewer copies") && run.err.contains("-f"), "{}", run.err);
    assert_eq!(bench.ok("balance status a.img"), "no balance\n");
    bench.ok("balance start -q a.img -m convert=single -s convert=single -f");
    let usage = bench.json("usage --json a.img");
    assert_eq!(usage["metadata_percent"].as_u64(), Some(100));
    bench.ok("balance start -q a.img -d convert=dup -m convert=dup,soft -s all");
    let usage = bench.json("usage --json a.img");
    assert_eq!((usage["data_percent"].as_u64(), usage["metadata_percent"].as_u64()), (Some(200), Some(200)));
    bench.check("a.img");
    assert_eq!(bench.ok("cat a.img /a.txt"), "hello\n");
    for wrong in ["balance start a.img -d usage=x", "balance start a.img -d convert=raid5", "balance pause a.img"] {
        assert_eq!(bench.run(wrong).status, 2, "{wrong}");
    }
    let few = bench.run("balance start a.img -d convert=raid1");
    assert!(few.status == 1 && few.err.contains("needs 2 devices"), "{}", few.err);
    for none in ["balance resume a.img", "balance cancel a.img"] {
        let run = bench.run(none);
        assert_eq!(run.status, 1, "{none}: {}", run.err);
        assert!(run.err.contains("no balance"), "{}", run.err);
    }
}

#[test]
fn a_mount_is_balanced_while_it_is_used() {
    let Some(mounted) = Mounted::mount_if_possible("-o commit=1") else { return };
    let bench = &mounted.bench;
    let large = mounted.dir().join("large");
    std::fs::write(&large, vec![9; 20 << 20]).unwrap();
    let report = bench.json("balance start --json mnt -d all -m all");
    assert_eq!((word(&report, "state"), report["without_room"].as_u64()), ("none", Some(0)), "{report}");
    assert!(report["completed"].as_u64() >= Some(2), "{report}");
    assert!(std::fs::read(&large).unwrap() == vec![9; 20 << 20]);
    assert_eq!(bench.run("balance pause mnt").status, 1);
    bench.ok("balance start -q --background mnt");
    // It may have ended by now.
    let again = bench.run("balance start -q --background mnt");
    assert!([0, 1].contains(&again.status), "{}", again.err);
    let _ = bench.run("balance pause mnt");
    let status = bench.json("balance status --json mnt");
    if word(&status, "state") == "paused" {
        assert_eq!(word(&status, "spec"), "data metadata system");
        bench.ok("balance resume -q mnt");
    }
    assert_eq!(word(&bench.json("balance status --json mnt"), "state"), "none");
    mounted.unmount();
    bench.check("a.img");
    assert_eq!(bench.json("balance status --json a.img")["state"], "none");
}

#[test]
fn a_mount_changes_its_size_while_it_is_used() {
    let Some(mounted) = Mounted::mount_if_possible("-o commit=1") else { return };
    let bench = &mounted.bench;
    let large = mounted.dir().join("large");
    std::fs::write(&large, vec![9; 20 << 20]).unwrap();
    let before = bench.json("usage --json mnt")["device_bytes"].as_u64().unwrap();
    let grown = bench.json("resize --json +64M mnt");
    assert_eq!(grown["before_bytes"].as_u64(), Some(before), "{grown}");
    assert_eq!(grown["total_bytes"].as_u64(), Some(before + (64 << 20)), "{grown}");
    assert_eq!(bench.json("usage --json mnt")["device_bytes"].as_u64(), Some(before + (64 << 20)));
    let small = bench.json("resize --json min mnt")["total_bytes"].as_u64().unwrap();
    assert!(small < before && small > 20 << 20, "{small}");
    let run = bench.run("resize 16M mnt");
    assert!(run.status != 0 && run.err.contains("not enough free space"), "{}: {}", run.status, run.err);
    assert!(std::fs::read(&large).unwrap() == vec![9; 20 << 20]);
    bench.ok(&format!("resize -q {before} mnt"));
    std::fs::write(mounted.dir().join("more"), vec![7; 5 << 20]).unwrap();
    mounted.unmount();
    bench.check("a.img");
}
