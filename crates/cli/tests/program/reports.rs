//! Reports for programs and for people.

use std::process::Command;

use serde_json::Value;

use crate::harness::Bench;

#[test]
fn json_reports_have_their_fields() {
    let bench = Bench::new();
    bench.filled_image();
    let info = bench.json("info --json a.img");
    for field in ["label", "uuid", "generation", "csum", "features", "devices", "space"] {
        assert!(info.get(field).is_some(), "info: {field}");
    }
    let ls = bench.json("ls --json a.img /sub");
    let again = ls["entries"].as_array().unwrap().iter().find(|e| e["name"] == "again.txt");
    let again = again.unwrap();
    assert_eq!(again["path"], "/sub/again.txt");
    assert_eq!((&again["kind"], &again["size"], &again["nlink"]), (&"file".into(), &6.into(), &2.into()));
    let tree = bench.json("tree --json a.img");
    let sub = tree["children"].as_array().unwrap().iter().find(|e| e["name"] == "sub").unwrap();
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
    assert!(chunks["chunks"].as_array().unwrap().iter().all(|chunk| chunk["used"].is_u64()));
    let fs = bench.json("dump tree --json a.img fs");
    let blocks = fs["blocks"].as_array().unwrap();
    let leaf = blocks.iter().find(|block| block["level"] == 0).unwrap();
    assert_eq!(leaf["items"][0]["key"]["objectid"], 256);
    let one = bench.json(&format!("dump tree --json a.img --block {}", leaf["at"]));
    assert_eq!(&one["blocks"][0], leaf);
}

/// Commands that change something reported nothing, so scripts had to find the new files themselves.
#[test]
fn what_was_changed_is_reported_as_json() {
    let bench = Bench::new();
    bench.filled_image();
    let at = |report: &Value, pointer: &str| report.pointer(pointer).cloned().unwrap_or_default();
    let made = bench.json("mkdir --json -p a.img /x/y /empty");
    assert_eq!((at(&made, "/made/0/path"), at(&made, "/made/1/path")), ("/x".into(), "/x/y".into()));
    assert_eq!(made["made"].as_array().unwrap().len(), 2);
    let ino = bench.json("stat --json a.img /x/y")["files"][0]["ino"].clone();
    assert_eq!((at(&made, "/made/1/ino"), at(&made, "/made/1/subvolume")), (ino, 5.into()));
    let put = bench.json("put --json a.img src/sub src/a.txt /x");
    assert_eq!((at(&put, "/made/0/path"), at(&put, "/made/1/path")), ("/x/sub".into(), "/x/a.txt".into()));
    let tree = bench.json("ls -R --json a.img /x/sub");
    assert_eq!(put["entries"], tree_len(&tree) + 2);
    assert!(put["bytes"].as_u64().unwrap() > 3_500_000, "{put}");
    let get = bench.json("get --json a.img /x out");
    let left_out = serde_json::json!({"owners": 0, "attributes": 0, "devices": 0, "setid": 0});
    assert_eq!(get["entries"], tree_len(&tree) + 4);
    assert_eq!((&get["failed"], &get["present"]), (&0.into(), &0.into()));
    assert_eq!((&get["bytes"], &get["left_out"]), (&put["bytes"], &left_out));
    assert_eq!(bench.json("get --json -q -c a.img /x/. out")["present"], tree_len(&tree) + 1 - 2);
    let again = bench.run("get --json -q a.img /x/. out");
    let report: Value = serde_json::from_slice(&again.out).unwrap();
    assert_eq!((again.status, report["failed"].as_u64().unwrap()), (1, tree_len(&tree) + 1 - 2), "{}", again.err);
    let ln = bench.json("ln --json -s a.img ../a.txt /x/link");
    assert_eq!((&ln["path"], &ln["target"], &ln["symbolic"]), (&"/x/link".into(), &"../a.txt".into(), &true.into()));
    let mv = bench.json("mv --json a.img /x/link /x/a.txt /x/y");
    assert_eq!((at(&mv, "/moved/0/from/path"), at(&mv, "/moved/1/to/path")), ("/x/link".into(), "/x/y/a.txt".into()));
    let rm = bench.json("rm --json -rf a.img /x/y /none /x/sub");
    assert_eq!(rm, serde_json::json!({"removed": [{"path": "/x/y"}, {"path": "/x/sub"}]}));
    let home = bench.json("subvolume create --json a.img /home");
    let snapshot = bench.json("subvolume snapshot -r --json a.img /home /x/monday");
    let list = bench.json("subvolume list --json a.img");
    let listed = list["subvolumes"].as_array().unwrap().iter().find(|entry| entry["id"] == home["id"]);
    assert_eq!(listed.unwrap(), &home);
    assert_eq!((&snapshot["parent_uuid"], &snapshot["path"]), (&home["uuid"], &"x/monday".into()));
    assert_eq!((&home["id"], &snapshot["id"], &snapshot["read_only"]), (&256.into(), &257.into(), &true.into()));
    assert_eq!(bench.json("subvolume set-default --json a.img /home")["id"], 256);
    assert_eq!(bench.json("subvolume get-default --json a.img")["id"], 256);
    bench.ok("subvolume set-default --subvolume-id 5 a.img /");
    let deleted = bench.json("subvolume delete --json --subvolume-id 5 a.img /x/monday /home");
    assert_eq!((at(&deleted, "/deleted/0/id"), at(&deleted, "/deleted/1/uuid")), (257.into(), home["uuid"].clone()));
    assert_eq!(bench.json("label --json a.img new")["label"], "new");
    assert_eq!(bench.json("mkfs --json --size 256M b.img")["label"], "");
    bench.check("a.img");
}

