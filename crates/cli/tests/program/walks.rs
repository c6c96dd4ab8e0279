//! Commands that walk a tree continue past files that fail.

use crate::harness::Bench;

#[test]
fn commands_that_walk_go_on_past_what_they_have_to_leave() {
    let bench = Bench::new();
    bench.fill("src");
    bench.ok("mkfs -q --size 256M --rootdir src a.img");
    // Files in a read-only snapshot stay, and so do the directories above it.
    bench.ok("subvolume create a.img /v");
    bench.ok("put a.img src/a.txt /v/");
    bench.ok("subvolume snapshot -r a.img /v /sub/deep/inner");
    let run = bench.run("rm -r a.img /sub /a.txt");
    assert_eq!(run.status, 1, "{}", run.err);
    assert!(
        run.err.contains("/sub/deep/inner") && run.err.contains("could not be removed; the others were"),
        "{}",
        run.err
    );
    assert_eq!(bench.ok("ls -R a.img /sub"), "/sub:\ndeep\n\n/sub/deep:\ninner\n\n/sub/deep/inner:\na.txt\n");
    assert_eq!(bench.run("stat a.img /a.txt").status, 1);
    // An existing name stays, and new ones are added.
    bench.ok("mkdir a.img /d /d/sub");
    bench.ok("put a.img src/nothing /d/sub/large");
    let run = bench.run("put a.img src/. /d");
    assert_eq!(run.status, 1, "{}", run.err);
    assert!(run.err.contains("one entry could not be copied; the others were"), "{}", run.err);
    assert!(run.err.contains("sub/large"), "{}", run.err);
    assert_eq!(bench.ok("cat a.img /d/sub/large"), "");
    bench.ok("get a.img /d out");
    for name in ["a.txt", "middle", "sub/again.txt", "sub/deep/file-599"] {
        assert!(
            std::fs::read(bench.path("src").join(name)).unwrap()
                == std::fs::read(bench.path("out").join(name)).unwrap()
        );
    }
    bench.check("a.img");
}

#[test]
fn a_directory_that_cannot_be_read_hides_no_other() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    bench.ok("mkdir a.img /first /second /third /dest");
    // A directory with leaves of its own.
    std::fs::create_dir(bench.path("many")).unwrap();
    for number in 0..300 {
        std::fs::write(bench.path(&format!("many/{}-{number:04}", "name-of-a-file".repeat(12))), "x").unwrap();
    }
    bench.ok("put a.img many /second/");
    std::fs::write(bench.path("file"), "seen").unwrap();
    bench.ok("put a.img file /first/file");
    bench.ok("put a.img file /third/file");
    let many = bench.json("stat --json a.img /second/many")["files"][0]["ino"].as_u64().unwrap();
    rot_leaves_of(&bench, many);
    for (line, seen) in [("ls -R a.img /", "/third:\nfile\n"), ("tree a.img /", "third\n"), ("du a.img", "/third/file")]
    {
        let run = bench.run(line);
        let out = String::from_utf8_lossy(&run.out);
        assert!(run.status == 3 && out.contains(seen), "{line}: {} {out} {}", run.status, run.err);
    }
    let run = bench.run("cp -r a.img /first /second /third /dest");
    assert!(run.status == 3 && run.err.contains("one entry could not be copied; the others were"), "{}", run.err);
    assert_eq!(bench.ok("cat a.img /dest/first/file /dest/third/file"), "seenseen");
}

/// Damages every leaf that begins with a name of this directory.
fn rot_leaves_of(bench: &Bench, ino: u64) {
    const NODE_BYTES: usize = 16 << 10;
    let bytes = std::fs::read(bench.path("a.img")).unwrap();
    let number = |node: &[u8], at: usize| u64::from_le_bytes(node[at..at + 8].try_into().unwrap());
    for (at, node) in (0_u64..).step_by(NODE_BYTES).zip(bytes.chunks_exact(NODE_BYTES)) {
        let is_leaf_of_files = number(node, 48) != 0 && number(node, 88) == 5 && node[100] == 0;
        if is_leaf_of_files && number(node, 101) == ino && [84, 96].contains(&node[109]) {
            bench.rot("a.img", at + 8192);
        }
    }
}
