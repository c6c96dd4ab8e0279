//! Layout of contents: compressed, defragmented, recorded and drawn.

use crate::harness::Bench;
use crate::mounted::Mounted;

/// A file of lines in the source folder.
fn lines(bench: &Bench, name: &str, count: usize) {
    let text: String = (0..count).map(|n| format!("{n}: a wood of {} trees\n", n * 7919 % 100_003)).collect();
    std::fs::write(bench.path(name), text).unwrap();
}

fn compressions(bench: &Bench, path: &str) -> Vec<String> {
    let report = bench.json(&format!("stat --json --extents a.img {path}"));
    let extents = report["files"][0]["extents"].as_array().unwrap().clone();
    let mut kinds: Vec<String> = extents.iter().map(|extent| extent["compression"].to_string()).collect();
    kinds.dedup();
    kinds
}

#[test]
fn contents_are_compressed_and_laid_out_anew() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    lines(&bench, "text", 20_000);
    bench.ok("mkdir a.img /dir");
    bench.ok("put -q a.img text /dir/plain");
    bench.ok("put -q --compress zlib:9 a.img text /dir/small");
    assert_eq!(compressions(&bench, "/dir/plain"), ["\"none\""]);
    assert_eq!(compressions(&bench, "/dir/small"), ["\"zlib\""]);
    assert_eq!(bench.ok("defrag -q a.img /dir/plain /dir/small"), "");
    assert_eq!(compressions(&bench, "/dir/small"), ["\"zlib\""]);
    let report = bench.json("defrag -r -c=zstd:5 --json a.img /");
    let files = report["files"].as_array().unwrap();
    assert_eq!(files.len(), 2, "{report}");
    for file in files {
        assert!(file["after"]["disk_bytes"].as_u64() < Some(300_000), "{report}");
    }
    assert_eq!(compressions(&bench, "/dir/plain"), ["\"zstd\""]);
    assert_eq!(bench.ok("defrag -r -c a.img /"), "0 B moved, in 0 of 2 files\n");
    let text = std::fs::read_to_string(bench.path("text")).unwrap();
    assert_eq!(bench.ok("cat a.img /dir/plain /dir/small"), format!("{text}{text}"));
    bench.check("a.img");
    for (line, status, said) in [
        ("defrag a.img /dir", 1, "-r includes its contents"),
        ("defrag a.img /none", 1, "no such file"),
        ("defrag -c=zip a.img /dir/plain", 2, "`zip` is no compression"),
        ("put --compress lzo:1 a.img text /again", 2, "lzo has no levels"),
    ] {
        let run = bench.run(line);
        assert_eq!(run.status, status, "{line}: {}", run.err);
        assert!(run.err.contains(said), "{line}: {}", run.err);
    }
}

#[test]
fn equal_contents_become_shared() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    lines(&bench, "text", 50_000);
    bench.ok("mkdir a.img /dir");
    for name in ["one", "two", "three"] {
        bench.ok(&format!("put -q a.img text /dir/{name}"));
    }
    bench.ok("subvolume snapshot -r a.img / /before");
    let used = || bench.json("info --json a.img")["space"].to_string();
    let before = used();
    let size = std::fs::metadata(bench.path("text")).unwrap().len();
    let report = bench.json("dedupe -r --json a.img /dir");
    assert_eq!(report["bytes_shared"].as_u64(), Some(2 * size), "{report}");
    assert_eq!((&report["files"], &report["files_skipped"]), (&3.into(), &0.into()));
    assert_eq!(bench.ok("dedupe -r a.img /dir"), "0 B shared, in 3 files\n");
    // The snapshot has the old extents; without it, one copy is left.
    bench.ok("subvolume delete a.img /before");
    bench.check("a.img");
    assert_ne!(used(), before);
    let text = std::fs::read_to_string(bench.path("text")).unwrap();
    assert_eq!(bench.ok("cat a.img /dir/one /dir/two /dir/three"), format!("{text}{text}{text}"));
    for (line, status, said) in
        [("dedupe a.img /dir", 1, "-r includes its contents"), ("dedupe -b 5000 a.img /dir/one", 2, "a multiple of 4K")]
    {
        let run = bench.run(line);
        assert_eq!(run.status, status, "{line}: {}", run.err);
        assert!(run.err.contains(said), "{line}: {}", run.err);
    }
}

