//! `spinney check` of a mount: a committed state is checked while others write, and given up when the checker ends.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::mounted::{KernelMount, Mounted, kill};

/// Number of checks while files are written.
const CHECKS: usize = 10;
const WRITERS: usize = 4;

/// Makes, changes, syncs and removes files; one of the writers makes and deletes snapshots as well.
fn write_on(mounted: &Mounted, writer: usize, has_ended: &AtomicBool) -> usize {
    let dir = mounted.dir().join(format!("home/{writer}"));
    fs::create_dir(&dir).unwrap();
    let mut round = 0;
    while !has_ended.load(Ordering::Relaxed) {
        let name = dir.join(format!("file-{}", round % 37));
        fs::write(&name, vec![u8::try_from(round % 251).unwrap(); 5_000 + round % 60 * 3_000]).unwrap();
        match round % 5 {
            0 => fs::File::open(&name).unwrap().sync_all().unwrap(),
            1 => drop(fs::remove_file(dir.join(format!("file-{}", (round + 11) % 37)))),
            2 => fs::rename(&name, dir.join(format!("moved-{}", round % 7))).unwrap(),
            3 if writer == 0 => {
                let _ = mounted.bench.run(&format!("subvolume snapshot mnt home snap-{}", round % 3));
            }
            4 if writer == 0 => drop(mounted.bench.run(&format!("subvolume delete mnt snap-{}", round % 3))),
            _ => {}
        }
        round += 1;
    }
    round
}

#[test]
fn a_mount_is_sound_while_others_write_to_it() {
    let Some(mounted) = Mounted::mount_if_possible("-o commit=1,user_subvol_ioctls") else { return };
    let bench = &mounted.bench;
    bench.ok("subvolume create mnt home");
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (own, end) = (&mounted, &has_ended);
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write_on(own, writer, end))).collect();
        let begun = Instant::now();
        let checks: Vec<_> = (0..CHECKS)
            .map(|index| {
                std::thread::sleep(Duration::from_millis(100));
                bench.run(if index % 2 == 0 { "check --data mnt" } else { "check mnt" })
            })
            .collect();
        has_ended.store(true, Ordering::Relaxed);
        let rounds: usize = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        println!("{CHECKS} checks in {:?}, {rounds} rounds of writers", begun.elapsed());
        for run in checks {
            assert_eq!(run.status, 0, "{}\n{}", run.err, String::from_utf8_lossy(&run.out));
        }
        assert!(rounds > 50 * WRITERS, "{rounds}");
    });
    mounted.unmount();
    bench.ok("check --data a.img");
    bench.check("a.img");
}

#[test]
fn what_rots_beneath_a_mount_is_found_as_in_the_image() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let bench = &mounted.bench;
    fs::write(mounted.dir().join("wide"), b"wide ".repeat(20_000)).unwrap();
    bench.ok("check --data mnt");
    bench.rot("a.img", bench.sectors_of("a.img", b"wide wide")[0]);
    let found = |target: &str| {
        let run = bench.run(&format!("check --data --json {target}"));
        assert_eq!(run.status, 4, "{target}: {}", run.err);
        serde_json::from_slice::<serde_json::Value>(&run.out).unwrap()
    };
    let of_mount = found("mnt");
    assert!(of_mount["findings"][0]["path"].as_str().unwrap().contains("wide"), "{of_mount}");
    // A mirror of the superblock, which is read only if the first is bad.
    bench.rot("a.img", 64 << 20);
    let both = found("mnt");
    assert!(both["counts"]["super-copy"].as_u64() == Some(1), "{both}");
    assert!(both["notes"].as_array().unwrap().iter().any(|note| note.as_str().unwrap().contains("in use")), "{both}");
    let run = bench.run("check --device a.img mnt");
    assert_eq!(run.status, 16, "{}", run.err);
    fs::write(mounted.dir().join("more"), "x").unwrap();
    mounted.unmount();
    // Unmounting has rewritten the superblocks.
    assert_eq!(found("a.img")["findings"], of_mount["findings"]);
    bench.ok("mount -o ro a.img mnt");
    assert_eq!(found("mnt")["findings"], of_mount["findings"]);
}

#[test]
fn a_mount_of_f2fs_is_to_be_unmounted_first() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let bench = &mounted.bench;
    fs::create_dir(bench.path("empty")).unwrap();
    fs::create_dir(bench.path("other")).unwrap();
    bench.ok("mkfs -q -t f2fs --rootdir empty f.img");
    bench.ok("mount f.img other");
    let run = bench.run("check other");
    let info = bench.ok("info other");
    let uuid = bench.json("info --json other")["uuid"].clone();
    let unknown = bench.run("label other");
    bench.ok("umount other");
    assert!(info.contains("Format:      f2fs"), "{info}");
    assert_eq!(uuid, bench.json("info --json f.img")["uuid"]);
    assert!(unknown.status == 4 && unknown.err.contains("does not know this command"), "{}", unknown.err);
    assert_eq!(run.status, 8, "{}", run.err);
    assert!(run.err.contains("`spinney umount other`") && run.err.contains("f.img"), "{}", run.err);
    bench.ok("check f.img");
}

