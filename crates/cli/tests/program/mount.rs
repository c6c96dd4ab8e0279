//! Mounts: usable when the command returns, gone without a trace when they end, however they end.
//!
//! If nothing can be mounted (no FUSE device, neither root nor `fusermount3`) these tests say so and pass.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{assert_same, pattern};
use crate::mounted::{Mounted, can_mount, kill};

#[test]
fn what_is_written_through_a_mount_is_in_the_image() {
    let Some(mounted) = Mounted::mount_if_possible("-o noatime,commit=5") else {
        return;
    };
    let bench = &mounted.bench;
    bench.fill("src");
    let status = Command::new("cp").arg("-a").args([bench.path("src"), mounted.dir()]).status();
    assert!(status.unwrap().success());
    assert_same(&bench.path("src"), &mounted.dir().join("src"));
    let busy = bench.run("ls --super 0 a.img");
    assert_eq!(busy.status, 7, "{}", busy.err);
    bench.ok("umount mnt");
    // The image is complete when the command returns.
    bench.check("a.img");
    bench.ok("get a.img /src out");
    assert_same(&bench.path("src"), &bench.path("out"));
    mounted.wait_until_gone();
    bench.ok("mount -o ro,subvolid=5 a.img mnt");
    assert_same(&bench.path("src"), &mounted.dir().join("src"));
    let refused = fs::write(mounted.dir().join("new"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    mounted.unmount();
}

#[test]
fn what_cannot_be_mounted_says_why() {
    let Some(mounted) = Mounted::if_possible() else {
        return;
    };
    let bench = &mounted.bench;
    fs::write(bench.path("garbage"), vec![0xa5; 1 << 20]).unwrap();
    fs::write(bench.path("swap"), [vec![0; 4086], b"SWAPSPACE2".to_vec()].concat()).unwrap();
    bench.ok("put a.img swap /file");
    bench.ok("subvolume create a.img /sub");
    for (line, status, word) in [
        ("mount missing.img mnt", 1, "missing.img"),
        ("mount a.img missing", 1, "missing"),
        ("mount a.img garbage", 1, "not a directory"),
        ("mount garbage mnt", 3, "garbage"),
        ("mount swap mnt", 3, "swap"),
        ("mount -o nonsense a.img mnt", 2, "`nonsense`"),
        ("mount -o commit=never a.img mnt", 2, "commit=never"),
        ("mount -o remount,ro a.img mnt", 4, "`remount`"),
        ("mount -o subvol=/missing a.img mnt", 1, "missing"),
        ("mount -o subvol=missing a.img mnt", 1, "option `subvol=missing`: nothing is there"),
        ("mount -o subvol=file a.img mnt", 1, "option `subvol=file`: not a subvolume"),
        ("mount -o subvol=file/x a.img mnt", 1, "option `subvol=file/x`"),
        ("mount -o subvolid=99999 a.img mnt", 1, "`subvolid=99999`: no subvolume has that number"),
        ("mount -o subvol=sub,subvolid=5 a.img mnt", 2, "disagree: `sub` has the number 256"),
        ("mount -o nologreplay a.img mnt", 2, "`nologreplay` needs `ro`"),
        ("mount -o clear_cache a.img mnt", 4, "`clear_cache`"),
        ("mount --log missing/log a.img mnt", 1, "missing/log"),
        ("umount mnt", 1, "mnt"),
    ] {
        let run = bench.run(line);
        assert_eq!(run.status, status, "{line}: {}", run.err);
        assert!(run.err.contains(word), "{line}: {}", run.err);
        assert_eq!(run.err_lines(), 1, "{line}: {}", run.err);
        assert!(!mounted.is_mounted(), "{line}");
    }
    bench.ok("mount a.img mnt");
    let locked = bench.run("mount a.img mnt");
    assert_eq!(locked.status, 7, "{}", locked.err);
    mounted.unmount();
}

#[test]
fn the_last_of_opposing_options_is_what_the_kernel_is_told() {
    if !can_mount() {
        return;
    }
    for (options, is_there, word) in [
        ("noatime,strictatime", false, "noatime"),
        ("strictatime,noatime", true, "noatime"),
        ("sync,async", false, "sync"),
        ("ro,rw", false, "ro"),
        ("subvol=/,subvolid=5,rw,ro", true, "ro"),
    ] {
        let mounted = Mounted::mount(&format!("-o {options}"));
        let dir = format!(" {} ", mounted.dir().display());
        let table = fs::read_to_string("/proc/mounts").unwrap();
        let row = table.lines().find(|row| row.contains(&dir)).unwrap();
        let shown = row.split(' ').nth(3).unwrap();
        assert_eq!(shown.split(',').any(|one| one == word), is_there, "{options}: {row}");
        mounted.unmount();
    }
}

#[test]
fn the_server_has_no_rights_on_any_thread() {
    let Some(mounted) = Mounted::mount_if_possible("") else {
        return;
    };
    let servers = mounted.processes("server");
    assert_eq!(servers.len(), 1);
    let mut count = 0;
    for task in fs::read_dir(format!("/proc/{}/task", servers[0])).unwrap().flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        for fact in [
            "CapEff:\t0000000000000000",
            "CapPrm:\t0000000000000000",
            "CapInh:\t0000000000000000",
            "CapAmb:\t0000000000000000",
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
        ] {
            assert!(status.contains(fact), "no `{fact}` in {status}");
        }
        if rustix::process::geteuid().is_root() {
            assert!(status.contains("CapBnd:\t0000000000000000"), "{status}");
        }
        count += 1;
    }
    assert!(count >= 3, "{count} threads");
    // The image, the connection, the channel, the log, and the ends of pipes to oneself.
    for fd in fs::read_dir(format!("/proc/{}/fd", servers[0])).unwrap().flatten() {
        let target = fs::read_link(fd.path()).unwrap().display().to_string();
        let known = ["/dev/fuse", "/dev/null", "socket:", "anon_inode:", "pipe:", "/run/spinney.log"];
        let is_image = Path::new(&target) == mounted.bench.path("a.img").canonicalize().unwrap();
        assert!(is_image || known.iter().any(|known| target.starts_with(known)), "{target}");
    }
    mounted.unmount();
}

#[test]
fn the_sandbox_has_no_way_out() {
    for options in ["", "-o io_uring"] {
        assert_no_way_out(options);
    }
}

fn assert_no_way_out(options: &str) {
    let mounted = Mounted::new();
    let line = format!("mount --sandbox-self-test {options} a.img mnt");
    let out = mounted.bench.ok(&line);
    // The kernel of a test machine has both; without, this test would prove nothing.
    assert!(!out.contains("missing:"), "{out}");
    for way in [
        "read /etc/passwd",
        "read its own memory map",
        "open the image again",
        "make a file",
        "remove the image",
        "make a TCP connection",
        "make a UDP socket",
        "make a local socket",
        "start a program",
        "become a program",
        "signal the parent",
        "get hold of the parent",
    ] {
        let denied = out.lines().filter(|line| {
            let is_way = line.split(": ").nth(1) == Some(way);
            is_way && (line.contains("os error 1)") || line.contains("os error 13)"))
        });
        assert_eq!(denied.count(), 4, "{way}: {out}");
    }
    assert!(mounted.bench.path("a.img").exists());
}

#[test]
fn a_sandboxed_server_has_a_channel_for_each_worker_a_near_thread_and_rings_where_the_kernel_has_them() {
    if !can_mount() {
        return;
    }
    let switch = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    let has_rings = switch.is_ok_and(|text| text.starts_with('Y'));
    if !has_rings {
        eprintln!("SKIPPED in part: this kernel's FUSE has no rings, or they are switched off");
    }
    for (options, wants_rings) in [("workers=3", false), ("workers=3,io_uring", has_rings)] {
        let mounted = Mounted::mount(&format!("-o {options}"));
        for index in 0..200 {
            fs::write(mounted.dir().join(format!("f{index}")), pattern(index)).unwrap();
        }
        let server = mounted.processes("server")[0];
        let links = fs::read_dir(format!("/proc/{server}/fd")).unwrap().flatten();
        let channels =
            links.filter(|link| fs::read_link(link.path()).is_ok_and(|target| target == Path::new("/dev/fuse")));
        let has_several = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        let has_near = has_several && !wants_rings;
        assert_eq!(channels.count(), if has_near { 4 } else { 3 }, "{options}");
        // Name, and the other fields up to the scheduling policy.
        let tasks = fs::read_dir(format!("/proc/{server}/task")).unwrap().flatten();
        let stats: Vec<String> = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok()).collect();
        assert_eq!(stats.iter().any(|stat| stat.contains("(fuse-ring-")), wants_rings, "{options}");
        let near = stats.iter().find(|stat| stat.contains("(fuse-near)"));
        assert_eq!(near.is_some(), has_near, "{options}");
        if let Some(near) = near {
            let policy = near.rsplit(')').next().unwrap().split_whitespace().nth(38);
            assert_eq!(policy, Some("5"), "SCHED_IDLE: {near}");
        }
        mounted.bench.ok("umount mnt");
        mounted.bench.check("a.img");
        assert_eq!(mounted.bench.run("cat a.img /f199").out, pattern(199));
        mounted.wait_until_gone();
    }
}

