//! `spinney fork`, on an image and on a mount.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use serde_json::json;

use crate::harness::Bench;
use crate::mounted::{Mounted, can_mount_as_root};

fn image() -> Bench {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    bench.ok("subvolume create a.img /base");
    fs::write(bench.path("text"), "1\n2\n3\n").unwrap();
    bench.ok("put -q a.img text /base/text");
    bench
}

fn put(bench: &Bench, text: &str, path: &str) {
    fs::write(bench.path("new"), text).unwrap();
    bench.ok(&format!("rm -f a.img {path}"));
    bench.ok(&format!("put -q a.img new {path}"));
}

#[test]
fn a_fork_of_an_image_is_made_looked_at_merged_and_dropped() {
    let bench = image();
    assert_eq!(bench.ok("fork a.img:/base trial"), "/trial\n");
    assert_eq!(bench.ok("fork a.img /trial"), "/trial-1\n");
    assert_eq!(bench.ok("fork --read-only --expires 1d a.img /base /frozen"), "/frozen\n");
    let list = bench.json("fork list --json a.img");
    let rows: Vec<_> =
        list["forks"].as_array().unwrap().iter().map(|one| (&one["path"], &one["base"]["path"])).collect();
    let wanted =
        [json!("/frozen"), json!("/base"), json!("/trial"), json!("/base"), json!("/trial-1"), json!("/trial")];
    assert_eq!(
        rows.iter().flat_map(|(path, base)| [*path, *base]).collect::<Vec<_>>(),
        wanted.iter().collect::<Vec<_>>()
    );
    let tree = bench.ok("fork list a.img");
    let lines: Vec<&str> = tree.lines().map(|line| line.split("  2").next().unwrap()).collect();
    assert_eq!(lines, ["/base", "  /frozen", "  /trial", "    /trial-1"]);
    assert!(tree.contains("read-only  expires"), "{tree}");

    put(&bench, "one\n2\n3\n", "/trial/text");
    put(&bench, "new\n", "/trial/added");
    let status = bench.ok("fork status a.img:/trial");
    assert!(status.contains("+ added\n") && status.contains("M text\n") && !status.contains("- "), "{status}");
    let patch = bench.ok("fork diff a.img:/trial");
    assert!(patch.contains("--- a/text\n+++ b/text\n@@ -1,3 +1,3 @@\n-1\n+one\n 2\n 3\n"), "{patch}");
    assert_eq!(bench.ok("diff --patch a.img /base /trial"), patch);

    put(&bench, "eins\n2\n3\n", "/base/text");
    let run = bench.run("fork merge a.img:/trial");
    assert_eq!(run.status, 1);
    assert!(run.err.contains("1 conflict: nothing was merged"), "{}", run.err);
    assert_eq!(bench.ok("cat a.img /base/text"), "eins\n2\n3\n");
    let merged = bench.json("fork merge --json --strategy theirs a.img:/trial");
    let conflict = json!({"path": "text", "kind": "both changed the contents", "kept": {"path": "text.ours"}});
    assert_eq!((&merged["merged"], &merged["conflicts"]), (&json!(true), &json!([conflict])));
    assert_eq!(bench.ok("cat a.img /base/text /base/added /base/text.ours"), "one\n2\n3\nnew\neins\n2\n3\n");
    assert_eq!(bench.ok("fork merge a.img:/trial"), "nothing to merge\n");

    assert_eq!(bench.run("fork drop a.img:/base").status, 1);
    assert_eq!(bench.ok("fork drop --expired a.img"), "");
    let dropped = bench.json("fork drop --json a.img /trial /trial-1 /frozen");
    assert_eq!(dropped["dropped"].as_array().unwrap().len(), 3);
    assert_eq!(bench.ok("ls a.img /"), "base\n");
    bench.check("a.img");
}

