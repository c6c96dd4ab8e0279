//! `spinney backup` and `spinney restore`: the states that they make, keep, delete and refuse.

use std::path::Path;

use serde_json::Value;

use crate::harness::Bench;

/// 2026-11-25, 00:00 UTC.
const DAY: i64 = 1_795_564_800;

/// An image with a subvolume, and an empty one.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.fill("src");
    bench.ok("mkfs -q --size 160M a.img");
    bench.ok("mkfs -q --size 160M b.img");
    bench.ok("subvolume create a.img /home");
    bench.ok("put a.img src/sub src/a.txt src/sparse src/middle /home");
    bench
}

fn backup(bench: &Bench, hours: i64, line: &str) -> Value {
    bench.json(&format!("backup --json --time {} {line}", DAY + hours * 3600))
}

/// The states with this action on this side.
fn done(report: &Value, action: &str, side: &str) -> Vec<String> {
    let actions = report["actions"].as_array().unwrap().iter();
    let found = actions.filter(|found| found["action"] == action && found["side"] == side);
    found.map(|found| found["state"].as_str().unwrap().to_owned()).collect()
}

fn states(bench: &Bench, from: &str) -> Vec<String> {
    let list = bench.json(&format!("restore --list --json {from}"));
    list["states"].as_array().unwrap().iter().map(|state| state["state"].as_str().unwrap().to_owned()).collect()
}

/// The error output of a command that must fail.
fn refused(bench: &Bench, line: &str) -> String {
    let run = bench.run(line);
    assert!(run.status != 0, "{line} succeeds");
    run.err
}

fn at(hour: i64) -> String {
    format!("home.2026-11-{:02}T{:02}0000Z", 25 + hour / 24, hour % 24)
}

/// Asserts that a path of an image has the contents of the subvolume.
fn assert_restored(bench: &Bench, image: &str, path: &str) {
    let out = format!("out-{}", path.trim_start_matches('/'));
    bench.ok(&format!("get {image} {path} {out}"));
    for name in ["a.txt", "middle", "sparse", "sub/large", "sub/deep/file-599"] {
        let [expected, found] = ["src", &out].map(|dir| std::fs::read(bench.path(dir).join(name)).unwrap());
        assert!(expected == found, "{name}");
    }
}

/// Subvolumes of the second image.
fn subvolume_count(bench: &Bench) -> usize {
    bench.json("subvolume list --json b.img")["subvolumes"].as_array().unwrap().len()
}

#[test]
fn states_go_to_another_image_and_come_back() {
    let bench = bench();
    let first = backup(&bench, 0, "a.img /home b.img");
    assert_eq!(done(&first, "send", "destination"), [at(0)]);
    assert_eq!(done(&first, "verify", "destination"), [at(0)]);
    let whole = first["actions"][1]["bytes"].as_u64().unwrap();
    bench.ok("mv a.img /home/a.txt /home/b.txt");
    let second = backup(&bench, 1, "a.img /home b.img");
    assert_eq!(second["actions"][1]["parent"], at(0));
    assert!(second["actions"][1]["bytes"].as_u64().unwrap() < whole / 10);
    assert_eq!(states(&bench, "b.img"), [at(0), at(1)]);
    bench.ok(&format!("restore --state {} b.img a.img /back", at(0)));
    assert_restored(&bench, "a.img", "/back");
    bench.ok("restore b.img a.img /newest");
    assert_eq!(bench.ok("cat a.img /newest/b.txt"), "hello\n");
    assert_eq!(bench.ok("ls a.img /").lines().filter(|line| line.contains("restoring")).count(), 0);
    let run = bench.run("restore b.img a.img /newest");
    assert_eq!(run.status, 1, "{}", run.err);
    // A backup finds its parents again among restored states.
    bench.check("a.img");
    bench.check("b.img");
}

#[test]
fn a_rule_lets_states_go_on_both_sides() {
    let bench = bench();
    for hour in 0..6 {
        let report = backup(&bench, hour, "--keep hourly=2 a.img /home b.img");
        let gone: Vec<String> = (hour >= 2).then(|| at(hour - 2)).into_iter().collect();
        assert_eq!(done(&report, "delete", "source"), gone);
        assert_eq!(done(&report, "delete", "destination"), gone);
    }
    backup(&bench, 30, "--keep daily=2 a.img /home b.img");
    assert_eq!(states(&bench, "b.img"), [at(5), at(30)]);
    let trial = backup(&bench, 31, "--dry-run --keep daily=1 a.img /home b.img");
    assert_eq!(done(&trial, "delete", "source"), [at(5), at(30)]);
    assert_eq!(states(&bench, "b.img"), [at(5), at(30)]);
    bench.check("a.img");
    bench.check("b.img");
}

