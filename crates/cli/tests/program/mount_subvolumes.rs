//! Subvolumes of a mount: its server answers programs as the kernel's btrfs does for the same image, and `spinney
//! subvolume` works on a directory of it.
//!
//! Without root, loop devices, python3 or the kernel's btrfs these tests say so and pass.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::mounted::{KernelMount, Mounted, can_mount};

/// `PROGRAM DIR` queries everything that can be read of subvolumes, as root and as user 1000, and prints the answers
/// with their errors, except those that necessarily differ between two mounts of one image.
const PROGRAM: &str = r#"
import ctypes, errno, fcntl, os, struct, sys
base = sys.argv[1]
def ask(fd, command, args):
    buffer = bytearray(args)
    try:
        fcntl.ioctl(fd, command, buffer, True)
        error = 0
    except OSError as failure:
        error = failure.errno
    return error, bytes(buffer)
def row(name, error, answer=b""):
    print(name, errno.errorcode.get(error, error), answer.rstrip(b"\0").hex())
def text(answer, at):
    return answer[at:].split(b"\0")[0]
def search(tree, low, high, transids=(0, 2**64 - 1), count=2**32 - 1):
    (o1, t1, f1), (o2, t2, f2) = low, high
    key = struct.pack("<7Q4I4Q", tree, o1, o2, f1, f2, *transids, t1, t2, count, 0, 0, 0, 0, 0)
    return ask(root, 0xd0009411, key + bytes(3992))
def whole(tree, transids=(0, 2**64 - 1)):
    last = 2**64 - 1
    low, found = (0, 0, 0), []
    while True:
        error, answer = search(tree, low, (last, 255, last), transids)
        if error:
            return row(f"tree {tree} {transids}:", error)
        count, = struct.unpack_from("<I", answer, 64)
        if count == 0:
            break
        at = 104
        for _ in range(count):
            transid, objectid, offset, kind, size = struct.unpack_from("<3Q2I", answer, at)
            found.append((transid, objectid, kind, offset, answer[at + 32:at + 32 + size].hex()))
            at += 32 + size
        _, objectid, kind, offset, _ = found[-1]
        if offset < last: low = (objectid, kind, offset + 1)
        elif kind < 255: low = (objectid, kind + 1, 0)
        elif objectid < last: low = (objectid + 1, 0, 0)
        else: break
    print(f"tree {tree} {transids}: {len(found)} items")
    for item in found:
        print(" ", *item)
def of_dir(path):
    try:
        fd = os.open(f"{base}/{path}", os.O_RDONLY | os.O_DIRECTORY)
    except OSError as failure:
        return row(f"open {path!r}", failure.errno)
    row(f"info of {path!r}", *ask(fd, 0x81f8943c, bytes(504)))
    row(f"flags of {path!r}", *ask(fd, 0x80089419, bytes(8)))
    row(f"tree of {path!r}", *ask(fd, 0xd0009412, struct.pack("<QQ", 0, 256).ljust(4096, b"\0")))
    next = 0
    while True:
        error, answer = ask(fd, 0xd000943d, struct.pack("<Q", next).ljust(4096, b"\0"))
        count = answer[4088] if error in (0, errno.EOVERFLOW) else 0
        row(f"subvolumes of {path!r} from {next}, {count}", error, answer[:4089])
        for index in range(count):
            id, dir = struct.unpack_from("<QQ", answer, 8 + 16 * index)
            if path == "many" and index % 50:
                continue
            asked = struct.pack("<QQ", dir, id).ljust(4096, b"\0")
            # Behind the zero that ends a path the kernel leaves what it worked with.
            error, answer = ask(fd, 0xd000943e, asked)
            row(f"  path of {id} in {dir}", error, answer[:272] + text(answer, 272))
        if error != errno.EOVERFLOW:
            break
        next, = struct.unpack_from("<Q", answer, 0)
    for dir, id in [(256, 99999), (257, 256), (99999, 256)]:
        error, _ = ask(fd, 0xd000943e, struct.pack("<QQ", dir, id).ljust(4096, b"\0"))
        row(f"  no path of {id} in {dir} for {path!r}", error)
    os.close(fd)
