//! Commands that change an image.

use std::os::unix::ffi::OsStrExt as _;

use crate::harness::Bench;

#[test]
fn names_are_made_moved_linked_and_removed() {
    let bench = Bench::new();
    bench.filled_image();
    bench.ok("mkdir -p -m 750 a.img /x/y/z");
    bench.ok("mkdir -p a.img /x/y/z");
    assert_eq!(bench.run("mkdir a.img /x").status, 1);
    bench.ok("mv a.img /a.txt /x/b.txt");
    bench.ok("mv a.img /x/b.txt /nothing /x/y");
    bench.ok("ln a.img /x/y/b.txt /hard");
    bench.ok("ln -s a.img ../hard /x/soft");
    assert_eq!(bench.ok("cat a.img /hard /x/soft"), "hello\nhello\n");
    assert_eq!(bench.run("mv -n a.img /hard /middle").status, 1);
    bench.ok("mv --exchange a.img /hard /middle");
    assert_eq!(bench.ok("cat a.img /middle"), "hello\n");
    assert_eq!(bench.run("rm a.img /sub").status, 1);
    bench.ok("rm -r a.img /sub /middle");
    assert_eq!(bench.run("rm a.img /middle").status, 1);
    bench.ok("rm -f a.img /middle");
    let names = bench.ok("ls a.img");
    assert_eq!(names, "empty\nhard\noutside\npipe\nsock\nsparse\nx\n");
    let stat = &bench.json("stat --json a.img /x/y/z")["files"][0];
    assert_eq!((&stat["mode"], &stat["kind"]), (&"0750".into(), &"directory".into()));
    bench.check("a.img");
}

#[test]
fn put_refuses_what_exists_unless_forced() {
    let bench = Bench::new();
    bench.filled_image();
    std::fs::write(bench.path("a.txt"), "other\n").unwrap();
    let run = bench.run("put a.img a.txt /");
    assert_eq!(run.status, 1, "{}", run.err);
    assert_eq!(bench.ok("cat a.img /a.txt"), "hello\n");
    bench.ok("put -f a.img a.txt /");
    assert_eq!(bench.ok("cat a.img /a.txt"), "other\n");
    assert_eq!(bench.ok("cat a.img /sub/again.txt"), "hello\n");
    bench.ok("put --owner 7:8 a.img a.txt /sub/deep/new");
    let stat = &bench.json("stat --json a.img /sub/deep/new")["files"][0];
    assert_eq!((&stat["uid"], &stat["gid"]), (&7.into(), &8.into()));
    bench.check("a.img");
}

#[test]
fn subvolumes_and_snapshots() {
    let bench = Bench::new();
    bench.filled_image();
    bench.ok("subvolume create a.img /vol");
    bench.ok("put a.img src/. /vol/in");
    bench.ok("subvolume snapshot -r a.img /vol /snap");
    bench.ok("subvolume snapshot a.img / /whole");
    bench.ok("rm -r a.img /vol/in/sub");
    assert_eq!(bench.run("rm -r a.img /snap/in").status, 1);
    assert_eq!(bench.run("rm a.img /snap/in/a.txt").status, 1);
    assert_eq!(bench.ok("cat a.img /snap/in/sub/again.txt"), "hello\n");
    assert_eq!(bench.ok("cat --subvolume /snap a.img in/a.txt"), "hello\n");
    bench.check("a.img");
    let report = bench.json("subvolume list --json a.img");
    let subvolumes = report["subvolumes"].as_array().unwrap();
    let snap = subvolumes.iter().find(|one| one["path"] == "snap").unwrap();
    let vol = subvolumes.iter().find(|one| one["path"] == "vol").unwrap();
    assert_eq!(snap["read_only"], true);
    assert_eq!(snap["parent_uuid"], vol["uuid"]);
    bench.ok("subvolume set-default a.img /vol");
    assert_eq!(bench.json("subvolume get-default --json a.img")["path"], "vol");
    assert_eq!(bench.ok("ls a.img"), "in\n");
    bench.ok("subvolume set-default --subvolume-id 5 a.img /");
    bench.ok("subvolume delete a.img /snap /vol");
    bench.check("a.img");
    let listed = bench.ok("subvolume list a.img");
    assert!(listed.contains("/whole") && !listed.contains("/snap"), "{listed}");
    assert_eq!(bench.run("subvolume delete a.img /sub").status, 1);
}