#[test]
fn a_backup_that_was_cut_short_is_finished_by_the_next() {
    let bench = bench();
    backup(&bench, 0, "a.img /home b.img");
    // The snapshots were made but not sent, except a part of the last.
    bench.ok("mkdir a.img /home/new");
    for hour in [1, 2] {
        bench.ok(&format!("subvolume snapshot -r a.img /home /.spinney-backups/{}", at(hour)));
    }
    let parent = format!("/.spinney-backups/{}", at(0));
    bench.ok(&format!("send --proto 2 --compressed-data -p {parent} -f s a.img /.spinney-backups/{}", at(2)));
    let stream = std::fs::read(bench.path("s")).unwrap();
    std::fs::write(bench.path("s"), &stream[..stream.len() - 20]).unwrap();
    assert_eq!(bench.run("receive --resume -f s b.img").status, 1);
    // And a partial receive of a state that no longer exists.
    bench.ok("subvolume create b.img /home.2026-11-24T000000Z.receiving");
    let report = backup(&bench, 3, "a.img /home b.img");
    assert_eq!(done(&report, "delete", "source"), [at(1)]);
    assert_eq!(done(&report, "send", "destination"), [at(2), at(3)]);
    assert_eq!(done(&report, "clear", "destination"), ["home.2026-11-24T000000Z.receiving"]);
    assert_eq!(states(&bench, "b.img"), [at(0), at(2), at(3)]);
    let list = bench.json("subvolume list --json b.img");
    assert_eq!(list["subvolumes"].as_array().unwrap().len(), 3);
    bench.check("b.img");
}

#[test]
fn streams_in_a_directory_build_on_each_other() {
    let bench = bench();
    std::fs::create_dir(bench.path("d")).unwrap();
    backup(&bench, 0, "a.img /home d");
    bench.ok("mkdir a.img /home/new");
    backup(&bench, 1, "a.img /home d");
    bench.ok("rm -r a.img /home/new");
    // The last stream depends on the others, so none can be deleted.
    let report = backup(&bench, 2, "--keep last=1 a.img /home d");
    assert!(done(&report, "delete", "destination").is_empty());
    assert_eq!(done(&report, "delete", "source"), [at(0), at(1)]);
    bench.ok("restore d b.img /back");
    assert_restored(&bench, "b.img", "/back");
    // The state stays beside it, for the next backup.
    assert_eq!(subvolume_count(&bench), 2);
    // An interrupted backup leaves a stream that is not in the manifest, and a partial one.
    let stray = format!("{}.{}.stream", at(3), "00".repeat(16));
    std::fs::write(bench.path("d").join(&stray), "x").unwrap();
    std::fs::write(bench.path("d").join(format!("{stray}.partial")), "x").unwrap();
    std::fs::write(bench.path("d").join("notes.txt"), "mine").unwrap();
    let report = backup(&bench, 4, "--full --keep last=1 a.img /home d");
    assert_eq!(done(&report, "clear", "destination").len(), 2);
    assert_eq!(done(&report, "delete", "destination"), [at(0), at(1), at(2)]);
    let mut names: Vec<_> =
        std::fs::read_dir(bench.path("d")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 3, "{names:?}");
    bench.ok("restore d b.img /again");
    assert_restored(&bench, "b.img", "/again");
    bench.check("b.img");
}

/// The files of the streams in a directory, the oldest first.
fn streams(dir: &Path) -> Vec<std::path::PathBuf> {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut streams: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "stream")).collect();
    streams.sort();
    streams
}

