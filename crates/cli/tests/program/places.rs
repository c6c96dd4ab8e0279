//! Paths in arguments: IMAGE:/PATH, paths below a mount, and host paths; and copies between them.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Bench, assert_same};
use crate::mounted::{Mounted, can_mount_as_root};

/// Copies the program, because other users may not be able to search the build directory. `cp` makes the copy: a file
/// that this process has open for writing would be open in children of other tests too, and could not be executed.
pub(crate) fn copy_program(bench: &Bench) {
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_spinney")).arg(bench.path("spinney")).status();
    assert!(copied.unwrap().success());
}

/// All commands that take paths, on images of both formats.
#[test]
fn a_path_in_an_image_is_written_with_a_colon() {
    let bench = Bench::new();
    fs::write(bench.path("notes"), "hello\n").unwrap();
    // An existing host file of the whole name wins, and `./` begins a host path.
    fs::write(bench.path("a.img:x"), "of this machine").unwrap();
    for make in ["mkfs -q --size 128M a.img", "mkfs -q -f -t f2fs --size 128M a.img"] {
        bench.ok(make);
        bench.ok("mkdir -p a.img:/d/e a.img:/f");
        bench.ok("put notes a.img:/d/");
        bench.ok("put a.img:x a.img:/d/colon");
        assert_eq!(bench.ok("cat a.img:/d/notes a.img:d/colon"), "hello\nof this machine");
        assert_eq!(bench.ok("ls a.img:/d"), "colon\ne\nnotes\n");
        assert_eq!(bench.ok("ls a.img:"), bench.ok("ls a.img /"));
        assert_eq!(bench.ok("tree a.img:/d").lines().count(), bench.ok("tree a.img /d").lines().count());
        bench.ok("mv a.img:/d/notes a.img:/f/moved");
        bench.ok("ln a.img:/f/moved a.img:/f/second");
        bench.ok("ln -s ../any:/where a.img:/f/link");
        assert_eq!(bench.json("stat --json a.img:/f/second")["files"][0]["nlink"], 2);
        assert_eq!(bench.json("stat --json a.img:/f/link")["files"][0]["target"], "../any:/where");
        bench.ok("cp a.img:/f/moved a.img:/f/third");
        bench.ok("get -q a.img:/f ./got:f");
        assert_eq!(fs::read_to_string(bench.path("got:f/third")).unwrap(), "hello\n");
        fs::remove_dir_all(bench.path("got:f")).unwrap();
        bench.ok("rm -r a.img:/f a.img:/d");
        assert!(bench.ok("info a.img:").contains("UUID"));
        for (line, status, text) in [
            ("rm a.img:/x /y", 2, "/y: not in a.img, where the other paths are; `spinney cp` copies"),
            ("cat none.img:/x", 1, "none.img: cannot open"),
            ("info a.img:/x", 2, "a.img:/x: this command takes no path in a.img, but the whole image"),
            ("cp notes other", 2, "source and destination are on this machine: use cp(1)"),
            ("cp --reflink=always notes a.img:/", 2, "only files of one image can share extents"),
            ("cp . a.img:/", 1, "a directory (-r includes its contents)"),
        ] {
            let run = bench.run(line);
            assert_eq!(run.status, status, "{line}: {}", run.err);
            assert!(run.err.contains(text), "{line}: {}", run.err);
        }
    }
}

#[test]
fn commands_of_subvolumes_take_a_colon() {
    let bench = Bench::new();
    for image in ["a.img", "b.img"] {
        bench.ok(&format!("mkfs -q --size 128M {image}"));
    }
    fs::write(bench.path("notes"), "hello\n").unwrap();
    bench.ok("subvolume create a.img:/home");
    bench.ok("subvolume snapshot -r a.img:/home a.img:/monday");
    bench.ok("put notes a.img:/home/");
    bench.ok("subvolume snapshot -r a.img:/home a.img:/tuesday");
    assert!(bench.ok("diff a.img:/monday a.img:/tuesday").contains("+ notes"));
    bench.ok("send -q -f monday a.img:/monday");
    bench.ok("send -q -p a.img:/monday -f tuesday a.img:/tuesday");
    bench.ok("mkdir b.img:/in");
    bench.ok("receive -q -f monday b.img:/in");
    bench.ok("receive -q -f tuesday b.img:/in");
    assert_eq!(bench.ok("cat b.img:/in/tuesday/notes"), "hello\n");
    bench.ok("subvolume rename a.img:/monday a.img:/sunday");
    assert_eq!(bench.ok("subvolume read-only a.img:/sunday"), "on\n");
    bench.ok("subvolume read-only a.img:/sunday off");
    assert_eq!(bench.json("subvolume show --json a.img:/sunday")["read_only"], false);
    bench.ok("subvolume delete a.img:/sunday a.img:/tuesday");
    bench.ok("mkdir b.img:/kept");
    bench.ok("backup -q a.img:/home b.img:/kept");
    assert!(bench.ok("restore --list b.img:/kept").contains("home."));
    bench.ok("restore -q b.img:/kept a.img:/again");
    assert_eq!(bench.ok("cat a.img:/again/notes"), "hello\n");
    bench.ok("du -s a.img:/home a.img:/again");
    bench.ok("defrag -q a.img:/home/notes");
    bench.ok("dedupe -q -r a.img:/home a.img:/again");
    bench.check("a.img");
    bench.check("b.img");
}

