//! A copy that is interrupted ends in an orderly way and can be continued.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Bench, assert_same, pattern};

const BIG_BYTES: usize = 200 << 20;

/// An image in which a file that takes a while to copy lies between others.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.fill("src");
    let piece = pattern(1 << 20);
    let big: Vec<u8> = piece.iter().copied().cycle().take(BIG_BYTES).collect();
    std::fs::write(bench.path("src/sub/big"), big).unwrap();
    bench.ok("mkfs -q --rootdir src a.img");
    bench
}

/// Most attempts, if copies end before the signal comes.
const TRIES_MAX: usize = 20;

/// Begins a copy to `out`, waits until it is in the middle of the large file, and interrupts it by a signal; returns
/// its output. If the copy ends before, it is begun again.
fn interrupt(bench: &Bench, line: &str, (out, big): (&str, &str), signal: rustix::process::Signal) -> String {
    for _ in 0..TRIES_MAX {
        let mut child = begin(bench, line, big);
        if child.try_wait().unwrap().is_none() {
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        if !output.status.success() {
            assert_eq!(output.status.signal(), Some(signal.as_raw()), "{output:?}");
            return String::from_utf8(output.stderr).unwrap();
        }
        std::fs::remove_dir_all(bench.path(out)).unwrap();
    }
    panic!("{TRIES_MAX} copies were over before they could be interrupted");
}

fn begin(bench: &Bench, line: &str, big: &str) -> Child {
    // With a low priority, so that the copy and not the test has to wait on a busy machine. Background jobs of a shell
    // ignore the signal, unless told otherwise.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT,TERM", "nice", "-n", "19", env!("CARGO_BIN_EXE_spinney")])
        .args(line.split(' '))
        .current_dir(&bench.dir)
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    while std::fs::metadata(bench.path(big)).map_or(0, |found| found.len()) < 1 << 20 {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it does not begin");
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

fn modes_of_dirs(base: &Path) -> Vec<u32> {
    ["sub", "empty"].map(|name| std::fs::metadata(base.join(name)).map_or(0, |found| found.mode() & 0o7777)).to_vec()
}

/// It left a partial file and private directories, and only `-f` could continue.
#[test]
fn a_copy_that_a_signal_ends_is_whole_so_far_and_goes_on() {
    let bench = bench();
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let said = interrupt(&bench, "get -q a.img / out", ("out", "out/sub/big"), signal);
        assert!(said.contains("spinney: interrupted; ") && said.contains("add --continue"), "{said}");
        assert!(!bench.path("out/sub/big").exists());
        let (src, out) = (bench.path("src"), bench.path("out"));
        let made: Vec<u32> = modes_of_dirs(&out).into_iter().filter(|mode| *mode != 0).collect();
        let meant = modes_of_dirs(&src);
        assert!(made.iter().all(|mode| meant.contains(mode)), "{made:?} {meant:?}");
        let a_dir = std::fs::metadata(out.join("sub")).unwrap();
        assert_eq!(a_dir.mtime(), std::fs::metadata(src.join("sub")).unwrap().mtime());
        // Without the option existing files are refused; with it complete files stay the same inodes.
        let deep = std::fs::metadata(out.join("a.txt")).map(|found| found.ino());
        let run = bench.run("get -q --continue a.img / out");
        assert_eq!(run.status, 0, "{}", run.err);
        if let Ok(ino) = deep {
            assert_eq!(std::fs::metadata(out.join("a.txt")).unwrap().ino(), ino);
            assert!(run.err.contains("files were there already, whole"), "{}", run.err);
        }
        assert_same(&src, &out);
        std::fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn a_copy_that_was_killed_goes_on() {
    let bench = bench();
    let _ = interrupt(&bench, "get -q a.img /sub copy", ("copy", "copy/big"), rustix::process::Signal::KILL);
    assert!(bench.path("copy/big").exists());
    let run = bench.run("get -q --continue a.img /sub copy");
    assert_eq!(run.status, 1, "{}", run.err);
    assert!(run.err.contains("write /sub/. if copy is its copy"), "{}", run.err);
    bench.ok("get -q --continue a.img /sub/. copy");
    bench.ok("get -q a.img /sub/. whole");
    assert_same(&bench.path("whole"), &bench.path("copy"));
}

/// Every state that a killed copy can leave, made by hand.
#[test]
fn every_piece_of_a_copy_is_told_from_what_is_not_one() {
    let bench = Bench::new();
    bench.filled_image();
    let (src, out) = (bench.path("src"), bench.path("out"));
    bench.ok("get -q a.img / out");
    let set_mode = |name: &str, mode| {
        std::fs::set_permissions(out.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // Begun: private, shorter or with other times. A pipe and a link without their times.
    std::fs::write(out.join("middle"), &std::fs::read(src.join("middle")).unwrap()[..5000]).unwrap();
    set_mode("middle", 0o600);
    set_mode("sub/large", 0o600);
    for name in ["pipe", "outside"] {
        std::fs::remove_file(out.join(name)).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", out.join("outside")).unwrap();
    let (cwd, fifo) = (rustix::fs::CWD, rustix::fs::FileType::Fifo);
    rustix::fs::mknodat(cwd, out.join("pipe"), fifo, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
    // Of two names of a file the one that comes first is missing, or the other one; directories are still private.
    std::fs::remove_file(out.join("a.txt")).unwrap();
    set_mode("sub/deep/er", 0o700);
    set_mode("sub", 0o500);
    std::fs::remove_file(out.join("sub/deep/file-007")).unwrap();
    bench.ok("get -q --continue a.img / out");
    assert_same(&src, &out);
    std::fs::remove_file(out.join("sub/again.txt")).unwrap();
    bench.ok("get -q -c --threads 1 a.img / out");
    assert_same(&src, &out);
    // Files that are not part of the copy stay, and are reported.
    std::fs::write(out.join("middle"), "mine").unwrap();
    set_mode("middle", 0o640);
    for (name, target) in [("a.txt", "../mine"), ("sub/deep", "../../mine-dir")] {
        let path = out.join(name);
        if path.is_dir() {
            std::fs::remove_dir_all(&path).unwrap()
        } else {
            std::fs::remove_file(&path).unwrap()
        }
        std::os::unix::fs::symlink(target, path).unwrap();
    }
    std::fs::write(bench.path("mine"), "mine").unwrap();
    std::fs::create_dir(bench.path("mine-dir")).unwrap();
    let before = std::fs::metadata(bench.path("mine-dir")).unwrap();
    let run = bench.run("get -q --continue a.img / out");
    assert_eq!(run.status, 1, "{}", run.err);
    for name in ["out/middle", "out/a.txt", "out/sub/deep"] {
        assert!(run.err.contains(name), "{name}: {}", run.err);
    }
    assert_eq!(std::fs::read(out.join("middle")).unwrap(), b"mine");
    assert_eq!(std::fs::read(bench.path("mine")).unwrap(), b"mine");
    let after = std::fs::metadata(bench.path("mine-dir")).unwrap();
    assert_eq!((before.mode(), before.mtime_nsec()), (after.mode(), after.mtime_nsec()));
    assert_eq!(std::fs::read_dir(bench.path("mine-dir")).unwrap().count(), 0);
}

/// A program that `nohup` or a script told to ignore a signal went on ignoring it.
#[test]
fn a_signal_that_is_ignored_does_not_end_the_copy() {
    let bench = bench();
    let line = "trap '' INT; exec \"$0\" get -q a.img / out";
    let mut command = Command::new("sh");
    command.args(["-c", line, env!("CARGO_BIN_EXE_spinney")]).current_dir(&bench.dir);
    let mut child = command.spawn().unwrap();
    while !bench.path("out/sub/big").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it was over too early");
        std::thread::sleep(Duration::from_millis(1));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    assert_same(&bench.path("src"), &bench.path("out"));
}

/// A private file that is shorter than the image's passed for one that the copy had begun.
#[test]
fn a_private_file_of_the_caller_is_no_piece_of_the_copy() {
    let bench = Bench::new();
    bench.filled_image();
    let mine = bench.path("out/middle");
    std::fs::create_dir(bench.path("out")).unwrap();
    let begun = std::fs::read(bench.path("src/middle")).unwrap();
    let other = [&begun[..4000], b"mine"].concat();
    let zeros = [0; 4000];
    let pieces = [(&b"mine"[..], false), (&other[..], false), (&begun[..4000], true), (&zeros[..], true)];
    for (contents, is_replaced) in pieces {
        std::fs::write(&mine, contents).unwrap();
        std::fs::set_permissions(&mine, std::fs::Permissions::from_mode(0o600)).unwrap();
        let run = bench.run("get -q --continue a.img /. out");
        let (status, meant) = if is_replaced { (0, &*begun) } else { (1, contents) };
        assert_eq!(run.status, status, "{}", run.err);
        assert_eq!(std::fs::read(&mine).unwrap(), meant);
        assert_eq!(run.err.contains("out/middle: File exists"), !is_replaced, "{}", run.err);
    }
}

/// It was killed before it gave the file its last mode, which differs in that bit only.
#[test]
fn a_private_program_gets_the_bit_that_it_lacks() {
    let bench = Bench::new();
    bench.fill("src");
    let (meant, piece) = (bench.path("src/program"), bench.path("out/program"));
    std::fs::write(&meant, "program").unwrap();
    std::fs::set_permissions(&meant, std::fs::Permissions::from_mode(0o4600)).unwrap();
    bench.ok("mkfs -q --rootdir src a.img");
    std::fs::create_dir(bench.path("out")).unwrap();
    std::fs::write(&piece, "program").unwrap();
    std::fs::set_permissions(&piece, std::fs::Permissions::from_mode(0o600)).unwrap();
    let time = std::fs::metadata(&meant).unwrap().modified().unwrap();
    std::fs::File::options().write(true).open(&piece).unwrap().set_modified(time).unwrap();
    bench.ok("get -q --continue a.img /. out");
    assert_eq!(std::fs::metadata(&piece).unwrap().mode() & 0o7777, 0o4600);
}
