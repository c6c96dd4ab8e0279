//! When an image file is flushed. Only system calls show it: after a kill the kernel's cache keeps unflushed writes,
//! and a simulated device is no file.
//!
//! A program runs under `strace`. Its writes to the image and its calls of fdatasync must have the order that
//! `docs/media.md` requires: blocks are flushed before the superblock that points at them is written, the superblock
//! before anything else is, and all of it before a sync returns.

use std::path::Path;
use std::process::Command;

use spinney::btrfs::Volume;

use crate::harness::Bench;
use spinney::OpenOptions;

/// Offset of the superblock.
const SUPERBLOCK_AT: u64 = 64 << 10;
/// Its mirror, which is written after the superblock is durable, and need not be durable itself.
const MIRROR_AT: u64 = 64 << 20;
const TRACED: &str = "trace=pwrite64,pwritev,pwritev2,write,fdatasync,fsync,io_uring_enter";
/// The image that [`worker`] works on.
const IMAGE: &str = "SPINNEY_FLUSHED_IMAGE";
/// The worker prints this when a sync has returned.
const MARK: &str = "a sync has returned";

/// A system call on the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Write,
    Superblock,
    Flush,
    /// A sync returned.
    Returned,
}

/// The calls of a program, which have to succeed; `None` without `strace`.
fn traced(bench: &Bench, program: &Path, arguments: &[&str]) -> Option<Vec<Event>> {
    let image = std::fs::canonicalize(bench.path("a.img")).unwrap();
    let run = Command::new("strace")
        .args(["-f", "-y", "-s", "64", "-e", TRACED, "-o", "trace"])
        .arg(program)
        .args(arguments)
        .env(IMAGE, &image)
        .current_dir(&bench.dir)
        .output();
    let output = match run {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            assert!(std::env::var_os("CI").is_none(), "strace is needed");
            eprintln!("skipped: no strace");
            return None;
        }
        run => run.unwrap(),
    };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {text}");
    let trace = std::fs::read_to_string(bench.path("trace")).unwrap();
    let image = image.to_str().unwrap();
    Some(trace.lines().filter_map(|line| event(line, image)).collect())
}

fn event(line: &str, image: &str) -> Option<Event> {
    if line.contains(MARK) {
        return Some(Event::Returned);
    }
    let is_of_image = line.contains(&format!("<{image}>"));
    let (_, call) = line.split_once(char::is_whitespace)?;
    let call = call.trim_start();
    assert!(!call.starts_with("io_uring_enter"), "a ring's writes are not seen here");
    if !is_of_image {
        return None;
    }
    if call.starts_with("fdatasync") || call.starts_with("fsync") {
        assert!(!call.contains("= -1"), "{line}");
        return Some(Event::Flush);
    }
    // The offset is the last argument.
    let arguments = call.split(" <unfinished").next()?.rsplit_once(") = ").map_or(call, |(arguments, _)| arguments);
    let offset = arguments.rsplit(", ").next()?.trim_end_matches(" <unfinished ...>");
    let offset: u64 = offset.parse().unwrap_or_else(|_| panic!("no offset in {line}"));
    match offset {
        MIRROR_AT => None,
        SUPERBLOCK_AT => Some(Event::Superblock),
        _ => Some(Event::Write),
    }
}

/// The first violation of the order of events.
fn wrong(events: &[Event]) -> Option<String> {
    // Writes, and superblocks, since the last flush.
    let (mut writes, mut superblocks) = (0, 0);
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::Flush => (writes, superblocks) = (0, 0),
            Event::Superblock if writes > 0 => return Some(format!("{at}: a superblock before a flush of {writes}")),
            Event::Superblock => superblocks += 1,
            Event::Write if superblocks > 0 => return Some(format!("{at}: a write before the superblock is flushed")),
            Event::Write => writes += 1,
            Event::Returned if writes + superblocks > 0 => {
                return Some(format!("{at}: a sync returned, and {} writes are not flushed", writes + superblocks));
            }
            Event::Returned => {}
        }
    }
    None
}

fn count(events: &[Event], wanted: Event) -> usize {
    events.iter().filter(|event| **event == wanted).count()
}

#[test]
fn a_command_flushes_the_image_before_and_after_the_superblock() {
    let bench = Bench::new();
    bench.filled_image();
    for line in ["mkdir a.img /new", "put a.img src /copy", "rm -r a.img /sub"] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let program = Path::new(env!("CARGO_BIN_EXE_spinney"));
        let Some(events) = traced(&bench, program, &words) else { return };
        assert!(count(&events, Event::Superblock) > 0 && count(&events, Event::Write) > 0, "{line}: {events:?}");
        let flushes = count(&events, Event::Flush);
        assert!(flushes >= 2 * count(&events, Event::Superblock), "{line}: {events:?}");
        // Threads of an import already write for the next transaction.
        assert!(line.starts_with("put") || wrong(&events).is_none(), "{line}: {events:?}");
    }
}

#[test]
fn a_sync_returns_after_the_flush() {
    let bench = Bench::new();
    bench.filled_image();
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", "flushes::worker", "--ignored", "--nocapture", "--test-threads=1"];
    let Some(events) = traced(&bench, &program, &arguments) else { return };
    assert_eq!(count(&events, Event::Returned), 6, "{events:?}");
    assert_eq!(wrong(&events), None, "{events:?}");
}

/// Not a test of its own: traced by [`a_sync_returns_after_the_flush`].
#[test]
#[ignore = "run under strace by another test"]
fn worker() {
    let Some(image) = std::env::var_os(IMAGE) else { return };
    let volume = Volume::options().open(image).unwrap();
    let options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).open(&volume, "file").unwrap();
    let returned = || println!("{MARK}");
    for round in 0..3_u8 {
        file.write_at(&[round; 20_000], u64::from(round) * 10_000).unwrap();
        file.sync_all().unwrap();
        returned();
    }
    file.write_at(&[9; 100], 5000).unwrap();
    file.sync_data().unwrap();
    returned();
    volume.create_dir("folder").unwrap();
    volume.sync().unwrap();
    returned();
    file.set_len(100).unwrap();
    drop(file);
    volume.close().unwrap();
    returned();
}

#[test]
fn the_order_of_events_is_judged() {
    use Event::{Flush, Returned, Superblock, Write};
    let good = [Write, Flush, Superblock, Flush, Write, Flush, Returned];
    assert_eq!(wrong(&good), None);
    for missing in [1, 3, 5] {
        let mut events = good.to_vec();
        events.remove(missing);
        assert!(wrong(&events).is_some(), "without {missing}");
    }
}
