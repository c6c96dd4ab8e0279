//! Idmapped mounts: files of one user appear as those of another, and new files are stored for the first.
//!
//! Without root, loop devices, or Linux 6.12 these tests say so and pass.

use std::path::Path;
use std::process::Command;

use crate::mounted::{Mounted, can_mount};

/// `PROGRAM DIR` makes files on the mount at DIR, an idmapped mount of DIR at DIR/mapped, runs operations there as
/// several users, and prints their results. Users 1000 to 1009 of the file system are 2000 to 2009 in the mapped mount.
const PROGRAM: &str = r#"
import array, ctypes, errno, fcntl, os, platform, stat, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def namespace():
    (ready, set_ready), (wait, end) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        check(libc.unshare(0x10000000))
        os.write(set_ready, b"x")
        os.close(end)
        os.read(wait, 1)
        os._exit(0)
    os.read(ready, 1)
    for kind in "ug":
        with open(f"/proc/{child}/{kind}id_map", "w") as file:
            file.write("1000 2000 10\n0 0 1\n")
    found = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    os.close(end)
    os.waitpid(child, 0)
    return found
def mapped_mount(base, to):
    tree = check(libc.syscall(428, -100, base.encode(), 1 | 0x80000))
    attributes = struct.pack("QQQQ", 0x100000, 0, 0, namespace())
    check(libc.syscall(442, tree, b"", 0x1000, attributes, len(attributes)))
    check(libc.syscall(429, tree, b"", -100, to.encode(), 4))
    os.close(tree)
def row(name, does):
    try:
        print(name, does())
    except OSError as error:
        print(name, errno.errorcode[error.errno])
def as_user(user, name, does, groups=()):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.setgroups(groups)
        os.setgid(user)
        os.setuid(user)
        row(f"{name} as {user}:", does)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
def shown(path):
    found = os.lstat(path)
    return f"{stat.filemode(found.st_mode)} {found.st_uid}:{found.st_gid}"
def both(name):
    return f"{shown(f'{mapped}/{name}')} below {shown(f'{base}/{name}')}"
def make(name, user=0, mode=0o644, text="text"):
    with open(f"{base}/{name}", "w") as file:
        file.write(text)
    os.chown(f"{base}/{name}", user, user)
    os.chmod(f"{base}/{name}", mode)
def make_dir(name, user, mode):
    os.mkdir(f"{base}/{name}")
    os.chown(f"{base}/{name}", user, user)
    os.chmod(f"{base}/{name}", mode)
def flags(path, add):
    fd = os.open(path, os.O_RDONLY)
    try:
        number = array.array("i", [0])
        fcntl.ioctl(fd, 0x80086601, number, True)
        number[0] = number[0] | add if add >= 0 else 0
        fcntl.ioctl(fd, 0x40086602, number, True)
    finally:
        os.close(fd)
def touch(path):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
def append(path):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"more")
    os.close(fd)
def tmpfile(path):
    fd = os.open(path, os.O_TMPFILE | os.O_RDWR, 0o644)
    found = os.fstat(fd)
    os.close(fd)
    return f"{found.st_uid}:{found.st_gid}"
def whiteout(old, new):
    check(libc.renameat2(-100, old.encode(), -100, new.encode(), 4))
base = sys.argv[1]
mapped = f"{base}/mapped"
os.umask(0)
os.chmod(base, 0o755)
os.mkdir(mapped)
make_dir("all", 0, 0o777)
make_dir("sticky", 0, 0o1777)
make_dir("group", 1000, 0o2777)
make_dir("own", 1000, 0o755)
make("theirs", 1000)
make("root")
make("outside", 5000)
for name in ("program", "cut", "chowned", "kept"):
    make(name, 1000, 0o6777)
make("bare", 1000, 0o2666)
make("sticky/theirs", 1000)
make("secret", 1000, 0o600)
mapped_mount(base, mapped)
for name in ("theirs", "root", "outside"):
    print(name, shown(f"{mapped}/{name}"))