/// Copies between images of both formats, and back, lose nothing.
#[test]
fn a_copy_between_images_keeps_everything() {
    let bench = Bench::new();
    bench.filled_image();
    bench.ok("mkfs -q --size 128M b.img");
    bench.ok("mkfs -q -t f2fs --size 128M c.img");
    let report = bench.json("cp -r -q --json a.img:/. b.img:/");
    assert_eq!(report["bytes_shared"], 0);
    bench.ok("cp -r -q b.img:/. c.img:/");
    bench.ok("get -q a.img / wanted");
    bench.ok("get -q c.img / got");
    assert_same(&bench.path("wanted"), &bench.path("got"));
    let sparse = |image: &str| bench.json(&format!("stat --json {image}:/sparse"))["files"][0]["blocks"].as_u64();
    assert!(sparse("b.img") < Some(1000) && sparse("c.img") < Some(1000), "holes stay holes");
    // Directories are merged; files are replaced only on request.
    let run = bench.run("cp -r a.img:/sub b.img:/");
    assert!(run.status == 1 && run.err.contains("exists already"), "{}", run.err);
    bench.ok("cp -r -f -q a.img:/sub b.img:/");
    // From several places at once.
    fs::write(bench.path("here"), "here").unwrap();
    bench.ok("mkdir b.img:/all");
    bench.ok("cp a.img:/a.txt here c.img:/middle b.img:/nothing b.img:/all");
    assert_eq!(bench.ok("ls b.img:/all"), "a.txt\nhere\nmiddle\nnothing\n");
    bench.ok("cp -r -q -f a.img:/sub b.img:/all/here ./wanted");
    assert_eq!(fs::read_to_string(bench.path("wanted/here")).unwrap(), "here");
    bench.check("b.img");
}