/// Bytes that a check has read when it is stopped: more than all metadata, less than all data.
pub(crate) const READ_BYTES: u64 = 16 << 20;

/// A check stopped in the middle of the data; `None` if it ended before.
fn stopped_check(mounted: &Mounted) -> Option<Child> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_spinney"))
        .args(["check", "--data", "--threads", "1", "mnt"])
        .current_dir(&mounted.bench.dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    while child.try_wait().unwrap().is_none() {
        if bytes_read(child.id()) > READ_BYTES {
            kill(child.id().try_into().unwrap(), Signal::STOP);
            return Some(child);
        }
    }
    None
}

/// Bytes read by a process; `None` if it has ended.
pub(crate) fn bytes_read(process: u32) -> u64 {
    let said = fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
    said.lines().find_map(|line| line.strip_prefix("rchar: ")).map_or(0, |bytes| bytes.parse().unwrap())
}

/// A check begins with a commit.
fn commit(mounted: &Mounted) {
    mounted.bench.ok("check --pass super mnt");
}

fn held_bytes(mounted: &Mounted) -> u64 {
    mounted.bench.json("usage --json mnt")["held_bytes"].as_u64().unwrap()
}

#[test]
fn a_checker_that_is_killed_holds_nothing_back() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let victim = mounted.dir().join("victim");
    fs::write(mounted.dir().join("large"), vec![7; 100 << 20]).unwrap();
    // A check that ended before it could be stopped holds nothing.
    for _ in 0..30 {
        fs::write(&victim, vec![8; 10 << 20]).unwrap();
        commit(&mounted);
        let Some(mut checker) = stopped_check(&mounted) else { continue };
        fs::remove_file(&victim).unwrap();
        commit(&mounted);
        let held = held_bytes(&mounted);
        checker.kill().unwrap();
        checker.wait().unwrap();
        if held < 10 << 20 {
            continue;
        }
        let begun = Instant::now();
        while held_bytes(&mounted) > 0 {
            assert!(begun.elapsed() < Duration::from_secs(5), "the server still holds {held} bytes");
            std::thread::sleep(Duration::from_millis(10));
        }
        return;
    }
    panic!("no check was stopped in the middle");
}

/// A held state whose space writers need is given up: its report does not count, and the next state is checked.
#[test]
fn a_held_state_is_given_up_when_writers_need_its_space() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let (large, victim) = (mounted.dir().join("large"), mounted.dir().join("victim"));
    let noise = |seed: u32, bytes: u32| -> Vec<u8> {
        (0..bytes / 4).flat_map(|at| (at ^ seed).wrapping_mul(2_654_435_761).to_le_bytes()).collect()
    };
    for round in 0..30 {
        fs::write(&large, noise(1, 60 << 20)).unwrap();
        fs::write(&victim, noise(2, 100 << 20)).unwrap();
        commit(&mounted);
        let Some(mut checker) = stopped_check(&mounted) else { continue };
        fs::remove_file(&victim).unwrap();
        commit(&mounted);
        if held_bytes(&mounted) < 100 << 20 {
            kill(checker.id().try_into().unwrap(), Signal::CONT);
            checker.wait().unwrap();
            continue;
        }
        // The only free space is that of the deleted victim.
        fs::write(mounted.dir().join("new"), noise(3, 80 << 20)).unwrap();
        commit(&mounted);
        assert_eq!(held_bytes(&mounted), 0, "round {round}: writers came first");
        kill(checker.id().try_into().unwrap(), Signal::CONT);
        let said = checker.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.status.success(), "round {round}: {text}");
        assert_eq!(fs::read(mounted.dir().join("new")).unwrap(), noise(3, 80 << 20));
        return;
    }
    panic!("no check was stopped in the middle");
}

#[test]
fn what_the_kernel_has_mounted_is_not_checked() {
    let Some(mounted) = Mounted::if_possible() else { return };
    let bench = &mounted.bench;
    let Some(kernel) = KernelMount::of(&bench.path("a.img"), bench.path("kernel")) else { return };
    for target in ["kernel", "a.img"] {
        let run = bench.run(&format!("check {target}"));
        assert_eq!(run.status, 8, "{}", run.err);
        assert!(run.err.contains("the kernel has it mounted") && run.err.contains("umount"), "{}", run.err);
    }
    drop(kernel);
    bench.ok("check a.img");
}
