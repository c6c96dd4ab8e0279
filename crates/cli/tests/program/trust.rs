//! `get` and `cp` from an image that others may have written, and copies while other programs change names.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Dev, FileType, Mode, OFlags, RenameFlags, XattrFlags};

use crate::harness::{Bench, Run};

/// A capability as the kernel stores it (revision 2): CAP_NET_RAW, permitted and effective.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: this needs root");
    }
    is_root
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn make_node(path: &Path, kind: FileType, device: Dev) {
    rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o600), device).unwrap();
}

/// An image with all kinds of privileged files; making it needs root.
fn powerful_image(bench: &Bench) {
    let src = bench.path("src");
    std::fs::create_dir(&src).unwrap();
    for (name, mode) in [("setuid", 0o4755), ("setgid", 0o2755), ("capable", 0o755), ("plain", 0o644)] {
        std::fs::write(src.join(name), name).unwrap();
        std::os::unix::fs::chown(src.join(name), Some(1234), Some(1234)).unwrap();
        set_mode(&src.join(name), mode);
    }
    rustix::fs::setxattr(src.join("capable"), "security.capability", &CAPABILITY, XattrFlags::empty()).unwrap();
    make_node(&src.join("char"), FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    make_node(&src.join("block"), FileType::BlockDevice, rustix::fs::makedev(7, 200));
    make_node(&src.join("pipe"), FileType::Fifo, 0);
    bench.ok("mkfs -q --rootdir src a.img");
}

/// The privileged files in the directory `out`, which is removed.
fn power_in(bench: &Bench, out: &str) -> String {
    let out = bench.path(out);
    let mut found = String::new();
    for name in ["setuid", "setgid", "capable", "char", "block", "pipe", "plain"] {
        let Ok(metadata) = std::fs::symlink_metadata(out.join(name)) else { continue };
        let mut value = [0; 64];
        let is_capable = rustix::fs::getxattr(out.join(name), "security.capability", &mut value).is_ok();
        let capable = if is_capable { "+cap" } else { "" };
        found += &format!("{name} {:o} {}{capable}\n", metadata.mode() & 0o7777, metadata.uid());
    }
    std::fs::remove_dir_all(out).unwrap();
    found
}

const ALL: &str = "setuid 4755 1234\nsetgid 2755 1234\ncapable 755 1234+cap\nchar 600 0\nblock 600 0\npipe 600 0\n\
                   plain 644 1234\n";
const HARMLESS: &str = "setuid 755 1234\nsetgid 755 1234\ncapable 755 1234\npipe 600 0\nplain 644 1234\n";

#[test]
fn an_image_of_another_gives_no_power_unasked() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    powerful_image(&bench);
    let image = bench.path("a.img");
    let get = |words: &str| -> (String, Run) {
        let run = bench.run(&format!("get {words} a.img / out"));
        assert_eq!(run.status, 0, "{words}: {}", run.err);
        (power_in(&bench, "out"), run)
    };
    // Owned by root, and writable for root alone.
    set_mode(&image, 0o644);
    let (found, run) = get("");
    assert_eq!((found.as_str(), run.err.as_str()), (ALL, ""));
    let (found, run) = get("--no-devices --no-setid");
    assert_eq!((found.as_str(), run.err.as_str()), (HARMLESS, ""));

    set_mode(&image, 0o666);
    assert_eq!(get("").0, HARMLESS, "the image is writable for all users");
    set_mode(&image, 0o644);
    std::os::unix::fs::chown(&image, Some(1000), Some(1000)).unwrap();
    let (found, run) = get("");
    assert_eq!(found, HARMLESS, "the image is another's");
    let told = "2 device nodes and 3 set-user and set-group bits or capabilities were left out; --trust copies them";
    assert!(run.err.contains(told), "{}", run.err);
    let (found, run) = get("--trust");
    assert_eq!((found.as_str(), run.err.as_str()), (ALL, ""));
    assert_eq!(bench.run("get --trust --no-setid a.img / out").status, 2);
    // A user who runs sudo for an image of his own is trusted with it.
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_spinney"));
    command.args(["get", "a.img", "/", "out"]).current_dir(&bench.dir).env("SUDO_UID", "1000");
    assert!(command.status().unwrap().success());
    assert_eq!(power_in(&bench, "out"), ALL);
}

