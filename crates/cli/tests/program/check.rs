//! `spinney check`: reports and exit statuses for sound and damaged images.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::check_mount::{READ_BYTES, bytes_read};
use crate::harness::Bench;
use crate::mounted::kill;

#[test]
fn a_sound_image_has_nothing_to_be_said_of() {
    let bench = Bench::new();
    bench.filled_image();
    let bytes = std::fs::read(bench.path("a.img")).unwrap();
    bench.ok("check a.img");
    let report = bench.json("check --data --json a.img");
    assert_eq!(report["findings"].as_array().map(Vec::len), Some(0), "{report}");
    assert!(std::fs::read(bench.path("a.img")).unwrap() == bytes, "a check writes nothing");
    for pass in ["super", "chunks", "trees", "extents", "files", "csums"] {
        assert!(bench.ok("check --list-passes").contains(pass), "{pass}");
    }
    assert!(bench.ok("check --explain all").lines().count() > 98);
    assert_eq!(bench.run("check --pass nonsense a.img").status, 16);
    assert_eq!(bench.run("check missing.img").status, 8);
    std::fs::write(bench.path("blank.img"), vec![0; 128 << 20]).unwrap();
    let run = bench.run("check blank.img");
    assert_eq!(run.status, 8, "{}", run.err);
    assert!(run.err.contains("rescue get blank.img") && run.err.contains("spinney repair"), "{}", run.err);
}

#[test]
fn what_is_wrong_is_told_with_a_code_and_a_path() {
    let bench = Bench::new();
    bench.filled_image();
    std::fs::write(bench.path("wide"), b"wide ".repeat(20_000)).unwrap();
    bench.ok("put -q a.img wide /wide");
    bench.rot("a.img", bench.sectors_of("a.img", b"wide wide")[0]);
    // Data is read only on request.
    bench.ok("check a.img");
    let run = bench.run("check --data a.img");
    assert_eq!(run.status, 4, "{}", run.err);
    let text = String::from_utf8_lossy(&run.out).into_owned();
    assert!(text.contains("data") && text.contains("wide"), "{text}");
    let run = bench.run("check --data --json a.img");
    assert_eq!(run.status, 4, "{}", run.err);
    let report: serde_json::Value = serde_json::from_slice(&run.out).unwrap();
    assert!(report["findings"].as_array().is_some_and(|found| !found.is_empty()), "{report}");
}

#[test]
fn an_f2fs_image_is_checked_as_well() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("dir")).unwrap();
    std::fs::write(bench.path("dir/file"), b"contents ".repeat(10_000)).unwrap();
    bench.ok("mkfs -q -t f2fs --rootdir dir a.img");
    let bytes = std::fs::read(bench.path("a.img")).unwrap();
    assert!(bench.ok("check a.img").contains("No errors found."));
    let report = bench.json("check --json a.img");
    assert_eq!((&report["is_clean"], report["findings"].as_array().map(Vec::len)), (&true.into(), Some(0)), "{report}");
    assert!(std::fs::read(bench.path("a.img")).unwrap() == bytes, "a check writes nothing");
    // The count of links of the root directory, of which an older copy may lie before, stands behind mode, advice,
    // inline flags, owner and group.
    let mode = [0xed, 0x41];
    let root = (0..bytes.len() / 4096)
        .map(|block| block * 4096)
        .rfind(|at| bytes[*at..].starts_with(&mode) && bytes[*at + 4072..*at + 4080] == [3, 0, 0, 0, 3, 0, 0, 0]);
    let mut damaged = bytes.clone();
    damaged[root.unwrap() + 12] = 9;
    std::fs::write(bench.path("b.img"), &damaged).unwrap();
    let run = bench.run("check --json --pass files b.img");
    assert_eq!(run.status, 4, "{}", run.err);
    let report: serde_json::Value = serde_json::from_slice(&run.out).unwrap();
    assert_eq!(report["counts"], serde_json::json!({ "dir-links": 1 }), "{report}");
    assert_eq!((&report["findings"][0]["path"], &report["findings"][0]["inode"]), (&"/".into(), &3.into()));
    // The first superblock is damaged: the second one is used.
    damaged = bytes;
    damaged[1024..1028].fill(0);
    std::fs::write(bench.path("c.img"), &damaged).unwrap();
    let run = bench.run("check c.img");
    assert_eq!(run.status, 4, "{}", run.err);
    assert!(String::from_utf8_lossy(&run.out).contains("super-copy (1)"));
    damaged[5120..5124].fill(0);
    std::fs::write(bench.path("d.img"), &damaged).unwrap();
    assert_eq!(bench.run("check d.img").status, 8);
    bench.ok("check --data a.img");
    for words in ["check --pass chunks a.img", "check --device b.img a.img"] {
        assert_eq!(bench.run(words).status, 16, "{words}");
    }
    assert!(bench.ok("check --explain dir-hash").contains("(f2fs, files)"));
}

