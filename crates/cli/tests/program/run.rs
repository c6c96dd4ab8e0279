//! `spinney run`: commands in forks of a mount.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::harness::Bench;
use crate::mounted::{Mounted, can_mount};

/// A mount with the subvolume `base`, and a directory `work`.
fn mounted() -> Option<Mounted> {
    let mounted = Mounted::mount_if_possible("")?;
    mounted.bench.ok("subvolume create mnt/base");
    fs::write(mounted.dir().join("base/text"), "1\n").unwrap();
    fs::create_dir(mounted.bench.path("work")).unwrap();
    fs::write(mounted.bench.path("outside"), "outside").unwrap();
    let can = run(&mounted.bench, "--discard --at work", "true").status.success();
    if !can {
        println!("SKIPPED: the kernel forbids namespaces here");
    }
    can.then_some(mounted)
}

fn run(bench: &Bench, options: &str, script: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spinney"));
    command.args(["run", "--base", "mnt/base"]).args(options.split_whitespace());
    command.args(["--", "sh", "-c", script]).current_dir(&bench.dir).output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn forks(bench: &Bench) -> usize {
    bench.json("fork list --json mnt")["forks"].as_array().unwrap().len()
}

#[test]
fn a_command_changes_the_fork_and_nothing_else() {
    let Some(mounted) = mounted() else { return };
    let bench = &mounted.bench;
    let script = "cd work && echo 2 >> text && echo new > new && touch ../outside; echo x > ../outside; \
                  echo x > ../mnt/base/text; cat text; exit 7";
    let ended = run(bench, "--keep --at work", script);
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    assert_eq!(ended.stdout, b"1\n2\n");
    let said = error(&ended);
    assert!(said.contains("M text") && said.contains("+ new  4 B") && said.contains("kept as"), "{said}");
    assert_eq!(fs::read(bench.path("outside")).unwrap(), b"outside");
    assert_eq!(fs::read(mounted.dir().join("base/text")).unwrap(), b"1\n");
    assert_eq!(fs::read_dir(bench.path("work")).unwrap().count(), 0);
    assert_eq!(forks(bench), 1);
}

#[test]
fn a_command_begins_where_its_caller_is_in_the_base() {
    let Some(mounted) = mounted() else { return };
    fs::create_dir(mounted.dir().join("base/inner")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_spinney"));
    command.args(["run", "--discard", "--base"]).arg(mounted.dir().join("base"));
    command.arg("--at").arg(mounted.bench.path("work")).args(["--", "sh", "-c", "pwd; touch here; ls .."]);
    let ended = command.current_dir(mounted.dir().join("base/inner")).output().unwrap();
    let expected = format!("{}\ninner\ntext\n", mounted.bench.path("work/inner").display());
    assert_eq!(String::from_utf8_lossy(&ended.stdout), expected, "{}", error(&ended));
    assert!(error(&ended).contains("+ inner/here"), "{}", error(&ended));

    // Never elsewhere: the command may remove what is around it.
    mounted.bench.ok("subvolume create mnt/base/apart");
    fs::create_dir(mounted.dir().join("base/apart/dir")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_spinney"));
    command.args(["run", "--discard", "--base"]).arg(mounted.dir().join("base"));
    command.arg("--at").arg(mounted.bench.path("work")).args(["--", "sh", "-c", "pwd"]);
    let ended = command.current_dir(mounted.dir().join("base/apart/dir")).output().unwrap();
    assert_eq!((ended.status.code(), ended.stdout.len()), (Some(125), 0), "{}", error(&ended));
}

#[test]
fn a_fork_is_dropped_merged_or_kept_as_asked() {
    let Some(mounted) = mounted() else { return };
    let bench = &mounted.bench;
    let base = mounted.dir().join("base");
    run(bench, "--discard --at work", "echo dropped > work/a");
    // Nothing changed.
    run(bench, "--keep --at work", "true");
    assert_eq!((forks(bench), base.join("a").exists()), (0, false));
    assert!(run(bench, "--merge --at work", "echo merged > work/b").status.success());
    assert_eq!((forks(bench), fs::read(base.join("b")).unwrap()), (0, b"merged\n".to_vec()));
    assert!(!run(bench, "--merge --at work", "echo failed > work/c; false").status.success());
    assert_eq!((forks(bench), base.join("c").exists()), (1, false));
    // Without a terminal and an option it is kept.
    run(bench, "--at work", "echo kept > work/d");
    assert_eq!(forks(bench), 2);
    let missing = Command::new(env!("CARGO_BIN_EXE_spinney"))
        .args(["run", "--base", "mnt/base", "--at", "work", "--", "no-such-program"])
        .current_dir(&bench.dir)
        .output();
    assert_eq!(missing.unwrap().status.code(), Some(127));
    let killed = run(bench, "--discard --at work", "kill -9 $$");
    assert_eq!(killed.status.code(), Some(137));
    mounted.unmount();
    mounted.check_and_mount_again();
}

#[test]
fn things_are_hidden_and_the_network_is_gone() {
    let Some(mounted) = mounted() else { return };
    let bench = &mounted.bench;
    fs::create_dir(bench.path("secret")).unwrap();
    fs::write(bench.path("secret/key"), "key").unwrap();
    let hidden = run(bench, "--discard --at work --hide secret --hide outside", "ls secret; cat outside");
    assert_eq!(hidden.stdout, b"", "{hidden:?}");
    let links = run(bench, "--discard --at work --no-network", "grep -c : /proc/net/dev");
    assert_eq!(links.stdout, b"1\n", "{links:?}");
}

/// The fork as the root directory: with this machine's programs copied into it.
#[test]
fn a_fork_is_the_root_directory() {
    let Some(mounted) = mounted() else { return };
    let (bench, base) = (&mounted.bench, mounted.dir().join("base"));
    let Ok(libraries) = Command::new("ldd").arg("/bin/sh").output() else {
        return println!("SKIPPED: needs ldd");
    };
    let text = String::from_utf8_lossy(&libraries.stdout).into_owned();
    let paths = text.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned);
    for path in paths.chain(["/bin/sh".to_owned()]) {
        let to = base.join(path.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(path, to).unwrap();
    }
    for dir in ["dev", "proc", "etc"] {
        fs::create_dir_all(base.join(dir)).unwrap();
    }
    // A link that would lead the mount of a system directory outside.
    std::os::unix::fs::symlink(bench.dir.path(), base.join("sys")).unwrap();
    let script = "echo in > /made; read line < /text; echo $line; [ -e /outside ] || echo no outside; echo > /dev/null";
    let ended = run(bench, "--keep", script);
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "1\nno outside\n", "{}", error(&ended));
    assert!(error(&ended).contains("+ made  3 B"), "{}", error(&ended));
    assert!(!base.join("made").exists() && !Path::new("/made").exists());
    // A bound directory needs a place in the fork.
    let refused = run(bench, "--discard --ro-bind /usr/share/none", "true");
    assert_eq!(refused.status.code(), Some(125), "{refused:?}");
}

/// As a user without rights, where this is run by root.
#[test]
fn a_user_runs_commands_in_forks_of_his_own_mount() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: this needs root, to become another user");
    }
    let bench = Bench::new();
    fs::set_permissions(bench.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let script = "spinney mkfs -q --size 256M a.img && mkdir mnt work && spinney mount a.img mnt || exit 99
        spinney subvolume create mnt/base && echo 1 > mnt/base/text
        spinney run --base mnt/base --merge --at work -- sh -c 'id -u; cd work && echo 2 >> text; echo x > ../outside'
        spinney run --base mnt/base --merge --at work -- sh -c 'echo 3 >> work/text'
        cat mnt/base/text; ls; spinney umount mnt";
    let program = Path::new(env!("CARGO_BIN_EXE_spinney"));
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(&bench.dir).uid(1000).gid(1000).env("PATH", path);
    let ended = command.output().unwrap();
    if matches!(ended.status.code(), Some(99 | 126 | 127)) || error(&ended).contains("namespaces") {
        return println!("SKIPPED: a user cannot mount, or use namespaces, here: {}", error(&ended));
    }
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert_eq!(said, "1000\n1\n3\na.img\nmnt\nwork\n", "{}", error(&ended));
}
