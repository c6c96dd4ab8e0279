//! Tests file handles on a mount: numbers by which NFS servers and backup programs find a file without its name.
//!
//! Only root may open files by handle; without root these tests print SKIPPED and pass.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::mounted::{Mounted, can_mount};

/// `of PATH...` prints the handles of files; `open DIR HANDLE...` prints the file found for each in the mount at DIR:
/// the contents of a file, the path of a directory or the target of a link; or the error.
const PROGRAM: &str = r#"
import ctypes, errno, os, stat, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result
def of(path):
    buffer = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136)
    mount = ctypes.c_int()
    check(libc.name_to_handle_at(-100, path.encode(), buffer, ctypes.byref(mount), 0))
    size, kind = struct.unpack_from("Ii", buffer)
    return f"{kind}:{buffer.raw[8:8 + size].hex()}"
def found(directory, handle):
    kind, data = handle.split(":")
    data = bytes.fromhex(data)
    buffer = ctypes.create_string_buffer(struct.pack("Ii", len(data), int(kind)) + data)
    fd = check(libc.open_by_handle_at(directory, buffer, os.O_PATH))
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISLNK(mode):
            return os.readlink("", dir_fd=fd)
        if stat.S_ISDIR(mode):
            return os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    fd = check(libc.open_by_handle_at(directory, buffer, os.O_RDONLY))
    with os.fdopen(fd) as file:
        return file.read()
def row(directory, handle):
    try:
        return found(directory, handle)
    except OSError as error:
        return errno.errorcode[error.errno]
if sys.argv[1] == "of":
    rows = [of(path) for path in sys.argv[2:]]
else:
    directory = os.open(sys.argv[2], os.O_RDONLY)
    if sys.argv[1] == "open-as-stranger":
        os.setgid(65534)
        os.setuid(65534)
    rows = [row(directory, handle) for handle in sys.argv[3:]]
print("\n".join(rows))
"#;