#[test]
fn signals_unmount_and_lose_nothing() {
    if !can_mount() {
        return;
    }
    for (signal, is_busy) in [(Signal::TERM, false), (Signal::INT, true)] {
        let mounted = Mounted::new();
        let mut child = mounted.foreground();
        let path = mounted.dir().join("file");
        // Written by a separate program: a file that this process has open is also open in children that other tests
        // are starting, until they execute their programs.
        fs::write(mounted.bench.path("pattern"), pattern(100_000)).unwrap();
        let status = Command::new("cp").args([&mounted.bench.path("pattern"), &path]).status();
        assert!(status.unwrap().success());
        let open = is_busy.then(|| File::open(&path).unwrap());
        kill(i32::try_from(child.id()).unwrap(), signal);
        let status = child.wait().unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(status.success(), "{signal:?}: {status}: {said}");
        assert_eq!(said.contains("in use"), is_busy, "{said}");
        mounted.wait_until_gone();
        drop(open);
        mounted.bench.check("a.img");
        let run = mounted.bench.run("cat a.img /file");
        assert_eq!(run.out, pattern(100_000));
    }
}

#[test]
fn a_signal_to_the_server_unmounts_as_well() {
    let Some(mounted) = Mounted::mount_if_possible("") else {
        return;
    };
    fs::write(mounted.dir().join("file"), pattern(5000)).unwrap();
    kill(mounted.processes("server")[0], Signal::TERM);
    mounted.wait_until_gone();
    assert_eq!(mounted.bench.run("cat a.img /file").out, pattern(5000));
}