#[test]
fn mkfs_asks_before_it_overwrites() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 128M -L first a.img");
    let run = bench.run("mkfs --size 128M a.img");
    assert_eq!(run.status, 1);
    assert!(run.err.contains("holds btrfs"), "{}", run.err);
    let uuid = "00112233-4455-6677-8899-aabbccddeeff";
    bench.ok(&format!("mkfs -q -f -L second -U {uuid} a.img"));
    let info = bench.json("info --json a.img");
    assert_eq!(info["label"], "second");
    assert_eq!(info["uuid"], uuid);
    assert_eq!(info["total_bytes"], 128 << 20);
    bench.check("a.img");
    std::fs::write(bench.path("xfs"), [b"XFSB".as_slice(), &[0; 4096]].concat()).unwrap();
    let run = bench.run("mkfs --size 128M xfs");
    assert_eq!(run.status, 1);
    assert!(run.err.contains("holds xfs"), "{}", run.err);
}

/// It recognised only file systems: any other file was emptied, even if no file system could be made in it.
#[test]
fn mkfs_destroys_nothing_unasked() {
    let bench = Bench::new();
    let path = bench.path("precious");
    for contents in [b"precious".to_vec(), vec![b'x'; 64 << 20]] {
        std::fs::write(&path, &contents).unwrap();
        for line in ["mkfs precious", "mkfs --size 128M precious", "mkfs -q -K --size 128M precious"] {
            let run = bench.run(line);
            assert_eq!(run.status, 1, "{line}: {}", run.err);
            assert!(run.err.contains("there is data at byte 0; --force overwrites it"), "{line}: {}", run.err);
        }
        assert!(std::fs::read(&path).unwrap() == contents);
    }
    // Impossible requests fail before the first byte is overwritten.
    for words in ["--force --size 10M", "-f --rootdir missing", "-f -O nonsense"] {
        let line = &format!("mkfs {words} precious");
        let run = bench.run(line);
        assert!([1, 2, 5].contains(&run.status), "{line}: {}", run.err);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 64 << 20, "{line}");
    }
    let run = bench.run("mkfs --size 10M new.img");
    assert!(run.err.contains("10.0 MiB is too small: the least is"), "{}", run.err);
    let least = run.err.split("least is ").nth(1).unwrap().trim().split('.').next().unwrap().to_owned();
    let one_less = least.parse::<u64>().unwrap() - 1;
    bench.ok(&format!("mkfs -q --size {least}M least.img"));
    assert_eq!(bench.run(&format!("mkfs -q --size {one_less}M less.img")).status, 5);
    bench.check("least.img");
    std::fs::File::create(bench.path("sparse")).unwrap().set_len(256 << 20).unwrap();
    bench.ok("mkfs -q sparse");
}

/// A copy that is broken off left an image that looked whole, and was empty.
#[test]
fn an_image_that_is_not_finished_is_none() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("src")).unwrap();
    for index in 0..400 {
        std::fs::write(bench.path(&format!("src/{index}")), vec![7; 200_000]).unwrap();
    }
    bench.ok("mkfs -q --size 512M a.img");
    bench.ok("mkfs -q --size 512M b.img");
    for line in ["mkfs -q -f --rootdir src a.img", "mkfs -q -f -K --rootdir src --size 512M b.img"] {
        let image = line.split(' ').find(|word| word.ends_with(".img")).unwrap();
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_spinney"))
            .args(line.split(' '))
            .current_dir(&bench.dir)
            .spawn()
            .unwrap();
        // The old superblocks are overwritten before anything else, the first of them last.
        let has_magic = || {
            let mut magic = [0; 8];
            let file = std::fs::File::open(bench.path(image)).unwrap();
            let read = std::os::unix::fs::FileExt::read_exact_at(&file, &mut magic, 0x10040);
            read.is_ok() && magic == *b"_BHRfS_M"
        };
        while has_magic() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.kill().unwrap();
        if child.wait().unwrap().success() {
            eprintln!("it was faster than this test");
            continue;
        }
        let run = bench.run(&format!("ls {image}"));
        // On a busy machine it may have written its last superblock before it was killed; then nothing is missing.
        let is_whole = run.status == 0 && run.out.split(|byte| *byte == b'\n').count() == 401;
        assert!(run.status == 3 || is_whole, "{line}: {} {} {}", run.status, run.out.len(), run.err);
    }
}

