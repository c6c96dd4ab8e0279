//! `spinney dedupe` on a mount: files in use share equal ranges.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::pattern;
use crate::mounted::{Mounted, can_mount_as_root};
use crate::places::copy_program;

const SIZE: usize = 700_001;

#[test]
fn files_of_a_mount_share_what_is_the_same() {
    for options in ["", "-o writeback", "-o zero_open", "-o compress=zstd"] {
        let Some(mounted) = Mounted::mount_if_possible(options) else { return };
        let dir = mounted.dir();
        let text: Vec<u8> =
            pattern(SIZE).iter().zip(0_u32..).map(|(byte, at)| byte ^ (at >> 9).to_le_bytes()[0]).collect();
        fs::create_dir(dir.join("d")).unwrap();
        for name in ["one", "two", "d/three"] {
            fs::write(dir.join(name), &text).unwrap();
        }
        fs::hard_link(dir.join("one"), dir.join("another")).unwrap();
        std::os::unix::fs::symlink("one", dir.join("link")).unwrap();
        File::create(dir.join("hole")).unwrap().set_len(1 << 40).unwrap();
        let times = |name: &str| {
            let found = fs::metadata(dir.join(name)).unwrap();
            (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec())
        };
        let before = times("two");
        let report = mounted.bench.json("dedupe -r --json mnt /");
        assert_eq!(report["bytes_shared"].as_u64(), Some(2 * 700_001), "{options}: {report}");
        assert_eq!((&report["files"], &report["files_skipped"]), (&4.into(), &0.into()), "{options}: {report}");
        assert_eq!(times("two"), before, "{options}");
        assert_eq!(mounted.bench.ok("dedupe -r mnt /"), "0 B shared, in 4 files\n");
        assert_eq!(mounted.bench.ok("dedupe mnt one d/three"), "0 B shared, in 2 files\n");
        // Afterwards each file can be changed on its own.
        File::options().write(true).open(dir.join("two")).unwrap().write_all_at(b"changed", 300_000).unwrap();
        mounted.unmount();
        mounted.bench.check("a.img");
        assert_eq!(mounted.bench.json("dedupe -r --json a.img /one /d/three")["bytes_shared"], 0, "{options}");
        mounted.bench.ok("mount a.img mnt");
        let mut changed = text.clone();
        changed[300_000..300_007].copy_from_slice(b"changed");
        for (name, wanted) in [("one", &text), ("two", &changed), ("d/three", &text)] {
            assert!(fs::read(dir.join(name)).unwrap() == *wanted, "{options}: {name}");
        }
        mounted.unmount();
    }
}

#[test]
fn what_cannot_be_shared_is_told() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    fs::write(mounted.dir().join("one"), pattern(SIZE)).unwrap();
    fs::write(mounted.dir().join("two"), pattern(SIZE)).unwrap();
    fs::create_dir(mounted.bench.path("plain")).unwrap();
    for (line, status, said) in [
        ("dedupe mnt /", 1, "-r includes its contents"),
        ("dedupe mnt /../one", 1, "without .."),
        ("dedupe mnt none", 1, "No such file"),
        ("dedupe -r plain /", 1, "in no mount of spinney"),
        ("dedupe -r --super 1 mnt /", 2, "--super"),
    ] {
        let run = mounted.bench.run(line);
        assert!(run.status == status && run.err.contains(said), "{line}: {} {}", run.status, run.err);
    }
    mounted.unmount();
    mounted.bench.ok("mount -o ro a.img mnt");
    let run = mounted.bench.run("dedupe -r mnt /");
    assert!(run.status == 1 && run.err.contains("mounted for reading only"), "{} {}", run.status, run.err);
    mounted.unmount();
    mounted.bench.check("a.img");
}

