//! Mounts by root: `sync` and `umount(8)` keep their promises.
//!
//! Without loop devices or root these tests say so and pass.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::harness::pattern;
use crate::mounted::{Mounted, can_mount, kill};

fn can_mount_synced() -> bool {
    let can = can_mount() && rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists();
    if !can {
        eprintln!("SKIPPED: no root, or no loop devices");
    }
    can
}

/// The output of a system program about the mount point.
fn ask(program: &str, words: &[&str], mounted: &Mounted) -> String {
    let output = Command::new(program).args(words).arg(mounted.dir()).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn syncing_the_file_system_keeps_everything_even_if_the_server_is_killed() {
    if !can_mount_synced() {
        return;
    }
    for options in ["commit=3600", "commit=3600,writeback"] {
        let mounted = Mounted::mount(&format!("-o {options}"));
        for index in 0..100 {
            fs::write(mounted.dir().join(format!("f{index}")), pattern(index * 97)).unwrap();
        }
        rustix::fs::syncfs(File::open(mounted.dir()).unwrap()).unwrap();
        kill(mounted.processes("server")[0], Signal::KILL);
        mounted.wait_until_gone();
        mounted.check_and_mount_again();
        for index in 0..100 {
            let found = fs::read(mounted.dir().join(format!("f{index}"))).unwrap();
            assert_eq!(found, pattern(index * 97), "{options}: f{index}");
        }
        mounted.unmount();
    }
}

/// The server kept a block device open for milliseconds after `umount(8)` had returned: the next command found it busy.
/// And `spinney umount` did not know the mounted device.
#[test]
fn a_block_device_is_free_when_it_is_unmounted() {
    if !can_mount_synced() {
        return;
    }
    let mounted = Mounted::new();
    let attach = Command::new("losetup").args(["-f", "--show", "a.img"]).current_dir(&mounted.bench.dir).output();
    let device = String::from_utf8(attach.unwrap().stdout).unwrap().trim().to_owned();
    let exclusive = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    let mut busy = Vec::new();
    for round in 0..40 {
        mounted.bench.ok(&format!("mount {device} mnt"));
        fs::write(mounted.dir().join(format!("file{round}")), pattern(10_000)).unwrap();
        let shown = fs::read_to_string("/proc/mounts").unwrap();
        let row = format!("{device} {} fuseblk.spinney ", mounted.dir().display());
        assert!(shown.contains(&row), "{row}");
        match round % 4 {
            // The program of the system finds the mount by the device, too.
            1 => assert!(Command::new("umount").arg(&device).status().unwrap().success()),
            0 => drop(mounted.bench.ok(&format!("umount {device}"))),
            _ => drop(ask("umount", &[], &mounted)),
        }
        if let Err(error) = rustix::fs::open(device.as_str(), exclusive, Mode::empty()) {
            busy.push((round, error));
        }
        let start = Instant::now();
        while rustix::fs::open(device.as_str(), exclusive, Mode::empty()).is_err() {
            assert!(start.elapsed() < Duration::from_secs(5), "it stays busy");
        }
    }
    assert!(Command::new("losetup").args(["-d", &device]).status().unwrap().success());
    assert_eq!(busy, []);
    mounted.bench.check("a.img");
    mounted.bench.ok("mount a.img mnt");
    mounted.bench.ok("umount a.img");
    assert!(!mounted.is_mounted());
}

/// A disk is written past the page cache, by several threads, in the sandbox; later readers find the written data.
#[test]
fn a_disk_has_what_was_written_to_it() {
    if !can_mount_synced() {
        return;
    }
    let mounted = Mounted::new();
    let attach = Command::new("losetup").args(["-f", "--show", "a.img"]).current_dir(&mounted.bench.dir).output();
    let device = String::from_utf8(attach.unwrap().stdout).unwrap().trim().to_owned();
    let bytes = |file: usize| pattern(50_000 + file * 30_011);
    fs::write(mounted.bench.path("given"), bytes(7)).unwrap();
    mounted.bench.ok(&format!("put {device} given /"));
    mounted.bench.ok(&format!("mount {device} mnt"));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let dir = mounted.dir();
            scope.spawn(move || {
                for file in (thread..60).step_by(4) {
                    let path = dir.join(format!("f{file}"));
                    fs::write(&path, bytes(file)).unwrap();
                    if file % 3 == 0 {
                        File::open(&path).unwrap().sync_all().unwrap();
                    }
                    // Data read before must not come from a cache.
                    let changed = File::options().read(true).write(true).open(&path).unwrap();
                    changed.write_all_at(&[file.to_le_bytes()[0]; 9000], 3000).unwrap();
                    changed.sync_data().unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read(mounted.dir().join("given")).unwrap(), bytes(7));
    mounted.bench.ok(&format!("umount {device}"));
    for round in ["from the disk", "from its file"] {
        let image = if round == "from its file" { "a.img" } else { device.as_str() };
        for file in 0..60 {
            let mut wanted = bytes(file);
            wanted[3000..12_000].fill(file.to_le_bytes()[0]);
            let found = mounted.bench.path("found");
            let _ = fs::remove_file(&found);
            mounted.bench.ok(&format!("get {image} /f{file} found"));
            assert!(fs::read(&found).unwrap() == wanted, "{round}: f{file}");
        }
    }
    assert!(Command::new("losetup").args(["-d", &device]).status().unwrap().success());
    mounted.bench.check("a.img");
}

#[test]
fn umount_8_returns_when_the_image_is_complete_and_free() {
    if !can_mount_synced() {
        return;
    }
    let mounted = Mounted::new();
    for round in 0..10 {
        mounted.bench.ok("mount -o commit=3600 a.img mnt");
        let file = mounted.dir().join(format!("file{round}"));
        fs::write(&file, pattern(3_000_000)).unwrap();
        ask("umount", &[], &mounted);
        assert!(!mounted.is_mounted());
        // Another writer, at once.
        mounted.bench.ok(&format!("mkdir a.img /dir{round}"));
        let found = mounted.bench.run(&format!("cat a.img /file{round}")).out;
        assert_eq!(found, pattern(3_000_000), "round {round}");
    }
    mounted.bench.check("a.img");
    mounted.wait_until_gone();
}

#[test]
fn a_mount_is_shown_with_its_image() {
    if !can_mount_synced() {
        return;
    }
    let mounted = Mounted::mount("");
    let found = ask("findmnt", &["-n", "-o", "FSTYPE,SOURCE", "--mountpoint"], &mounted);
    let (kind, source) = found.trim().split_once(' ').unwrap();
    assert_eq!(kind, "fuseblk.spinney");
    let name = source.trim().strip_prefix("/dev/").unwrap();
    let backing = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).unwrap();
    let image = mounted.bench.path("a.img").canonicalize().unwrap();
    assert_eq!(backing.trim_end(), image.to_str().unwrap());
    assert!(ask("df", &["--output=target"], &mounted).contains("/mnt"));
    assert_eq!(ask("stat", &["-f", "-c", "%S"], &mounted).trim(), "4096");
    mounted.unmount();
    mounted.bench.ok("mount -o nosynced a.img mnt");
    let kind = ask("findmnt", &["-n", "-o", "FSTYPE", "--mountpoint"], &mounted);
    assert_eq!(kind.trim(), "fuse.spinney");
    mounted.unmount();
}

#[test]
fn a_mount_without_a_server_can_be_unmounted_at_once() {
    if !can_mount_synced() {
        return;
    }
    let mounted = Mounted::mount("");
    fs::write(mounted.dir().join("file"), "x").unwrap();
    // The supervisor, which would unmount, is gone.
    kill(mounted.processes("supervisor")[0], Signal::KILL);
    kill(mounted.processes("server")[0], Signal::KILL);
    let start = Instant::now();
    while !mounted.processes("server").is_empty() {
        assert!(start.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(mounted.is_mounted());
    let start = Instant::now();
    mounted.bench.ok("umount mnt");
    assert!(start.elapsed() < Duration::from_secs(2));
    mounted.bench.check("a.img");
    mounted.wait_until_gone();
}

/// A supervisor examined its mount point when its server had ended, mistook the next mount there for its own (the
/// kernel had reused the device number), and unmounted it.
#[test]
fn the_end_of_a_mount_leaves_the_next_one_alone() {
    let Some(mounted) = Mounted::if_possible() else {
        return;
    };
    for options in ["nosynced", "synced"] {
        for round in 0..25 {
            mounted.bench.ok(&format!("mount -o {options} a.img mnt"));
            std::thread::sleep(Duration::from_millis(2 * round));
            assert!(mounted.is_mounted(), "{options}: round {round}");
            mounted.bench.ok("umount mnt");
        }
        mounted.wait_until_gone();
    }
}

/// A tmpfs for one test.
struct Tmpfs<'a>(&'a Path);

impl<'a> Tmpfs<'a> {
    fn mount(dir: &'a Path, size: &str) -> Self {
        let size = format!("size={size}");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(dir).status();
        assert!(status.unwrap().success());
        Self(dir)
    }
}

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// `spinney umount` ended with 0 although the image's own file system had been full, and writing had stopped.
#[test]
fn unmounting_tells_that_writing_had_failed() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    for options in ["synced", "nosynced", "synced,writeback"] {
        let mounted = Mounted::new();
        let bench = &mounted.bench;
        let host = bench.path("host");
        fs::create_dir(&host).unwrap();
        let _tmpfs = Tmpfs::mount(&host, "20M");
        bench.ok("mkfs -q --size 256M host/a.img");
        bench.ok(&format!("mount -o {options} host/a.img mnt"));
        // Other files take all the space of the host, so that not even a commit has any.
        let filled = fs::write(host.join("others"), pattern(40 << 20));
        assert!(filled.is_err(), "{options}: there was room for it");
        for name in 0..100 {
            fs::create_dir(mounted.dir().join(format!("dir-{name}"))).unwrap();
        }
        let synced = File::open(mounted.dir()).and_then(|root| root.sync_all());
        assert!(synced.is_err(), "{options}");
        let run = bench.run("umount mnt");
        assert_eq!(run.status, 1, "{options}: {}", run.err);
        assert!(run.err.contains("not everything"), "{options}: {}", run.err);
        assert!(!mounted.is_mounted(), "{options}");
        bench.ok("mount -o ro host/a.img mnt");
        bench.ok("umount mnt");
    }
}

/// The kernel reports data without space once, and forgets that if a program is killed at the wrong moment; `spinney
/// umount` ended with 0.
#[test]
fn unmounting_reports_lost_data_that_another_program_was_told_of() {
    for options in ["writeback", "writeback,nosynced", "writeback,zero_open"] {
        for is_removed in [false, true] {
            let Some(mounted) = Mounted::mount_if_possible(&format!("-o {options}")) else {
                return;
            };
            let path = mounted.dir().join("large");
            let root = File::open(mounted.dir()).unwrap();
            let written = fs::write(&path, pattern(300 << 20));
            let synced = [File::open(&path).unwrap().sync_all().is_err(), rustix::fs::syncfs(&root).is_err()];
            assert!(written.is_err() || synced.contains(&true), "{options}: there was room for it");
            assert_eq!(rustix::fs::syncfs(&root), Ok(()), "{options}: it is told once");
            if is_removed {
                fs::remove_file(&path).unwrap();
            }
            drop(root);
            let run = mounted.bench.run("umount mnt");
            let is_told = run.status == 1 && run.err.contains("not everything") && run.err.contains("No space");
            assert_eq!(is_told, !is_removed, "{options}: {} {}", run.status, run.err);
            assert!(run.status == 0 || !is_removed, "{options}: {}", run.err);
            mounted.wait_until_gone();
        }
    }
}

/// With the writeback cache, a program that is killed while the kernel writes the times of a file leaves that error for
/// the next sync: `spinney umount` reported it as lost data.
#[test]
fn unmounting_after_a_program_was_killed_is_no_failure() {
    let Some(mounted) = Mounted::mount_if_possible("-o writeback") else {
        return;
    };
    let path = mounted.dir().join("file");
    fs::write(&path, pattern(10_000)).unwrap();
    let file = File::open(&path).unwrap();
    let server = mounted.processes("server")[0];
    // Whether times are being written when the server stops is a matter of luck.
    let is_left = (0..100).any(|round| {
        let links = mounted.dir().join(format!("links{round}"));
        fs::create_dir(&links).unwrap();
        for index in 0..200 {
            fs::hard_link(&path, links.join(format!("{index}"))).unwrap();
        }
        let mut removal = Command::new("rm").arg("-r").arg(&links).spawn().unwrap();
        while links.join("150").exists() && removal.try_wait().unwrap().is_none() {}
        kill(server, Signal::STOP);
        std::thread::sleep(Duration::from_millis(5));
        removal.kill().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        kill(server, Signal::CONT);
        removal.wait().unwrap();
        rustix::fs::fsync(&file) == Err(Errno::INTR)
    });
    assert!(is_left);
    drop(file);
    mounted.unmount();
    mounted.bench.check("a.img");
    assert_eq!(mounted.bench.run("cat a.img /file").out, pattern(10_000));
}

#[test]
fn unmounting_a_subvolume_that_is_read_only_is_no_failure() {
    let Some(mounted) = Mounted::if_possible() else {
        return;
    };
    let bench = &mounted.bench;
    bench.ok("subvolume snapshot -r a.img / /frozen");
    bench.ok("mount -o subvol=/frozen a.img mnt");
    assert!(fs::write(mounted.dir().join("f"), "x").is_err());
    mounted.unmount();
}

/// `remount,ro` and back is possible; a mount made with `ro` cannot become writable, which the remount has to report,
/// not each write.
#[test]
fn a_mount_is_remounted_as_far_as_its_server_can_write() {
    if !can_mount_synced() {
        return;
    }
    let remount = |mounted: &Mounted, how: &str| {
        let output = Command::new("mount").args(["-o", how]).arg(mounted.dir()).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let mounted = Mounted::mount("");
    fs::write(mounted.dir().join("before"), "x").unwrap();
    assert!(remount(&mounted, "remount,ro").0);
    let refused = fs::write(mounted.dir().join("meanwhile"), "x").unwrap_err();
    assert_eq!(Errno::from_io_error(&refused), Some(Errno::ROFS));
    assert!(remount(&mounted, "remount,rw").0);
    fs::write(mounted.dir().join("after"), "x").unwrap();
    mounted.unmount();
    mounted.bench.ok("mount -o ro a.img mnt");
    let (done, text) = remount(&mounted, "remount,rw");
    assert!(!done && text.contains("write-protected"), "{text}");
    assert_eq!(fs::read(mounted.dir().join("after")).unwrap(), b"x");
    mounted.unmount();
    mounted.bench.check("a.img");
}

/// Each commit needs the memory of the one before: if a server returned it to the system meanwhile, it would have to be
/// faulted in again, page by page.
#[test]
fn a_server_that_is_busy_keeps_its_memory() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let stat = format!("/proc/{}/stat", mounted.processes("server")[0]);
    // Behind the name, which may have spaces: the state, and the minor faults as the eighth.
    let faults = || -> u64 {
        let text = fs::read_to_string(&stat).unwrap();
        text.rsplit(") ").next().unwrap().split(' ').nth(7).unwrap().parse().unwrap()
    };
    let dir = File::open(mounted.dir()).unwrap();
    let round = |index: usize| {
        for file in 0..200 {
            fs::write(mounted.dir().join(format!("f{}-{file}", index % 2)), pattern(12 << 10)).unwrap();
        }
        rustix::fs::syncfs(&dir).unwrap();
        std::thread::sleep(Duration::from_millis(30));
    };
    (0..10).for_each(round);
    let before = faults();
    (0..20).for_each(round);
    let faults = faults() - before;
    drop(dir);
    // With 10 ms, as the allocator has by itself, it was 498.
    assert!(faults < 100, "{faults} page faults in 20 rounds");
    mounted.unmount();
}
