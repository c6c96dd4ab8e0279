//! Scrubs of images and of mounts: repairs, reports, interruption and resumption.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::Bench;
use crate::mounted::{Mounted, kill};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_rots_is_mended_or_named() {
    let bench = Bench::new();
    bench.filled_image();
    std::fs::write(bench.path("wide"), b"wide ".repeat(20_000)).unwrap();
    // First, so that no other copy of it is left on the device.
    bench.ok("balance start -q a.img -d convert=dup");
    bench.ok("put -q a.img wide /wide");
    bench.ok("subvolume snapshot a.img / /before");
    let sound = bench.json("scrub start --json a.img");
    assert_eq!((sound["errors"].as_u64(), sound["is_whole"].as_bool()), (Some(0), Some(true)), "{sound}");
    assert!(bench.ok("scrub start a.img").contains("no errors"));
    assert_eq!(bench.json("scrub stats --json a.img")["corruption"].as_u64(), Some(0));

    // One copy: the first on the device.
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

    // The only copy.
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
    // Its text repeats, so several of its sectors have the same beginning.
    paths.dedup();
    assert_eq!(paths, ["before/wide", "wide"], "{report}");
    assert_eq!(bench.run("scrub start --from=x a.img").status, 2);
    let status = bench.run("scrub status a.img");
    assert_eq!(status.status, 3, "{}", status.err);
    assert!(text(&status.out).contains("finished") && text(&status.out).contains("Lost:"), "{}", text(&status.out));
}

fn state(bench: &Bench, target: &str) -> serde_json::Value {
    serde_json::from_slice(&bench.run(&format!("scrub status --json {target}")).out).unwrap()
}