#[test]
fn a_directory_that_lies_is_refused_by_name() {
    let bench = bench();
    std::fs::create_dir(bench.path("d")).unwrap();
    for hour in [0, 1] {
        backup(&bench, hour, "a.img /home d");
        bench.ok("mkdir -p a.img /home/new");
    }
    let dir = bench.path("d");
    let [first, second] = streams(&dir).try_into().unwrap();
    let (one, two) = (std::fs::read(&first).unwrap(), std::fs::read(&second).unwrap());
    let refused = |expected: &str| {
        let run = bench.run("restore d b.img /back");
        assert_ne!(run.status, 0);
        assert!(run.err.contains(expected), "{expected}: {}", run.err);
        assert_eq!(subvolume_count(&bench), 0, "{expected}");
    };
    // Streams that are swapped, damaged, truncated, longer, a link, missing.
    std::fs::write(&first, &two).unwrap();
    refused("its length: expected");
    let mut changed = one.clone();
    changed[1000] ^= 1;
    std::fs::write(&first, &changed).unwrap();
    refused("expected checksum");
    std::fs::write(&first, &one[..one.len() - 10]).unwrap();
    refused("its length: expected");
    std::fs::remove_file(&first).unwrap();
    refused("o such file");
    std::os::unix::fs::symlink("/etc/passwd", &first).unwrap();
    refused("symbolic link");
    std::fs::remove_file(&first).unwrap();
    std::fs::write(&first, &one).unwrap();
    // A manifest with wrong entries.
    let manifest = dir.join("manifest.json");
    let right = std::fs::read_to_string(&manifest).unwrap();
    let parsed: Value = serde_json::from_str(&right).unwrap();
    let lie = |change: &dyn Fn(&mut Value), expected: &str| {
        let mut lying = parsed.clone();
        change(&mut lying["streams"]);
        std::fs::write(&manifest, lying.to_string()).unwrap();
        refused(expected);
    };
    lie(&|streams| streams[0]["file"] = "../a.img".into(), "its file: expected");
    lie(&|streams| streams[0]["digest"] = "00".repeat(32).into(), "its digest: expected");
    lie(&|streams| streams[1]["parent"] = Value::Null, "it is another stream");
    lie(&|streams| streams[0]["bytes"] = 5.into(), "its length: expected 5");
    lie(&|streams| drop(streams.as_array_mut().unwrap().remove(0)), "does not come before it");
    lie(&|streams| streams.as_array_mut().unwrap().reverse(), "does not come before it");
    std::fs::write(&manifest, &right).unwrap();
    bench.ok("restore d b.img /back");
    assert_restored(&bench, "b.img", "/back");
}

#[test]
fn the_standard_output_gets_a_whole_stream() {
    let bench = bench();
    let run = bench.run(&format!("backup --time {DAY} a.img /home -"));
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(run.err.contains("snapshot home.2026-11-25T000000Z"), "{}", run.err);
    std::fs::write(bench.path("s"), &run.out).unwrap();
    bench.ok("receive -f s b.img");
    bench.ok(&format!("subvolume snapshot b.img /{} /back", at(0)));
    assert_restored(&bench, "b.img", "/back");
}

#[test]
fn what_makes_no_sense_is_told() {
    let bench = bench();
    for (line, code, said) in [
        ("backup a.img /home nothing", 1, "nothing"),
        ("backup --keep never=1 a.img /home b.img", 2, "never=1"),
        ("backup --name a/b a.img /home b.img", 2, "a/b"),
        ("backup src /home b.img", 1, "a directory, but in no mount"),
        ("backup a.img /home/sub b.img", 1, "/home/sub"),
        ("restore b.img a.img /back", 1, "no states"),
        ("restore --state home.x b.img a.img /back", 1, "no state home.x"),
        ("restore b.img", 2, "required"),
    ] {
        let run = bench.run(line);
        assert_eq!(run.status, code, "{line}: {}", run.err);
        assert!(run.err.contains(said), "{line}: {}", run.err);
    }
}

#[test]
fn nothing_builds_on_a_stream_that_was_lost() {
    let bench = bench();
    std::fs::create_dir(bench.path("streams")).unwrap();
    let at_hour = |hour| backup(&bench, hour, "a.img /home streams");
    at_hour(0);
    at_hour(1);
    let all = streams(&bench.path("streams"));
    std::fs::remove_file(&all[1]).unwrap();
    bench.ok("rm a.img /home/a.txt");
    bench.ok("put a.img src/a.txt /home");
    // The next one builds on the one before, and so can be restored.
    let third = at_hour(2);
    let actions = third["actions"].as_array().unwrap();
    let sent = actions.iter().find(|action| action["action"] == "send").unwrap();
    assert_eq!((sent["state"].as_str(), sent["parent"].as_str()), (Some(&*at(2)), Some(&*at(0))));
    bench.ok("restore streams b.img /home");
    assert_restored(&bench, "b.img", "/home");
    // An incomplete stream cannot be restored, and its state is not deleted in the source.
    let all = streams(&bench.path("streams"));
    let cut = std::fs::File::options().write(true).open(&all[0]).unwrap();
    cut.set_len(cut.metadata().unwrap().len() - 5).unwrap();
    let fourth = at_hour(3);
    assert!(done(&fourth, "delete", "source").is_empty(), "{fourth}");
    let told = refused(&bench, &format!("restore --state {} streams b.img /again", at(2)));
    assert!(told.contains("length"), "{told}");
    bench.ok("restore streams b.img /again");
    assert_restored(&bench, "b.img", "/again");
}

