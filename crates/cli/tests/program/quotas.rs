//! `spinney quota` and `spinney qgroup`, limits of a mount, and quotas that the kernel goes on with.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::harness::{Bench, pattern};
use crate::mounted::{KernelMount, Mounted};

/// Numbers of a group: referenced and exclusive bytes.
type Numbers = BTreeMap<String, (u64, u64)>;

/// The groups of a table with these numbers in its first three columns.
fn numbers(table: &str) -> Numbers {
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows = rows.filter_map(|words| match words.as_slice() {
        [id, rfer, excl, ..] if id.contains('/') => Some(((*id).to_owned(), (rfer.parse().ok()?, excl.parse().ok()?))),
        _ => None,
    });
    rows.collect()
}

#[test]
fn groups_are_made_limited_and_shown() {
    let bench = Bench::new();
    bench.ok("mkfs -q --size 256M a.img");
    bench.ok("subvolume create a.img /home");
    let off = bench.run("qgroup show a.img");
    assert!(off.status != 0 && off.err.contains("quotas are off"), "{}", off.err);
    let enabled = bench.json("quota enable --json a.img");
    assert_eq!((enabled["enabled"].as_bool(), enabled["groups"].as_u64()), (Some(true), Some(2)));
    assert!(bench.run("quota enable a.img").err.contains("on already"));
    bench.ok("qgroup create a.img 1/100");
    bench.ok("qgroup assign a.img /home 1/100");
    let limited = bench.json("qgroup limit --json a.img /home 10M");
    assert_eq!((limited["id"].as_str(), limited["max_referenced"].as_u64()), (Some("0/256"), Some(10 << 20)));
    bench.ok("qgroup limit -e a.img 1/100 20M");
    let shown = bench.json("qgroup show --json a.img");
    assert_eq!((shown["enabled"].as_bool(), shown["inconsistent"].as_bool()), (Some(true), Some(false)));
    let parent = &shown["groups"][2];
    assert_eq!((parent["id"].as_str(), parent["max_exclusive"].as_u64()), (Some("1/100"), Some(20 << 20)));
    assert_eq!((parent["members"][0].as_str(), parent["max_referenced"].as_u64()), (Some("0/256"), None));
    for (refused, reason) in [
        ("qgroup assign a.img 1/100 0/256", "level"),
        ("qgroup limit a.img 3/3 1M", "no quota group"),
        ("qgroup destroy a.img 1/100", "in use"),
        ("qgroup create a.img 1/100", "already"),
        ("qgroup remove a.img 0/5 1/100", "not a member"),
    ] {
        let run = bench.run(refused);
        assert!(run.status != 0 && run.err.contains(reason), "{refused}: {}", run.err);
    }
    fs::write(bench.path("large"), pattern(12_000_000)).unwrap();
    let refused = bench.run("put a.img large /home/large");
    assert!(refused.status != 0 && refused.err.contains("quota exceeded"), "{}", refused.err);
    bench.ok("qgroup limit a.img 0/256 none");
    bench.ok("put --force a.img large /home/large");
    bench.ok("qgroup remove a.img 0/256 1/100");
    bench.ok("qgroup destroy a.img 1/100");
    bench.check("a.img");
    let before = bench.ok("qgroup show --raw a.img");
    bench.ok("quota rescan a.img");
    assert_eq!(bench.ok("qgroup show --raw a.img"), before);
    assert!(numbers(&before)["0/256"].0 > 12_000_000, "{before}");
    bench.ok("quota disable a.img");
    assert!(bench.run("quota rescan a.img").err.contains("quotas are off"));
    bench.check("a.img");
}

