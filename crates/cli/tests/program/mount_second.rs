//! An image that is mounted several times: one server, several mount points.
//!
//! Only root can do that; without root these tests say so and pass.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;

use crate::mounted::{END_MAX, Mounted, can_mount, kill};

fn mounted(options: &str) -> Option<Mounted> {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root mounts an image twice");
        return None;
    }
    let mounted = Mounted::new();
    fs::create_dir(mounted.bench.path("other")).unwrap();
    mounted.bench.ok("subvolume create a.img /sub");
    mounted.bench.ok("subvolume create a.img /sub/deep");
    mounted.bench.ok("mkdir a.img /plain");
    mounted.bench.ok("ln -s a.img /etc /link");
    mounted.bench.ok(&format!("mount {options} a.img mnt"));
    Some(mounted)
}

fn other(mounted: &Mounted) -> PathBuf {
    mounted.bench.path("other").canonicalize().unwrap()
}

fn is_mount(dir: &Path) -> bool {
    let table = fs::read_to_string("/proc/mounts").unwrap();
    table.contains(&format!(" {} fuse", dir.display()))
}

fn options_of(dir: &Path) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let row = table.lines().rfind(|row| row.contains(&format!(" {} ", dir.display()))).unwrap();
    row.split(' ').nth(5).unwrap().to_owned()
}

#[test]
fn both_mounts_show_the_same_files_and_one_outlives_the_other() {
    for options in ["", "-o nosynced", "-o writeback", "-o zero_open,allow_other"] {
        let Some(mounted) = mounted(options) else { return };
        let (one, two) = (mounted.dir(), other(&mounted));
        mounted.bench.ok(&format!("mount {options} a.img other"));
        for there in ["mnt", "other"] {
            let run = mounted.bench.run(&format!("mount {options} a.img {there}"));
            assert!(run.status == 7 && run.err.contains("already"), "{there}: {}", run.err);
        }
        fs::write(one.join("a"), "from one").unwrap();
        assert_eq!(fs::read_to_string(two.join("a")).unwrap(), "from one");
        fs::write(two.join("b"), "from two").unwrap();
        fs::remove_file(two.join("a")).unwrap();
        assert_eq!(fs::read_to_string(one.join("b")).unwrap(), "from two");
        assert!(fs::metadata(one.join("a")).is_err());
        assert_eq!(mounted.processes("server").len(), 1);
        let start = Instant::now();
        mounted.bench.ok("umount mnt");
        assert!(start.elapsed() < END_MAX && !mounted.is_mounted() && is_mount(&two));
        fs::write(two.join("c"), "afterwards").unwrap();
        // Nothing is left of the server's entries.
        if options.is_empty() {
            let run = mounted.bench.run("mount a.img mnt");
            assert_eq!(run.status, 7, "{}", run.err);
        }
        mounted.bench.ok("umount other");
        assert!(!is_mount(&two));
        mounted.wait_until_gone();
        mounted.bench.check("a.img");
        assert_eq!(mounted.bench.ok("cat a.img /b /c"), "from twoafterwards");
    }
}

#[test]
fn a_further_mount_can_show_a_subvolume_and_be_read_only() {
    let Some(mounted) = mounted("-o nosuid") else { return };
    let (one, two) = (mounted.dir(), other(&mounted));
    fs::write(one.join("sub/file"), "in sub").unwrap();
    fs::write(one.join("sub/deep/file"), "in deep").unwrap();
    let shown = [("subvol=/sub", "in sub"), ("subvol=sub/deep,noexec", "in deep"), ("ro,subvol=sub", "in sub")];
    for (options, file) in shown {
        mounted.bench.ok(&format!("mount -o {options} a.img other"));
        assert_eq!(fs::read_to_string(two.join("file")).unwrap(), file);
        let found = options_of(&two);
        let has = |name: &str| found.split(',').any(|option| option == name);
        assert!(!has("nosuid") && has("noexec") == options.contains("noexec"), "{found}");
        let written = fs::write(two.join("new"), "x");
        assert_eq!(written.is_ok(), !options.contains("ro,"), "{options}: {written:?}");
        assert!(fs::write(one.join("new"), "x").is_ok());
        mounted.bench.ok("umount a.img");
        assert!(!is_mount(&two) && mounted.is_mounted(), "the last one goes");
    }
    assert!(options_of(&one).contains("nosuid"));
    mounted.unmount();
    // Of a mount of one subvolume, the rest of the image is not visible.
    mounted.bench.ok("mount -o subvol=/sub a.img mnt");
    for (options, file) in [("subvol=/sub", "in sub"), ("subvol=sub/deep", "in deep")] {
        mounted.bench.ok(&format!("mount -o {options} a.img other"));
        assert_eq!(fs::read_to_string(two.join("file")).unwrap(), file);
        mounted.bench.ok("umount other");
    }
    for options in ["", "-o subvol=/", "-o subvolid=5"] {
        let run = mounted.bench.run(&format!("mount {options} a.img other"));
        assert_eq!(run.status, 7, "{options}: {}", run.err);
    }
    mounted.unmount();
    mounted.bench.check("a.img");
}

