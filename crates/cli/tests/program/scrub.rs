//! Scrubs of images and of mounts.

use crate::harness::Bench;
use crate::mounted::Mounted;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_rots_is_mended_or_named() {
    let bench = Bench::new();
    bench.filled_image();
    std::fs::write(bench.path("wide"), b"wide ".repeat(20_000)).unwrap();
    // First, so that nothing is left of it elsewhere on the device.
    bench.ok("balance start -q a.img -d convert=dup");
    bench.ok("put -q a.img wide /wide");
    bench.ok("subvolume snapshot a.img / /before");
    let sound = bench.json("scrub start --json a.img");
    assert_eq!((sound["errors"].as_u64(), sound["is_whole"].as_bool()), (Some(0), Some(true)), "{sound}");
    assert!(bench.ok("scrub start a.img").contains("no errors"));
    assert_eq!(bench.json("scrub stats --json a.img")["corruption"].as_u64(), Some(0));

    // One copy: the first that lies on the device.
    let places = bench.sectors_of("a.img", b"wide wide");
    assert!(places.len() >= 2, "{places:?}");
    bench.rot("a.img", places[0]);
    let before = std::fs::read(bench.path("a.img")).unwrap();
    let counted = bench.run("scrub start --readonly a.img");
    assert_eq!(counted.status, 3, "{}", counted.err);
    assert!(
        text(&counted.out).contains("left: data at ") && text(&counted.out).contains("data checksum"),
        "{}",
        text(&counted.out)
    );
    assert!(std::fs::read(bench.path("a.img")).unwrap() == before, "nothing is written");
    let mended = bench.ok("scrub start a.img");
    assert!(mended.contains("mended: data at ") && mended.contains("1 bad copies: 1 mended"), "{mended}");
    assert!(bench.ok("scrub start a.img").contains("no errors"));
    let stats = bench.run("scrub stats --reset a.img");
    assert_eq!(stats.status, 3);
    assert!(text(&stats.out).contains("[devid 1].corruption_errs  1"), "{}", text(&stats.out));
    assert!(bench.ok("scrub stats a.img").contains("corruption_errs  0"));
    bench.check("a.img");

    // The only copy there is.
    bench.ok("balance start -q a.img -d convert=single");
    for at in bench.sectors_of("a.img", b"wide wide") {
        bench.rot("a.img", at);
    }
    let run = bench.run("scrub start --json a.img");
    assert_eq!(run.status, 3, "{}", run.err);
    let report: serde_json::Value = serde_json::from_slice(&run.out).unwrap();
    let mut paths: Vec<&str> =
        report["lost"].as_array().unwrap().iter().filter_map(|lost| lost["path"].as_str()).collect();
    paths.sort_unstable();
    // Its text repeats, so more than one of its sectors begins so.
    paths.dedup();
    assert_eq!(paths, ["before/wide", "wide"], "{report}");
    assert_eq!(bench.run("scrub start --from=x a.img").status, 2);
}

#[test]
fn a_mount_is_scrubbed_while_it_is_used() {
    let Some(mounted) = Mounted::mount_if_possible("-o commit=1") else { return };
    let bench = &mounted.bench;
    std::fs::write(mounted.dir().join("large"), vec![9; 5 << 20]).unwrap();
    let report = bench.json("scrub start --json mnt");
    assert_eq!((report["errors"].as_u64(), report["is_whole"].as_bool()), (Some(0), Some(true)), "{report}");
    assert!(report["data_bytes"].as_u64() >= Some(5 << 20), "{report}");
    assert!(bench.ok("scrub stats mnt").contains("corruption_errs  0"));
}
