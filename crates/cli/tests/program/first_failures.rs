//! Failures that new users meet: no fusermount3, no FUSE device, a container, a full disk, an empty file. Each test
//! compares the message word by word: it must name the package, command or alternative that helps.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::harness::Bench;

const OTHER_WAY: &str = "`spinney get` and `spinney put` need no mount";
/// A user without files and groups.
const AS_NOBODY: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";
/// A FUSE device open to every user, as on most distributions, independent of the settings of this machine.
const OPEN_DEVICE: &str = "mknod -m 666 fuse c 10 229 && mount --bind fuse /dev/fuse";
/// A container without the device.
const NO_DEVICE: &str = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3";

/// A directory with the program, an image and a mount point that an account without rights may use. `None` where this
/// process is not root.
fn place() -> Option<Bench> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: namespaces of mounts need root");
        return None;
    }
    let bench = Bench::new();
    std::fs::copy(env!("CARGO_BIN_EXE_spinney"), bench.path("spinney")).unwrap();
    bench.ok("mkfs -q --size 64M a.img");
    std::fs::create_dir(bench.path("m")).unwrap();
    let mode = |path: PathBuf, mode| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
    };
    mode(bench.dir.path().to_owned(), 0o777);
    mode(bench.path("a.img"), 0o644);
    mode(bench.path("m"), 0o755);
    Some(bench)
}

/// The standard error of a shell line that has to fail, run in a mount namespace of its own.
fn refused(bench: &Bench, line: &str) -> String {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", line]).current_dir(bench.dir.path());
    let output = command.output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{line}: {err}");
    err.trim_end().to_owned()
}

#[test]
fn without_fusermount3_the_package_is_named() {
    let Some(bench) = place() else { return };
    let line = format!("{AS_NOBODY} env PATH=/nonexistent ./spinney mount a.img m");
    let expected = format!("spinney: fusermount3 is not installed: install the package fuse3; {OTHER_WAY}");
    assert_eq!(refused(&bench, &line), expected);
    // A directory of PATH that cannot be searched made "cannot run fusermount3: Permission denied" of it.
    let line = format!("mkdir -m 700 secret && {AS_NOBODY} env PATH=$PWD/secret:/nonexistent ./spinney mount a.img m");
    let secret = bench.path("secret");
    let expected = format!(
        "spinney: fusermount3 is not installed: install the package fuse3 (this user may not search {}, which PATH \
         names); {OTHER_WAY}",
        secret.display()
    );
    assert_eq!(refused(&bench, &line), expected);
}

#[test]
fn without_the_device_the_module_and_the_container_are_named() {
    let Some(bench) = place() else { return };
    let expected = format!(
        "spinney: cannot open /dev/fuse: No such file or directory (os error 2); load the kernel module (`modprobe \
         fuse`); a container gets the device with `--device /dev/fuse`; {OTHER_WAY}"
    );
    assert_eq!(refused(&bench, &format!("{NO_DEVICE} && {AS_NOBODY} ./spinney mount a.img m")), expected);
    assert_eq!(refused(&bench, &format!("{NO_DEVICE} && ./spinney mount a.img m")), expected, "as root");
    let expected = format!(
        "spinney: cannot open /dev/fuse: Permission denied (os error 13); root has to let this user use it (`chmod 666 \
         /dev/fuse`); a container gets it with `--device /dev/fuse`; {OTHER_WAY}"
    );
    let line = "mknod -m 600 fuse c 10 229 && mount --bind fuse /dev/fuse";
    assert_eq!(refused(&bench, &format!("{line} && {AS_NOBODY} ./spinney mount a.img m")), expected);
}

