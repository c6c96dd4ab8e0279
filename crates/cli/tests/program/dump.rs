//! `spinney dump` of damaged images shows the readable part, names the faults, and exits with the status of damage.

use crate::harness::Bench;

/// The addresses of the blocks of a tree.
fn blocks(bench: &Bench, tree: &str) -> Vec<u64> {
    let report = bench.json(&format!("dump tree --json a.img {tree}"));
    report["blocks"].as_array().unwrap().iter().map(|block| block["at"].as_u64().unwrap()).collect()
}

/// The offsets of the copies of a block.
fn places(bench: &Bench, at: u64) -> Vec<u64> {
    let report = bench.json(&format!("dump block --json a.img {at}"));
    report["copies"].as_array().unwrap().iter().map(|copy| copy["offset"].as_u64().unwrap()).collect()
}

#[test]
fn a_damaged_block_is_shown_and_said_to_be_damaged() {
    let bench = Bench::in_memory();
    bench.filled_image();
    let leaf = *blocks(&bench, "fs").last().unwrap();
    let whole = bench.ok(&format!("dump block a.img {leaf}"));
    let items = |text: &str| text.lines().filter(|line| line.starts_with("  (")).count();
    assert!(items(&whole) > 3, "{whole}");
    assert_eq!(whole.matches(": good").count(), 2, "{whole}");
    // In the free space of the leaf, so that all its items are whole.
    let places = places(&bench, leaf);
    bench.rot("a.img", places[1] + 12_288);
    let run = bench.run(&format!("dump block a.img {leaf}"));
    let text = String::from_utf8_lossy(&run.out).into_owned();
    assert_eq!((run.status, items(&text)), (3, items(&whole)), "{text}");
    assert!(text.contains(": good") && text.contains("checksum"), "{text}");
    assert_eq!(bench.run("dump tree a.img fs").status, 0, "a copy is right");
    bench.rot("a.img", places[0] + 12_288);
    let run = bench.run(&format!("dump block a.img {leaf}"));
    let text = String::from_utf8_lossy(&run.out).into_owned();
    assert_eq!((run.status, run.err_lines(), items(&text)), (3, 1, items(&whole)), "{text}{}", run.err);
    assert!(text.contains(&format!("block {leaf}: damaged: corrupt tree block checksum")), "{text}");
    let run = bench.run(&format!("dump block --json a.img {leaf}"));
    let report: serde_json::Value = serde_json::from_slice(&run.out).unwrap();
    assert_eq!(run.status, 3);
    assert!(report["blocks"][0]["problem"].as_str().unwrap().contains("checksum"), "{report}");
    assert_eq!(report["blocks"][0]["items"].as_array().unwrap().len(), items(&whole));
}

#[test]
fn a_tree_is_shown_around_its_damaged_blocks() {
    let bench = Bench::in_memory();
    bench.filled_image();
    let all = blocks(&bench, "fs");
    let whole = bench.ok("dump tree a.img fs").lines().count();
    for place in places(&bench, all[1]) {
        bench.rot("a.img", place + 8192);
    }
    let run = bench.run("dump tree a.img fs");
    let text = String::from_utf8_lossy(&run.out).into_owned();
    assert_eq!((run.status, text.matches(": damaged: ").count()), (3, 1), "{}", run.err);
    assert!(text.lines().count() + 30 > whole, "{} lines of {whole}", text.lines().count());
    for at in &all[2..] {
        assert!(text.contains(&format!("leaf {at} ")), "{at} is not shown");
    }
    // If the root tree is damaged, a block of a tree that it does not name can still be shown by its address.
    for at in blocks(&bench, "root") {
        places(&bench, at).iter().for_each(|place| bench.rot("a.img", *place));
    }
    let run = bench.run("dump tree a.img fs");
    assert_eq!(run.status, 3, "{}", run.err);
    assert!(run.err.contains("dump block"), "{}", run.err);
    assert_eq!(bench.run(&format!("dump block a.img {}", all[0])).status, 0);
    assert_eq!(bench.run("dump tree a.img root").status, 3);
}

#[test]
fn blocks_are_shown_without_a_whole_superblock() {
    let bench = Bench::in_memory();
    bench.filled_image();
    let leaf = *blocks(&bench, "fs").last().unwrap();
    bench.rot("a.img", 65_536);
    bench.rot("a.img", 64 << 20);
    let run = bench.run("dump super a.img");
    let text = String::from_utf8_lossy(&run.out).into_owned();
    assert_eq!(run.status, 3);
    assert!(text.contains("checksum") && text.contains("chunk_root"), "{text}");
    assert_eq!(bench.run(&format!("dump block a.img {leaf}")).status, 0);
    assert_eq!(bench.run("dump block a.img 12345").status, 2);
    let run = bench.run("dump block a.img 1099511627776");
    assert_eq!(run.status, 3, "an address in no chunk");
    assert!(String::from_utf8_lossy(&run.out).contains("an address in no chunk"));
}
