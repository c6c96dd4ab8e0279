//! The devices of a mounted volume: changed, brought up to date, measured, and the server killed meanwhile.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Bench, pattern};
use crate::mounted::can_mount;

/// A directory with a mount of several devices.
struct Set {
    bench: Bench,
}

impl Set {
    /// A mirror `a.img`, `b.img` with some files; `None` if nothing can be mounted.
    fn mirror() -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let bench = Bench::in_memory();
        for name in ["a.img", "b.img"] {
            File::create(bench.path(name)).unwrap().set_len(300 << 20).unwrap();
        }
        fs::create_dir(bench.path("mnt")).unwrap();
        bench.ok("mkfs -q -d raid1 a.img b.img");
        let set = Self { bench };
        set.mount("a.img,b.img");
        for number in 0..10u8 {
            fs::write(set.file(number), contents(number, 0)).unwrap();
        }
        Some(set)
    }

    fn file(&self, number: u8) -> PathBuf {
        self.bench.path("mnt").join(format!("file{number}"))
    }

    fn mount(&self, list: &str) {
        self.bench.ok(&format!("mount {list} mnt"));
    }

    fn unmount(&self) {
        self.bench.ok("umount mnt");
    }

    /// Makes the files durable.
    fn sync(&self) {
        (0..10u8).for_each(|number| File::open(self.file(number)).unwrap().sync_all().unwrap());
    }

    fn is_whole(&self) {
        for number in 0..10u8 {
            let found = fs::read(self.file(number)).unwrap();
            assert!((0..3).any(|round| found == contents(number, round)), "file{number}");
        }
    }

    /// Ids and paths of the devices.
    fn list(&self) -> Vec<(u64, Option<String>)> {
        let rows: Value = self.bench.json("device list --json mnt");
        let row = |row: &Value| {
            let path = row["path"].as_str().map(|path| path.rsplit('/').next().unwrap().to_owned());
            (row["id"].as_u64().unwrap(), path)
        };
        rows.as_array().unwrap().iter().map(row).collect()
    }

    /// Processes of the server.
    fn server(&self) -> Vec<i32> {
        let dir = self.bench.path("mnt").canonicalize().unwrap().display().to_string();
        let all = fs::read_dir("/proc").unwrap().flatten();
        let is_it = |entry: &fs::DirEntry| {
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            words.contains(&b"server".as_slice()) && words.contains(&dir.as_bytes())
        };
        all.filter(is_it).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    fn kill(&self) {
        for id in self.server() {
            kill_process(Pid::from_raw(id).unwrap(), Signal::KILL).unwrap();
        }
        let start = Instant::now();
        let dir = self.bench.path("mnt").display().to_string();
        while fs::read_to_string("/proc/mounts").unwrap().contains(&dir) || !self.server().is_empty() {
            assert!(start.elapsed() < Duration::from_secs(10), "the mount stays");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn start(&self, line: &str) -> Child {
        Command::new(env!("CARGO_BIN_EXE_spinney"))
            .args(line.split(' '))
            .current_dir(self.bench.dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn check(&self, list: &str) {
        let checked = self.bench.run(&format!("check --data {list}"));
        assert_eq!(checked.status, 0, "{list}: {}{}", String::from_utf8_lossy(&checked.out), checked.err);
        if let Ok(output) = Command::new("btrfs")
            .current_dir(self.bench.dir.path())
            .arg("check")
            .arg(list.split(',').next().unwrap())
            .output()
        {
            // It finds the other devices only if the kernel knows them.
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success() || said.contains("devices missing") || said.contains("failed to read"),
                "{said}"
            );
        }
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        let _ = self.bench.run("umount --lazy mnt");
    }
}

fn contents(number: u8, round: u8) -> Vec<u8> {
    let mut bytes = pattern(400_000 + usize::from(number));
    bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(number).wrapping_mul(3).wrapping_add(round));
    bytes
}

#[test]
fn the_devices_of_a_mount_change_while_it_is_used() {
    let Some(set) = Set::mirror() else { return };
    let bench = &set.bench;
    assert_eq!(set.list(), [(1, Some("a.img".to_owned())), (2, Some("b.img".to_owned()))]);
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..100u8 {
                if ends.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                let number = round % 10;
                fs::write(set.file(number), contents(number, round % 3)).unwrap();
            }
        });
        let rebuilt = bench.json("device replace --json mnt b.img c.img");
        assert!(rebuilt["id"] == 2 && rebuilt["lost"].as_array().unwrap().is_empty(), "{rebuilt}");
        assert!(bench.ok("device add mnt d.img --size 300M").contains("device 3"));
        bench.ok("device remove mnt a.img");
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
        writer.join().unwrap();
    });
    assert_eq!(set.list(), [(2, Some("c.img".to_owned())), (3, Some("d.img".to_owned()))]);
    set.is_whole();
    assert!(bench.run("ls a.img").status != 0 && bench.run("ls b.img").status != 0, "they are empty, and not locked");
    // Each has its own numbers, and a size of its own.
    bench.ok("resize 3:400M mnt");
    let usage = bench.json("usage --json mnt");
    assert_eq!(usage["devices"][1]["total_bytes"], 400 << 20, "{usage}");
    assert!(bench.ok("device stats mnt").contains("[devid 3].write_io_errs"));
    for (line, why) in [
        ("device remove mnt 2", "needs 2 devices"),
        ("device remove mnt 7", "no device of this volume"),
        ("device add mnt tiny.img --size 1M", "too small"),
        ("device cancel mnt", "no device is being"),
        ("device add mnt c.img --force", "in use"),
        ("device resync mnt a.img", "superblock"),
        ("resize 7:max mnt", "no device 7"),
    ] {
        let refused = bench.run(line);
        assert!(refused.status != 0 && refused.err.contains(why), "{line}: {} {}", refused.status, refused.err);
    }
    set.unmount();
    set.check("c.img,d.img");
}