#[test]
fn wrong_forks_are_refused_with_a_reason() {
    let bench = image();
    bench.ok("mkdir a.img /plain");
    for (line, reason) in [
        ("fork a.img /plain x", "not a subvolume"),
        ("fork --limit 1G a.img /base x", "needs quotas"),
        ("fork a.img /base /base", "exists"),
        ("fork a.img /base/../base x", "`..`"),
        ("fork status a.img /base", "not a fork"),
        ("fork merge a.img /base", "not a fork"),
    ] {
        let run = bench.run(line);
        assert_eq!(run.status, 1, "{line}: {}", run.err);
        assert!(run.err.contains(reason), "{line}: {}", run.err);
    }
    assert_eq!(bench.run("fork").status, 2);
    assert_eq!(bench.run("fork --expires soon a.img /base").status, 2);
    bench.ok("quota enable a.img");
    bench.ok("fork --limit 1G a.img /base x");
    assert!(bench.ok("fork list a.img").contains("limit 1.00 GiB"));
    bench.check("a.img");
}

#[test]
fn the_server_of_a_mount_forks_and_merges_for_its_owner() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let bench = &mounted.bench;
    bench.ok("subvolume create mnt/base");
    let dir = mounted.dir();
    fs::write(dir.join("base/text"), "1\n2\n3\n").unwrap();
    let made = bench.ok("fork mnt/base trial");
    assert_eq!(made.trim_end(), dir.canonicalize().unwrap().join("trial").to_str().unwrap());
    assert_eq!(fs::read(dir.join("trial/text")).unwrap(), b"1\n2\n3\n");
    bench.ok("fork mnt/base mnt/other");
    fs::write(dir.join("trial/text"), "1\n2\nthree\n").unwrap();
    fs::write(dir.join("other/text"), "one\n2\n3\n").unwrap();
    // The kernel has looked the names up before the merge.
    assert_eq!(fs::read(dir.join("base/text")).unwrap(), b"1\n2\n3\n");
    assert_eq!(bench.ok("fork status mnt/trial"), "M text\n");
    assert!(bench.ok("fork diff mnt/trial").contains("\n-3\n+three\n"));
    assert_eq!(bench.ok("fork merge --drop mnt/trial"), "1 change merged into /base\n");
    bench.ok("fork merge mnt/other");
    assert_eq!(fs::read(dir.join("base/text")).unwrap(), b"one\n2\nthree\n");
    assert!(!dir.join("trial").exists());
    fs::write(dir.join("base/text"), "again").unwrap();
    bench.ok("fork drop mnt/other");
    assert!(!dir.join("other").exists());
    assert_eq!(bench.ok("fork list mnt"), "");
    mounted.unmount();
    mounted.check_and_mount_again();
    assert_eq!(fs::read(dir.join("base/text")).unwrap(), b"again");
}

/// Another user may neither fork nor merge nor look, even what he owns; and finds the ancestors closed.
#[test]
fn other_users_of_a_mount_are_refused() {
    if !can_mount_as_root() {
        return;
    }
    let mounted = Mounted::mount("-o allow_other");
    let bench = &mounted.bench;
    fs::set_permissions(bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    bench.ok("subvolume create mnt/base");
    chown(mounted.dir().join("base"), Some(1000), Some(1000)).unwrap();
    bench.ok("fork mnt/base trial");
    for line in ["fork mnt/base own", "fork status mnt/trial", "fork merge mnt/trial", "fork drop mnt/trial"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spinney"));
        let run = command.args(line.split(' ')).current_dir(&bench.dir).uid(1000).gid(1000).output();
        let Ok(run) = run else { return println!("SKIPPED: the program cannot be run as another user") };
        if run.status.code().is_none_or(|code| code > 100) {
            return println!("SKIPPED: the program cannot be run as another user");
        }
        let error = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(!run.status.success() && error.contains("ermi"), "{line}: {error}");
    }
    let listed = Command::new("ls").arg(mounted.dir().join(".spinney/forks")).uid(1000).gid(1000).output().unwrap();
    assert!(!listed.status.success());
    assert_eq!(bench.json("fork list --json mnt")["forks"].as_array().unwrap().len(), 1);
}

#[test]
fn a_fork_has_what_was_written_to_open_files_of_a_mount() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let (bench, dir) = (&mounted.bench, mounted.dir());
    bench.ok("subvolume create mnt/base");
    let open = fs::File::create(dir.join("base/open")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&open, &vec![7; 3 << 20], 0).unwrap();
    bench.ok("fork mnt/base trial");
    std::os::unix::fs::FileExt::write_all_at(&open, b"later", 0).unwrap();
    assert!(fs::read(dir.join("trial/open")).unwrap() == vec![7; 3 << 20]);
    assert!(fs::read(dir.join("base/open")).unwrap().starts_with(b"later"));
}
