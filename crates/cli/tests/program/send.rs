//! `spinney send` and `spinney diff`: streams, and refusals.

use crate::harness::Bench;

/// A subvolume, a snapshot of it, changes, and another snapshot.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.fill("src");
    bench.ok("mkfs -q --size 128M a.img");
    bench.ok("subvolume create a.img /home");
    bench.ok("put a.img src/sub src/a.txt /home");
    bench.ok("subvolume snapshot -r a.img /home /one");
    bench.ok("mv a.img /home/a.txt /home/b.txt");
    bench.ok("mkdir a.img /home/new");
    bench.ok("subvolume snapshot -r a.img /home /two");
    bench
}

#[test]
fn streams_go_where_they_are_sent() {
    let bench = bench();
    assert_eq!(bench.ok("send -f whole.stream a.img /one /two"), "");
    assert_eq!(bench.ok("send -p /one -f part.stream --proto 2 --compressed-data a.img /two"), "");
    let [whole, part] = ["whole.stream", "part.stream"].map(|name| std::fs::read(bench.path(name)).unwrap());
    assert!(whole.starts_with(b"btrfs-stream\0\x01\0\0\0"));
    assert!(part.starts_with(b"btrfs-stream\0\x02\0\0\0"));
    assert!(part.len() < 2000 && part.len() < whole.len() / 2, "{} of {}", part.len(), whole.len());
}

#[test]
fn what_cannot_be_sent_is_refused_and_leaves_nothing() {
    let bench = bench();
    for (line, code, said) in [
        ("send -f x a.img /home", 1, "subvolume snapshot -r"),
        ("send -f x a.img /one/sub", 1, "/one/sub"),
        ("send -f x -p /home a.img /one", 1, "subvolume snapshot -r"),
        ("send -f x -p /none a.img /one", 1, "none"),
        ("send -f x --compressed-data a.img /one", 2, "--proto 2"),
        ("send -f x --proto 3 a.img /one", 2, "3"),
    ] {
        let run = bench.run(line);
        assert_eq!(run.status, code, "{line}: {}", run.err);
        assert!(run.err.contains(said), "{line}: {}", run.err);
        assert!(!bench.path("x").exists(), "{line}");
    }
}

#[test]
fn diff_says_what_became_of_names() {
    let bench = bench();
    assert_eq!(bench.ok("diff a.img /one /two"), "R a.txt -> b.txt\n+ new\n");
    assert_eq!(bench.ok("diff a.img /two /two"), "");
    let report = bench.json("diff --json a.img /one /two");
    assert_eq!(report[0]["change"], "changed");
    assert_eq!(report[0]["names"][0]["old"]["path"], "a.txt");
    assert_eq!(report[1]["change"], "added");
    assert_eq!(report[1]["path"], "new");
    // Of unrelated subvolumes, too, the root directory is the same place.
    bench.ok("subvolume create a.img /else");
    let unrelated = bench.ok("diff a.img /one /else");
    assert!(unrelated.contains("- a.txt\n") && !unrelated.contains(".."), "{unrelated}");
}

#[test]
fn the_nearest_relative_among_clone_sources_is_the_parent() {
    let bench = bench();
    bench.ok("rm -r a.img /home/sub");
    bench.ok("subvolume snapshot -r a.img /home /three");
    bench.ok("subvolume snapshot -r a.img /one /of-one");
    bench.ok("subvolume create a.img /else");
    bench.ok("subvolume snapshot -r a.img /else /stranger");
    let parent_of = |line: &str| {
        bench.ok(&format!("send -f s {line}"));
        let dump = bench.ok("receive --dump -f s");
        let first = dump.lines().next().unwrap().to_owned();
        first.split_once("parent_uuid=").map(|(_, rest)| rest.split(' ').next().unwrap().to_owned())
    };
    let list = bench.json("subvolume list --json a.img");
    let uuid = |path: &str| {
        let all = list["subvolumes"].as_array().unwrap();
        let found = all.iter().find(|found| found["path"] == path).unwrap();
        Some(found["uuid"].as_str().unwrap().to_owned())
    };
    // Of two snapshots of the same subvolume, the one made nearer; first the one that it is a snapshot of.
    assert_eq!(parent_of("-c /one -c /two a.img /three"), uuid("two"));
    assert_eq!(parent_of("-c /two -c /three a.img /one"), uuid("two"));
    assert_eq!(parent_of("-c /two -c /one a.img /of-one"), uuid("one"));
    assert_eq!(parent_of("-c /stranger -c /one a.img /two"), uuid("one"));
    // Without a relative it is sent whole.
    assert_eq!(parent_of("-c /stranger a.img /two"), None);
    // The requested parent is used.
    assert_eq!(parent_of("-p /one -c /two a.img /three"), uuid("one"));
}

#[test]
fn what_cannot_be_sent_leaves_the_file_as_it_was() {
    let bench = bench();
    std::fs::write(bench.path("kept"), "yesterday").unwrap();
    assert_eq!(bench.run("send -f kept a.img /none").status, 1);
    assert_eq!(std::fs::read(bench.path("kept")).unwrap(), b"yesterday");
    std::fs::write(bench.path("kept"), vec![b'x'; 1 << 20]).unwrap();
    bench.ok("send -f kept -p /one a.img /two");
    bench.ok("send -f new -p /one a.img /two");
    assert!(std::fs::read(bench.path("kept")).unwrap() == std::fs::read(bench.path("new")).unwrap());
}

#[test]
fn a_stream_without_data_is_shown_and_not_received() {
    let bench = bench();
    bench.ok("mkfs -q --size 128M b.img");
    bench.ok("send --no-data -f hollow a.img /one");
    assert!(bench.ok("receive --dump -f hollow").contains("update_extent"));
    let run = bench.run("receive -f hollow b.img");
    assert!(run.status == 1 && run.err.contains("no data"), "{}", run.err);
    let left = &bench.json("subvolume list --json b.img")["subvolumes"];
    assert!(left[0]["read_only"] == false && left[0]["received_uuid"].is_null(), "{left}");
}

/// As a kernel does it: the end of a file can be cloned where the other file ends there, so it is made to.
#[test]
fn a_shorter_file_is_cloned_to_its_last_byte() {
    let bench = bench();
    std::fs::create_dir(bench.path("more")).unwrap();
    std::fs::write(bench.path("more/source"), vec![b's'; 262_149]).unwrap();
    std::fs::write(bench.path("more/target"), vec![b't'; 1 << 20]).unwrap();
    bench.ok("put a.img more/source more/target /home");
    bench.ok("subvolume snapshot -r a.img /home /three");
    bench.ok("cp --reflink=always -f a.img /home/source /home/target");
    bench.ok("subvolume snapshot -r a.img /home /four");
    bench.ok("send -f all a.img /three");
    bench.ok("send -f part -p /three a.img /four");
    let commands = bench.ok("receive --dump -f part");
    assert!(commands.contains("clone") && commands.contains("len=262149"), "{commands}");
    assert!(!commands.lines().any(|line| line.starts_with("write")), "{commands}");
    bench.ok("mkfs -q --size 128M b.img");
    bench.ok("receive -f all b.img");
    bench.ok("receive -f part b.img");
    bench.ok("get b.img /four/target out");
    assert!(std::fs::read(bench.path("out")).unwrap() == vec![b's'; 262_149]);
    bench.check("b.img");
}
