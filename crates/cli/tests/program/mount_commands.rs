//! Commands on what is mounted: past the kernel, and as if through it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::mounted::Mounted;

const NOBODY: u32 = 65_534;

fn tree(at: &Path) {
    fs::create_dir_all(at.join("a/b")).unwrap();
    fs::write(at.join("a/small"), "small").unwrap();
    fs::write(at.join("a/large"), vec![7; 5 << 20]).unwrap();
    fs::write(at.join("a/b/program"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(at.join("a/b/program"), fs::Permissions::from_mode(0o751)).unwrap();
    std::os::unix::fs::symlink("../small", at.join("a/b/link")).unwrap();
    fs::hard_link(at.join("a/small"), at.join("a/b/second")).unwrap();
    let sparse = fs::File::create(at.join("a/sparse")).unwrap();
    sparse.set_len(3 << 20).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"middle", 1 << 20).unwrap();
}

/// All names beneath a directory, with the output of `stat` and the contents.
fn walk(at: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![at.to_owned()];
    while let Some(path) = todo.pop() {
        let stat = fs::symlink_metadata(&path).unwrap();
        let contents = match stat.file_type() {
            kind if kind.is_file() => {
                use std::hash::{DefaultHasher, Hash as _, Hasher as _};
                let mut hasher = DefaultHasher::new();
                fs::read(&path).unwrap().hash(&mut hasher);
                format!("{} {:x}", stat.nlink(), hasher.finish())
            }
            kind if kind.is_symlink() => format!("{:?}", fs::read_link(&path).unwrap()),
            _ => String::new(),
        };
        let name = path.strip_prefix(at).unwrap().display().to_string();
        found.push(format!("{name} {:o} {} {contents}", stat.mode(), stat.mtime_nsec()));
        if stat.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found.sort();
    found
}

#[test]
fn a_tree_goes_in_and_out_beside_the_kernel() {
    for options in ["", "-o writeback", "-o zero_open", "-o nosynced,workers=1"] {
        let Some(mounted) = Mounted::mount_if_possible(options) else { return };
        let (bench, dir) = (&mounted.bench, mounted.dir());
        tree(&bench.path("source"));
        // The kernel caches that the name does not exist.
        assert!(!dir.join("copy").exists());
        bench.ok("put mnt source/a copy");
        assert_eq!(walk(&dir.join("copy")), walk(&bench.path("source/a")), "{options}");
        // And existing files.
        bench.ok("rm mnt copy/small");
        assert!(!dir.join("copy/small").exists());
        assert_eq!(fs::metadata(dir.join("copy/b/second")).unwrap().nlink(), 1);
        bench.ok("mv mnt copy/b moved");
        assert!(dir.join("moved/link").symlink_metadata().is_ok() && !dir.join("copy/b").exists());
        fs::write(bench.path("small"), "changed, and longer").unwrap();
        bench.ok("put -f mnt small moved/second");
        assert_eq!(fs::read_to_string(dir.join("moved/second")).unwrap(), "changed, and longer");
        // Data written by programs, including dirty pages of the kernel.
        fs::write(dir.join("written"), "by a program").unwrap();
        assert_eq!(bench.ok("cat mnt written"), "by a program");
        bench.ok("get mnt moved back");
        assert_eq!(walk(&bench.path("back")), walk(&dir.join("moved")), "{options}");
        mounted.unmount();
        bench.check("a.img");
        assert_eq!(bench.ok("cat a.img /written /moved/second"), "by a programchanged, and longer");
    }
}

#[test]
fn paths_of_a_mount_are_taken_as_they_are() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let (bench, dir) = (&mounted.bench, mounted.dir());
    tree(&bench.path("source"));
    bench.ok("put source mnt");
    bench.ok("put source/a/small mnt/source/new");
    bench.ok("put source/a/. mnt/flat");
    assert_eq!(fs::read_to_string(dir.join("source/new")).unwrap(), "small");
    assert!(dir.join("flat/b/program").exists());
    assert_eq!(bench.ok("cat mnt/source/a/small mnt/source/new"), "smallsmall");
    assert_eq!(bench.ok("ls mnt/source"), bench.ok("ls mnt source"));
    bench.ok("mkdir mnt/made mnt/made/deep");
    bench.ok("mv mnt/source/new mnt/made/deep/newer");
    bench.ok("cp -r mnt/made mnt/copied");
    bench.ok("get mnt/copied/deep out");
    assert_eq!(fs::read_to_string(bench.path("out/newer")).unwrap(), "small");
    bench.ok("rm -r mnt/copied mnt/made");
    assert!(!dir.join("made").exists() && !dir.join("copied").exists());
    assert!(bench.ok("stat mnt/source/a/small").contains("small"));
    // A file of this machine and one of a mount are no pair.
    let run = bench.run("mv mnt/source/a/small out/elsewhere");
    assert!(run.status != 0 && dir.join("source/a/small").exists(), "{}", run.err);
    // A relative one from within.
    let mut inside = Command::new(env!("CARGO_BIN_EXE_spinney"));
    let output = inside.args(["cat", "a/small"]).current_dir(dir.join("source")).output().unwrap();
    assert_eq!(output.stdout, b"small");
    mounted.unmount();
    bench.check("a.img");
}

#[test]
fn streams_go_out_of_mounts_and_into_them() {
    let Some(one) = Mounted::mount_if_possible("-o user_subvol_ioctls") else { return };
    let two = Mounted::mount("");
    let (from, to) = (&one.bench, &two.bench);
    tree(&one.dir().join("live"));
    one.unmount();
    from.ok("subvolume snapshot -r a.img / /first");
    from.ok("mount a.img mnt");
    fs::write(one.dir().join("live/a/small"), "changed").unwrap();
    one.unmount();
    from.ok("subvolume snapshot -r a.img / /second");
    from.ok("mount a.img mnt");
    // A negative entry and a listing in the kernel's cache.
    assert!(!two.dir().join("first").exists() && fs::read_dir(two.dir()).unwrap().next().is_none());
    let full = from.path("full");
    from.ok("send -f full mnt /first");
    from.ok("send -f diff -p /first mnt /second");
    assert!(fs::metadata(from.path("diff")).unwrap().len() < fs::metadata(&full).unwrap().len() / 4);
    let json = to.ok(&format!("receive --json -f {} mnt", full.display()));
    assert!(json.contains("\"path\": \"/first\"") || json.contains("\"path\":\"/first\""), "{json}");
    to.ok(&format!("receive -f {} mnt /", from.path("diff").display()));
    assert_eq!(walk(&two.dir().join("first")), walk(&one.dir().join("first")));
    // A subvolume in a snapshot is an empty directory, which no stream has.
    let mut second = walk(&one.dir().join("second"));
    second.retain(|line| !line.starts_with("first "));
    assert_eq!(walk(&two.dir().join("second")), second);
    assert_eq!(fs::read_dir(two.dir()).unwrap().count(), 2);
    // A subvolume that is no snapshot, and a file that is no stream.
    let run = from.run("send -f none mnt /");
    assert!(run.status != 0 && run.err.contains("can be changed"), "{}", run.err);
    let run = to.run("receive -f a.img mnt");
    assert!(run.status != 0 && run.err.contains("stream"), "{}", run.err);
    let cut = fs::read(&full).unwrap();
    fs::write(from.path("cut"), &cut[..cut.len() / 2]).unwrap();
    let run = to.run(&format!("receive --delete-partial -f {} mnt /live-not", from.path("cut").display()));
    assert!(run.status != 0, "{}", run.err);
    one.unmount();
    two.unmount();
    from.check("a.img");
    to.check("a.img");
}

#[test]
fn only_root_and_who_serves_send_and_receive() {
    if !can_be_nobody() {
        return;
    }
    let Some(mounted) = Mounted::mount_if_possible("-o allow_other") else { return };
    fs::set_permissions(mounted.bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(mounted.dir(), fs::Permissions::from_mode(0o777)).unwrap();
    let output = as_nobody(&mounted, "send -f /dev/null mnt /");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("not permitted"), "{text}");
    mounted.unmount();
}

fn as_nobody(mounted: &Mounted, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spinney"));
    command.args(line.split(' ')).current_dir(mounted.bench.dir.path()).uid(NOBODY).gid(NOBODY);
    command.output().unwrap()
}

fn can_be_nobody() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: only root can act as another user");
    }
    is_root
}

