//! `spinney backup` to objects, and `spinney restore` from them: a directory in the place of S3.

use serde_json::{Value, json};

use crate::harness::Bench;

/// Keys for tests, which everybody knows.
const SECRET: &str = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX";
const PUBLIC: &str = "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj";
const BUSY: i32 = 7;
const CORRUPT: i32 = 3;

fn bench() -> Bench {
    let bench = Bench::new();
    bench.fill("src");
    bench.ok("mkfs -q --size 160M a.img");
    bench.ok("subvolume create a.img /home");
    bench.ok("put a.img src/sub src/a.txt src/middle /home");
    std::fs::create_dir(bench.path("objects")).unwrap();
    bench
}

fn objects(bench: &Bench) -> Vec<String> {
    let names = std::fs::read_dir(bench.path("objects")).unwrap();
    names.map(|name| name.unwrap().file_name().into_string().unwrap()).filter(|name| name != ".lock").collect()
}

fn manifest(bench: &Bench) -> Value {
    serde_json::from_slice(&std::fs::read(bench.path("objects/manifest.json")).unwrap()).unwrap()
}

fn assert_restored(bench: &Bench, options: &str) {
    bench.ok("mkfs -q --size 160M b.img");
    bench.ok(&format!("restore -q {options} file://objects b.img /back"));
    bench.ok("get -q b.img /back out");
    for name in ["a.txt", "middle", "sub/large"] {
        let [expected, found] = ["src", "out"].map(|dir| std::fs::read(bench.path(dir).join(name)).unwrap());
        assert!(expected == found, "{name}");
    }
}

#[test]
fn states_go_to_objects_and_come_back() {
    let bench = bench();
    bench.ok("backup -q --object-size 64K --time 1795564800 a.img /home file://objects");
    bench.ok("mv a.img /home/a.txt /home/b.txt");
    let second = bench.json("backup --json --time 1795568400 a.img /home file://objects");
    assert_eq!(second["actions"][1]["parent"], "home.2026-11-25T000000Z", "{second}");
    bench.ok("mv a.img /home/b.txt /home/a.txt");
    bench.ok("backup -q --time 1795572000 a.img:/home file://objects");
    assert_eq!(bench.ok("restore --list file://objects").lines().count(), 3);
    let found = bench.json("restore --verify=100 --json file://objects");
    assert_eq!((&found["states"], &found["faults"], &found["read"]), (&json!(3), &json!([]), &found["objects"]));
    assert_restored(&bench, "");
    // There is no claim afterwards.
    assert_eq!(manifest(&bench)["writer"], Value::Null);

    let lost = objects(&bench).into_iter().find(|name| name.ends_with(".00000003")).unwrap();
    std::fs::remove_file(bench.path("objects").join(&lost)).unwrap();
    let run = bench.run("restore --verify=0 file://objects");
    assert_eq!(run.status, CORRUPT);
    let said = String::from_utf8(run.out).unwrap();
    assert!(said.contains(&format!("{lost}: is missing")), "{said}");
}

#[test]
fn encrypted_states_are_opened_by_their_key() {
    let bench = bench();
    bench.ok(&format!("backup -q --encrypt {PUBLIC} a.img /home file://objects"));
    std::fs::write(bench.path("key.txt"), format!("# a key\n{SECRET}\n")).unwrap();
    assert_restored(&bench, "--identity key.txt");
    let refused = bench.run("restore -q file://objects b.img /again");
    assert!(refused.status != 0 && refused.err.contains("an identity is needed"), "{}", refused.err);
    let plain = bench.run("backup -q a.img /home file://objects");
    assert!(plain.status != 0 && plain.err.contains("its states are encrypted"), "{}", plain.err);
    let wrong = bench.run("backup -q --encrypt age1x a.img /home file://objects");
    assert!(wrong.status == 2 && wrong.err.contains("--encrypt"), "{}", wrong.err);
}

/// A writer of another host may still run; one of this host that is gone does not.
#[test]
fn a_claim_of_another_host_is_kept_until_it_is_taken_over() {
    let bench = bench();
    bench.ok("backup -q a.img /home file://objects");
    let path = bench.path("objects/manifest.json");
    let claim = |host: &str, boot: &str| {
        let mut manifest = manifest(&bench);
        manifest["writer"] = json!({
            "host": host, "boot": boot, "process": "999999999/1", "since": "2026-11-25T000000Z", "run": "00".repeat(8),
        });
        std::fs::write(&path, manifest.to_string()).unwrap();
    };
    let line_of = |path: &str| std::fs::read_to_string(path).unwrap().trim().to_owned();
    claim("elsewhere", "x");
    let run = bench.run("backup -q a.img /home file://objects");
    assert_eq!(run.status, BUSY);
    assert!(run.err.contains("process 999999999 of elsewhere, since 2026-11-25T000000Z"), "{}", run.err);
    bench.ok("backup -q --take-over a.img /home file://objects");
    claim(&line_of("/proc/sys/kernel/hostname"), &line_of("/proc/sys/kernel/random/boot_id"));
    bench.ok("backup -q a.img /home file://objects");
    assert_eq!(manifest(&bench)["writer"], Value::Null);
}

#[test]
fn places_and_options_that_do_not_fit_are_refused() {
    let bench = bench();
    for (line, words) in [
        ("backup -q a.img /home file://nowhere", "nowhere"),
        ("backup -q --take-over a.img /home objects", "--take-over"),
        ("backup -q a.img /home http://127.0.0.1:9/x#timeout=1", "127.0.0.1:9/x/manifest.json"),
        ("backup -q a.img /home http://me:pw@127.0.0.1/x", "password"),
        ("restore --verify objects", "--verify"),
        ("restore --verify=200 file://objects", "200"),
    ] {
        let run = bench.run(line);
        assert!(run.status != 0 && run.err.contains(words), "{line}: {}", run.err);
    }
}