def ask_all():
    global root
    root = os.open(base, os.O_RDONLY)
    for path in ["", "a", "a/dir", "a/dir/b", "a/closed", "a/dir/b/c", "snap", "many"]:
        of_dir(path)
    for tree in [1, 5, 7, 9, 256, 257, 258]:
        whole(tree)
    whole(256, (9, 2**64 - 1))
    whole(256, (0, 8))
    row("search of no tree", search(99999, (0, 0, 0), (2**64 - 1, 255, 2**64 - 1))[0])
    error, answer = search(1, (0, 0, 0), (2**64 - 1, 255, 2**64 - 1), count=3)
    row("three items", error, answer[64:68])
    for tree, inode in [(0, 256), (256, 257), (256, 258), (257, 257), (99999, 257), (0, 99999)]:
        error, answer = ask(root, 0xd0009412, struct.pack("<QQ", tree, inode).ljust(4096, b"\0"))
        row(f"path of inode {inode} of {tree}", error, answer[:16] + text(answer, 16))
    error, answer = ask(root, 0xd000941e, struct.pack("<Q", 1).ljust(4096, b"\0"))
    row("device 1", error, answer[:40])
    row("device 2", ask(root, 0xd000941e, struct.pack("<Q", 2).ljust(4096, b"\0"))[0])
    sys.stdout.flush()
ask_all()
child = os.fork()
if child == 0:
    os.setgroups([])
    os.setgid(1000)
    os.setuid(1000)
    print("as user 1000")
    ask_all()
    os._exit(0)
os.waitpid(child, 0)
"#;