#[test]
fn a_copy_between_volumes_gives_no_power_unasked() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    powerful_image(&bench);
    let told = "2 device nodes and 3 set-user and set-group bits or capabilities were left out; --trust copies them";
    let own = |image: &str| {
        set_mode(&bench.path(image), 0o644);
        std::os::unix::fs::chown(bench.path(image), Some(0), Some(0)).unwrap();
    };
    // Through another image, and to this machine.
    let copy = |words: &str, source: &str| -> (String, String) {
        bench.ok("mkfs -q -f --size 128M b.img");
        own("b.img");
        let (between, out) = (bench.run(&format!("cp -rq {words} {source} b.img:/")), "cp -rq --trust b.img:/. out");
        assert_eq!(between.status, 0, "{words} {source}: {}", between.err);
        bench.ok(out);
        (power_in(&bench, "out"), between.err)
    };
    own("a.img");
    assert_eq!(copy("", "a.img:/."), (ALL.to_owned(), String::new()));
    for source in ["a.img:/.", "src/."] {
        let found = copy("--no-devices --no-setid", source);
        assert_eq!(found, (HARMLESS.to_owned(), String::new()), "{source}");
    }
    std::os::unix::fs::chown(bench.path("a.img"), Some(1000), Some(1000)).unwrap();
    let (found, err) = copy("", "a.img:/.");
    assert!(found == HARMLESS && err.contains(told), "{found}: {err}");
    assert_eq!(copy("--trust", "a.img:/."), (ALL.to_owned(), String::new()));
    // To this machine the options are the same.
    let run = bench.run("cp -rq a.img:/. out");
    assert!(power_in(&bench, "out") == HARMLESS && run.err.contains(told), "{}", run.err);
    let run = bench.run("cp -rq --trust a.img:/. out");
    assert_eq!((power_in(&bench, "out").as_str(), run.err.as_str()), (ALL, ""));
    // A device that is left out is no failure, and a report does not name it.
    let report = bench.json("cp -q --json a.img:/char b.img:/");
    assert_eq!(report["made"].as_array().map(Vec::len), Some(0));
    assert_eq!(bench.run("cp --trust --no-setid a.img:/setuid b.img:/x").status, 2);
    // A mount of it is trusted no more than the image.
    if !crate::mounted::can_mount() {
        return;
    }
    std::fs::create_dir(bench.path("mnt")).unwrap();
    bench.ok("mount a.img mnt");
    let copied = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| copy("", "mnt/.")));
    bench.ok("umount mnt");
    let (found, err) = copied.unwrap();
    assert!(found == HARMLESS && err.contains(told), "{found}: {err}");
}

#[test]
fn a_copy_that_changes_its_owner_acts_for_nobody() {
    if !crate::mounted::can_mount_as_root() {
        return;
    }
    let mounted = crate::mounted::Mounted::mount("-o allow_other");
    let (bench, dir) = (&mounted.bench, mounted.dir());
    set_mode(bench.dir.path(), 0o755);
    set_mode(&dir, 0o777);
    std::fs::copy(env!("CARGO_BIN_EXE_spinney"), bench.path("spinney")).unwrap();
    for (name, owner) in [("roots", 0), ("mine", 1000)] {
        std::fs::write(dir.join(name), name).unwrap();
        std::os::unix::fs::chown(dir.join(name), Some(owner), Some(owner)).unwrap();
        set_mode(&dir.join(name), 0o6755);
    }
    for (name, mode, is_told) in [("roots", 0o755, true), ("mine", 0o6755, false)] {
        let line = format!("exec ./spinney cp -q mnt/{name} mnt/copy-{name}");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &line]).current_dir(bench.dir.path()).uid(1000).gid(1000);
        let output = command.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{name}: {err}");
        let found = std::fs::metadata(dir.join(format!("copy-{name}"))).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid()), (mode, 1000), "{name}");
        let told = "1 files have another owner or group than before, so set-user and set-group bits or capabilities \
                    were left out";
        assert_eq!(err.contains(told), is_told, "{name}: {err}");
    }
    mounted.unmount();
}

#[test]
fn owners_and_set_user_bits_are_left_out_where_that_is_asked() {
    let bench = Bench::new();
    bench.filled_image();
    bench.ok("get --no-setid a.img /middle one");
    assert_eq!(std::fs::metadata(bench.path("one")).unwrap().mode() & 0o7777, 0o751);
    bench.ok("get a.img /middle two");
    assert_eq!(std::fs::metadata(bench.path("two")).unwrap().mode() & 0o7777, 0o4751);
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    powerful_image(&bench);
    set_mode(&bench.path("a.img"), 0o644);
    bench.ok("get --no-owner a.img / out");
    let expected = "setuid 755 0\nsetgid 755 0\ncapable 755 0+cap\nchar 600 0\nblock 600 0\npipe 600 0\nplain 644 0\n";
    assert_eq!(power_in(&bench, "out"), expected, "a set-user file of another's contents must not become root's");
}

