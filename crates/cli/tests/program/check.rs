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

#[test]
fn an_f2fs_image_is_checked_as_well() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("dir")).unwrap();
    std::fs::write(bench.path("dir/file"), b"contents ".repeat(10_000)).unwrap();
    bench.ok("mkfs -q -t f2fs --rootdir dir a.img");
    let bytes = std::fs::read(bench.path("a.img")).unwrap();
    assert!(bench.ok("check a.img").contains("No errors found."));
    let report = bench.json("check --json a.img");
    assert_eq!((&report["is_clean"], report["findings"].as_array().map(Vec::len)), (&true.into(), Some(0)), "{report}");
    assert!(std::fs::read(bench.path("a.img")).unwrap() == bytes, "a check writes nothing");
    // The count of links of the root directory, of which an older copy may lie before, stands behind mode, advice,
    // inline flags, owner and group.
    let mode = [0xed, 0x41];
    let root = (0..bytes.len() / 4096)
        .map(|block| block * 4096)
        .rfind(|at| bytes[*at..].starts_with(&mode) && bytes[*at + 4072..*at + 4080] == [3, 0, 0, 0, 3, 0, 0, 0]);
    let mut damaged = bytes.clone();
    damaged[root.unwrap() + 12] = 9;
    std::fs::write(bench.path("b.img"), &damaged).unwrap();
    let run = bench.run("check --json --pass files b.img");
    assert_eq!(run.status, 4, "{}", run.err);
    let report: serde_json::Value = serde_json::from_slice(&run.out).unwrap();
    assert_eq!(report["counts"], serde_json::json!({ "dir-links": 1 }), "{report}");
    assert_eq!((&report["findings"][0]["path"], &report["findings"][0]["inode"]), (&"/".into(), &3.into()));
    // The first superblock is gone: the second says what it is, and counts.
    damaged = bytes;
    damaged[1024..1028].fill(0);
    std::fs::write(bench.path("c.img"), &damaged).unwrap();
    let run = bench.run("check c.img");
    assert_eq!(run.status, 4, "{}", run.err);
    assert!(String::from_utf8_lossy(&run.out).contains("super-copy (1)"));
    damaged[5120..5124].fill(0);
    std::fs::write(bench.path("d.img"), &damaged).unwrap();
    assert_eq!(bench.run("check d.img").status, 8);
    bench.ok("check --data a.img");
    for words in ["check --pass chunks a.img", "check --device b.img a.img"] {
        assert_eq!(bench.run(words).status, 16, "{words}");
    }
    assert!(bench.ok("check --explain dir-hash").contains("(f2fs, files)"));
}