#[test]
fn a_device_that_comes_back_is_brought_up_to_date_while_mounted() {
    let Some(set) = Set::mirror() else { return };
    let bench = &set.bench;
    set.unmount();
    fs::rename(bench.path("b.img"), bench.path("away.img")).unwrap();
    bench.ok("mount -o degraded a.img mnt");
    fs::write(set.file(3), contents(3, 1)).unwrap();
    set.sync();
    assert_eq!(set.list()[1], (2, None));
    fs::rename(bench.path("away.img"), bench.path("b.img")).unwrap();
    bench.ok("device resync mnt b.img");
    assert_eq!(set.list()[1], (2, Some("b.img".to_owned())));
    set.unmount();
    set.check("a.img,b.img");
    // At the next mount, by itself.
    fs::write(bench.path("note"), "only a has it").unwrap();
    for name in ["/one", "/two"] {
        bench.ok(&format!("put -q --degraded note a.img:{name}"));
    }
    let refused = bench.run("mount -o noresync a.img,b.img mnt");
    assert!(refused.status != 0 && refused.err.contains("missed commits"), "{}", refused.err);
    set.mount("a.img,b.img");
    let start = Instant::now();
    while set.list()[1].1.is_none() {
        assert!(start.elapsed() < Duration::from_secs(10), "it stays behind");
        std::thread::sleep(Duration::from_millis(50));
    }
    set.is_whole();
    set.unmount();
    set.check("a.img,b.img");
    assert_eq!(bench.ok("cat --degraded b.img /two"), "only a has it");
}