fn tree_len(tree: &Value) -> u64 {
    u64::try_from(tree["entries"].as_array().unwrap().len()).unwrap()
}

#[test]
fn every_tree_is_dumped() {
    let bench = Bench::new();
    bench.filled_image();
    for tree in ["root", "extent", "chunk", "dev", "fs", "csum", "uuid", "free-space", "block-group"] {
        let text = bench.ok(&format!("dump tree a.img {tree}"));
        assert!(text.starts_with("leaf ") || text.starts_with("node "), "{tree}: {text}");
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
    assert!(tree.contains("├── a.txt\n") && tree.contains("└── sub\n"), "{tree}");
    assert!(tree.ends_with("\n2 directories, 7 files\n"), "{tree}");
    let long = bench.ok("ls -l a.img");
    assert!(long.lines().any(|line| line.starts_with("-rwsr-x--x 1 ") && line.ends_with(" middle")));
    assert!(long.contains("1999-01-01 00:00:00"), "{long}");
    assert!(long.contains("outside -> /etc/passwd"), "{long}");
    let stat = bench.ok("stat a.img /middle");
    assert!(stat.contains("Modify: 1999-01-01 00:00:00.123456789 UTC"), "{stat}");
    assert!(bench.ok("dump chunks a.img").contains("device 1: "));
    assert!(bench.ok("mkfs -O list-all").contains("block-group-tree"));
}

/// Names that are links to one file could be told only from the JSON report.
#[test]
fn ls_shows_inode_numbers() {
    let bench = Bench::new();
    bench.filled_image();
    let inode = |path: &str| bench.json(&format!("stat --json a.img {path}"))["files"][0]["ino"].to_string();
    let short = bench.ok("ls -i a.img");
    let names = bench.ok("ls a.img");
    let expected = names.lines().map(|name| format!("{} {name}\n", inode(&format!("/{name}"))));
    assert_eq!(short, expected.collect::<String>());
    let long = bench.ok("ls -l a.img /sub");
    let numbered = bench.ok("ls -l --inode a.img /sub");
    let cut = numbered.lines().map(|line| line.split_once(' ').unwrap().1.to_owned() + "\n");
    assert_eq!(cut.collect::<String>(), long);
    let again = numbered.lines().find(|line| line.ends_with(" again.txt")).unwrap();
    assert!(again.starts_with(&format!("{} -rw", inode("/a.txt"))), "{numbered}");
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
        assert!(bench.ok(&format!("completions {shell}")).contains("mkfs"), "{shell}");
    }
    assert!(bench.ok("--help").contains("Exit status"));
}