#[test]
fn who_writes_to_a_mount_beyond_a_limit_is_told() {
    let Some(mounted) = Mounted::if_possible() else {
        return;
    };
    let bench = &mounted.bench;
    bench.ok("mkfs -q -f --size 256M a.img");
    bench.ok("subvolume create a.img /home");
    bench.ok("quota enable a.img");
    bench.ok("qgroup limit a.img /home 10M");
    bench.ok("mount a.img mnt");
    let home = mounted.dir().join("home");
    let error = fs::write(home.join("large"), pattern(12_000_000)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(122), "{error}");
    rustix::fs::syncfs(fs::File::open(mounted.dir()).unwrap()).unwrap();
    let shown = bench.ok("qgroup show --raw mnt");
    assert!((9 << 20..=10 << 20).contains(&numbers(&shown)["0/256"].0), "{shown}");
    fs::remove_file(home.join("large")).unwrap();
    fs::write(home.join("again"), pattern(5_000_000)).unwrap();
    mounted.unmount();
    bench.check("a.img");
}

impl KernelMount {
    fn sh(&self, script: &str) -> String {
        let script = format!("set -e\n{script}");
        let output = Command::new("bash").args(["-c", &script]).current_dir(&self.0).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

const SCENE: &str = r"
btrfs -q subvolume create a; btrfs -q subvolume create b
for i in $(seq 1500); do echo $i > a/f$i; done; head -c 5000000 /dev/urandom > a/big
sync
";

const ON: &str = r"
btrfs quota enable .; btrfs qgroup create 1/1 .; btrfs qgroup assign --no-rescan 0/256 1/1 .
btrfs -q subvolume snapshot a s1; sync
for i in $(seq 1 10 1500); do echo x$i > s1/f$i; done; cp --reflink=always a/big b/clone
btrfs quota rescan -w . > /dev/null; sync
";

/// The request of `btrfs quota enable --simple` of newer programs to the kernel.
const SIMPLE_ON: &str = r#"
python3 -c "
import fcntl, os, struct
fcntl.ioctl(os.open('.', os.O_RDONLY), 0xc0109428, bytearray(struct.pack('<QQ', 4, 0)), True)"
for i in $(seq 300); do echo $i > a/g$i; done; head -c 3000000 /dev/urandom > a/large
btrfs -q subvolume snapshot a s1; cp --reflink=always a/large b/clone; sync
"#;

/// Changes of every kind, in subvolumes that share.
fn change(bench: &Bench) {
    for line in [
        "put a.img src /s1/src",
        "subvolume snapshot a.img /s1 /s2",
        "rm -r a.img /s2/src /s2/big",
        "rm a.img /a/f1 /a/f2 /a/f3",
        "put a.img src /a/src",
        "cp a.img /b/clone /b/again",
        "subvolume delete a.img /s1",
        "balance start -q a.img",
    ] {
        bench.ok(line);
    }
}

#[test]
fn the_kernel_counts_what_we_counted() {
    let bench = Bench::new();
    bench.ok("mkfs -q --nodesize 4096 --size 1G a.img");
    let Some(kernel) = KernelMount::of(&bench.path("a.img"), bench.path("kernel")) else {
        eprintln!("SKIPPED: no root, or no btrfs of the kernel's");
        return;
    };
    kernel.sh(SCENE);
    kernel.sh(ON);
    drop(kernel);
    bench.fill("src");
    change(&bench);
    bench.check("a.img");
    let ours = numbers(&bench.ok("qgroup show --raw a.img"));
    let kernel = KernelMount::of(&bench.path("a.img"), bench.path("kernel")).unwrap();
    let show = || numbers(&kernel.sh("btrfs qgroup show --raw ."));
    let believed = show();
    kernel.sh("btrfs quota rescan -w . > /dev/null");
    let counted = show();
    assert_eq!((&believed, &counted), (&ours, &ours));
    assert!(ours.contains_key("1/1") && ours["0/256"].0 > 5_000_000, "{ours:?}");
}

/// Bytes of extents by owner, in a volume with simple quotas.
fn made(bench: &Bench, node_bytes: u64) -> BTreeMap<u64, u64> {
    let word_after = |line: &str, name: &str| -> Option<u64> {
        let (_, rest) = line.split_once(name)?;
        rest.split_whitespace().next()?.trim_end_matches([';', ',', ')']).parse().ok()
    };
    let dump = |tree: &str| bench.ok(&format!("dump tree a.img {tree}"));
    let quota = dump("quota");
    let enabled = quota.lines().find_map(|line| word_after(line, " enabled ")).unwrap();
    let mut owners = BTreeMap::new();
    let roots = dump("root");
    let ids = roots.lines().filter(|line| line.contains(" 132 ")).filter_map(|line| word_after(line, "  ("));
    for id in ids.filter(|id| *id == 5 || (256..1 << 48).contains(id)) {
        let blocks = dump(&id.to_string());
        for line in blocks.lines().filter(|line| line.starts_with("leaf ") || line.starts_with("node ")) {
            let at: u64 = line.split(' ').nth(1).unwrap().parse().unwrap();
            owners.insert(at, word_after(line, " owner ").unwrap());
        }
    }
    let mut sums = BTreeMap::new();
    for line in dump("extent").lines().filter(|line| line.contains(") extent refs ")) {
        let at = word_after(line, "  (").unwrap();
        let bytes: u64 = line.split(')').next().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        if word_after(line, " generation ").unwrap() < enabled {
            continue;
        }
        let (owner, bytes) = match line.contains("tree_block") {
            true => (owners.get(&at).copied(), node_bytes),
            false => (word_after(line, "owner ref root "), bytes),
        };
        if let Some(owner) = owner {
            *sums.entry(owner).or_insert(0) += bytes;
        }
    }
    sums
}

fn check_simple(bench: &Bench, node_bytes: u64) {
    let shown = numbers(&bench.ok("qgroup show --raw a.img"));
    let own = shown.iter().filter_map(|(id, (rfer, excl))| {
        assert_eq!(rfer, excl, "{id}");
        Some((id.strip_prefix("0/")?.parse().ok()?, *rfer))
    });
    let shown: BTreeMap<u64, u64> = own.filter(|(_, bytes)| *bytes > 0).collect();
    assert_eq!(shown, made(bench, node_bytes));
}

#[test]
fn simple_quotas_count_what_extents_say() {
    let bench = Bench::new();
    bench.fill("src");
    bench.ok("mkfs -q --size 512M a.img");
    for line in ["subvolume create a.img /a", "subvolume create a.img /b", "put a.img src/sub/large /a/big"] {
        bench.ok(line);
    }
    for name in ["f1", "f2", "f3"] {
        bench.ok(&format!("put a.img src/a.txt /a/{name}"));
    }
    bench.ok("quota enable --simple a.img");
    for line in ["put a.img src/sub/large /b/clone", "subvolume snapshot a.img /a /s1"] {
        bench.ok(line);
    }
    check_simple(&bench, 16_384);
    change(&bench);
    check_simple(&bench, 16_384);
    assert!(bench.run("quota rescan a.img").err.contains("simple quotas"));
    bench.ok("qgroup limit a.img /b 4M");
    assert!(bench.run("put a.img src /b/src").err.contains("quota exceeded"));
    bench.ok("rm a.img /b/clone /b/again");
    check_simple(&bench, 16_384);
}

#[test]
fn simple_quotas_are_taken_over_from_the_kernel_and_given_back() {
    let bench = Bench::new();
    bench.ok("mkfs -q --nodesize 4096 --size 512M a.img");
    let Some(kernel) = KernelMount::of(&bench.path("a.img"), bench.path("kernel")) else {
        eprintln!("SKIPPED: no root, or no btrfs of the kernel's");
        return;
    };
    kernel.sh(SCENE);
    if !Command::new("bash").args(["-c", SIMPLE_ON]).current_dir(&kernel.0).status().unwrap().success() {
        eprintln!("SKIPPED: the kernel has no simple quotas");
        return;
    }
    drop(kernel);
    bench.fill("src");
    check_simple(&bench, 4096);
    change(&bench);
    check_simple(&bench, 4096);
    let kernel = KernelMount::of(&bench.path("a.img"), bench.path("kernel")).unwrap();
    kernel.sh("rm -r s2/* b/again; sync; btrfs -q subvolume delete s2; btrfs subvolume sync .");
    drop(kernel);
    check_simple(&bench, 4096);
}