#[test]
fn the_progress_of_a_replace_is_told_and_it_is_cancelled() {
    let Some(set) = Set::mirror() else { return };
    let bench = &set.bench;
    assert_eq!(bench.json("device status --json mnt")["state"], "none");
    fs::write(bench.path("mnt/large"), pattern(120 << 20)).unwrap();
    set.sync();
    let mut replace = set.start("device replace mnt b.img c.img");
    let start = Instant::now();
    let running = loop {
        let status = bench.json("device replace status --json mnt");
        assert!(start.elapsed() < Duration::from_secs(10), "it does not begin");
        if status["state"] != "none" && status["total_bytes"].as_u64().unwrap() > 0 {
            break status;
        }
    };
    assert!(running["total_bytes"].as_u64().unwrap() > 240 << 20, "{running}");
    assert!(running["change"] == "replace" && running["id"] == 2, "{running}");
    let busy = bench.run("device remove mnt 1");
    let cancelled = bench.run("device replace cancel mnt");
    let ended = replace.wait().unwrap();
    if cancelled.status == 0 {
        // It may have been faster.
        assert!(busy.status != 0 && !busy.err.is_empty());
        assert!(!ended.success());
        let status = bench.json("device status --json mnt");
        assert!(status["state"] == "cancelled" && status["failure"].is_null(), "{status}");
        assert!(!bench.path("c.img").exists(), "the file that was made is removed");
        assert_eq!(set.list()[1], (2, Some("b.img".to_owned())));
        bench.ok("device replace -q mnt b.img c.img");
    }
    let status = bench.json("device status --json mnt");
    assert!(status["state"] == "finished" && status["done_bytes"] == status["total_bytes"], "{status}");
    assert!(bench.ok("device status mnt").contains("replace of device 2"));
    set.is_whole();
    set.unmount();
    set.check("a.img,c.img");
}

#[test]
fn a_member_that_is_truncated_is_given_up() {
    let Some(set) = Set::mirror() else { return };
    let bench = &set.bench;
    set.sync();
    File::options().write(true).open(bench.path("b.img")).unwrap().set_len(20 << 20).unwrap();
    fs::write(set.file(3), contents(3, 1)).unwrap();
    set.sync();
    assert_eq!(set.list()[1], (2, None));
    set.is_whole();
    set.unmount();
    bench.ok("mount -o degraded a.img mnt");
    set.is_whole();
    bench.ok("device replace -q mnt missing c.img");
    set.unmount();
    set.check("a.img,c.img");
}

#[test]
fn a_server_that_is_killed_leaves_the_devices_before_or_after_the_change() {
    let Some(set) = Set::mirror() else { return };
    let bench = &set.bench;
    for number in 0..10u8 {
        fs::write(bench.path("mnt").join(format!("large{number}")), pattern(3_000_000)).unwrap();
    }
    set.sync();
    let mut members = vec!["a.img".to_owned(), "b.img".to_owned()];
    for (round, delay) in (0u32..).zip([0u64, 5, 10, 20, 40, 80, 160]) {
        let new = format!("new{round}.img");
        let old = members[1].clone();
        let mut replace = set.start(&format!("device replace -q mnt {old} {new}"));
        std::thread::sleep(Duration::from_millis(delay));
        set.kill();
        let _ = replace.wait();
        // One of the two sets is the volume: what was there before, or after.
        let sets = [format!("{},{old}", members[0]), format!("{},{new}", members[0])];
        let found: Vec<&String> = sets.iter().filter(|list| bench.run(&format!("ls {list}")).status == 0).collect();
        assert!(!found.is_empty(), "after {delay} ms neither set is the volume");
        if found[0] == &sets[1] {
            members[1] = new;
        }
        let list = members.join(",");
        set.mount(&list);
        set.is_whole();
        set.unmount();
        set.check(&list);
        set.mount(&list);
    }
    // The same with a removal, which leaves the device with less on it, or takes it away.
    bench.ok("device add mnt third.img --size 300M");
    members.push("third.img".to_owned());
    for delay in [0u64, 10, 50] {
        let list = members.join(",");
        let mut remove = set.start("device remove mnt third.img");
        std::thread::sleep(Duration::from_millis(delay));
        set.kill();
        let _ = remove.wait();
        let is_there = bench.run(&format!("ls {list}")).status == 0;
        let left = if is_there { list.clone() } else { members[..2].join(",") };
        set.mount(&left);
        set.is_whole();
        if !is_there {
            bench.ok("device add mnt third.img --size 300M --force");
        }
    }
    set.unmount();
    set.check(&members.join(","));
}