#[test]
fn nothing_is_shared_where_the_kernel_would_not_write() {
    if !can_mount_as_root() {
        return;
    }
    let mounted = Mounted::mount("");
    let bench = &mounted.bench;
    fs::create_dir(mounted.dir().join("t")).unwrap();
    fs::create_dir(mounted.dir().join("t/inner")).unwrap();
    for name in ["t/one", "t/two"] {
        fs::write(mounted.dir().join(name), pattern(SIZE)).unwrap();
    }
    fs::create_dir(bench.path("bound")).unwrap();
    let mount = |line: &str| {
        let done = Command::new("mount").args(line.split(' ')).current_dir(&bench.dir).output().unwrap();
        assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let refused = |line: &str| {
        let run = bench.run(line);
        let is_refused = run.status == 1 && run.err.contains("mounted for reading only");
        assert!(is_refused, "{line}: {} {}", run.status, run.err);
    };
    mount("--bind mnt bound");
    mount("-o remount,bind,ro bound");
    refused("dedupe -r bound/t");
    refused("dedupe -r bound /");
    Command::new("umount").arg(bench.path("bound")).status().unwrap();
    // A read-only bind mount below the directory.
    mount("--bind mnt/t mnt/t/inner");
    mount("-o remount,bind,ro mnt/t/inner");
    let report = bench.json("dedupe --json mnt /t/inner/one /t/inner/two");
    assert_eq!((&report["bytes_shared"], &report["files_skipped"]), (&0.into(), &1.into()), "{report}");
    Command::new("umount").arg(bench.path("mnt/t/inner")).status().unwrap();
    mount("-o remount,ro mnt");
    refused("dedupe -r mnt/");
    mount("-o remount,rw mnt");
    assert_eq!(bench.json("dedupe -r --json mnt /")["bytes_shared"].as_u64(), Some(700_001));
    mounted.unmount();
    bench.check("a.img");
}

#[test]
fn what_cannot_be_read_is_named_and_counted() {
    if !can_mount_as_root() {
        return;
    }
    let mounted = Mounted::mount("-o allow_other");
    let (bench, dir) = (&mounted.bench, mounted.dir());
    fs::set_permissions(bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    copy_program(bench);
    fs::create_dir(dir.join("closed")).unwrap();
    for name in ["one", "two", "secret", "closed/three"] {
        fs::write(dir.join(name), pattern(SIZE)).unwrap();
        std::os::unix::fs::chown(dir.join(name), Some(1000), Some(1000)).unwrap();
    }
    for name in ["secret", "closed"] {
        std::os::unix::fs::chown(dir.join(name), Some(0), Some(0)).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o700)).unwrap();
    }
    let mut command = Command::new(bench.path("spinney"));
    command.args(["dedupe", "-r", "--json", "mnt", "/"]).current_dir(bench.dir.path()).uid(1000).gid(1000);
    let output = command.output().unwrap();
    let (report, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{report} {told}");
    assert!(told.contains("mnt/secret: ") && told.contains("mnt/closed: "), "{told}");
    assert!(told.contains("2 entries could not be shared; the others were"), "{told}");
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["files_failed"], &report["bytes_shared"]), (&2.into(), &700_001.into()), "{report}");
    mounted.unmount();
    bench.check("a.img");
}

/// The ioctl itself: only ranges of the caller's own files are accepted.
#[test]
fn the_server_looks_at_who_asks_for_what() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: needs root");
        return;
    }
    let Some(mounted) = Mounted::mount_if_possible("-o allow_other") else { return };
    let program = r"
import errno, fcntl, os, struct, sys
NODE, SHARE = 0x800853b8, 0xc02853b9
os.chdir(sys.argv[1])
data = os.urandom(65536) * 2
for name, owner in [('a', 0), ('b', 0), ('mine', 65534), ('mine2', 65534)]:
    with open(name, 'wb') as file:
        file.write(data)
    os.chown(name, owner, owner)
    os.chmod(name, 0o666)
os.mkdir('dir')
def node(name):
    fd = os.open(name, os.O_RDONLY)
    return fd, struct.unpack('Q', fcntl.ioctl(fd, NODE, bytes(8)))[0]
def share(source, source_offset, target, offset, length):
    fd = os.open(target, os.O_RDONLY)
    try:
        out = fcntl.ioctl(fd, SHARE, struct.pack('QQQQQ', source, source_offset, offset, length, 7))
        return struct.unpack('QQQQQ', out)[4]
    except OSError as error:
        return errno.errorcode[error.errno]
    finally:
        os.close(fd)
kept, a = node('a')
kept2, mine = node('mine')
kept3, folder = node('dir')
def expect(wanted, *asked):
    found = share(*asked)
    assert found in (wanted if isinstance(wanted, tuple) else (wanted,)), (asked, found, wanted)
expect('EINVAL', a, 1, 'b', 0, 4096)
expect('EINVAL', a, 0, 'b', 1, 4096)
expect('EINVAL', a, 0, 'b', 0, 1 << 30)
expect(('EINVAL', 'EFBIG'), a, 0, 'b', 0, 1 << 63)
expect(('EINVAL', 'EFBIG'), a, 1 << 63, 'b', 0, 4096)
expect('EINVAL', a, 0, 'b', 1 << 20, 4096)
expect(('EINVAL', 'EISDIR'), folder, 0, 'b', 0, 4096)
expect(('EINVAL', 'EISDIR'), a, 0, 'dir', 0, 4096)
for wrong in [0, 2, 12345678, 2**64 - 1]:
    found = share(wrong, 0, 'b', 0, 4096)
    assert isinstance(found, str), (wrong, found)
