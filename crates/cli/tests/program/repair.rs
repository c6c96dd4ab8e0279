//! `spinney repair`: plan, written changes, exit statuses, and undo.

use crate::harness::Bench;

/// Where the first superblock is.
const FIRST: u64 = 64 << 10;

/// An image whose first superblock is rotten; the mirror at 64 MiB is whole.
fn rotten(bench: &Bench) -> Vec<u8> {
    bench.ok("mkfs --size 128M r.img");
    bench.rot("r.img", FIRST);
    std::fs::read(bench.path("r.img")).unwrap()
}

#[test]
fn a_sound_image_needs_none() {
    let bench = Bench::new();
    bench.filled_image();
    assert!(bench.ok("repair -q a.img").contains("nothing to repair"));
    let report = bench.json("repair -q --apply --json a.img");
    assert_eq!((&report["is_clean"], &report["applied"]), (&true.into(), &false.into()), "{report}");
    assert!(!bench.path("a.img.undo").exists());
    assert!(bench.ok("repair --list-steps").contains("free-space"));
    assert_eq!(bench.run("repair --step nonsense a.img").status, 16);
    assert_eq!(bench.run("repair missing.img").status, 8);
}

#[test]
fn a_plan_writes_nothing_and_a_repair_is_undone() {
    let bench = Bench::new();
    let before = rotten(&bench);
    let run = bench.run("repair -q r.img");
    assert_eq!(run.status, 4, "{}", run.err);
    let text = String::from_utf8_lossy(&run.out).into_owned();
    assert!(text.contains("superblock") && text.contains("May lose"), "{text}");
    assert!(std::fs::read(bench.path("r.img")).unwrap() == before, "a plan writes nothing");

    let run = bench.run("repair -q --apply r.img");
    assert_eq!(run.status, 1, "{}", run.err);
    bench.ok("check -q r.img");
    bench.check("r.img");
    // An undo file is never overwritten, so there is none for a second repair.
    bench.rot("r.img", FIRST);
    assert_eq!(bench.run("repair -q --apply r.img").status, 8);
    bench.ok("repair --undo r.img.undo r.img");
    assert!(std::fs::read(bench.path("r.img")).unwrap() == before, "every byte is back");

    std::fs::write(bench.path("lie"), b"spinney undo 1\n\0and no more").unwrap();
    assert_eq!(bench.run("repair --undo lie r.img").status, 8);
}
