//! Commands on a whole mount, which its server runs: info, label, diff, quotas and backups.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

use serde_json::Value;

use crate::harness::pattern;
use crate::mounted::Mounted;

const NOBODY: u32 = 65_534;
/// 2026-11-25, 00:00 UTC.
const DAY: i64 = 1_795_564_800;

/// A mount with `allow_other`; `None` if this process cannot act as another user.
fn for_everybody() -> Option<Mounted> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can act as another user");
        return None;
    }
    let mounted = Mounted::mount_if_possible("-o allow_other")?;
    fs::set_permissions(mounted.bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(mounted.dir(), fs::Permissions::from_mode(0o777)).unwrap();
    Some(mounted)
}

fn as_nobody(mounted: &Mounted, line: &str) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spinney"));
    command.args(line.split(' ')).current_dir(mounted.bench.dir.path()).uid(NOBODY).gid(NOBODY);
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.success(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

#[test]
fn a_mount_says_what_it_is_and_takes_a_name() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let bench = &mounted.bench;
    let before = bench.json("info --json mnt");
    assert_eq!((before["label"].as_str(), before["total_bytes"].as_u64()), (Some(""), Some(256 << 20)));
    assert_eq!(bench.ok("label mnt"), "\n");
    assert_eq!(bench.ok("label mnt Site"), "");
    assert_eq!(bench.json("label --json mnt")["label"], "Site");
    assert_eq!(bench.json("label --json mnt Other")["label"], "Other");
    fs::create_dir(mounted.dir().join("deep")).unwrap();
    assert!(bench.ok("info mnt/deep").starts_with("Label:       Other\nUUID:"));
    let long = bench.run(&format!("label mnt {}", "x".repeat(256)));
    assert!(long.status == 2 && long.err.contains("at most 255 bytes"), "{}", long.err);
    let state = bench.run("info --nologreplay mnt");
    assert!(state.status == 2 && state.err.contains("a mount shows only its own"), "{}", state.err);
    let other = bench.run("info .");
    assert!(other.status != 0 && other.err.contains("in no mount"), "{}", other.err);
    mounted.unmount();
    assert_eq!(bench.ok("label a.img"), "Other\n");
    let after = bench.json("info --json a.img");
    assert_eq!((&after["uuid"], &after["total_bytes"]), (&before["uuid"], &before["total_bytes"]));
    bench.check("a.img");
}

#[test]
fn who_may_ask_is_as_with_the_kernel() {
    let Some(mounted) = for_everybody() else { return };
    let bench = &mounted.bench;
    bench.ok("label mnt Site");
    for (line, word) in [("label mnt", "Site"), ("info mnt", "UUID:"), ("info --json mnt", "\"uuid\"")] {
        let (may, text) = as_nobody(&mounted, line);
        assert!(may && text.contains(word), "{line}: {text}");
    }
    for line in ["label mnt Mine", "label mnt --json Mine", "diff mnt / /", "quota enable mnt", "map mnt"] {
        let (may, text) = as_nobody(&mounted, line);
        assert!(!may && text.contains("not permitted"), "{line}: {text}");
    }
    let (may, text) = as_nobody(&mounted, "backup mnt / -");
    assert!(!may && text.contains("not permitted"), "{text}");
    assert_eq!(bench.ok("label mnt"), "Site\n");
    mounted.unmount();
    bench.check("a.img");
}

#[test]
fn what_is_mounted_for_reading_keeps_its_name() {
    let Some(mounted) = Mounted::mount_if_possible("-o ro") else { return };
    let bench = &mounted.bench;
    bench.ok("info mnt");
    bench.ok("mkfs -q --size 64M b.img");
    for line in ["label mnt New", "quota enable mnt", "backup mnt / b.img"] {
        let run = bench.run(line);
        assert!(run.status != 0 && run.err.to_lowercase().contains("read"), "{line}: {}", run.err);
    }
    mounted.unmount();
}

#[test]
fn a_mount_tells_what_differs_as_its_image_does() {
    let Some(mounted) = Mounted::mount_if_possible("-o user_subvol_ioctls") else { return };
    let (bench, dir) = (&mounted.bench, mounted.dir());
    bench.ok("subvolume create mnt home");
    fs::write(dir.join("home/kept"), pattern(100_000)).unwrap();
    fs::write(dir.join("home/gone"), "gone").unwrap();
    bench.ok("subvolume snapshot -r mnt /home /monday");
    fs::remove_file(dir.join("home/gone")).unwrap();
    fs::rename(dir.join("home/kept"), dir.join("home/moved")).unwrap();
    // Data just written by programs, possibly still in the kernel's cache.
    fs::write(dir.join("home/new\nline"), "new").unwrap();
    let shown = bench.ok("diff mnt /monday /home");
    assert!(shown.contains("R kept -> moved\n") && shown.contains("- gone\n"), "{shown}");
    assert!(shown.contains("+ new\nline\n"), "{shown}");
    let json = bench.json("diff --json mnt /monday /home");
    // Paths begin at the named directory.
    assert_eq!(bench.json("diff --json mnt/home /../monday /"), json);
    let run = bench.run("diff mnt /monday /nothing");
    assert!(run.status == 1 && run.err.contains("nothing"), "{}", run.err);
    mounted.unmount();
    assert_eq!(bench.json("diff --json a.img /monday /home"), json);
    bench.check("a.img");
}