#[test]
fn others_may_what_the_kernel_lets_them() {
    if !can_be_nobody() {
        return;
    }
    let Some(mounted) = Mounted::mount_if_possible("-o allow_other") else { return };
    let (bench, dir) = (&mounted.bench, mounted.dir());
    fs::set_permissions(bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    for (name, mode) in [("closed", 0o700), ("open", 0o777), ("sticky", 0o1777)] {
        fs::create_dir(dir.join(name)).unwrap();
        fs::write(dir.join(name).join("of-root"), "text").unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(bench.path("own"), "mine").unwrap();
    for (line, may) in [
        ("ls mnt /", true),
        ("cat mnt /open/of-root", true),
        ("cat mnt /closed/of-root", false),
        ("ls mnt /closed", false),
        ("put mnt own /", false),
        ("put mnt own /closed/own", false),
        ("put mnt own /open/own", true),
        ("put mnt own /sticky/own", true),
        ("rm mnt /sticky/of-root", false),
        ("mv mnt /sticky/of-root /open/stolen", false),
        ("rm mnt /open/of-root", true),
        ("rm mnt /sticky/own", true),
    ] {
        let output = as_nobody(&mounted, line);
        assert_eq!(output.status.success(), may, "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let own = fs::metadata(dir.join("open/own")).unwrap();
    assert_eq!((own.uid(), own.gid()), (NOBODY, NOBODY));
    mounted.unmount();
    bench.check("a.img");
}

#[test]
fn a_mount_for_its_owner_alone_lets_nobody_else_in() {
    if !can_be_nobody() {
        return;
    }
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    fs::set_permissions(mounted.bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(!as_nobody(&mounted, "ls mnt /").status.success());
    mounted.unmount();
}

#[test]
fn what_is_mounted_for_reading_is_not_written() {
    let Some(mounted) = Mounted::mount_if_possible("-o ro") else { return };
    fs::write(mounted.bench.path("own"), "mine").unwrap();
    let run = mounted.bench.run("put mnt own /own");
    assert!(run.status != 0 && run.err.contains("reading only"), "{}", run.err);
    mounted.bench.ok("ls mnt /");
    mounted.unmount();
}

/// Root reaches the same server through a second, read-only mount point.
#[test]
fn each_place_has_its_own_say_about_writing() {
    if !can_be_nobody() {
        return;
    }
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let bench = &mounted.bench;
    fs::create_dir(bench.path("other")).unwrap();
    bench.ok("mount -o ro a.img other");
    fs::write(bench.path("own"), "mine").unwrap();
    let run = bench.run("put other own /own");
    assert!(run.status != 0, "{}", run.err);
    bench.ok("put mnt own /own");
    assert_eq!(bench.ok("cat other /own"), "mine");
    bench.ok("umount other");
    mounted.unmount();
    bench.check("a.img");
}

#[test]
fn who_is_asked_while_it_ends_hears_of_it() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let bench = &mounted.bench;
    fs::write(bench.path("big"), vec![1; 64 << 20]).unwrap();
    let put = |index: u32| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spinney"));
        command.args(["put", "-q", "mnt", "big", &format!("/big{index}")]).current_dir(bench.dir.path());
        command.spawn().unwrap()
    };
    let mut children: Vec<_> = (0..3).map(put).collect();
    std::thread::sleep(std::time::Duration::from_millis(150));
    for pid in mounted.processes("server") {
        crate::mounted::kill(pid, rustix::process::Signal::KILL);
    }
    for child in &mut children {
        assert!(child.wait().is_ok());
    }
    mounted.wait_until_gone();
    bench.check("a.img");
}