#[test]
fn streams_without_their_manifest_are_not_deleted() {
    let bench = bench();
    let dir = bench.path("streams");
    std::fs::create_dir(&dir).unwrap();
    backup(&bench, 0, "a.img /home streams");
    let older = std::fs::read(dir.join("manifest.json")).unwrap();
    backup(&bench, 1, "a.img /home streams");
    backup(&bench, 2, "a.img /home streams");
    let newest = std::fs::read(dir.join("manifest.json")).unwrap();
    std::fs::remove_file(dir.join("manifest.json")).unwrap();
    let told = refused(&bench, "backup a.img /home streams");
    assert!(told.contains("no manifest.json"), "{told}");
    std::fs::write(dir.join("manifest.json"), older).unwrap();
    let told = refused(&bench, "backup a.img /home streams");
    assert!(told.contains("does not tell of"), "{told}");
    assert_eq!(streams(&dir).len(), 3);
    std::fs::write(dir.join("manifest.json"), newest).unwrap();
    backup(&bench, 3, "a.img /home streams");
    assert_eq!(streams(&dir).len(), 4);
}

#[test]
fn two_subvolumes_do_not_share_a_name() {
    let bench = bench();
    bench.ok("mkdir a.img /bob");
    bench.ok("subvolume create a.img /bob/home");
    bench.ok("mkfs -q --size 160M c.img");
    bench.ok("subvolume create c.img /home");
    backup(&bench, 0, "--keep last=1 a.img /home b.img");
    for line in ["a.img /bob/home b.img", "c.img /home b.img"] {
        let told = refused(&bench, &format!("backup --keep last=1 {line}"));
        assert!(told.contains("--name") && told.contains("home"), "{told}");
    }
    assert_eq!(states(&bench, "b.img"), [at(0)]);
    backup(&bench, 1, "--name bob --keep last=1 a.img /bob/home b.img");
    // The backup must not delete a snapshot of another subvolume made by the user.
    bench.ok("subvolume snapshot -r a.img /bob/home /.spinney-backups/home.2002-01-01T000000Z");
    let report = backup(&bench, 2, "--keep last=1 a.img /home b.img");
    assert_eq!(done(&report, "delete", "source"), [at(0)]);
    // A subvolume that was rolled back keeps its backups.
    bench.ok("subvolume snapshot -r a.img /home /good");
    bench.ok("subvolume delete a.img /home");
    bench.ok("subvolume snapshot a.img /good /home");
    backup(&bench, 3, "a.img /home b.img");
    // A restored subvolume is a new one, and backups continue with it.
    bench.ok("mv a.img /home /broken");
    bench.ok("restore --name home b.img a.img /home");
    refused(&bench, "backup a.img /home b.img");
    backup(&bench, 4, "--adopt a.img /home b.img");
    backup(&bench, 5, "--keep last=1 a.img /home b.img");
    assert_eq!(states(&bench, "b.img").last(), Some(&at(5)));
}

/// Bytes of the stream, and the state that it builds on, of a backup that sends one.
fn sent(report: &Value) -> (u64, Value) {
    let sent = report["actions"].as_array().unwrap().iter().find(|action| action["action"] == "send").unwrap();
    (sent["bytes"].as_u64().unwrap(), sent["parent"].clone())
}

