//! Reports for programs and for people.

use std::process::Command;

use crate::harness::Bench;

#[test]
fn json_reports_have_their_fields() {
    let bench = Bench::new();
    bench.filled_image();
    let info = bench.json("info --json a.img");
    for field in [
        "label",
        "uuid",
        "generation",
        "csum",
        "features",
        "devices",
        "space",
    ] {
        assert!(info.get(field).is_some(), "info: {field}");
    }
    let ls = bench.json("ls --json a.img /sub");
    let again = ls["entries"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["name"] == "again.txt");
    let again = again.unwrap();
    assert_eq!(again["path"], "/sub/again.txt");
    assert_eq!(
        (&again["kind"], &again["size"], &again["nlink"]),
        (&"file".into(), &6.into(), &2.into())
    );
    let tree = bench.json("tree --json a.img");
    let sub = tree["children"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["name"] == "sub")
        .unwrap();
    assert_eq!(sub["kind"], "directory");
    let stat = bench.json("stat --json --extents a.img /sub/link /sub/large");
    assert_eq!(stat["files"][0]["target"], "../a.txt");
    assert_eq!(stat["files"][1]["extents"][0]["kind"], "data");
    assert_eq!(stat["files"][1]["size"], 3_500_001);
    let supers = bench.json("dump super --all --json a.img");
    assert_eq!(supers["copies"].as_array().unwrap().len(), 2);
    assert_eq!(supers["copies"][1]["offset"], 64 << 20);
    assert!(supers["copies"][0]["problem"].is_null());
    let chunks = bench.json("dump chunks --json a.img");
    assert!(
        chunks["chunks"]
            .as_array()
            .unwrap()
            .iter()
            .all(|chunk| chunk["used"].is_u64())
    );
    let fs = bench.json("dump tree --json a.img fs");
    let blocks = fs["blocks"].as_array().unwrap();
    let leaf = blocks.iter().find(|block| block["level"] == 0).unwrap();
    assert_eq!(leaf["items"][0]["key"]["objectid"], 256);
    let one = bench.json(&format!("dump tree --json a.img --block {}", leaf["at"]));
    assert_eq!(&one["blocks"][0], leaf);
}

#[test]
fn every_tree_is_dumped() {
    let bench = Bench::new();
    bench.filled_image();
    for tree in [
        "root",
        "extent",
        "chunk",
        "dev",
        "fs",
        "csum",
        "uuid",
        "free-space",
        "block-group",
    ] {
        let text = bench.ok(&format!("dump tree a.img {tree}"));
        assert!(
            text.starts_with("leaf ") || text.starts_with("node "),
            "{tree}: {text}"
        );
    }
    assert_eq!(bench.run("dump tree a.img 999").status, 1);
    assert_eq!(bench.run("dump tree a.img --block 12345").status, 2);
    assert_eq!(bench.run("dump tree a.img --block 4096").status, 3);
}

#[test]
fn text_reports_are_for_people() {
    let bench = Bench::new();
    bench.filled_image();
    let tree = bench.ok("tree -L 1 a.img");
    assert!(
        tree.contains("├── a.txt\n") && tree.contains("└── sub\n"),
        "{tree}"
    );
    assert!(tree.ends_with("\n2 directories, 7 files\n"), "{tree}");
    let long = bench.ok("ls -l a.img");
    assert!(
        long.lines()
            .any(|line| line.starts_with("-rwsr-x--x 1 ") && line.ends_with(" middle"))
    );
    assert!(long.contains("1999-01-01 00:00:00"), "{long}");
    assert!(long.contains("outside -> /etc/passwd"), "{long}");
    let stat = bench.ok("stat a.img /middle");
    assert!(
        stat.contains("Modify: 1999-01-01 00:00:00.123456789 UTC"),
        "{stat}"
    );
    assert!(bench.ok("dump chunks a.img").contains("device 1: "));
    assert!(bench.ok("mkfs -O list-all").contains("block-group-tree"));
}

#[test]
fn manuals_and_completions_are_printed() {
    let bench = Bench::new();
    assert!(bench.ok("man").contains("Exit status"));
    std::fs::create_dir(bench.path("man1")).unwrap();
    bench.ok("man --dir man1");
    assert!(bench.path("man1/spinney-mkfs.1").is_file());
    let mut pages: Vec<_> = std::fs::read_dir(bench.path("man1")).unwrap().map(|page| page.unwrap().path()).collect();
    pages.sort();
    assert!(pages.len() > 25);
    match Command::new("groff").args(["-ww", "-man", "-Tutf8", "-z"]).args(&pages).output() {
        Ok(judged) => assert!(judged.status.success() && judged.stderr.is_empty(), "{judged:?}"),
        Err(_) => eprintln!("SKIPPED: no groff to judge the pages"),
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            bench.ok(&format!("completions {shell}")).contains("mkfs"),
            "{shell}"
        );
    }
    assert!(bench.ok("--help").contains("Exit status"));
}