/// A file with a bad checksum left its first part, or an empty private file.
#[test]
fn a_file_that_cannot_be_read_leaves_no_part() {
    const MARK: &[u8] = b"this sector will not be read";
    let bench = Bench::new();
    fs::create_dir(bench.path("src")).unwrap();
    let mut large = vec![7; 5 << 20];
    large.extend_from_slice(MARK);
    let mut small = MARK.to_vec();
    small.resize(8192, 1);
    for (name, bytes) in [("large", &large[..]), ("small", &small[..]), ("whole", b"whole")] {
        fs::write(bench.path("src").join(name), bytes).unwrap();
    }
    bench.ok("mkfs -q --rootdir src a.img");
    let mut image = fs::read(bench.path("a.img")).unwrap();
    let places: Vec<usize> = places_of(&image, MARK);
    assert_eq!(places.len(), 2);
    places.iter().for_each(|at| image[*at] ^= 1);
    fs::write(bench.path("a.img"), image).unwrap();
    let names = |dir: &str| {
        let mut names: Vec<_> =
            fs::read_dir(bench.path(dir)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let run = bench.run("cp -rq a.img:/. out");
    assert!(run.status != 0 && run.err.contains("small"), "{}", run.err);
    assert_eq!(names("out"), ["whole"]);
    assert_ne!(bench.run("cp -rq --partial a.img:/. kept").status, 0);
    assert_eq!(names("kept"), ["large", "small", "whole"]);
    assert!(fs::metadata(bench.path("kept/large")).unwrap().len() > 0);
    assert_ne!(bench.run("get -q a.img:/. got").status, 0);
    assert_eq!(names("got"), ["large", "small", "whole"], "`get --continue` goes on with these");
}

/// All offsets of `wanted`.
fn places_of(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    bytes.windows(wanted.len()).enumerate().filter(|(_, part)| *part == wanted).map(|(at, _)| at).collect()
}

#[test]
fn a_mounted_image_is_used_through_its_mount() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let (bench, dir) = (&mounted.bench, mounted.dir());
    fs::write(bench.path("notes"), "hello\n").unwrap();
    bench.ok("mkfs -q --size 128M b.img");
    bench.ok("put a.img notes /");
    assert_eq!(fs::read_to_string(dir.join("notes")).unwrap(), "hello\n");
    assert_eq!(bench.ok("ls a.img"), "notes\n");
    assert_eq!(bench.ok("cat a.img:/notes"), "hello\n");
    bench.ok("subvolume create a.img /home");
    bench.ok("cp a.img:/notes mnt/home/copy");
    bench.ok("subvolume snapshot -r mnt/home a.img:/closed");
    bench.ok("cp -r mnt/home b.img:/");
    bench.ok("cp b.img:/home/copy a.img:/back");
    bench.ok("cp mnt/back ./out");
    assert_eq!(fs::read_to_string(bench.path("out")).unwrap(), "hello\n");
    assert_eq!(bench.json("info --json a.img")["uuid"], bench.json("info --json mnt")["uuid"]);
    bench.ok("subvolume delete a.img:/closed mnt/home");
    // Options that select another subvolume or superblock, and commands that the server cannot execute, are refused.
    for line in ["ls --subvolume-id 5 a.img", "put --compress zstd a.img notes /x", "repair a.img"] {
        let run = bench.run(line);
        assert!(run.status != 0 && run.err.contains("mounted at"), "{line}: {}", run.err);
    }
    let run = bench.run("put --compress zstd a.img notes /x");
    assert!(run.err.contains("use the paths below"), "{}", run.err);
    mounted.unmount();
    // With another root than the image's, paths of the image are not those of the mount.
    bench.ok("subvolume create a.img:/part");
    bench.ok("mount -o subvol=part a.img mnt");
    let run = bench.run("ls a.img:/");
    assert!(run.status == 7 && run.err.contains("mounted at"), "{}", run.err);
    mounted.unmount();
    bench.check("a.img");
}

/// The user who mounts an image chooses the name in the mount table, so another user's commands do not trust it.
#[test]
fn only_the_own_mount_stands_for_an_image() {
    if !can_mount_as_root() {
        return;
    }
    let mounted = Mounted::mount("-o allow_other");
    let bench = &mounted.bench;
    fs::set_permissions(bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(bench.path("a.img"), fs::Permissions::from_mode(0o666)).unwrap();
    copy_program(bench);
    let as_user = |line: &str| {
        let mut command = Command::new(bench.path("spinney"));
        command.args(line.split(' ')).current_dir(bench.dir.path()).uid(1000).gid(1000).output().unwrap()
    };
    let output = as_user("ls a.img");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(7) && text.contains("in use by") && !text.contains("mounted at"), "{text}");
    assert!(as_user("ls mnt/").status.success());
    // Files that a user copies into a mount belong to the user, and existing directories keep their attributes.
    bench.ok("mkfs -q --size 128M b.img");
    fs::write(bench.path("notes"), "hello\n").unwrap();
    bench.ok("mkdir b.img:/dir");
    bench.ok("put notes b.img:/dir");
    fs::create_dir_all(mounted.dir().join("open/dir")).unwrap();
    for dir in ["open", "open/dir"] {
        fs::set_permissions(mounted.dir().join(dir), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let output = as_user("cp -r -q b.img:/. mnt/open");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stat = |path: &str| fs::metadata(mounted.dir().join(path)).unwrap();
    assert_eq!((stat("open/dir/notes").uid(), stat("open/dir/notes").gid()), (1000, 1000));
    assert_eq!((stat("open/dir").uid(), stat("open/dir").mode() & 0o7777), (0, 0o777));
    mounted.unmount();
}

/// Another image has the name under which one was mounted.
#[test]
fn a_mount_does_not_stand_for_what_took_the_name_of_its_image() {
    if !can_mount_as_root() {
        return;
    }
    for option in ["synced", "nosynced"] {
        let mounted = Mounted::mount(&format!("-o {option}"));
        let (bench, dir) = (&mounted.bench, mounted.dir());
        fs::write(dir.join("precious"), "contents").unwrap();
        fs::write(bench.path("one"), "new").unwrap();
        fs::create_dir(bench.path("other")).unwrap();
        fs::rename(bench.path("a.img"), bench.path("old.img")).unwrap();
        bench.ok("mkfs -q --size 128M a.img");
        bench.ok("put a.img one /");
        bench.ok("put one a.img:/two");
        bench.ok("label a.img other");
        assert_eq!(bench.run("rm a.img:/precious").status, 1, "{option}");
        assert_eq!(bench.ok("ls a.img"), "one\ntwo\n", "{option}");
        assert_eq!(bench.ok("ls mnt"), "precious\n", "{option}");
        assert_eq!(bench.run("umount a.img").status, 1, "{option}");
        assert!(mounted.is_mounted(), "{option}");
        // It is mounted beside the other one, and then stands for itself.
        bench.ok(&format!("mount -o {option} a.img other"));
        assert_eq!(bench.ok("ls other"), "one\ntwo\n", "{option}");
        bench.ok("rm a.img:/one");
        assert!(!bench.path("other/one").exists(), "{option}");
        bench.ok("umount a.img");
        assert!(mounted.is_mounted(), "{option}");
        bench.check("a.img");
        bench.ok("umount mnt");
        bench.check("old.img");
        assert_eq!(bench.ok("cat old.img:/precious"), "contents", "{option}");
    }
}

/// A mount by an unprivileged user whose name in the table is another user's image, with a server that does not answer.
const STRANGER: &str = r"
import os, sys, time
fd = os.open('/dev/fuse', os.O_RDWR)
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
options = 'fd=%d,rootmode=40000,user_id=1000,group_id=1000,allow_other' % fd
if libc.mount(sys.argv[1].encode(), sys.argv[2].encode(), b'fuse.spinney', 0, options.encode()) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
print('mounted', flush=True)
sys.stdin.read()
libc.umount2(sys.argv[2].encode(), 2)
";

#[test]
fn a_mount_of_another_user_is_not_asked_for_an_image() {
    if !can_mount_as_root() {
        return;
    }
    let bench = Bench::new();
    bench.ok("mkfs -q --size 128M mine.img");
    fs::create_dir(bench.path("theirs")).unwrap();
    fs::create_dir(bench.path("mnt")).unwrap();
    let image = bench.path("mine.img").canonicalize().unwrap();
    let mut stranger = Command::new("python3")
        .args(["-c", STRANGER])
        .args([image.as_path(), bench.path("theirs").canonicalize().unwrap().as_path()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 7];
    stranger.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    let begun = Instant::now();
    let run = bench.run("umount mine.img");
    assert!(run.status == 1 && run.err.contains("neither is an image mounted here"), "{} {}", run.status, run.err);
    bench.ok("mkdir mine.img:/here");
    let holder = fs::File::options().write(true).open(&image).unwrap();
    rustix::fs::flock(&holder, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let run = bench.run("ls mine.img");
    let is_told = run.err.contains("in use by another program") && !run.err.contains("theirs");
    assert!(run.status == 7 && is_told, "{} {}", run.status, run.err);
    drop(holder);
    // The user's own mount is found, though the other one came later, or earlier.
    bench.ok("mount -o nosynced mine.img mnt");
    assert_eq!(bench.ok("ls mine.img"), "here\n");
    bench.ok("umount mine.img");
    assert!(begun.elapsed() < Duration::from_secs(50), "a command waited for the foreign server");
    drop(stranger.stdin.take());
    assert!(stranger.wait().unwrap().success());
    bench.check("mine.img");
}

#[test]
fn an_empty_file_system_belongs_to_who_made_it() {
    let bench = Bench::new();
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut users = vec![own];
    if own.0 == 0 {
        users.push((1000, 100));
        fs::set_permissions(bench.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        copy_program(&bench);
    }
    for (uid, gid) in users {
        for format in ["btrfs", "f2fs"] {
            let image = format!("{format}.{uid}");
            let run = |line: &str| {
                let program = if own.0 == 0 { bench.path("spinney") } else { env!("CARGO_BIN_EXE_spinney").into() };
                let mut command = Command::new(program);
                command.args(line.split(' ')).current_dir(bench.dir.path());
                if own.0 == 0 {
                    command.uid(uid).gid(gid);
                }
                let output = command.output().unwrap();
                assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
                String::from_utf8(output.stdout).unwrap()
            };
            let said = run(&format!("mkfs -t {format} --size 128M {image}"));
            assert!(said.contains(&format!("Owner:       {uid}:{gid}, of the root directory")), "{said}");
            run(&format!("mkdir {image} /dir"));
            for path in ["/", "/dir"] {
                let stat = &bench.json(&format!("stat --json {image} {path}"))["files"][0];
                assert_eq!((&stat["uid"], &stat["gid"]), (&uid.into(), &gid.into()), "{image} {path}");
            }
            run(&format!("mkfs -q -f -t {format} --size 128M --owner 7:8 {image}"));
            let stat = &bench.json(&format!("stat --json {image} /"))["files"][0];
            assert_eq!((&stat["uid"], &stat["gid"]), (&7.into(), &8.into()));
        }
    }
    // With --rootdir the owner is that of the source directory.
    fs::create_dir(bench.path("src")).unwrap();
    let from = fs::metadata(bench.path("src")).unwrap();
    bench.ok("mkfs -q --rootdir src a.img");
    assert_eq!(bench.json("stat --json a.img /")["files"][0]["uid"], from.uid());
}