/// Calls `change` again and again while `run` runs.
fn beside<T>(change: impl Fn() + Sync, run: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                change();
            }
        });
        let result = run();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn what_put_copies_of_a_name_is_of_one_file() {
    const PAIRS: usize = 8;
    const ROUNDS: usize = 40;
    let bench = Bench::new();
    let src = bench.path("src");
    std::fs::create_dir(&src).unwrap();
    for pair in 0..PAIRS {
        for (name, mode) in [("a", 0o701), ("b", 0o702)] {
            let dir = src.join(format!("{name}-{pair}"));
            std::fs::create_dir(&dir).unwrap();
            set_mode(&dir, mode);
            let text = format!("{mode:o}");
            let set = rustix::fs::setxattr(&dir, "user.mode", text.as_bytes(), XattrFlags::empty());
            if set.is_err() {
                eprintln!("SKIPPED: no attributes here");
                return;
            }
        }
    }
    let swap = || {
        for pair in 0..PAIRS {
            let (a, b) = (src.join(format!("a-{pair}")), src.join(format!("b-{pair}")));
            rustix::fs::renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).unwrap();
        }
    };
    bench.ok("mkfs -q --size 200M a.img");
    for round in 0..ROUNDS {
        beside(swap, || bench.ok(&format!("put -q a.img src /r{round}")));
    }
    bench.ok("get a.img / out");
    for path in (0..ROUNDS).flat_map(|round| std::fs::read_dir(bench.path(&format!("out/r{round}"))).unwrap()) {
        let path = path.unwrap().path();
        let mut value = [0; 16];
        let len = rustix::fs::getxattr(&path, "user.mode", &mut value).unwrap();
        let mode = format!("{:o}", std::fs::metadata(&path).unwrap().mode() & 0o7777);
        assert_eq!(std::str::from_utf8(&value[..len]).unwrap(), mode, "{}", path.display());
    }
}

#[test]
fn what_takes_the_place_of_a_new_name_is_left_alone() {
    const NAMES: usize = 600;
    let bench = Bench::new();
    let (src, out) = (bench.path("src"), bench.path("out"));
    std::fs::create_dir(&src).unwrap();
    std::fs::create_dir(&out).unwrap();
    for index in 0..NAMES {
        make_node(&src.join(format!("pipe-{index}")), FileType::Fifo, 0);
        set_mode(&src.join(format!("pipe-{index}")), 0o666);
    }
    bench.ok("mkfs -q --rootdir src a.img");
    let victim = bench.path("victim");
    std::fs::write(&victim, "mine").unwrap();
    set_mode(&victim, 0o600);
    let before = std::fs::metadata(&victim).unwrap();
    let replace = || {
        for index in 0..NAMES {
            let name = out.join(format!("pipe-{index}"));
            if std::fs::remove_file(&name).is_ok() {
                let _ = symlink(&victim, &name);
            }
        }
    };
    for _ in 0..5 {
        // It may fail for names that disappeared.
        beside(replace, || bench.run("get --force a.img / out"));
        let after = std::fs::metadata(&victim).unwrap();
        assert_eq!((after.mode(), after.mtime()), (before.mode(), before.mtime()));
    }
}

/// Opens a directory of one that is open.
fn enter(dir: &OwnedFd, name: &str) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    rustix::fs::openat(dir, name, flags, Mode::empty()).unwrap()
}

#[test]
fn attributes_are_copied_from_below_the_longest_path() {
    // Together longer than the 4096 bytes that a call takes.
    const LEVELS: usize = 60;
    let bench = Bench::new();
    let name = "d".repeat(100);
    std::fs::create_dir(bench.path("src")).unwrap();
    let open = |path: &str| OwnedFd::from(std::fs::File::open(bench.path(path)).unwrap());
    let mut dir = open("src");
    for _ in 0..LEVELS {
        rustix::fs::mkdirat(&dir, name.as_str(), Mode::RWXU).unwrap();
        dir = enter(&dir, &name);
    }
    if rustix::fs::fsetxattr(&dir, "user.deep", b"down here", XattrFlags::empty()).is_err() {
        eprintln!("SKIPPED: no attributes here");
        return;
    }
    rustix::fs::symlinkat("nowhere", &dir, "link").unwrap();
    rustix::fs::mknodat(&dir, "pipe", FileType::Fifo, Mode::RUSR, 0).unwrap();
    bench.ok("mkfs -q --size 200M a.img");
    bench.ok("put a.img src/. /");
    bench.check("a.img");
    bench.ok("get a.img / out");
    let mut dir = open("out");
    for _ in 0..LEVELS {
        dir = enter(&dir, &name);
    }
    let mut value = [0; 16];
    let len = rustix::fs::fgetxattr(&dir, "user.deep", &mut value).unwrap();
    assert_eq!(&value[..len], b"down here");
    let link = rustix::fs::readlinkat(&dir, "link", Vec::new()).unwrap();
    assert_eq!(link, CString::new("nowhere").unwrap());
}

#[test]
fn attributes_of_symbolic_links_are_the_links_own() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let src = bench.path("src");
    std::fs::create_dir(&src).unwrap();
    std::fs::write(src.join("file"), "").unwrap();
    symlink("file", src.join("link")).unwrap();
    let set =
        |name: &str, value: &[u8]| rustix::fs::lsetxattr(src.join(name), "trusted.owner", value, XattrFlags::empty());
    if set("link", b"link").is_err() || set("file", b"file").is_err() {
        eprintln!("SKIPPED: no attributes of root's here");
        return;
    }
    bench.ok("mkfs -q --rootdir src a.img");
    bench.ok("get a.img / out");
    for name in ["link", "file"] {
        let mut value = [0; 16];
        let len = rustix::fs::lgetxattr(bench.path("out").join(name), "trusted.owner", &mut value).unwrap();
        assert_eq!(&value[..len], name.as_bytes());
    }
}