/// An image whose data takes a while to check, and the file for the progress of checks.
fn image_for_marks() -> (Bench, PathBuf) {
    let bench = Bench::in_memory();
    bench.ok("mkfs -q --size 512M --nodesize 4096 a.img");
    let noise: Vec<u8> = (0..200u32 << 18).flat_map(|at| (at.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
    std::fs::write(bench.path("noise"), [b"wide ".repeat(1000), noise].concat()).unwrap();
    bench.ok("put -q a.img noise /noise");
    bench.rot("a.img", bench.sectors_of("a.img", b"wide wide")[0]);
    let uuid = bench.json("info --json a.img")["uuid"].as_str().unwrap().to_owned();
    let marks = bench.path("state/spinney").join(format!("check.{uuid}"));
    (bench, marks)
}

/// Interrupts a check after it has saved its progress; false if it ended before.
fn cut_short(bench: &Bench, marks: &Path) -> bool {
    let mut child = Command::new(env!("CARGO_BIN_EXE_spinney"))
        .args(["check", "--data", "--quiet", "--threads", "1", "a.img"])
        .env("XDG_STATE_HOME", bench.path("state"))
        .current_dir(&bench.dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let process = child.id().try_into().unwrap();
    while bytes_read(child.id()) < READ_BYTES {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
    }
    // Progress is saved at intervals; resuming starts in the middle of the data.
    kill(process, Signal::STOP);
    std::thread::sleep(Duration::from_millis(200));
    kill(process, Signal::CONT);
    while child.try_wait().unwrap().is_none() && !marks.exists() {}
    child.kill().unwrap();
    child.wait().unwrap();
    marks.exists()
}

fn bytes_skipped(report: &serde_json::Value) -> u64 {
    let notes = report["notes"].as_array().unwrap().iter().filter_map(|note| note.as_str());
    let skipped = notes.filter_map(|note| note.strip_prefix("data: ")?.split_once(" bytes, which an earlier check"));
    skipped.map(|(bytes, _)| bytes.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_check_that_was_ended_in_the_data_goes_on() {
    let (bench, marks) = image_for_marks();
    let report_of = |line: &str| -> (String, serde_json::Value) {
        let run = bench.run(line);
        assert_eq!(run.status, 4, "{}", run.err);
        (run.err, serde_json::from_slice(&run.out).unwrap())
    };
    let (_, whole) = report_of("check --data --json a.img");
    assert!(whole["counts"]["data-checksum"] == 1 && !marks.exists(), "{whole}");
    assert!((0..30).any(|_| cut_short(&bench, &marks)), "no check was ended in the data");
    let kept = std::fs::read(&marks).unwrap();
    let (_, resumed) = report_of("check --data --resume --json a.img");
    let skipped = bytes_skipped(&resumed);
    assert!(skipped >= 4 << 20, "{resumed}");
    assert_eq!(resumed["findings"], whole["findings"]);
    let bytes = |report: &serde_json::Value| report["bytes_read"].as_u64().unwrap();
    assert_eq!(bytes(&resumed) + skipped, bytes(&whole), "{resumed}");
    assert!(!marks.exists(), "a finished check leaves no progress");
    // Without --resume it starts from the beginning, and says so.
    std::fs::write(&marks, &kept).unwrap();
    let (said, anew) = report_of("check --data --json a.img");
    assert!(said.contains("--resume") && bytes_skipped(&anew) == 0 && bytes(&anew) == bytes(&whole), "{said}");
    // A copy may hold other data in the same state, and so may the image itself after other writes.
    std::fs::copy(bench.path("a.img"), bench.path("copy.img")).unwrap();
    std::fs::write(&marks, &kept).unwrap();
    let (said, anew) = report_of("check --data --resume --json copy.img");
    assert!(said.contains("begins at the beginning") && bytes_skipped(&anew) == 0, "{said}");
    std::fs::write(&marks, &kept).unwrap();
    let file = std::fs::File::options().write(true).open(bench.path("a.img")).unwrap();
    file.set_modified(std::time::SystemTime::now()).unwrap();
    let (said, anew) = report_of("check --data --resume --json a.img");
    assert!(said.contains("begins at the beginning") && bytes_skipped(&anew) == 0, "{said}");
    // The saved progress is of another state, or malformed.
    bench.ok("mkdir a.img /later");
    let text = String::from_utf8(kept.clone()).unwrap();
    let lies = [text.replace("\"leaves\":", "\"leaves\":9"), "[]".to_owned(), text[..text.len() / 2].to_owned()];
    for contents in lies.iter().map(String::as_bytes).chain([&*kept]) {
        std::fs::write(&marks, contents).unwrap();
        let (said, anew) = report_of("check --data --resume --json a.img");
        assert!(bytes_skipped(&anew) == 0 && anew["findings"] == whole["findings"], "{anew}");
        assert!(said.contains("begins at the beginning"), "{said}");
    }
    let run = bench.run("check --resume a.img");
    assert!(run.status == 16 && run.err.contains("--data"), "{} {}", run.status, run.err);
}

/// Without a reader only the exit status is left.
#[test]
fn a_reader_that_went_away_changes_no_verdict() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    bench.ok("mkdir a.img /dir");
    std::fs::write(bench.path("data"), b"wide ".repeat(5000)).unwrap();
    bench.ok("put -q a.img data /data");
    bench.rot("a.img", bench.sectors_of("a.img", b"wide wide")[0]);
    let status = |line: &str| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let run = Command::new(env!("CARGO_BIN_EXE_spinney"))
            .args(line.split(' '))
            .current_dir(&bench.dir)
            .stdout(writer)
            .stderr(Stdio::null())
            .status();
        run.unwrap().code()
    };
    for (line, verdict) in [
        ("check --data -q a.img", 4),
        ("check --data -q --json a.img", 4),
        ("scrub start -q --readonly a.img", 3),
        ("rescue get -q a.img out", 1),
        ("rescue get -q --json a.img again", 1),
    ] {
        assert_eq!((status(line), line), (Some(verdict), line));
    }
    assert_eq!(status("ls a.img"), Some(0), "a reader that has enough is no failure");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_spinney"))
        .args(["check", "-q", "a.img"])
        .current_dir(&bench.dir)
        .stdout(full)
        .stderr(Stdio::null())
        .status();
    assert_eq!(run.unwrap().code(), Some(8), "as fsck(8) has it");
}