#[test]
fn quotas_are_turned_on_and_off_while_mounted() {
    let Some(mounted) = Mounted::mount_if_possible("-o user_subvol_ioctls") else { return };
    let (bench, dir) = (&mounted.bench, mounted.dir());
    bench.ok("subvolume create mnt home");
    fs::write(dir.join("home/file"), pattern(3 << 20)).unwrap();
    let enabled = bench.json("quota enable --json mnt");
    assert_eq!((enabled["enabled"].as_bool(), enabled["groups"].as_u64()), (Some(true), Some(2)));
    let run = bench.run("quota enable mnt");
    assert!(run.status != 0 && run.err.contains("on already"), "{}", run.err);
    let shown = bench.json("qgroup show --json mnt");
    assert!(shown["groups"][1]["exclusive"].as_u64().unwrap() >= 3 << 20, "{shown}");
    assert_eq!(bench.json("quota rescan --json mnt")["inconsistent"], false);
    bench.ok("qgroup create mnt 1/100");
    let group = bench.json("qgroup assign --json mnt/home / 1/100");
    assert_eq!(group["members"][0], "0/256");
    let limited = bench.json("qgroup limit --json mnt /home 4M");
    assert_eq!((limited["id"].as_str(), limited["max_referenced"].as_u64()), (Some("0/256"), Some(4 << 20)));
    let full = fs::write(dir.join("home/more"), pattern(3 << 20))
        .and_then(|()| fs::File::open(dir.join("home/more"))?.sync_all());
    assert!(full.is_err(), "the limit was not kept");
    bench.ok("qgroup limit -e mnt 0/256 none");
    bench.ok("qgroup remove mnt /home 1/100");
    bench.ok("qgroup destroy mnt 1/100");
    mounted.unmount();
    bench.check("a.img");
    bench.ok("mount a.img mnt");
    assert_eq!(bench.json("quota disable --json mnt")["enabled"], false);
    mounted.unmount();
    bench.check("a.img");
}

fn backup(mounted: &Mounted, hours: i64, line: &str) -> Value {
    mounted.bench.json(&format!("backup --json --time {} {line}", DAY + hours * 3600))
}

