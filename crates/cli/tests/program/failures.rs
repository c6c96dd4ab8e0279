//! Failures are reported in one line, with the status of their kind.

use std::io::Read as _;
use std::process::{Command, Stdio};

use crate::harness::Bench;

#[test]
fn statuses_say_what_happened() {
    let bench = Bench::new();
    bench.filled_image();
    std::fs::write(bench.path("garbage"), vec![0xa5; 1 << 20]).unwrap();
    std::fs::write(bench.path("short"), b"short").unwrap();
    for (line, status) in [
        ("ls missing.img", 1),
        ("ls a.img /missing", 1),
        ("ls a.img /a.txt/x", 1),
        ("cat a.img /sub", 1),
        ("get a.img /missing out", 1),
        ("put a.img missing /", 1),
        ("put a.img src/a.txt /missing/", 1),
        ("put a.img src/a.txt src/middle /missing", 1),
        ("ls", 2),
        ("nonsense", 2),
        ("mkfs new.img", 2),
        ("mkfs --nodesize 5000 --size 1G new.img", 2),
        ("mkfs -O nonsense --size 1G new.img", 2),
        ("ls garbage", 3),
        ("info short", 3),
        ("dump super garbage", 3),
        ("dump super short", 3),
        ("mkfs -O raid56 --size 1G new.img", 4),
        ("mkfs --size 1M new.img", 5),
    ] {
        let run = bench.run(line);
        assert_eq!(run.status, status, "{line}: {}", run.err);
        if status != 2 || run.err.starts_with("spinney") {
            assert_eq!(run.err_lines(), 1, "{line}: {}", run.err);
            assert!(run.err.starts_with("spinney: "), "{line}: {}", run.err);
        }
        assert!(run.out.is_empty() || line.starts_with("dump super"), "{line}");
    }
    assert!(!bench.path("new.img").exists());
}

/// They spoke of magic numbers and invalid arguments.
#[test]
fn messages_say_what_is_wrong_and_what_to_do() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M --owner root:root a.img");
    bench.ok("mkdir a.img /d");
    bench.ok("mkdir a.img /d/e");
    let write = |name: &str, bytes: &[u8]| std::fs::write(bench.path(name), bytes).unwrap();
    write("empty", b"");
    write("text", b"hello");
    write("z.gz", &[&b"\x1f\x8b"[..], &vec![7; 200_000]].concat());
    write("noise", &vec![7; 200_000]);
    for (line, status, text) in [
        ("ls empty", 3, "empty: no btrfs or f2fs image: it is empty"),
        ("ls text", 3, "text: no btrfs or f2fs image: it has 5 bytes, too few for a superblock"),
        ("ls z.gz", 3, "z.gz: no btrfs or f2fs image: it looks like gzip data"),
        ("ls noise", 3, "noise: no btrfs or f2fs image: it holds no file system that is known here"),
        ("rm -r a.img /", 1, "/: the root directory of an image stays"),
        ("mv a.img /d /d/e", 1, "/d: a directory cannot move to /d/e/d, which is in itself"),
        ("ln a.img /d /f", 1, "/d: a directory has one name only"),
        ("subvolume delete a.img /d", 1, "/d: no subvolume; `rm -r` removes directories"),
        ("mkfs -q --owner no-user-of-this-name:0 --size 256M b.img", 2, "as numbers or names of this machine"),
    ] {
        let run = bench.run(line);
        assert_eq!(run.status, status, "{line}: {}", run.err);
        assert!(run.err.contains(text), "{line}: {}", run.err);
    }
    if crate::mounted::can_mount() {
        std::fs::create_dir(bench.path("mnt")).unwrap();
        bench.ok("mount a.img mnt");
        let run = bench.run("ls --subvolume-id 5 a.img");
        bench.ok("umount mnt");
        assert_eq!(run.status, 7, "{}", run.err);
        assert!(run.err.contains("a.img: mounted at ") && run.err.contains("unmount it first"), "{}", run.err);
    }
}

#[test]
fn a_full_image_is_told_and_stays_sound() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    std::fs::write(bench.path("large"), vec![1; 280 << 20]).unwrap();
    let run = bench.run("put a.img large /");
    assert_eq!(run.status, 5, "{}", run.err);
    bench.check("a.img");
    bench.ok("rm -f a.img /large");
    bench.ok("mkdir a.img /still-works");
    bench.check("a.img");
}