#[test]
fn an_image_can_stay_allocated() {
    use std::os::unix::fs::MetadataExt as _;
    let bench = Bench::new();
    let allocated = || std::fs::metadata(bench.path("a.img")).unwrap().blocks() * 512;
    std::fs::write(bench.path("a.img"), vec![7; 96 << 20]).unwrap();
    bench.ok("mkfs -q -f -K a.img");
    assert!(allocated() >= 96 << 20, "{} bytes", allocated());
    bench.check("a.img");
    bench.ok("mkfs -q -f --nodiscard --size 64M a.img");
    assert_eq!(std::fs::metadata(bench.path("a.img")).unwrap().len(), 64 << 20);
    assert!(allocated() >= 64 << 20, "{} bytes", allocated());
    bench.check("a.img");
    bench.ok("mkfs -q -f a.img");
    assert!(allocated() < 16 << 20, "{} bytes", allocated());
}

#[test]
fn an_empty_image_belongs_to_whom_it_is_given() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M --owner 1234:56 a.img");
    let found = &bench.json("stat --json a.img /")["files"][0];
    assert_eq!((&found["uid"], &found["gid"]), (&1234.into(), &56.into()), "{found}");
    bench.check("a.img");
}

/// Label of every copy of the superblock.
fn labels(bench: &Bench, image: &str) -> Vec<String> {
    let text = bench.ok(&format!("dump super --all {image}"));
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("label"));
    lines.map(|label| label.trim().to_owned()).collect()
}

#[test]
fn a_label_is_shown_and_set_in_every_superblock() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M -L first a.img");
    let label = |words: &[&str]| bench.run_words(&[&["label", "a.img"], words].concat());
    assert_eq!(label(&[]).out, b"first\n");
    assert_eq!(label(&["a second, \"longer\" one"]).status, 0);
    assert_eq!(label(&[]).out, b"a second, \"longer\" one\n");
    assert_eq!(bench.json("label --json a.img")["label"], "a second, \"longer\" one");
    bench.check("a.img");
    let longest = "x".repeat(255);
    assert_eq!(bench.json(&format!("label --json a.img {longest}"))["label"], longest.as_str());
    let found = labels(&bench, "a.img");
    assert!(found.len() == 2 && found.iter().all(|label| label.contains(&longest)), "{found:?}");
    for (words, status) in [(vec!["x".repeat(256)], 2), (vec!["--nologreplay".into(), "x".into()], 2)] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let run = label(&words);
        assert_eq!(run.status, status, "{words:?}: {}", run.err);
    }
    assert_eq!(label(&[""]).status, 0);
    assert_eq!(label(&[]).out, b"\n");
    assert_eq!(bench.json("info --json a.img")["label"], "");
    let odd = std::ffi::OsStr::from_bytes(b"\xff\n");
    assert_eq!(bench.run_words(&["label".as_ref(), "a.img".as_ref(), odd]).status, 0);
    assert_eq!(bench.json("label --json a.img")["label_hex"], "ff0a");
    bench.check("a.img");
    // As other programs show it.
    bench.ok("label a.img last");
    let mut other = std::process::Command::new("btrfs");
    if let Ok(output) = other.args(["filesystem", "label"]).arg(bench.path("a.img")).output() {
        assert_eq!(output.stdout, b"last\n");
    }
    std::fs::write(bench.path("other"), [7; 5000]).unwrap();
    assert_eq!(bench.run("label other x").status, 3);
    assert_eq!(std::fs::read(bench.path("other")).unwrap(), [7; 5000]);
}

