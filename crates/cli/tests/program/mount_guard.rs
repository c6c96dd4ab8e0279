//! Servers that hang, and containers that are killed with a mount inside.
//!
//! A server of root that was the last process in its mount namespace had to unmount while it ended, and waited for its
//! own answer: no signal ended it, and `sync` of the whole machine waited for it.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::pattern;
use crate::mounted::{END_MAX, Mounted, can_mount, can_mount_as_root, kill};

/// Every way of serving.
const MODES: [&str; 4] = ["rw", "writeback", "io_uring", "zero_open,nodatacow"];

fn rounds() -> usize {
    std::env::var("SPINNEY_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

#[test]
fn a_container_that_is_killed_leaves_no_server() {
    if !can_mount_as_root() {
        return;
    }
    for mode in MODES {
        for round in 0..rounds() {
            let mounted = Mounted::new();
            let script = format!(
                "{} mount -o {mode} a.img mnt && echo contents > mnt/file && sync -f mnt && echo up && exec sleep 1000",
                env!("CARGO_BIN_EXE_spinney")
            );
            let mut container = Command::new("unshare")
                .args(["-mpf", "--kill-child", "--mount-proc", "sh", "-c", &script])
                .current_dir(&mounted.bench.dir)
                .stdout(Stdio::piped())
                .process_group(0)
                .spawn()
                .unwrap();
            let mut said = [0; 3];
            container.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
            kill(i32::try_from(container.id()).unwrap(), Signal::KILL);
            container.wait().unwrap();
            let start = Instant::now();
            // A server that cannot end keeps the image locked, even if the list of processes lacks it.
            while mounted.bench.run("ls a.img").status == 7 {
                if start.elapsed() > END_MAX {
                    free_stuck();
                    panic!("{mode}, round {round}: a server is left that no signal ends");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            mounted.bench.check("a.img");
            assert_eq!(mounted.bench.run("cat a.img /file").out, b"contents\n");
        }
    }
}

/// Aborts connections whose server cannot answer, so that a failure does not block the machine.
fn free_stuck() {
    let dir = "/sys/fs/fuse/connections";
    let _ = Command::new("mount").args(["-t", "fusectl", "none", dir]).stderr(Stdio::null()).status();
    for connection in fs::read_dir(dir).into_iter().flatten().flatten() {
        let waiting = fs::read_to_string(connection.path().join("waiting")).unwrap_or_default();
        if waiting.trim() != "0" {
            let _ = fs::write(connection.path().join("abort"), "1");
        }
    }
}

#[test]
fn a_server_that_answers_nothing_is_given_up() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::mount("--log log -o watchdog=2");
    fs::write(mounted.dir().join("file"), pattern(5000)).unwrap();
    File::open(mounted.dir().join("file")).unwrap().sync_all().unwrap();
    let server = mounted.processes("server")[0];
    kill(server, Signal::STOP);
    let start = Instant::now();
    let refused = fs::write(mounted.dir().join("new"), "x").unwrap_err();
    assert!(start.elapsed() < END_MAX, "{refused}");
    mounted.wait_until_gone();
    let log = fs::read_to_string(mounted.bench.path("log")).unwrap();
    assert!(log.contains("the server has answered nothing for"), "{log}");
    mounted.bench.check("a.img");
    assert_eq!(mounted.bench.run("cat a.img /file").out, pattern(5000));
}

#[test]
fn a_server_that_works_is_not_given_up() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::mount("--log log -o watchdog=5");
    let start = Instant::now();
    let mut file = File::create(mounted.dir().join("file")).unwrap();
    while start.elapsed() < Duration::from_secs(7) {
        file.write_all(&pattern(50_000)).unwrap();
        file.sync_all().unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(file);
    assert_eq!(fs::read_to_string(mounted.bench.path("log")).unwrap(), "");
    mounted.unmount();
}

/// Without `/dev/log` the reason why a server ended was lost.
#[test]
fn why_a_server_ended_is_found_in_a_file_where_there_is_no_log() {
    if !can_mount_as_root() {
        return;
    }
    let mounted = Mounted::new();
    let run = mounted.bench.path("run");
    fs::create_dir(&run).unwrap();
    let script = format!(
        "mount --bind {run} /run; test ! -S /dev/log || mount --bind /dev/null /dev/log; {program} mount a.img mnt",
        run = run.display(),
        program = env!("CARGO_BIN_EXE_spinney"),
    );
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", &script]).current_dir(&mounted.bench.dir);
    assert!(shell.status().unwrap().success());
    kill(mounted.processes("server")[0], Signal::KILL);
    mounted.wait_until_gone();
    let log = fs::read_to_string(run.join("spinney.log")).unwrap();
    assert!(log.contains("killed by signal 9"), "{log}");
}

/// An aborted connection left no mount, a clean image, and no message.
#[test]
fn that_a_connection_was_aborted_is_in_the_log() {
    if !can_mount_as_root() {
        return;
    }
    for options in ["rw", "nosynced", "io_uring"] {
        let mounted = Mounted::mount(&format!("--log log -o {options}"));
        let file = fs::File::create(mounted.dir().join("file")).unwrap();
        // The mount is in use, so this aborts the connection and unmounts nothing.
        let status = Command::new("umount").arg("-f").arg(mounted.dir()).status().unwrap();
        assert!(!status.success(), "{options}");
        drop(file);
        mounted.wait_until_gone();
        let log = fs::read_to_string(mounted.bench.path("log")).unwrap();
        assert!(log.contains("it was aborted"), "{options}: {log}");
    }
}

#[test]
fn a_snapshot_holds_what_only_the_kernel_had() {
    if !can_mount() {
        return;
    }
    const PROGRAM: &str = "
import ctypes, fcntl, mmap, os, struct, sys
root, mode = sys.argv[1:]
path = root + '/file'
with open(path, 'wb') as file:
    file.write(bytes(8192))
    file.flush()
    os.fsync(file.fileno())
fd = os.open(path, os.O_RDWR)
if mode == 'write':
    os.pwrite(fd, b'w' * 8192, 0)
else:
    m = mmap.mmap(fd, 8192)
    m[:] = b'w' * 8192
# SNAP_CREATE_V2 with the source by its number.
args = bytearray(4096)
struct.pack_into('<qQQ', args, 0, 0, 5, 1 << 4)
args[56:61] = b'snap\\0'
fcntl.ioctl(os.open(root, os.O_RDONLY), 0x50009417, args, True)
print(open(root + '/snap/file', 'rb').read() == b'w' * 8192)
";
    for (options, mode) in [
        ("writeback", "write"),
        ("writeback,io_uring", "write"),
        ("writeback,workers=1", "write"),
        ("rw", "map"),
        ("io_uring", "map"),
        ("zero_open", "map"),
        ("writeback", "map"),
    ] {
        let mounted = Mounted::mount(&format!("-o {options},user_subvol_ioctls"));
        let asked = Command::new("timeout")
            .args(["60", "python3", "-c", PROGRAM])
            .arg(mounted.dir())
            .arg(mode)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&asked.stderr);
        assert_eq!(String::from_utf8_lossy(&asked.stdout).trim(), "True", "{options}, {mode}: {error}");
        mounted.unmount();
        mounted.bench.check("a.img");
    }
}