#[test]
fn a_further_mount_that_cannot_be_is_refused_by_name() {
    let Some(mounted) = mounted("-o commit=5") else { return };
    let dir = mounted.dir().display().to_string();
    for (options, word, status) in [
        ("-o writeback", "`writeback`", 7),
        ("-o commit=6", "`commit=6`", 7),
        ("-o noatime", "`noatime`", 7),
        ("-o allow_other", "`allow_other`", 7),
        ("-o user_subvol_ioctls", "`user_subvol_ioctls`", 7),
        ("-o subvolid=256", "subvol=PATH", 7),
        ("-o subvol=/plain", "not a subvolume", 1),
        ("-o subvol=/none", "No such file", 1),
        ("-o subvol=/link", "/link", 1),
        ("-o subvol=../..", "/../..", 1),
        ("-o subvol=/sub,subvolid=5", "disagree", 2),
        ("--foreground", "--foreground", 7),
    ] {
        let run = mounted.bench.run(&format!("mount {options} a.img other"));
        assert_eq!(run.status, status, "{options}: {}", run.err);
        assert!(run.err.contains(word), "{options}: {}", run.err);
        assert!(status != 7 || run.err.contains(&dir), "{options}: {}", run.err);
        assert!(!is_mount(&other(&mounted)));
    }
    mounted.unmount();
    mounted.bench.ok("mount -o ro a.img mnt");
    let run = mounted.bench.run("mount a.img other");
    assert!(run.status == 7 && run.err.contains("for reading only"), "{}", run.err);
    mounted.bench.ok("mount -o ro a.img other");
    mounted.bench.ok("umount other");
    mounted.unmount();
    mounted.bench.check("a.img");
}

/// Another user chooses the names in his mounts, so these are not used for an image.
#[test]
fn only_root_mounts_twice_and_only_what_root_mounted() {
    let Some(mounted) = mounted("") else { return };
    let dir = mounted.bench.dir.path().display().to_string();
    let program = format!("cd {dir} && {} mount a.img other", env!("CARGO_BIN_EXE_spinney"));
    let shared = Command::new("chmod").args(["-R", "a+rwX", &dir]).status().unwrap();
    assert!(shared.success());
    let stranger = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &program];
    let Ok(output) = Command::new("setpriv").args(stranger).output() else { return eprintln!("SKIPPED: no setpriv") };
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && !is_mount(&other(&mounted)), "{text}");
    assert!(text.contains("in use by") || text.contains("ermission denied"), "{text}");
    mounted.unmount();
}

#[test]
fn a_signal_and_a_death_end_all_mounts() {
    for (role, signal) in [("supervisor", Signal::TERM), ("server", Signal::KILL)] {
        for unmounts_first in [false, true] {
            let Some(mounted) = mounted("") else { return };
            mounted.bench.ok("mount a.img other");
            if unmounts_first {
                mounted.bench.ok("umount mnt");
            }
            fs::write(other(&mounted).join("file"), "synced").unwrap();
            fs::File::open(other(&mounted).join("file")).unwrap().sync_all().unwrap();
            kill(mounted.processes(role)[0], signal);
            mounted.wait_until_gone();
            let start = Instant::now();
            while is_mount(&other(&mounted)) {
                assert!(start.elapsed() < END_MAX, "{role}: the further mount is left");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert_eq!(mounted.bench.ok("cat a.img /file"), "synced");
            mounted.bench.check("a.img");
        }
    }
}