#[test]
fn the_label_of_a_mounted_image_is_changed_by_its_server() {
    let Some(mounted) = crate::mounted::Mounted::mount_if_possible("") else { return };
    mounted.bench.ok("label a.img through");
    assert_eq!(mounted.bench.ok("label a.img"), "through\n");
    for line in ["label --super 0 a.img", "label --super 0 a.img new"] {
        let run = mounted.bench.run(line);
        assert_eq!(run.status, 7, "{line}: {}", run.err);
        assert!(run.err.contains(&mounted.dir().display().to_string()), "{line}: {}", run.err);
    }
    mounted.unmount();
    mounted.bench.ok("label a.img new");
    mounted.bench.check("a.img");
}

/// Copies share their contents unless told otherwise; the rest is as in the source.
#[test]
fn copies_within_an_image_share_their_contents() {
    let bench = Bench::new();
    bench.filled_image();
    let used = || bench.json("info --json a.img")["used_bytes"].as_u64().unwrap();
    let before = used();
    let report = bench.json("cp -r --json a.img /sub /copy");
    assert!(report["bytes_shared"].as_u64() > Some(0) && report["bytes_copied"] == 0, "{report}");
    assert!(used() < before + (1 << 20), "{} {before}", used());
    bench.ok("get -q a.img /sub one");
    bench.ok("get -q a.img /copy two");
    crate::harness::assert_same(&bench.path("one"), &bench.path("two"));
    for name in ["pipe", "outside", "sparse"] {
        bench.ok(&format!("cp a.img /{name} /copy"));
        let [was, is] = [format!("/{name}"), format!("/copy/{name}")]
            .map(|path| bench.json(&format!("stat --json a.img {path}"))["files"][0].clone());
        for field in ["kind", "mode", "uid", "gid", "size", "mtime", "blocks"] {
            assert_eq!(was[field], is[field], "{name}: {field}");
        }
    }
    let never = bench.json("cp --reflink=never --json a.img /middle /middle.copy");
    assert!(never["bytes_copied"].as_u64() > Some(0), "{never}");
    assert_eq!(bench.run("cat a.img /middle").out, bench.run("cat a.img /middle.copy").out);
    // A directory is copied into itself once.
    bench.ok("cp -r a.img /copy /copy");
    assert_eq!(bench.run("ls a.img /copy/copy/copy").status, 1);
    for (line, said) in [
        ("cp a.img /sub /other", "-r includes its contents"),
        ("cp a.img /a.txt /middle", "exists already"),
        ("cp -f a.img /a.txt /a.txt", "are the same file"),
        ("cp a.img /none /other", "no such file"),
    ] {
        let run = bench.run(line);
        assert_eq!(run.status, 1, "{line}: {}", run.err);
        assert!(run.err.contains(said), "{line}: {}", run.err);
    }
    bench.ok("cp -f a.img /a.txt /middle");
    assert_eq!(bench.ok("cat a.img /middle"), "hello\n");
    bench.check("a.img");
}

