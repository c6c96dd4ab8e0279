//! Earlier states of an image: listed, read, mounted, and refused by name if they are gone.

use crate::harness::Bench;
use crate::mounted::Mounted;

/// Numbers of the states that open.
fn opening(bench: &Bench) -> Vec<u64> {
    let report = bench.json("generations --json --check a.img");
    let all = report["generations"].as_array().unwrap();
    all.iter().filter(|one| one["is_whole"] == true).map(|one| one["generation"].as_u64().unwrap()).collect()
}

#[test]
fn an_earlier_state_is_read_as_it_was() {
    let bench = Bench::new();
    bench.filled_image();
    std::fs::write(bench.path("text"), "first").unwrap();
    bench.ok("put -q a.img text /text");
    let before = bench.json("generations --json a.img")["generations"][0]["generation"].as_u64().unwrap();
    bench.ok("rm a.img /text");
    let last = std::fs::read(bench.path("a.img")).unwrap();
    assert_eq!(bench.run("cat a.img /text").status, 1);
    assert_eq!(bench.ok(&format!("cat --generation {before} a.img /text")), "first");
    let whole = opening(&bench);
    assert!(whole.len() >= 2 && whole[0] > before && whole.contains(&before), "{whole:?} {before}");
    let text = bench.ok("generations a.img");
    assert!(text.contains("(the last)") && text.lines().count() <= 5, "{text}");
    for (line, status, why) in [
        ("ls --generation 99999 a.img", 4, "the superblock lists"),
        ("mount -o generation=7 a.img mnt", 2, "needs `ro`"),
    ] {
        let run = bench.run(line);
        assert!(run.status == status && run.err.contains(why), "{line}: {} {}", run.status, run.err);
    }
    assert!(std::fs::read(bench.path("a.img")).unwrap() == last, "something was written");
    // Until its blocks are overwritten.
    for number in 0..12 {
        bench.ok(&format!("mkdir a.img /d{number}"));
    }
    let run = bench.run(&format!("cat --generation {before} a.img /text"));
    assert_eq!(run.status, 4, "{}", run.err);
    bench.check("a.img");
}

#[test]
fn an_earlier_state_is_mounted_to_be_read() {
    let Some(mounted) = Mounted::if_possible() else { return };
    let bench = &mounted.bench;
    std::fs::write(bench.path("text"), "first").unwrap();
    bench.ok("put -q a.img text /text");
    let before = bench.json("generations --json a.img")["generations"][0]["generation"].to_string();
    bench.ok("rm a.img /text");
    bench.ok(&format!("mount -o ro,generation={before} a.img mnt"));
    assert_eq!(std::fs::read_to_string(mounted.dir().join("text")).unwrap(), "first");
    assert!(std::fs::write(mounted.dir().join("text"), "x").is_err());
    mounted.unmount();
    bench.ok("mount -o ro a.img mnt");
    assert!(!mounted.dir().join("text").exists());
    mounted.unmount();
    bench.check("a.img");
}
