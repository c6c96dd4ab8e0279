//! Images made under fakeroot had the builder's owners, and empty files for device nodes: system calls were made
//! without the C library, where emulators (fakeroot, pseudo) intercept them. `mkfs --rootdir`, `put` and `get` must
//! read the owners, modes and nodes that `stat` shows under an emulator, and set them so that `stat` shows them again.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::harness::Bench;

/// A user without files.
const USER: &str = "65534";

/// Makes a tree under the emulator, copies it into images in three ways and out of one, and prints the output of `stat`
/// for the tree, of `ls` for the images, and of `stat` for the copy.
const SCRIPT: &str = r#"
set -e
mkdir t t/d t/e
echo x > t/five; chown 5:7 t/five; chmod 4755 t/five
mknod t/null c 1 3; chmod 666 t/null
mknod t/disk b 7 200; chown 0:6 t/disk; chmod 660 t/disk
mkfifo t/pipe; chown 8:8 t/pipe
ln -s five t/link; chown -h 9:10 t/link
chown 3:4 t/d; chmod 2775 t/d
ln t/five t/d/again
i=0; while [ $i -lt 300 ]; do echo $i > t/e/f$i; i=$((i + 1)); done; chown -R 11:12 t/e
list() { (cd "$1"; find . | sort | xargs stat -c '%n %f %u:%g %t,%T %h'); }
list t > seen
$S mkfs -q --rootdir t a.img
$S mkfs -q -t f2fs --rootdir t b.img
$S mkfs -q --size 64M c.img; $S put -q c.img t/. /
for image in a b c; do $S get -q $image.img /. $image; list $image > $image.seen; done
"#;

fn under(emulator: &[&str], bench: &Bench) {
    std::fs::set_permissions(bench.dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = match rustix::process::geteuid().is_root() {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
            command.args(emulator);
            command
        }
        false => {
            let mut command = Command::new(emulator[0]);
            command.args(&emulator[1..]);
            command
        }
    };
    command.args(["sh", "-c", SCRIPT]).env("S", env!("CARGO_BIN_EXE_spinney")).current_dir(bench.dir.path());
    if emulator[0] == "pseudo" {
        command.env("PSEUDO_PREFIX", "/usr").env("PSEUDO_LOCALSTATEDIR", bench.path("pseudo"));
    }
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{emulator:?}: {err}");
    assert!(!err.contains("could not be"), "{emulator:?}: {err}");
}

fn is_missing(program: &str) -> bool {
    let is_missing = Command::new(program).arg("--version").output().is_err();
    if is_missing {
        eprintln!("SKIPPED: this needs the program {program}");
    }
    is_missing
}

fn owners_and_nodes_are_those_of(emulator: &[&str]) {
    if is_missing(emulator[0]) {
        return;
    }
    let bench = Bench::new();
    under(emulator, &bench);
    let seen = std::fs::read_to_string(bench.path("seen")).unwrap();
    assert!(seen.contains("./null 21b6 0:0 1,3 1\n"), "{seen}");
    assert!(seen.contains("./five 89ed 5:7 0,0 2\n") && seen.contains("./d 45fd 3:4"), "{seen}");
    for image in ["a", "b", "c"] {
        let copied = std::fs::read_to_string(bench.path(&format!("{image}.seen"))).unwrap();
        assert_eq!(copied, seen, "{emulator:?}, {image}");
    }
    // The image has the same owners and nodes when it is read without the emulator.
    for image in ["a.img", "b.img", "c.img"] {
        let list = bench.ok(&format!("ls -l {image} /"));
        let line = |name: &str| list.lines().find(|line| line.ends_with(name)).unwrap_or_default().to_owned();
        assert!(line("null").starts_with("crw-rw-rw-") && line("disk").starts_with("brw-rw----"), "{list}");
        let words: Vec<String> = line("link -> five").split_whitespace().map(ToOwned::to_owned).collect();
        assert_eq!(words[2..4], ["9", "10"], "{list}");
    }
}

#[test]
fn fakeroot_says_who_owns_what() {
    owners_and_nodes_are_those_of(&["fakeroot"]);
}

#[test]
fn pseudo_says_who_owns_what() {
    owners_and_nodes_are_those_of(&["pseudo"]);
}

#[test]
fn a_variable_without_its_library_is_no_emulator() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("t")).unwrap();
    for line in ["mkfs -q --rootdir t a.img", "get b.img / out"] {
        bench.ok("mkfs -q --size 64M b.img");
        let run = bench.run_with(line, &[("FAKEROOTKEY", "17")]);
        assert_eq!(run.status, 4, "{line}: {}", run.err);
        assert!(run.err.contains("spinney was started under fakeroot"), "{}", run.err);
        std::fs::remove_file(bench.path("b.img")).unwrap();
    }
}