for user in (0, 2000, 2001, 1000, 3000):
    own = f"{mapped}/all/{user}"
    as_user(user, "create", lambda: touch(own))
    row("  made", lambda: both(f"all/{user}"))
    as_user(user, "mkdir", lambda: os.mkdir(own + "d"))
    row("  made", lambda: both(f"all/{user}d"))
    as_user(user, "symlink", lambda: os.symlink("x", own + "s"))
    as_user(user, "mkfifo", lambda: os.mkfifo(own + "f"))
    row("  made", lambda: both(f"all/{user}f"))
    as_user(user, "in the group's", lambda: touch(f"{mapped}/group/{user}"))
    row("  made", lambda: both(f"group/{user}"))
    as_user(user, "tmpfile", lambda: tmpfile(f"{mapped}/all"))
    as_user(user, "read secret", lambda: open(f"{mapped}/secret").read())
    as_user(user, "in own", lambda: touch(f"{mapped}/own/{user}"))
    as_user(user, "chmod", lambda: os.chmod(f"{mapped}/theirs", 0o640))
    as_user(user, "times", lambda: os.utime(f"{mapped}/theirs", (1, 1)))
    as_user(user, "chown", lambda: os.chown(f"{mapped}/theirs", 2001, 2001))
    as_user(user, "chown outside", lambda: os.chown(f"{mapped}/theirs", 3000, 3000))
    row("  is", lambda: both("theirs"))
    os.chown(f"{base}/theirs", 1000, 1000)
    as_user(user, "nodump", lambda: flags(f"{mapped}/theirs", 0x40))
    as_user(user, "immutable", lambda: flags(f"{mapped}/theirs", 0x10))
    as_user(user, "mutable", lambda: flags(f"{mapped}/theirs", -1))
    os.system(f"chattr -i {base}/theirs")
    as_user(user, "xattr", lambda: os.setxattr(f"{mapped}/theirs", "user.a", b"1"))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in [
        (1, 6, 0xffffffff), (2, 4, 2005), (4, 4, 0xffffffff), (16, 4, 0xffffffff), (32, 0, 0xffffffff)])
    as_user(user, "acl", lambda: os.setxattr(f"{mapped}/theirs", "system.posix_acl_access", acl))
    row("  acl below", lambda: os.getxattr(f"{base}/theirs", "system.posix_acl_access").hex())
    os.system(f"setfacl -b {base}/theirs; chmod 644 {base}/theirs")
    as_user(user, "sticky", lambda: os.unlink(f"{mapped}/sticky/theirs"))
    if not os.path.exists(f"{base}/sticky/theirs"):
        make("sticky/theirs", 1000)
    as_user(user, "write to a program", lambda: append(f"{mapped}/program"))
    row("  is", lambda: both("program"))
    os.chmod(f"{base}/program", 0o6777)
    as_user(user, "truncate", lambda: os.truncate(f"{mapped}/cut", 1))
    row("  is", lambda: both("cut"))
    os.chmod(f"{base}/cut", 0o6777)
    make(f"all/w{user}", 1000)
    as_user(user, "whiteout", lambda: whiteout(f"{mapped}/all/w{user}", f"{mapped}/all/v{user}"))
    row("  made", lambda: both(f"all/w{user}"))
    # A server clears the bit at writes of group members too, with any caller in the request.
    if user != 2000:
        as_user(user, "write to bare", lambda: append(f"{mapped}/bare"))
        row("  is", lambda: both("bare"))
        os.chmod(f"{base}/bare", 0o2666)
as_user(0, "chown a program", lambda: os.chown(f"{mapped}/chowned", 2001, -1))
row("  is", lambda: both("chowned"))
check(libc.umount2(mapped.encode(), 0))
os.rmdir(mapped)
"#;

fn can_map() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|word| word.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let can = can_mount() && rustix::process::geteuid().is_root() && version >= (6, 12);
    if !can {
        eprintln!("SKIPPED: no root, or no idmapped mounts of FUSE");
    }
    can
}

fn done_in(dir: &Path) -> Result<Vec<String>, String> {
    let output = Command::new("python3").args(["-c", PROGRAM]).arg(dir).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    match output.status.success() {
        true => Ok(text.lines().map(str::to_owned).collect()),
        false => Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// The results of the same program on the kernel's btrfs; `None` if that cannot be mounted.
fn done_by_the_kernel() -> Option<Vec<String>> {
    let mounted = Mounted::new();
    let run = |line: &str| {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).current_dir(&mounted.bench.dir).status().unwrap().success()
    };
    if !run("mount -t btrfs -o loop a.img mnt") {
        eprintln!("SKIPPED: the kernel's btrfs is not here to compare with");
        return None;
    }
    let done = done_in(&mounted.dir());
    assert!(run("umount mnt"));
    Some(done.unwrap())
}

/// An idmapped mount could not be made (EINVAL). With `idmap` the kernel leaves the calling user out of most requests,
/// which must give no user more rights.
#[test]
fn an_idmapped_mount_behaves_as_that_of_the_kernel() {
    if !can_map() {
        return;
    }
    let Some(expected) = done_by_the_kernel() else { return };
    assert!(expected.len() > 150, "{expected:#?}");
    for options in ["rw", "writeback", "zero_open", "nosynced", "io_uring"] {
        let mounted = Mounted::mount(&format!("-o idmap,allow_other,{options}"));
        let done = done_in(&mounted.dir()).unwrap();
        for (index, (done, expected)) in done.iter().zip(&expected).enumerate() {
            assert_eq!(done, expected, "{options}: line {index}");
        }
        assert_eq!(done.len(), expected.len());
        mounted.unmount();
        mounted.bench.check("a.img");
    }
}

/// If the server needs the calling user, for its options or by request, idmapped mounts are refused.
#[test]
fn a_mount_whose_server_gets_the_calling_user_cannot_be_idmapped() {
    if !can_map() {
        return;
    }
    for options in ["idmap,user_subvol_ioctls", "rw", "idmap,noidmap"] {
        let mounted = Mounted::mount(&format!("-o {options}"));
        let refused = done_in(&mounted.dir()).unwrap_err();
        assert!(refused.contains("Invalid argument"), "{options}: {refused}");
        mounted.unmount();
    }
}