fn done(report: &Value, action: &str) -> Vec<String> {
    let actions = report["actions"].as_array().unwrap().iter().filter(|found| found["action"] == action);
    actions.map(|found| found["state"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_is_mounted_is_backed_up_while_programs_write() {
    let Some(mounted) = Mounted::mount_if_possible("-o user_subvol_ioctls") else { return };
    let (bench, dir) = (&mounted.bench, mounted.dir());
    bench.ok("mkfs -q --size 256M b.img");
    bench.ok("subvolume create mnt home");
    bench.fill("src");
    bench.ok("put mnt src/sub src/a.txt src/sparse /home");
    // The kernel caches that the name does not exist.
    assert!(!dir.join(".spinney-backups").exists());
    let trial = backup(&mounted, 0, "--dry-run mnt /home b.img");
    assert_eq!(done(&trial, "send").len(), 1);
    assert!(!dir.join(".spinney-backups").exists());
    let first = backup(&mounted, 0, "mnt /home b.img");
    assert_eq!((done(&first, "send"), done(&first, "verify")), (done(&first, "snapshot"), done(&first, "snapshot")));
    let whole = first["actions"][1]["bytes"].as_u64().unwrap();
    assert_eq!(fs::read(dir.join(".spinney-backups/home.2026-11-25T000000Z/a.txt")).unwrap(), b"hello\n");
    fs::write(dir.join("home/a.txt"), "changed").unwrap();
    let second = backup(&mounted, 1, "--keep last=1 mnt /home b.img");
    assert!(second["actions"][1]["bytes"].as_u64().unwrap() < whole / 10, "{second}");
    assert_eq!(done(&second, "delete"), ["home.2026-11-25T000000Z", "home.2026-11-25T000000Z"]);
    assert_eq!(fs::read_dir(dir.join(".spinney-backups")).unwrap().count(), 1);
    assert_eq!(bench.ok("cat b.img /home.2026-11-25T010000Z/a.txt"), "changed");
    // By another name: to a directory, of the directory in the mount, and as a stream.
    fs::create_dir(bench.path("streams")).unwrap();
    let streams = backup(&mounted, 2, "--name other mnt/home / streams");
    assert_eq!(done(&streams, "send"), ["other.2026-11-25T020000Z"]);
    assert_eq!(bench.ok("restore --list streams"), "other.2026-11-25T020000Z\n");
    for from in ["b.img", "--name other streams"] {
        bench.ok(&format!("restore {from} mnt /back"));
        assert_eq!(fs::read(dir.join("back/a.txt")).unwrap(), b"changed", "{from}");
        fs::write(dir.join("back/new"), "new").unwrap();
        let run = bench.run(&format!("restore {from} mnt /back"));
        assert!(run.status == 1 && run.err.contains("already exists"), "{}", run.err);
        bench.ok("subvolume delete mnt /back");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2, "{from}");
    }
    let refused = bench.run("backup mnt /home/sub b.img");
    assert!(refused.status == 1 && refused.err.contains("no subvolume"), "{}", refused.err);
    mounted.unmount();
    // Backups of the image continue those of the mount.
    let third = backup(&mounted, 3, "a.img /home b.img");
    assert_eq!(third["actions"][1]["parent"], "home.2026-11-25T010000Z");
    bench.check("a.img");
    bench.check("b.img");
}

#[test]
fn the_map_of_a_mount_is_drawn_and_its_blocks_are_not_dumped() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let bench = &mounted.bench;
    assert!(bench.ok("map mnt").contains("data, single"));
    let chunks = bench.json("map --json -o map.svg mnt");
    assert!(chunks["chunks"].as_array().unwrap().len() >= 3, "{chunks}");
    assert!(fs::read_to_string(bench.path("map.svg")).unwrap().starts_with("<svg"));
    for line in ["dump super mnt", "dump tree mnt fs", "dump chunks mnt"] {
        let run = bench.run(line);
        assert!(run.status != 0 && run.err.contains("must not be mounted"), "{line}: {}", run.err);
    }
    mounted.unmount();
}

#[test]
fn small_files_of_a_mount_are_laid_out_like_others() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    fs::write(mounted.dir().join("small"), "inline").unwrap();
    fs::write(mounted.dir().join("large"), pattern(300_000)).unwrap();
    let report = mounted.bench.json("defrag -r --json mnt /");
    assert!(report["bytes_moved"].is_u64(), "{report}");
    mounted.unmount();
}

#[test]
fn a_copy_of_anothers_program_does_not_run_as_who_made_it() {
    let Some(mounted) = for_everybody() else { return };
    let source = mounted.bench.path("source");
    fs::create_dir(&source).unwrap();
    for (name, mode) in [("program", 0o6755), ("folder", 0o2755)] {
        let path = source.join(name);
        if name == "folder" {
            fs::create_dir(&path).unwrap()
        } else {
            fs::write(&path, "#!").unwrap()
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let (may, text) = as_nobody(&mounted, "put mnt source /copy");
    assert!(may, "{text}");
    // The set-group bit of a directory gives new files its group, and no privileges.
    for (name, expected) in [("program", 0o755), ("folder", 0o2755)] {
        let mode = fs::metadata(mounted.dir().join("copy").join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, expected, "{name}");
    }
    // A user who may set owners keeps these bits.
    mounted.bench.ok("put mnt source /kept");
    let mode = fs::metadata(mounted.dir().join("kept/program")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o6755);
    mounted.unmount();
}

/// Another process exchanges a directory for a link while its contents are deleted.
#[test]
fn nothing_is_removed_behind_a_link_that_appears() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::atomic::{AtomicBool, Ordering};
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let top = mounted.dir();
    let names = |dir: &std::path::Path| fs::read_dir(dir).map_or(0, Iterator::count);
    let fill = |dir: &std::path::Path| {
        fs::create_dir_all(dir).unwrap();
        (0..400).for_each(|number| fs::write(dir.join(number.to_string()), "").unwrap());
    };
    fill(&top.join("victim/inner"));
    let (dir, link) = (top.join("doomed/dir"), top.join("doomed/link"));
    for _ in 0..5 {
        let _ = fs::remove_dir_all(top.join("doomed"));
        fill(&dir.join("inner"));
        std::os::unix::fs::symlink("../victim", &link).unwrap();
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    let _ = renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE);
                }
            });
            // The race decides whether it can remove everything.
            let removed =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| mounted.bench.run("rm -r mnt /doomed/dir")));
            ends.store(true, Ordering::Relaxed);
            removed.unwrap();
        });
    }
    assert_eq!(names(&top.join("victim/inner")), 400);
    mounted.unmount();
}