#[test]
fn requests_are_recorded_and_drawn() {
    let bench = Bench::new();
    lines(&bench, "text", 200_000);
    std::fs::create_dir(bench.path("src")).unwrap();
    std::fs::rename(bench.path("text"), bench.path("src/text")).unwrap();
    bench.ok("trace record -o make.trace mkfs -q --rootdir src a.img");
    bench.ok("trace record -o get.trace get -q --no-owner a.img / out");
    let report = bench.json("trace plot --json make.trace get.trace");
    let (made, got) = (&report["recordings"][0], &report["recordings"][1]);
    let data = std::fs::metadata(bench.path("src/text")).unwrap().len();
    let written = made["writes_by_kind"]["data"]["bytes"].as_u64().unwrap();
    assert!((data..data + 4096).contains(&written), "{report}");
    // Tree blocks are written twice (DUP), superblocks at two places of so small an image, before and after.
    assert!(made["writes_by_kind"]["metadata"]["requests"].as_u64() >= Some(2), "{report}");
    assert!(made["writes_by_kind"]["superblock"]["bytes"].as_u64() >= Some(2 * 4096), "{report}");
    assert!(got["writes"]["requests"] == 0 && got["reads"]["bytes"].as_u64() >= Some(data), "{report}");
    bench.ok("trace plot make.trace get.trace -o both.svg");
    let picture = std::fs::read_to_string(bench.path("both.svg")).unwrap();
    assert!(picture.contains("make.trace") && picture.contains("get.trace") && picture.len() < 200_000);
    assert!(bench.ok("trace plot make.trace").contains("metadata"));
    std::fs::write(bench.path("wrong"), "hello\n").unwrap();
    let run = bench.run("trace plot wrong");
    assert!(run.status == 3 && run.err.contains("wrong: line 1"), "{} {}", run.status, run.err);
    for line in ["mount a.img mnt", "trace plot make.trace", "nonsense"] {
        assert_eq!(bench.run(&format!("trace record -o x.trace {line}")).status, 2, "{line}");
    }
    let full = bench.run("trace record -o /dev/full ls a.img");
    assert!(full.status != 0 && full.err.contains("incomplete"), "{} {}", full.status, full.err);
}

#[test]
fn a_mount_is_recorded_to_its_end() {
    let Some(mounted) = Mounted::if_possible() else { return };
    let bench = &mounted.bench;
    bench.ok("mount -o trace=mount.trace a.img mnt");
    let file = bench.path("mnt/file");
    std::fs::write(&file, vec![7; 300_000]).unwrap();
    std::fs::File::open(&file).unwrap().sync_all().unwrap();
    // Complete when the server has ended.
    mounted.unmount();
    let report = bench.json("trace plot --json mount.trace");
    let kinds = &report["recordings"][0]["writes_by_kind"];
    for kind in ["data", "metadata", "log", "superblock"] {
        assert!(kinds[kind]["requests"].as_u64() > Some(0), "{kind}: {report}");
    }
    bench.check("a.img");
}

#[test]
fn an_image_is_drawn_as_a_map() {
    let bench = Bench::new();
    bench.filled_image();
    bench.ok("map a.img -o map.svg");
    let picture = std::fs::read_to_string(bench.path("map.svg")).unwrap();
    assert!(picture.contains("metadata") && picture.ends_with("</svg>\n") && picture.len() < 400_000);
    let report = bench.json("map --json a.img");
    let chunks = report["chunks"].as_array().unwrap();
    let names: Vec<&str> = chunks.iter().filter_map(|chunk| chunk["kind"].as_str()).collect();
    assert!(["data", "metadata", "system"].iter().all(|kind| names.contains(kind)), "{report}");
    for chunk in chunks {
        assert!(chunk["used"].as_u64() <= chunk["bytes"].as_u64(), "{report}");
        let copies = if chunk["kind"] == "data" { 1 } else { 2 };
        assert_eq!(chunk["stripes"].as_array().unwrap().len(), copies, "{report}");
    }
    assert!(bench.ok("map a.img").contains("metadata"));
}

/// For instance the image itself.
#[test]
fn what_is_no_recording_and_no_picture_is_not_written_over() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    bench.ok("trace record -o one.trace ls a.img");
    let image = std::fs::read(bench.path("a.img")).unwrap();
    std::fs::create_dir(bench.path("mnt")).unwrap();
    for line in [
        "map a.img -o a.img",
        "trace record -o a.img ls a.img",
        "trace record -o a.img mkdir a.img /d",
        "trace plot one.trace -o a.img",
        "trace plot one.trace -o one.trace",
        "mount -o trace=a.img a.img mnt",
    ] {
        let run = bench.run(line);
        assert_ne!(run.status, 0, "{line}");
        assert!(run.err.contains("is there already, and is something else"), "{line}: {}", run.err);
    }
    assert!(std::fs::read(bench.path("a.img")).unwrap() == image);
    // Again, over what was written by the first.
    for line in ["trace record -o one.trace ls a.img", "trace plot one.trace -o one.svg", "map a.img -o one.svg"] {
        bench.ok(line);
        bench.ok(line);
    }
    assert!(bench.ok("map a.img -o /dev/stdout").starts_with("<svg"));
}

/// A sparse file of the largest length takes no time.
#[test]
fn holes_take_no_time() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    let sparse = std::fs::File::create(bench.path("sparse")).unwrap();
    sparse.set_len(1 << 43).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[7; 10_000], 1 << 42).unwrap();
    drop(sparse);
    let begin = std::time::Instant::now();
    bench.ok("put -q a.img sparse /one");
    bench.ok("put -q --compress zstd --threads 2 a.img sparse /two");
    bench.ok("defrag -q -r -c a.img /");
    let report = bench.json("dedupe -r -b 4K --json a.img /");
    assert_eq!(report["files"], 2, "{report}");
    bench.ok("cp -q --reflink=never a.img /one /three");
    bench.ok("cp -q a.img /one /four");
    assert!(begin.elapsed() < std::time::Duration::from_secs(20), "{:?}", begin.elapsed());
    for name in ["/three", "/four"] {
        let stat = &bench.json(&format!("stat --json a.img {name}"))["files"][0];
        assert_eq!(stat["size"].as_u64(), Some(1 << 43), "{stat}");
    }
    bench.check("a.img");
}