#[test]
fn a_container_that_may_not_mount_says_what_it_lacks() {
    let Some(bench) = place() else { return };
    let refusal = "spinney: fusermount3: mount failed: Operation not permitted";
    let expected = format!(
        "{refusal}; this container may not mount: start it with `--device /dev/fuse --cap-add SYS_ADMIN --security-opt \
         apparmor=unconfined`; {OTHER_WAY}"
    );
    let line = "setpriv --bounding-set -sys_admin --inh-caps -sys_admin ./spinney mount a.img m";
    assert_eq!(refused(&bench, &format!("{OPEN_DEVICE} && {line}")), expected);
    let expected = format!(
        "{refusal}; fusermount3 cannot become root here, as this process was started without the right to gain \
         privileges (no_new_privs: NoNewPrivileges= of systemd, or `no-new-privileges` of a container); {OTHER_WAY}"
    );
    std::fs::remove_file(bench.path("fuse")).unwrap();
    let line = format!("{OPEN_DEVICE} && {AS_NOBODY} --no-new-privs ./spinney mount a.img m");
    assert_eq!(refused(&bench, &line), expected);
    let expected = format!(
        "{refusal}; fusermount3 cannot become root in a namespace of users: mount from outside of it, or make a \
         namespace of mounts as well (`unshare -rm`); {OTHER_WAY}"
    );
    std::fs::remove_file(bench.path("fuse")).unwrap();
    let line = format!("{OPEN_DEVICE} && {AS_NOBODY} unshare -Ur ./spinney mount a.img m");
    match refused(&bench, &line) {
        text if text.starts_with("unshare: ") => eprintln!("no namespaces of users here: {text}"),
        text => {
            assert_eq!(text, expected);
            // The advice works.
            std::fs::remove_file(bench.path("fuse")).unwrap();
            let inside = "./spinney mount a.img m && ./spinney umount m && echo done";
            let line = format!("{OPEN_DEVICE} && {AS_NOBODY} unshare -Urm sh -c '{inside}'");
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "sh", "-c", &line]).current_dir(bench.dir.path());
            let output = command.output().unwrap();
            assert_eq!(output.stdout, b"done\n", "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn a_full_host_is_told_from_a_full_image() {
    let Some(bench) = place() else { return };
    let script = "mkdir small && mount -t tmpfs -o size=8M none small && ./spinney mkfs -q --size 1G small/b.img \
                  && head -c 20000000 /dev/urandom > large && ./spinney put -q small/b.img large /; status=$?; \
                  ./spinney ls small/b.img / >&2; exit $status";
    let text = refused(&bench, script);
    let (first, last) = text.split_once('\n').unwrap();
    let device = "No space left on device (os error 28)";
    assert!(first.starts_with("spinney: ./large: small/b.img: cannot write ") && first.ends_with(device), "{text}");
    let expected = "spinney: the host file system that holds small/b.img is full (`df small/b.img`); the image itself \
                    has room";
    // Nothing of the file that did not fit stays in the image.
    assert_eq!(last, expected);

    bench.ok("mkfs -q --size 128M full.img");
    std::fs::File::create(bench.path("large")).unwrap().set_len(0).unwrap();
    let noise: Vec<u8> = (0..150_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
    std::fs::write(bench.path("large"), noise).unwrap();
    let run = bench.run("put -q full.img large /");
    assert_eq!((run.status, run.err.trim_end()), (5, "spinney: ./large: no space left on the volume"));
    assert_eq!(bench.ok("ls full.img /"), "");
    let run = bench.run("put -q --partial full.img large /");
    assert_eq!(run.status, 5);
    assert_eq!(bench.ok("ls full.img /"), "large\n");
    assert_eq!(bench.run("check -q full.img").status, 0);
}

#[test]
fn an_empty_file_is_no_damaged_image() {
    let bench = Bench::new();
    std::fs::write(bench.path("e.img"), "").unwrap();
    for (line, status) in [("ls e.img", 3), ("info e.img", 3), ("get e.img / out", 3), ("check e.img", 8)] {
        let run = bench.run(line);
        assert_eq!((run.status, run.err.as_str()), (status, "spinney: e.img: no btrfs or f2fs image: it is empty\n"));
    }
}