fn python(script: &str, dir: &Path) -> String {
    let output = Command::new("python3").args(["-c", script]).arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn is_root_with_python() -> bool {
    let has_python = Command::new("python3").arg("-V").output().is_ok();
    let can = rustix::process::geteuid().is_root() && has_python && can_mount();
    if !can {
        eprintln!("SKIPPED: needs root, python3 and FUSE");
    }
    can
}

#[test]
fn a_mount_answers_about_subvolumes_as_the_kernel_does() {
    if !is_root_with_python() {
        return;
    }
    let mounted = Mounted::new();
    let bench = &mounted.bench;
    set_mode(bench.dir.path(), 0o755);
    for path in ["/a", "/a/dir/b", "/a/closed/hidden", "/a/dir/b/c", "/many"] {
        let parent = Path::new(path).parent().unwrap().display().to_string();
        if parent != "/" && !parent.ends_with("/b") {
            bench.ok(&format!("mkdir -p a.img {parent}"));
        }
        bench.ok(&format!("subvolume create a.img {path}"));
    }
    bench.fill("src");
    bench.ok("put -q a.img src/. /a/dir/b");
    bench.ok("subvolume snapshot -r a.img /a /snap");
    bench.ok("subvolume set-default --subvolume-id 5 a.img /");
    {
        // Changed by the kernel, which has rights and owners: and more subvolumes than one answer has room for.
        let Some(kernel) = KernelMount::of(&bench.path("a.img"), bench.path("kernel")) else {
            eprintln!("SKIPPED: the kernel does not mount btrfs");
            return;
        };
        std::fs::create_dir(kernel.0.join("a/open")).unwrap();
        for path in ["", "a", "a/dir", "a/dir/b", "many"] {
            set_mode(&kernel.0.join(path), 0o755);
        }
        set_mode(&kernel.0.join("a/closed"), 0o700);
        let script = "import fcntl, os, sys\nd = os.open(sys.argv[1] + '/many', os.O_RDONLY)\n\
            for n in range(300): fcntl.ioctl(d, 0x5000940e, bytearray(8) + (b's%d' % n).ljust(4088, b'\\0'))";
        python(script, &kernel.0);
    }
    std::fs::copy(bench.path("a.img"), bench.path("b.img")).unwrap();
    let kernel = KernelMount::with(&bench.path("b.img"), bench.path("kernel"), "loop,ro").unwrap();
    bench.ok("mount -o ro,allow_other a.img mnt");
    let (wanted, found) = (python(PROGRAM, &kernel.0), python(PROGRAM, &mounted.dir()));
    drop(kernel);
    let mut lines = wanted.lines().zip(found.lines()).enumerate();
    if let Some((number, (wanted, found))) = lines.find(|(_, (wanted, found))| wanted != found) {
        panic!("line {number}: the kernel says\n{wanted}\nand the mount\n{found}");
    }
    assert_eq!(wanted.lines().count(), found.lines().count());
    assert!(wanted.lines().count() > 1500 && wanted.contains("EOVERFLOW"), "{}", wanted.lines().count());
    mounted.unmount();
}

/// Whether a command of the program succeeded as another user.
fn as_user(mounted: &Mounted, uid: u32, line: &str) -> Result<String, String> {
    let mut command = Command::new(mounted.bench.path("spinney"));
    command.args(line.split_whitespace()).current_dir(&mounted.bench.dir);
    command.gid(uid).uid(uid).env_clear();
    finish(command)
}

fn finish(mut command: Command) -> Result<String, String> {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn subvolumes_of_a_mount_are_made_and_deleted_with_the_rights_of_the_caller() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let bench = &mounted.bench;
    let dir = mounted.dir();
    bench.ok("subvolume create mnt /home");
    std::fs::write(dir.join("home/file"), "text").unwrap();
    bench.ok("subvolume create mnt /home/inner");
    std::fs::write(dir.join("home/inner/file"), "inner").unwrap();
    bench.ok("subvolume snapshot -r mnt home monday");
    assert_eq!(std::fs::read_to_string(dir.join("monday/file")).unwrap(), "text");
    assert!(!dir.join("monday/inner/file").exists());
    bench.ok("subvolume snapshot -r --recursive mnt /home /all");
    assert_eq!(std::fs::read_to_string(dir.join("all/inner/file")).unwrap(), "inner");
    assert!(std::fs::write(dir.join("all/inner/file"), "x").is_err());
    let list = bench.json("subvolume list --json mnt");
    let paths: Vec<&str> =
        list["subvolumes"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["home", "home/inner", "monday", "all", "all/inner"]);
    let show = bench.json("subvolume show --json mnt /home");
    let names: Vec<&Value> = show["snapshots"].as_array().unwrap().iter().map(|one| &one["path"]).collect();
    assert_eq!(names, ["monday", "all"]);
    assert_eq!(bench.json("subvolume show --json mnt /")["id"], 5);
    assert_eq!(bench.ok("subvolume read-only mnt monday"), "on\n");
    // A subvolume inside a read-only one cannot be deleted.
    bench.ok("subvolume read-only mnt home on");
    let run = bench.run("subvolume delete mnt home/inner");
    assert!(run.status == 1 && run.err.contains("read-only"), "{}", run.err);
    let run = bench.run("subvolume create mnt/home/new");
    assert!(run.status == 1 && run.err.contains("read-only"), "{}", run.err);
    bench.ok("subvolume read-only mnt/home off");
    bench.ok("subvolume read-only mnt monday off");
    bench.ok("subvolume rename mnt/monday mnt/tuesday");
    // A read-only one goes with one command.
    bench.ok("subvolume snapshot -r mnt/home mnt/gone");
    bench.ok("subvolume delete mnt/gone");
    assert!(!dir.join("gone").exists());
    let id = bench.json("subvolume find --json mnt /tuesday")["subvolumes"][0]["id"].to_string();
    bench.ok(&format!("subvolume delete --id {id} mnt"));
    assert!(!dir.join("tuesday").exists());
    bench.ok("subvolume set-default mnt home");
    assert_eq!(bench.json("subvolume get-default --json mnt")["path"], "home");
    let run = bench.run("subvolume delete --recursive mnt home");
    assert!(run.status == 1 && run.err.contains("default"), "{}", run.err);
    bench.ok("subvolume set-default mnt /");
    let run = bench.run("subvolume delete mnt /none");
    assert_eq!(run.status, 1, "{}", run.err);
    std::fs::create_dir(dir.join("plain")).unwrap();
    let run = bench.run("subvolume delete mnt plain");
    assert!(run.err.contains("no subvolume; `rm -r` removes directories"), "{}", run.err);
    mounted.unmount();
    bench.check("a.img");
    let listed = bench.ok("subvolume list a.img");
    assert!(listed.contains("/all/inner") && !listed.contains("/tuesday"), "{listed}");
}

/// As [`as_user`], in one more group.
fn as_member(mounted: &Mounted, uid: u32, group: u32, line: &str) -> Result<String, String> {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &uid.to_string(), "--regid", &uid.to_string(), "--groups", &group.to_string(), "--"]);
    command.arg(mounted.bench.path("spinney")).args(line.split_whitespace()).current_dir(&mounted.bench.dir);
    command.env_clear().env("PATH", "/usr/bin:/bin");
    finish(command)
}