#[test]
fn a_backup_after_a_restoration_sends_what_differs() {
    let bench = bench();
    std::fs::create_dir(bench.path("d")).unwrap();
    std::fs::write(bench.path("small"), "small").unwrap();
    for dest in ["b.img", "d"] {
        bench.ok("mkfs -q -f --size 160M a.img");
        bench.ok("subvolume create a.img /home");
        bench.ok("put a.img src/middle src/sub/large src/a.txt src/sparse src/sub /home");
        backup(&bench, 0, &format!("a.img /home {dest}"));
        bench.ok("mkdir a.img /home/later");
        let whole = sent(&backup(&bench, 1, &format!("--full a.img /home {dest}"))).0;
        // The disk is lost: another one gets the state, and an older one beside it.
        bench.ok("mkfs -q -f --size 160M c.img");
        bench.ok(&format!("restore {dest} c.img /home"));
        bench.ok("put c.img small /home/");
        let (bytes, parent) = sent(&backup(&bench, 2, &format!("--adopt c.img /home {dest}")));
        assert!(bytes < whole / 100 && parent == at(1), "{dest}: {bytes} of {whole}, {parent}");
        assert_restored(&bench, "c.img", "/home");
        std::fs::remove_dir_all(bench.path("out-home")).unwrap();
        bench.check("c.img");
        // Only the subvolume is lost: the restored one shares extents with its states.
        bench.ok("subvolume delete a.img /home");
        let before = used(&bench, "a.img");
        bench.ok(&format!("restore --state {} {dest} a.img /home", at(1)));
        assert!(used(&bench, "a.img") < before + 500_000, "{dest}: restored from the existing states");
        bench.ok("put a.img small /home/other");
        let (bytes, parent) = sent(&backup(&bench, 3, &format!("--adopt a.img /home {dest}")));
        assert!(bytes < whole / 100 && parent == at(1), "{dest}: {bytes} of {whole}, {parent}");
        bench.check("a.img");
        // Without the state there is no parent, as requested.
        bench.ok("mkfs -q -f --size 160M c.img");
        bench.ok(&format!("restore --no-snapshot --state {} {dest} c.img /home", at(0)));
        assert_eq!(bench.json("subvolume list --json c.img")["subvolumes"].as_array().unwrap().len(), 1);
        // A newer state is sent as the difference from an older one that exists.
        bench.ok("mkfs -q -f --size 160M c.img");
        bench.ok(&format!("restore --state {} {dest} c.img /old", at(1)));
        let before = used(&bench, "c.img");
        bench.ok(&format!("restore --state {} {dest} c.img /new", at(2)));
        assert!(used(&bench, "c.img") < before + 500_000, "{dest}: as a difference");
        assert_eq!(bench.ok("cat c.img /new/small"), "small");
    }
}

fn used(bench: &Bench, image: &str) -> u64 {
    bench.json(&format!("info --json {image}"))["used_bytes"].as_u64().unwrap()
}

#[test]
fn a_state_that_was_changed_is_none_of_the_backup_any_more() {
    let bench = bench();
    backup(&bench, 0, "a.img /home b.img");
    bench.ok("mkdir a.img /home/new");
    backup(&bench, 1, "a.img /home b.img");
    crate::receive::change(&bench, "b.img", &at(1), "a.txt");
    let run = bench.run_words(&["backup", "--json", "--time", &(DAY + 7200).to_string(), "a.img", "/home", "b.img"]);
    assert_eq!(run.status, 0, "{}", run.err);
    assert!(run.err.contains(&format!("/{}: was changed after it was received", at(1))), "{}", run.err);
    let report: Value = serde_json::from_slice(&run.out).unwrap();
    assert_eq!(sent(&report).1, at(0), "{report}");
    assert!(refused(&bench, &format!("restore --state {} b.img a.img /x", at(1))).contains("was changed"));
    assert!(!states(&bench, "b.img").contains(&at(1)));
    // And a state of the source.
    crate::receive::change(&bench, "a.img", &format!(".spinney-backups/{}", at(2)), "a.txt");
    let run = bench.run_words(&["backup", "--json", "--time", &(DAY + 10_800).to_string(), "a.img", "/home", "b.img"]);
    assert!(run.status == 0 && run.err.contains("was changed since it was made"), "{} {}", run.status, run.err);
    let report: Value = serde_json::from_slice(&run.out).unwrap();
    assert_eq!(sent(&report).1, at(0), "{report}");
}

#[test]
fn what_was_received_itself_is_backed_up_under_its_own_name_once_it_was_changed() {
    let bench = bench();
    bench.ok("subvolume snapshot -r a.img /home /s");
    bench.ok("send -f s.stream a.img /s");
    bench.ok("receive -f s.stream b.img");
    crate::receive::change(&bench, "b.img", "s", "a.txt");
    bench.ok("mkfs -q --size 160M c.img");
    backup(&bench, 0, "--name home b.img /s c.img");
    bench.ok("restore c.img a.img /back");
    assert_eq!(bench.ok("cat a.img /back/a.txt"), "changed");
}