#[test]
fn a_killed_server_leaves_no_mount_and_loses_nothing_synced() {
    let Some(mounted) = Mounted::mount_if_possible("") else {
        return;
    };
    let mut synced = File::create(mounted.dir().join("synced")).unwrap();
    synced.write_all(&pattern(70_000)).unwrap();
    synced.sync_all().unwrap();
    File::open(mounted.dir()).unwrap().sync_all().unwrap();
    fs::write(mounted.dir().join("not-synced"), "x").unwrap();
    kill(mounted.processes("server")[0], Signal::KILL);
    mounted.wait_until_gone();
    assert!(synced.write_all(b"x").is_err());
    assert_eq!(fs::read_dir(mounted.dir()).unwrap().count(), 0);
    mounted.check_and_mount_again();
    assert_eq!(fs::read(mounted.dir().join("synced")).unwrap(), pattern(70_000));
    mounted.bench.ok("umount mnt");
}

#[test]
fn a_mount_outlives_its_killed_supervisor() {
    let Some(mounted) = Mounted::mount_if_possible("") else {
        return;
    };
    kill(mounted.processes("supervisor")[0], Signal::KILL);
    std::thread::sleep(Duration::from_millis(100));
    fs::write(mounted.dir().join("file"), "still here").unwrap();
    mounted.unmount();
    assert_eq!(mounted.bench.run("cat a.img /file").out, b"still here");
}

#[test]
fn a_lazy_unmount_ends_with_its_last_user() {
    let Some(mounted) = Mounted::mount_if_possible("") else {
        return;
    };
    let mut file = File::create(mounted.dir().join("file")).unwrap();
    mounted.bench.ok("umount --lazy mnt");
    assert!(!mounted.is_mounted());
    file.write_all(b"written behind the curtain").unwrap();
    assert_eq!(mounted.processes("server").len(), 1);
    let start = Instant::now();
    drop(file);
    mounted.wait_until_gone();
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    let out = mounted.bench.run("cat a.img /file").out;
    assert_eq!(out, b"written behind the curtain");
}

#[test]
fn killed_clients_harm_nobody() {
    let Some(mounted) = Mounted::mount_if_possible("") else {
        return;
    };
    for round in 0..5 {
        let target = mounted.dir().join(format!("zeros{round}"));
        let mut client = Command::new("dd")
            .arg("if=/dev/zero")
            .arg(format!("of={}", target.display()))
            .args(["bs=1M", "count=2000"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(30));
        client.kill().unwrap();
        client.wait().unwrap();
        fs::remove_file(&target).unwrap();
    }
    fs::write(mounted.dir().join("file"), "alive").unwrap();
    mounted.bench.ok("umount mnt");
    mounted.bench.check("a.img");
    mounted.wait_until_gone();
}

#[test]
fn mount_8_finds_its_helper() {
    let Some(mounted) = Mounted::if_possible() else {
        return;
    };
    let bench = &mounted.bench;
    let helper = |name: &str, words: &str| {
        let link = bench.path(name);
        let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_spinney"), &link);
        let mut command = Command::new(link);
        command.args(words.split(' ')).current_dir(&bench.dir);
        command.output().unwrap().status.code()
    };
    assert_eq!(helper("mount.spinney", "a.img mnt -f -o ro"), Some(0));
    assert!(!mounted.is_mounted());
    assert_eq!(helper("mount.spinney", "a.img mnt -o rw,nonsense"), Some(2));
    let options = "a.img mnt -s -o rw,suid,dev,exec,auto,nouser,async,_netdev,nonsense";
    assert_eq!(helper("mount.fuse.spinney", options), Some(0));
    assert!(mounted.is_mounted());
    assert_eq!(helper("umount.fuse.spinney", "mnt"), Some(0));
    assert!(!mounted.is_mounted());
    // As mount.fuse calls the program of a type `fuse.spinney`.
    assert_eq!(helper("spinney", "a.img mnt -o rw,dev,suid"), Some(0));
    assert_eq!(helper("umount.spinney", "mnt -l"), Some(0));
    mounted.wait_until_gone();
}