fn ask(words: &[&str]) -> Vec<String> {
    let output = Command::new("python3").args(["-c", PROGRAM]).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn handles(dir: &Path, names: &[&str]) -> Vec<String> {
    let paths: Vec<_> = names.iter().map(|name| dir.join(name).display().to_string()).collect();
    let words: Vec<&str> = std::iter::once("of").chain(paths.iter().map(String::as_str)).collect();
    ask(&words)
}

fn opened(dir: &Path, handles: &[String]) -> Vec<String> {
    opened_as("open", dir, handles)
}

fn opened_as(command: &str, dir: &Path, handles: &[String]) -> Vec<String> {
    let dir = dir.display().to_string();
    let first = [command, dir.as_str()];
    let words: Vec<&str> = first.into_iter().chain(handles.iter().map(String::as_str)).collect();
    ask(&words)
}

/// The kernel drops unused inodes.
fn drop_caches() {
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
}

fn can_open_handles() -> bool {
    let can = can_mount() && rustix::process::geteuid().is_root() && drop_caches_works();
    if !can {
        eprintln!("SKIPPED: only root opens files by handle");
    }
    can
}

fn drop_caches_works() -> bool {
    fs::write("/proc/sys/vm/drop_caches", "2").is_ok()
}

/// A subvolume with a file, a snapshot of it if there is another subvolume, and a file in the top level.
fn filled(mounted: &Mounted) {
    let bench = &mounted.bench;
    bench.ok("subvolume create a.img /a");
    fs::write(bench.path("f"), "of a").unwrap();
    bench.ok("put a.img f /a/f");
    bench.ok("subvolume snapshot a.img /a /b");
    fs::write(bench.path("f"), "of b").unwrap();
    bench.ok("put -f a.img f /b/f");
    bench.ok("put a.img f /top");
}

const NAMES: [&str; 7] = ["file", "link", "dir/deep", "dir/deep/file", ".", "a/f", "a"];

fn expected(dir: &Path) -> Vec<String> {
    let path = |name: &str| dir.join(name).display().to_string();
    let texts = ["one", "target", &path("dir/deep"), "two", &dir.display().to_string(), "of a", &path("a")];
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Handles of `name_to_handle_at` could be opened as long as the kernel happened to cache the inode, and were ESTALE
/// afterwards (xfstests generic/426, 467, 477, 756).
#[test]
fn a_handle_finds_its_file_after_the_cache_is_dropped() {
    if !can_open_handles() {
        return;
    }
    let options = ["-o rw", "-o zero_open", "-o writeback", "-o nosynced", "-o io_uring", "--no-sandbox"];
    for options in options {
        let mounted = Mounted::new();
        filled(&mounted);
        mounted.bench.ok(&format!("mount {options} a.img mnt"));
        let dir = mounted.dir();
        fs::create_dir_all(dir.join("dir/deep")).unwrap();
        fs::write(dir.join("file"), "one").unwrap();
        fs::write(dir.join("dir/deep/file"), "two").unwrap();
        std::os::unix::fs::symlink("target", dir.join("link")).unwrap();
        let handles = handles(&dir, &NAMES);
        assert_eq!(opened(&dir, &handles), expected(&dir), "{options}");
        drop_caches();
        assert_eq!(opened(&dir, &handles), expected(&dir), "{options}, forgotten");
        let refused = opened_as("open-as-stranger", &dir, &handles[..1]);
        assert_eq!(refused, ["EPERM"]);
        // The handle does not depend on the file's name.
        fs::rename(dir.join("file"), dir.join("dir/moved")).unwrap();
        drop_caches();
        assert_eq!(opened(&dir, &handles[..1]), ["one"], "{options}, moved");
        fs::rename(dir.join("dir/moved"), dir.join("file")).unwrap();
        for again in [options, "-o ro"] {
            mounted.unmount();
            mounted.bench.check("a.img");
            mounted.bench.ok(&format!("mount {again} a.img mnt"));
            assert_eq!(opened(&dir, &handles), expected(&dir), "{options}, mounted anew with {again}");
        }
        mounted.unmount();
    }
}

/// A reused number must not lead to another file.
#[test]
fn a_handle_of_a_file_that_is_gone_is_stale() {
    if !can_open_handles() {
        return;
    }
    for options in ["-o rw", "-o zero_open"] {
        let mounted = Mounted::new();
        filled(&mounted);
        mounted.bench.ok(&format!("mount {options} a.img mnt"));
        let dir = mounted.dir();
        fs::create_dir(dir.join("dir")).unwrap();
        for name in ["kept", "dir/in", "last"] {
            fs::write(dir.join(name), name).unwrap();
        }
        let found = handles(&dir, &["kept", "dir", "dir/in", "last", "b/f", "b"]);
        let inos = |names: &[&str]| -> Vec<u64> {
            let ino = |name: &&str| std::os::unix::fs::MetadataExt::ino(&fs::metadata(dir.join(name)).unwrap());
            names.iter().map(ino).collect()
        };
        let before = inos(&["dir/in", "last"]);
        let held = fs::File::open(dir.join("last")).unwrap();
        fs::remove_file(dir.join("last")).unwrap();
        drop_caches();
        assert_eq!(opened(&dir, &found[3..4]), ["last"], "open elsewhere");
        drop(held);
        fs::remove_dir_all(dir.join("dir")).unwrap();
        drop_caches();
        let stale = ["ESTALE"; 3];
        assert_eq!(opened(&dir, &found[1..4]), stale, "{options}, removed");
        assert_eq!(opened(&dir, &found[..1]), ["kept"]);
        mounted.unmount();
        mounted.bench.ok("subvolume delete a.img /b");
        mounted.bench.ok(&format!("mount {options} a.img mnt"));
        // New files get the numbers that have become free.
        fs::write(dir.join("new"), "not this").unwrap();
        fs::write(dir.join("newer"), "nor this").unwrap();
        assert_eq!(inos(&["new", "newer"]), before, "the new files did not get the freed inode numbers");
        drop_caches();
        assert_eq!(opened(&dir, &found[1..4]), stale, "{options}, numbers used again");
        assert_eq!(opened(&dir, &found[..1]), ["kept"]);
        assert_eq!(opened(&dir, &found[4..]), ["ESTALE"; 2], "in a deleted subvolume");
        mounted.unmount();
        mounted.bench.check("a.img");
    }
}

/// A handle from outside the mounted subvolume opens nothing, not even a file with the same number: files of a snapshot
/// have the numbers and generations of their originals.
#[test]
fn a_handle_of_one_subvolume_opens_nothing_of_another() {
    if !can_open_handles() {
        return;
    }
    let mounted = Mounted::new();
    filled(&mounted);
    mounted.bench.ok("mount a.img mnt");
    let dir = mounted.dir();
    let found = handles(&dir, &["a/f", "b/f", "top", "a", "b"]);
    mounted.unmount();
    let path = dir.display().to_string();
    for (subvol, expected) in [
        ("/", ["of a", "of b", "of b", &format!("{path}/a"), &format!("{path}/b")]),
        ("/a", ["of a", "ESTALE", "ESTALE", "ESTALE", "ESTALE"]),
        ("/b", ["ESTALE", "of b", "ESTALE", "ESTALE", "ESTALE"]),
    ] {
        mounted.bench.ok(&format!("mount -o subvol={subvol} a.img mnt"));
        assert_eq!(opened(&dir, &found), expected, "{subvol}");
        if subvol == "/a" {
            assert_eq!(opened(&dir, &handles(&dir, &["f"])), ["of a"]);
        }
        mounted.unmount();
    }
}

/// A caller may make up any handle.
#[test]
fn made_up_handles_are_stale() {
    if !can_open_handles() {
        return;
    }
    let mounted = Mounted::new();
    filled(&mounted);
    for options in ["subvol=/", "subvol=/a", "subvol=/,ro,zero_open"] {
        mounted.bench.ok(&format!("mount -o {options} a.img mnt"));
        let dir = mounted.dir();
        let mut made_up = Vec::new();
        let trees = [0, 1, 2, 3, 4, 5, 7, 9, 10, 256, 257, 258, 300, (1 << 19) - 1, 1 << 19, (1 << 20) - 1];
        for tree in trees {
            for ino in [0, 1, 2, 3, 255, 256, 400, (1 << 44) - 1] {
                let node: u64 = (tree << 44) | ino;
                made_up.push(format!("129:{}", hex(node, 0xdead)));
            }
        }
        for found in opened(&dir, &made_up) {
            assert_eq!(found, "ESTALE", "{options}");
        }
        mounted.unmount();
    }
    mounted.bench.check("a.img");
}

/// A handle as the kernel makes it for FUSE: three words, the upper half of the node's number first.
fn hex(node: u64, generation: u32) -> String {
    let node = node.rotate_left(32).to_le_bytes();
    let bytes = node.into_iter().chain(generation.to_le_bytes());
    bytes.map(|byte| format!("{byte:02x}")).collect()
}
