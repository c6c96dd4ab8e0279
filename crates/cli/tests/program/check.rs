//! `spinney check`: what it says of sound and of damaged images, and how it ends.

use crate::harness::Bench;

#[test]
fn a_sound_image_has_nothing_to_be_said_of() {
    let bench = Bench::new();
    bench.filled_image();
    let bytes = std::fs::read(bench.path("a.img")).unwrap();
    bench.ok("check a.img");
    let report = bench.json("check --data --json a.img");
    assert_eq!(report["findings"].as_array().map(Vec::len), Some(0), "{report}");
    assert!(std::fs::read(bench.path("a.img")).unwrap() == bytes, "a check writes nothing");
    for pass in ["super", "chunks", "trees", "extents", "files", "csums"] {
        assert!(bench.ok("check --list-passes").contains(pass), "{pass}");
    }
    assert!(bench.ok("check --explain all").lines().count() > 98);
    assert_eq!(bench.run("check --pass nonsense a.img").status, 16);
    assert_eq!(bench.run("check missing.img").status, 8);
    std::fs::write(bench.path("blank.img"), vec![0; 128 << 20]).unwrap();
    let run = bench.run("check blank.img");
    assert_eq!(run.status, 8, "{}", run.err);
    assert!(run.err.contains("rescue get blank.img") && run.err.contains("spinney repair"), "{}", run.err);
}

#[test]
fn what_is_wrong_is_told_with_a_code_and_a_path() {
    let bench = Bench::new();
    bench.filled_image();
    std::fs::write(bench.path("wide"), b"wide ".repeat(20_000)).unwrap();
    bench.ok("put -q a.img wide /wide");
    bench.rot("a.img", bench.sectors_of("a.img", b"wide wide")[0]);
    // Data is read only where that is asked for.
    bench.ok("check a.img");
    let run = bench.run("check --data a.img");
    assert_eq!(run.status, 4, "{}", run.err);
    let text = String::from_utf8_lossy(&run.out).into_owned();
    assert!(text.contains("data") && text.contains("wide"), "{text}");
    let run = bench.run("check --data --json a.img");
    assert_eq!(run.status, 4, "{}", run.err);
    let report: serde_json::Value = serde_json::from_slice(&run.out).unwrap();
    assert!(report["findings"].as_array().is_some_and(|found| !found.is_empty()), "{report}");
}