/// Waits for a running scrub.
fn wait_for(bench: &Bench, target: &str, wanted: &str) -> serde_json::Value {
    let begun = Instant::now();
    loop {
        let told = state(bench, target);
        if told["state"] == wanted {
            return told;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{wanted}: {told}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A scrub that takes a while.
fn slow_scrub(bench: &Bench, target: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_spinney"))
        .args(["scrub", "start", "-q", "--limit", "8M", target])
        .env("XDG_STATE_HOME", bench.path("state"))
        .current_dir(&bench.dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn large_image() -> Bench {
    let bench = Bench::in_memory();
    bench.ok("mkfs -q --size 256M a.img");
    let noise: Vec<u8> = (0..80u32 << 18).flat_map(|at| (at.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
    std::fs::write(bench.path("noise"), noise).unwrap();
    bench.ok("put -q a.img noise /noise");
    bench
}

/// The signal of Ctrl-C; programs in the background of a script are told to ignore it.
fn interruption() -> Signal {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    let is_ignored = u64::from_str_radix(ignored, 16).unwrap() & (1 << (Signal::INT.as_raw() - 1)) != 0;
    if is_ignored { Signal::TERM } else { Signal::INT }
}

#[test]
fn a_scrub_of_an_image_that_was_stopped_goes_on() {
    let bench = large_image();
    assert_eq!(state(&bench, "a.img")["state"], "none");
    assert_eq!(bench.run("scrub resume a.img").status, 1);
    for signal in [interruption(), Signal::KILL] {
        let mut child = slow_scrub(&bench, "a.img");
        let running = wait_for(&bench, "a.img", "running");
        assert!(running["bytes_total"].as_u64() >= Some(80 << 20), "{running}");
        let second = bench.run("scrub resume a.img");
        assert_eq!(second.status, 1, "{}", second.err);
        assert_eq!(bench.run("scrub cancel a.img").status, 7);
        assert_eq!(bench.run("scrub pause a.img").status, 2);
        std::thread::sleep(Duration::from_millis(500));
        kill(child.id().try_into().unwrap(), signal);
        child.wait().unwrap();
        let cut_short = wait_for(&bench, "a.img", "interrupted");
        let whole = bench.json("scrub resume --json a.img");
        assert_eq!(whole["is_whole"], true, "{whole}");
        // All of it was read once, except for data read after the progress was last saved.
        assert!(whole["data_bytes"].as_u64() >= Some(80 << 20), "{whole}");
        assert!(whole["data_bytes"].as_u64() <= Some(81 << 20), "{whole} after {cut_short}");
        assert_eq!(state(&bench, "a.img")["state"], "finished");
    }
    let mut child = slow_scrub(&bench, "a.img");
    wait_for(&bench, "a.img", "running");
    child.kill().unwrap();
    child.wait().unwrap();
    bench.ok("scrub cancel a.img");
    assert_eq!(state(&bench, "a.img")["state"], "none");
    assert_eq!(bench.run("scrub resume a.img").status, 1);
}

#[test]
fn what_is_kept_of_a_scrub_is_not_believed_blindly() {
    let bench = large_image();
    bench.ok("scrub start -q a.img");
    let folder = bench.path("state/spinney");
    let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let kept = files.into_iter().find(|path| path.extension().is_some_and(|end| end != "lock")).unwrap();
    let sound = std::fs::read_to_string(&kept).unwrap();
    let other = "00000000-0000-0000-0000-000000000000";
    let uuid = state(&bench, "a.img")["uuid"].as_str().unwrap().to_owned();
    let bad = [
        String::new(),
        "{".repeat(100_000),
        sound.replace("\"version\":1", "\"version\":2"),
        sound.replace(&uuid, other),
    ];
    for text in bad {
        std::fs::write(&kept, text).unwrap();
        let run = bench.run("scrub status a.img");
        assert_eq!(run.status, 3, "{}", run.err);
        assert!(run.err.contains("remove it"), "{}", run.err);
        assert_eq!(bench.run("scrub resume a.img").status, 3);
    }
    std::fs::remove_file(&kept).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &kept).unwrap();
    assert_ne!(bench.run("scrub status a.img").status, 0);
    std::fs::remove_file(&kept).unwrap();
    std::fs::write(&kept, sound).unwrap();
    assert_eq!(state(&bench, "a.img")["state"], "finished");
    // A user who may write the file decides where a scrub resumes, and so which data it skips.
    let anybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&kept, anybody).unwrap();
    assert_eq!(bench.run("scrub status a.img").status, 3);
}

#[test]
fn a_scrub_of_a_mount_is_asked_paused_and_resumed() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let bench = &mounted.bench;
    assert_eq!(state(bench, "mnt")["state"], "none");
    assert_eq!(bench.run("scrub pause mnt").status, 1);
    std::fs::write(mounted.dir().join("large"), vec![9; 80 << 20]).unwrap();
    bench.ok("scrub start --background --limit 8M mnt");
    // The total is not known at once.
    let mut running = wait_for(bench, "mnt", "running");
    let begin = Instant::now();
    while running["bytes_total"] == 0 && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
        running = wait_for(bench, "mnt", "running");
    }
    assert!(running["bytes_total"].as_u64() >= Some(80 << 20), "{running}");
    assert_eq!(bench.run("scrub start mnt").status, 7);
    // It continues though the client that began it has ended.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(state(bench, "mnt")["state"], "running");
    let paused = bench.json("scrub pause --json mnt");
    assert_eq!(paused["state"], "paused", "{paused}");
    assert!(paused["bytes"].as_u64() < Some(80 << 20), "{paused}");
    assert!(bench.ok("scrub status mnt").contains("paused"));
    // The file still has the state that the server forgets.
    mounted.unmount();
    bench.ok("mount a.img mnt");
    assert_eq!(state(bench, "mnt")["state"], "paused");
    let whole = bench.json("scrub resume --json mnt");
    assert_eq!(whole["is_whole"], true, "{whole}");
    assert!(whole["data_bytes"].as_u64() >= Some(80 << 20), "{whole}");
    assert!(whole["data_bytes"].as_u64() <= Some(81 << 20), "{whole}");
    assert_eq!(state(bench, "mnt")["state"], "finished");
    let mut child = slow_scrub(bench, "mnt");
    wait_for(bench, "mnt", "running");
    bench.ok("scrub cancel mnt");
    child.wait().unwrap();
    assert_eq!(bench.run("scrub resume mnt").status, 1);
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