expect('EINVAL', a, 0, 'a', 4096, 8192)
expect(1, a, 0, 'a', 65536, 65536)
expect(1, a, 0, 'b', 0, 131072)
expect(0, a, 0, 'b', 0, 131072)
with open('b', 'r+b') as file:
    file.write(b'other')
expect(0, a, 0, 'b', 0, 4096)
os.system('chattr +i b 2>/dev/null')
expect('EPERM', a, 0, 'b', 4096, 4096)
os.system('chattr -i b 2>/dev/null')
os.setgid(65534)
os.setuid(65534)
expect('EPERM', a, 0, 'b', 4096, 4096)
expect('EPERM', a, 0, 'mine', 0, 4096)
expect('EPERM', mine, 0, 'b', 4096, 4096)
expect(1, mine, 0, 'mine2', 0, 131072)
";
    let run = Command::new("python3").args(["-c", program]).arg(mounted.dir()).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    mounted.unmount();
    mounted.bench.check("a.img");
}

/// Data written by others during the search is kept.
#[test]
fn nothing_is_lost_that_is_written_meanwhile() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let dir = mounted.dir();
    let text = pattern(2 << 20);
    fs::write(dir.join("source"), &text).unwrap();
    let mut models = Vec::new();
    for round in 0..8_usize {
        let name = format!("target{round}");
        fs::write(dir.join(&name), &text).unwrap();
        let (ended, mut model) = (AtomicBool::new(false), text.clone());
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let file = File::options().write(true).open(dir.join(&name)).unwrap();
                for count in 0.. {
                    let at: usize = (count * 7919 + round) * 613 % (text.len() - 10);
                    let bytes = at.to_le_bytes();
                    file.write_all_at(&bytes, u64::try_from(at).unwrap()).unwrap();
                    model[at..at + bytes.len()].copy_from_slice(&bytes);
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            mounted.bench.ok("dedupe -q -r -b 4K mnt /");
            ended.store(true, Ordering::Relaxed);
            writer.join().unwrap();
        });
        assert!(fs::read(dir.join(&name)).unwrap() == model, "{name}");
        models.push((name, model));
    }
    mounted.unmount();
    mounted.check_and_mount_again();
    for (name, model) in models {
        assert!(fs::read(dir.join(&name)).unwrap() == model, "{name}");
    }
    mounted.unmount();
}

/// Two copies of 1 MiB, and a read-only snapshot of both.
fn with_snapshot(bench: &crate::harness::Bench) {
    bench.ok("mkfs -q -f --size 256M a.img");
    bench.ok("subvolume create a.img /v");
    std::fs::write(bench.path("r"), pattern(1 << 20)).unwrap();
    for name in ["a", "b"] {
        bench.ok(&format!("put -q a.img r /v/{name}"));
    }
    bench.ok("subvolume snapshot -r a.img /v /snap");
}

#[test]
fn files_of_read_only_snapshots_share_too() {
    let mounted = Mounted::new();
    let bench = &mounted.bench;
    with_snapshot(bench);
    bench.ok("dedupe -q -r a.img /v /snap");
    let exclusive = |rows: &serde_json::Value| rows[0]["exclusive_bytes"].as_u64();
    assert_eq!(exclusive(&bench.json("du -s --json a.img /")), Some(0));
    bench.check("a.img");
    // Both are still in the same state, and one can be sent against the other.
    bench.ok("put -q a.img r /v/c");
    bench.ok("subvolume snapshot -r a.img /v /next");
    bench.ok("send -p /snap -f s a.img /next");
    if !crate::mounted::can_mount() {
        return;
    }
    with_snapshot(bench);
    bench.ok("mount a.img mnt");
    let report = bench.json("dedupe -r --json mnt /");
    assert_eq!((&report["files_skipped"], &report["files_failed"]), (&0.into(), &0.into()), "{report}");
    assert_eq!(exclusive(&bench.json("du -s --json mnt /")), Some(0), "{report}");
    assert!(fs::write(mounted.dir().join("snap/a"), "x").is_err(), "it is read-only still");
    assert!(fs::read(mounted.dir().join("snap/b")).unwrap() == pattern(1 << 20));
    mounted.unmount();
    bench.check("a.img");
}