/// A failed copy leaves existing files as they were, and no partial file.
#[test]
fn copies_that_fail_leave_everything_as_it_was() {
    const HALF: usize = 70 << 20;
    let bench = Bench::new();
    let contents: Vec<u8> =
        (0_u32..200_000).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    bench.ok("mkfs -q --size 128M a.img");
    std::fs::write(bench.path("damaged"), &contents).unwrap();
    std::fs::write(bench.path("large"), crate::harness::pattern(HALF)).unwrap();
    std::fs::write(bench.path("old"), "as it was").unwrap();
    bench.ok("put -q a.img damaged large old /");
    let mut image = std::fs::read(bench.path("a.img")).unwrap();
    let part = contents.get(500 * 1024..500 * 1024 + 64).unwrap();
    let at = image.windows(64).position(|window| window == part).unwrap();
    image.get_mut(at..at + 64).unwrap().fill(0);
    std::fs::write(bench.path("a.img"), &image).unwrap();
    for (line, status, said) in [
        ("cp --reflink=never a.img /damaged /new", 3, "/damaged: "),
        ("cp -f --reflink=never a.img /damaged /old", 3, "/damaged: "),
        ("cp --reflink=never a.img /large /new", 5, "/new: "),
        ("cp -f --reflink=never a.img /large /old", 5, "no space"),
    ] {
        let run = bench.run(line);
        assert_eq!(run.status, status, "{line}: {}", run.err);
        assert!(run.err.contains(said), "{line}: {}", run.err);
        assert_eq!(bench.ok("ls a.img /").split_whitespace().collect::<Vec<_>>(), ["damaged", "large", "old"]);
        assert_eq!(bench.ok("cat a.img /old"), "as it was");
    }
    let run = bench.run("dedupe a.img /large /damaged");
    assert!(run.status == 3 && run.err.contains("/damaged: "), "{}", run.err);
    bench.ok("cp -f a.img /large /old");
    assert_eq!(bench.run("cat a.img /old").out, crate::harness::pattern(HALF));
}

/// Hard links stay hard links, even over existing names.
#[test]
fn links_are_copied_over_what_is_there() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    std::fs::write(bench.path("x"), "one").unwrap();
    std::fs::write(bench.path("y"), "other").unwrap();
    bench.ok("mkdir a.img /from /to");
    bench.ok("put -q a.img x /from/x");
    bench.ok("ln a.img /from/x /from/y");
    bench.ok("put -q a.img y /to/x");
    bench.ok("ln a.img /to/x /to/y");
    bench.ok("ln a.img /to/x /to/kept");
    bench.ok("cp -f a.img /from/x /from/y /from/x /to");
    let stat = |name: &str| bench.json(&format!("stat --json a.img /to/{name}"))["files"][0].clone();
    assert_eq!((stat("x")["ino"].clone(), stat("x")["nlink"].as_u64()), (stat("y")["ino"].clone(), Some(2)));
    assert_eq!(bench.ok("cat a.img /to/y /to/kept"), "oneother");
    assert_eq!(bench.ok("ls a.img /to").split_whitespace().count(), 3);
    bench.check("a.img");
}

#[test]
fn a_copy_counts_what_it_writes_and_keeps_its_own_kind_of_storage() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    let file = std::fs::File::create(bench.path("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &crate::harness::pattern(65_536), 0).unwrap();
    file.set_len(50 << 20).unwrap();
    bench.ok("put -q a.img sparse /");
    assert_eq!(bench.json("cp --json a.img /sparse /shared")["bytes_shared"], 65_536);
    let copied = bench.json("cp --json --reflink=never a.img /sparse /copied");
    assert_eq!((&copied["bytes_copied"], &copied["bytes_shared"]), (&65_536.into(), &0.into()));
    let Some(mounted) = crate::mounted::Mounted::if_possible() else { return };
    let bench = &mounted.bench;
    bench.ok("mkfs -q --force --size 256M a.img");
    bench.ok("mount a.img mnt");
    std::fs::create_dir(mounted.dir().join("in-place")).unwrap();
    std::fs::write(mounted.dir().join("small"), "").unwrap();
    let chattr = |flag: &str, name: &str| {
        std::process::Command::new("chattr").arg(flag).arg(mounted.dir().join(name)).status().unwrap().success()
    };
    assert!(chattr("+C", "in-place") && chattr("+c", "small"));
    std::fs::write(mounted.dir().join("small"), crate::harness::pattern(200_000)).unwrap();
    mounted.unmount();
    for line in ["cp a.img /small /in-place/new", "cp -f a.img /small /in-place/new"] {
        bench.ok(line);
        assert_eq!(bench.run("cat a.img /in-place/new").out, crate::harness::pattern(200_000));
    }
    let flags = |path: &str| bench.json(&format!("stat --json a.img {path}"))["files"][0]["flags"].clone();
    assert_eq!(flags("/small"), flags("/in-place/new"));
    assert_ne!(flags("/small"), flags("/in-place"));
    bench.check("a.img");
}