#[test]
fn an_image_in_use_is_busy() {
    let bench = Bench::new();
    bench.filled_image();
    let image = std::fs::File::open(bench.path("a.img")).unwrap();
    rustix::fs::flock(&image, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    for line in ["ls a.img", "mkdir a.img /x", "mkfs -f --size 128M a.img"] {
        let run = bench.run(line);
        assert_eq!(run.status, 7, "{line}: {}", run.err);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let bench = Bench::new();
    bench.filled_image();
    for line in ["ls -lR a.img", "cat a.img /sub/large", "tree a.img", "dump tree a.img fs", "man"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spinney"));
        command.args(line.split(' ')).current_dir(&bench.dir);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert!(child.wait().unwrap().success(), "{line}: {err}");
        assert_eq!(err, "", "{line}");
    }
}

/// The runtime opens `/dev/null` in place of a closed output, so everything seemed to have been written.
#[test]
fn a_closed_output_is_told() {
    let bench = Bench::new();
    bench.filled_image();
    let run = |line: &str, output: &str| {
        let line = format!("\"$0\" {line} {output}");
        let mut command = Command::new("sh");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_spinney")]).current_dir(&bench.dir);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for line in [
        "ls a.img",
        "ls --json a.img",
        "cat a.img /a.txt /sparse",
        "tree a.img",
        "info a.img",
        "dump super a.img",
        "man",
        "completions bash",
        "--help",
        "ls --help",
        "--version",
    ] {
        let (status, err) = run(line, ">&-");
        assert_eq!((status, &*err), (Some(6), "spinney: the standard output is closed\n"), "{line}");
        assert_eq!(run(line, "<&- >&- 2>&-").0, Some(6), "{line}");
        for null in [">/dev/null", "<>/dev/null >&0", "<&- >/dev/null"] {
            assert_eq!(run(line, null), (Some(0), String::new()), "{line} {null}");
        }
    }
    // A command without output needs none.
    assert_eq!(run("mkdir a.img /new", ">&-"), (Some(0), String::new()));
    assert_eq!(run("nonsense", ">&-").0, Some(2));
}

#[test]
fn damage_is_told_and_read_around() {
    use std::os::unix::fs::FileExt as _;
    let bench = Bench::new();
    bench.filled_image();
    let extents = bench.json("stat --json --extents a.img /sub/large");
    let logical = extents["files"][0]["extents"][0]["logical"].as_u64().unwrap();
    let chunks = bench.json("dump chunks --json a.img");
    let chunk = chunks["chunks"].as_array().unwrap().iter().find(|chunk| {
        let start = chunk["start"].as_u64().unwrap();
        (start..start + chunk["len"].as_u64().unwrap()).contains(&logical)
    });
    let chunk = chunk.unwrap();
    let offset = chunk["stripes"][0]["offset"].as_u64().unwrap();
    let at = offset + logical - chunk["start"].as_u64().unwrap();
    let image = std::fs::OpenOptions::new().write(true).open(bench.path("a.img")).unwrap();
    image.write_all_at(b"damage", at + 5000).unwrap();
    let run = bench.run("cat a.img /sub/large");
    assert_eq!(run.status, 3, "{}", run.err);
    assert!(run.err.contains("/sub/large") || run.err.contains("no good copy"), "{}", run.err);
    assert_eq!(bench.ok("cat a.img /a.txt"), "hello\n");
    // Without its first superblock the image opens by the second one; the dump says so.
    image.write_all_at(b"damage", 65_536 + 300).unwrap();
    bench.ok("ls a.img");
    let run = bench.run("dump super --all a.img");
    assert_eq!(run.status, 3);
    assert!(String::from_utf8_lossy(&run.out).contains("good"), "{}", run.err);
}

/// It emptied the image and failed afterwards.
#[test]
fn what_has_no_name_of_its_own_is_not_emptied() {
    let bench = Bench::new();
    bench.filled_image();
    let before = bench.ok("ls -lR a.img");
    for path in ["/", "/sub/..", "/sub/.", "//"] {
        let run = bench.run(&format!("rm -r a.img {path}"));
        assert_eq!(run.status, 1, "{path}: {}", run.err);
    }
    assert_eq!(bench.ok("ls -lR a.img"), before);
}

/// It began a JSON object and stopped in the middle.
#[test]
fn a_tree_that_is_not_there_is_no_half_report() {
    let bench = Bench::new();
    bench.filled_image();
    let run = bench.run("dump tree a.img 999 --json");
    assert_eq!((run.status, run.out.len()), (1, 0), "{}", run.err);
}

/// The status said that reading or writing had failed.
#[test]
fn a_file_in_the_way_is_a_refusal() {
    let bench = Bench::new();
    bench.filled_image();
    bench.ok("get -q a.img /a.txt copy.txt");
    let run = bench.run("get -q a.img /a.txt copy.txt");
    assert_eq!(run.status, 1, "{}", run.err);
}

/// `get -f` to `/dev/null` made a regular file of it.
#[test]
fn device_nodes_of_the_host_are_not_replaced() {
    let bench = Bench::new();
    bench.filled_image();
    let node = bench.path("null");
    let made = std::process::Command::new("mknod").arg(&node).args(["c", "1", "3"]).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("only root makes device nodes: skipped");
        return;
    }
    let run = bench.run("get -q -f a.img /a.txt null");
    assert_eq!(run.status, 1, "{}", run.err);
    assert!(!node.metadata().unwrap().is_file());
}

/// The message was "out of range integral type conversion attempted".
#[test]
fn sizes_that_no_file_has_are_refused() {
    let bench = Bench::new();
    let run = bench.run("mkfs --size 15E b.img");
    assert_eq!(run.status, 2, "{}", run.err);
    assert!(run.err.contains("no file is"), "{}", run.err);
    let run = bench.run("ls none.img");
    assert_eq!(run.err, "spinney: none.img: cannot open: No such file or directory (os error 2)\n");
}

#[test]
fn a_part_of_an_image_that_makes_no_sense_is_named() {
    let bench = Bench::new();
    bench.filled_image();
    for (part, pair) in [("offset=1M", "`offset=1M`"), ("foo=1", "`foo=1`"), ("offset=0&siz=4096", "`siz=4096`")] {
        let run = bench.run(&format!("ls a.img?{part}"));
        assert_eq!(run.status, 2, "{part}: {}", run.err);
        assert!(run.err.contains(&format!("{pair}: expected `?offset=N`")), "{part}: {}", run.err);
    }
    assert_eq!(bench.run("ls a.img?offset=0").status, 0);
    assert_eq!(bench.run("ls missing.img?foo=1").status, 1);
}

#[test]
fn devices_that_no_backend_serves_are_refused_by_their_scheme() {
    let bench = Bench::new();
    bench.filled_image();
    for command in ["ls rbd://pool/disk", "cat ftp://host:8080/a.img:/x", "check qcow2:a.img", "mkfs gs://bucket/a"] {
        let run = bench.run(command);
        assert_ne!(run.status, 0, "{command}");
        assert!(run.err.contains("scheme") || run.err.contains("of this host"), "{command}: {}", run.err);
    }
    assert_eq!(bench.run("ls file:a.img").status, 0);
    assert_eq!(bench.run("ls file:a.img:/").status, 0);
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for word in ["--help", "--version"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spinney"));
        let output = command.arg(word).stdout(full()).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{word}: {output:?}");
        assert!(output.stderr.starts_with(b"spinney: the standard output: "), "{word}");
    }
}

#[test]
fn a_drawing_that_is_not_whole_says_so() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 200M a.img");
    bench.ok(&format!("mkdir -p a.img {}", "/d".repeat(512)));
    let whole = bench.ok("tree a.img");
    assert!(whole.ends_with("\n512 directories, 0 files\n"));
    bench.ok(&format!("mkdir -p a.img {}/e", "/d".repeat(512)));
    for line in ["tree a.img", "tree --json a.img", "tree -L 600 a.img"] {
        let run = bench.run(line);
        assert_eq!(run.status, 4, "{line}");
        assert!(!run.out.is_empty(), "{line}");
        let said = "levels below 512 are not shown: below 1 directories";
        assert!(run.err.contains(said), "{line}: {}", run.err);
    }
    bench.ok("tree -L 512 a.img");
    bench.ok("tree -L 3 a.img");
}
