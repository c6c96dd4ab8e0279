//! A mount whose sparse image is on a host file system that fills up.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Bench, pattern};
use crate::mounted::{Mounted, can_mount_as_root};

/// A tmpfs of limited size, unmounted when dropped.
struct Host(PathBuf);

impl Host {
    fn mount(dir: PathBuf, size: &str) -> Self {
        fs::create_dir(&dir).unwrap();
        let options = format!("size={size}");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &options, "host"]).arg(&dir);
        assert!(command.status().unwrap().success());
        Self(dir)
    }

    fn resize(&self, size: &str) {
        let options = format!("remount,size={size}");
        let status = Command::new("mount").args(["-o", &options]).arg(&self.0).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A mounted sparse image of the given size, on a host of 40 MiB.
fn mount_on_host(mode: &str, image_bytes: &str) -> (Mounted, Host) {
    let bench = Bench::new();
    let host = Host::mount(bench.path("host"), "40M");
    bench.ok(&format!("mkfs -q --size {image_bytes} host/a.img"));
    symlink("host/a.img", bench.path("a.img")).unwrap();
    fs::create_dir(bench.path("mnt")).unwrap();
    bench.ok(&format!("mount -o {mode} a.img mnt"));
    (Mounted { bench }, host)
}

fn write_synced(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let mut file = File::options().create(true).append(true).open(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

#[test]
fn a_host_without_room_is_told_as_such_and_the_mount_goes_on() {
    if !can_mount_as_root() {
        return;
    }
    for mode in ["rw", "writeback", "io_uring", "nodatacow"] {
        let (mounted, host) = mount_on_host(mode, "512M");
        let dir = mounted.dir();
        let (kept, chunk) = (pattern(4 << 20), pattern(1 << 20));
        write_synced(&dir.join("kept"), &kept).unwrap();
        let mut written = 0;
        let error = loop {
            assert!(written < 64, "{mode}: the host does not fill up");
            match write_synced(&dir.join("big"), &chunk) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{mode}: {error}");
        assert!(written > 8, "{mode}: {written}");
        // Later writers get the error, too.
        let again = write_synced(&dir.join("other"), &chunk).unwrap_err();
        assert_eq!(again.kind(), std::io::ErrorKind::StorageFull, "{mode}: {again}");
        assert!(fs::read(dir.join("kept")).unwrap() == kept, "{mode}: synced data is read");

        host.resize("300M");
        write_synced(&dir.join("after"), &kept).unwrap_or_else(|error| panic!("{mode}: {error}"));
        fs::remove_file(dir.join("big")).unwrap();
        let _ = fs::remove_file(dir.join("other"));
        fs::create_dir(dir.join("new")).unwrap();
        // The kernel kept unsynced data in writeback, and reports it once more.
        let status = mounted.bench.run("umount mnt").status;
        assert!(status == 0 || mode == "writeback" && status == 1, "{mode}: {status}");
        mounted.wait_until_gone();
        mounted.bench.check("a.img");
        assert_eq!(mounted.bench.ok("ls a.img"), "after\nkept\nnew\n", "{mode}");
        for name in ["kept", "after"] {
            assert!(mounted.bench.run(&format!("cat a.img /{name}")).out == kept, "{mode}: {name}");
        }
        drop(mounted);
        drop(host);
    }
}

/// Refused data takes no memory, however many files try.
#[test]
fn what_a_full_host_refuses_takes_no_memory() {
    if !can_mount_as_root() {
        return;
    }
    let (mounted, host) = mount_on_host("rw", "512M");
    let status = format!("/proc/{}/status", mounted.processes("server")[0]);
    let resident_kib = || -> u64 {
        let text = fs::read_to_string(&status).unwrap();
        let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let bytes = pattern(256 << 10);
    let refused = |files: std::ops::Range<usize>| {
        files.filter(|index| fs::write(mounted.dir().join(format!("f{index}")), &bytes).is_err()).count()
    };
    // The host's space, the dirty limit, and a margin.
    assert!(refused(0..800) > 100);
    let before = resident_kib();
    assert_eq!(refused(800..1200), 400);
    let after = resident_kib();
    assert!(after < before + (20 << 10), "{before} KiB, and after 100 MiB that were refused {after} KiB");
    mounted.bench.run("umount mnt");
    mounted.wait_until_gone();
    drop(mounted);
    drop(host);
}

/// Overwritten files fit on a host with space for them and a little more.
#[test]
fn what_was_deleted_makes_room_on_a_full_host() {
    if !can_mount_as_root() {
        return;
    }
    for mode in ["rw", "nodatacow"] {
        let (mounted, host) = mount_on_host(mode, "1G");
        let dir = mounted.dir();
        let chunk = pattern(2 << 20);
        for round in 0..100 {
            let name = dir.join(format!("f{}", round % 4));
            let _ = fs::remove_file(&name);
            write_synced(&name, &chunk).unwrap_or_else(|error| panic!("{mode}, round {round}: {error}"));
        }
        // Files that fill the host can be deleted, and return its space.
        let full = (0..64).position(|n| write_synced(&dir.join(format!("full{n}")), &chunk).is_err());
        let full = full.unwrap_or_else(|| panic!("{mode}: the host does not fill up"));
        (0..=full).for_each(|n| fs::remove_file(dir.join(format!("full{n}"))).unwrap());
        File::open(&dir).unwrap().sync_all().unwrap_or_else(|error| panic!("{mode}: {error}"));
        write_synced(&dir.join("more"), &pattern(16 << 20)).unwrap_or_else(|error| panic!("{mode}: {error}"));
        mounted.bench.ok("umount mnt");
        mounted.wait_until_gone();
        mounted.bench.check("a.img");
        for index in 0..4 {
            assert!(mounted.bench.run(&format!("cat a.img /f{index}")).out == chunk, "{mode}: f{index}");
        }
        drop(mounted);
        drop(host);
    }
}

#[test]
fn what_was_put_before_the_host_was_full_is_kept() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: this needs root");
        return;
    }
    let bench = Bench::new();
    let host = Host::mount(bench.path("host"), "40M");
    bench.ok("mkfs -q --size 512M host/a.img");
    fs::create_dir(bench.path("src")).unwrap();
    for index in 10..80 {
        fs::write(bench.path(&format!("src/f{index}")), pattern(1 << 20)).unwrap();
    }
    let run = bench.run("put -q --threads 1 host/a.img src /copy");
    assert_ne!(run.status, 0);
    assert!(run.err.contains("No space left on device"), "{}", run.err);
    bench.check("host/a.img");
    let kept = bench.ok("ls host/a.img /copy").lines().count();
    assert!((10..70).contains(&kept), "{kept} files were kept");
    assert!(bench.run("cat host/a.img /copy/f10").out == pattern(1 << 20));
    drop(host);
}