#[test]
fn others_do_with_subvolumes_of_a_mount_what_they_may() {
    if !is_root_with_python() {
        return;
    }
    let mounted = Mounted::mount("-o allow_other");
    let (bench, dir) = (&mounted.bench, mounted.dir());
    // Other users may not be able to search the build directory.
    std::fs::copy(env!("CARGO_BIN_EXE_spinney"), bench.path("spinney")).unwrap();
    set_mode(bench.dir.path(), 0o755);
    bench.ok("subvolume create mnt roots");
    bench.ok("subvolume create mnt roots/inner");
    for (name, mode, group) in [("tmp", 0o777, 0), ("sticky", 0o1777, 0), ("team", 0o770, 50)] {
        std::fs::create_dir(dir.join(name)).unwrap();
        std::os::unix::fs::chown(dir.join(name), None, Some(group)).unwrap();
        set_mode(&dir.join(name), mode);
    }
    as_user(&mounted, 1000, "subvolume create mnt/tmp/mine").unwrap();
    as_user(&mounted, 1000, "subvolume snapshot mnt/tmp/mine mnt/tmp/copy").unwrap();
    as_user(&mounted, 1000, "subvolume snapshot -r mnt/tmp/mine mnt/sticky/closed").unwrap();
    let list = as_user(&mounted, 1000, "subvolume list mnt").unwrap();
    assert!(list.contains("/tmp/copy") && list.contains("/roots/inner"), "{list}");
    let stat = bench.json("stat --json mnt/tmp/mine");
    assert_eq!((&stat["files"][0]["uid"], &stat["files"][0]["gid"]), (&1000.into(), &1000.into()));
    for (line, why) in [
        ("subvolume create mnt roots/x", "ermission denied"),
        ("subvolume snapshot mnt roots tmp/theirs", "not permitted"),
        ("subvolume delete mnt roots/inner", "ermission denied"),
        ("subvolume read-only mnt roots on", "not permitted"),
        ("subvolume set-default mnt tmp/mine", "not permitted"),
        ("subvolume get-default mnt", "not permitted"),
        ("subvolume create mnt/team/x", "ermission denied"),
        ("defrag mnt/roots", "directory"),
    ] {
        let error = as_user(&mounted, 1000, line).unwrap_err();
        assert!(error.contains(why), "{line}: {error}");
    }
    // Another user may not delete, make writable or snapshot these subvolumes.
    for line in [
        "subvolume delete mnt/tmp/copy",
        "subvolume delete mnt/sticky/closed",
        "subvolume read-only mnt/sticky/closed off",
        "subvolume snapshot mnt/tmp/mine mnt/tmp/stolen",
    ] {
        as_user(&mounted, 1001, line).unwrap_err();
    }
    // A member of the group may do what the group's permissions allow: create and delete in a directory with group
    // write permission. Deleting a read-only snapshot, and taking one, needs its owner.
    as_member(&mounted, 1001, 50, "subvolume create mnt/team/ours").unwrap();
    set_mode(&dir.join("team/ours"), 0o775);
    std::os::unix::fs::chown(dir.join("team/ours"), Some(1000), Some(50)).unwrap();
    let error = as_member(&mounted, 1001, 50, "subvolume snapshot mnt/team/ours mnt/team/copy").unwrap_err();
    assert!(error.contains("not permitted"), "{error}");
    bench.ok("subvolume read-only mnt/team/ours on");
    as_member(&mounted, 1001, 50, "subvolume delete mnt/team/ours").unwrap_err();
    bench.ok("subvolume read-only mnt/team/ours off");
    as_user(&mounted, 1001, "subvolume delete mnt/team/ours").unwrap_err();
    as_member(&mounted, 1001, 50, "subvolume delete mnt/team/ours").unwrap();
    // The owner deletes all, the read-only one with the same command; root deletes those of all users.
    as_user(&mounted, 1000, "subvolume delete mnt/tmp/copy mnt/sticky/closed").unwrap();
    bench.ok("subvolume read-only mnt/tmp/mine on");
    bench.ok("subvolume delete mnt/tmp/mine");
    // Subvolumes behind a directory without search permission are not listed.
    set_mode(&dir.join("roots"), 0o700);
    let list = as_user(&mounted, 1000, "subvolume list mnt").unwrap();
    assert!(!list.contains("inner") && !list.contains("tmp"), "{list}");
    mounted.unmount();
    bench.check("a.img");
    // Through a mount that is read-only nothing changes.
    bench.ok("mount -o ro a.img mnt");
    let run = bench.run("subvolume create mnt/new");
    assert!(run.status == 1 && run.err.contains("read-only"), "{}", run.err);
    assert!(bench.ok("subvolume list mnt").contains("/roots/inner"));
    mounted.unmount();
}

#[test]
fn files_of_a_mount_are_laid_out_anew_and_compressed() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let bench = &mounted.bench;
    std::fs::write(mounted.dir().join("text"), "many words ".repeat(100_000)).unwrap();
    assert!(bench.ok("defrag -c mnt/text").contains("in 1 of 1 files"));
    assert!(bench.ok("stat --extents mnt/text").contains("zstd"));
    mounted.unmount();
    bench.check("a.img");
}
