//! Images that cannot be opened otherwise: the files that `spinney rescue` saves, and the messages that lead to it.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{Bench, pattern};

const BLOCK: u64 = 4096;
/// Fields of a tree block: file system, address and owner.
const FSID: std::ops::Range<usize> = 32..48;
const BYTENR: usize = 48;
const OWNER: usize = 88;
const SUPERS: [u64; 2] = [64 << 10, 64 << 20];
/// Longest time for three rescues of a small image that claims a tebibyte: reading that takes minutes.
const SPARSE_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(15);

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// An image of many files, compressed ones among them, and the files.
fn image() -> Bench {
    let bench = Bench::new();
    for dir in 0..12 {
        let dir = bench.path(&format!("src/dir{dir}/below"));
        std::fs::create_dir_all(&dir).unwrap();
        for file in 0..40 {
            std::fs::write(dir.join(format!("small{file}")), pattern(100 + file * 37)).unwrap();
        }
        std::fs::write(dir.join("large"), pattern(300_000)).unwrap();
        std::os::unix::fs::symlink("../nothing", dir.join("link")).unwrap();
    }
    bench.ok("mkfs -q --size 256M --rootdir src a.img");
    bench
}

struct Image {
    file: std::fs::File,
    size: u64,
    superblock: Vec<u8>,
}

impl Image {
    fn open(path: &Path) -> Self {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut superblock = vec![0; 4096];
        file.read_exact_at(&mut superblock, SUPERS[0]).unwrap();
        let size = file.metadata().unwrap().len();
        Self { file, size, superblock }
    }

    fn wipe_supers(&self) {
        for at in SUPERS.into_iter().filter(|at| at + BLOCK <= self.size) {
            self.file.write_all_at(&[0; 4096], at).unwrap();
        }
    }

    /// Overwrites all tree blocks selected by owner and address.
    fn wipe(&self, is_wanted: impl Fn(u64, u64) -> bool) -> usize {
        let (mut block, mut count) = (vec![0; 4096], 0);
        for at in (0..self.size).step_by(4096).filter(|at| !SUPERS.contains(at)) {
            self.file.read_exact_at(&mut block, at).unwrap();
            let is_tree_block = block[FSID] == self.superblock[FSID];
            if is_tree_block && is_wanted(u64_at(&block, OWNER), u64_at(&block, BYTENR)) {
                self.file.write_all_at(&[0; 16384], at).unwrap();
                count += 1;
            }
        }
        count
    }

    fn noise(&self, blocks: impl Iterator<Item = u64>) {
        for block in blocks {
            self.file.write_all_at(&[0xa5; 4096], block * BLOCK).unwrap();
        }
    }
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut todo) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(at) = todo.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                todo.push(entry.path());
            } else if entry.file_type().unwrap().is_file() {
                let path = entry.path().strip_prefix(dir).unwrap().to_owned();
                found.insert(path, std::fs::read(entry.path()).unwrap());
            }
        }
    }
    found
}

/// Number of files saved whole, and of all files.
fn saved(bench: &Bench) -> (usize, usize) {
    let (truth, saved) = (files(&bench.path("src")), files(&bench.path("out")));
    (truth.iter().filter(|(path, bytes)| saved.get(*path) == Some(bytes)).count(), truth.len())
}

fn report(out: &[u8]) -> Value {
    serde_json::from_slice(out).unwrap()
}

/// The scan read all of a sparse image, holes and all: hours for a small file that claims terabytes.
#[test]
fn the_holes_of_a_large_image_are_not_read() {
    let bench = image();
    let image = Image::open(&bench.path("a.img"));
    image.file.set_len(1 << 40).unwrap();
    // Without superblocks all of the device is read twice: for the format, and for the blocks.
    image.wipe_supers();
    let start = std::time::Instant::now();
    assert!(bench.ok("rescue roots --quiet a.img").contains("scan"));
    assert!(bench.ok("rescue ls a.img /dir1/below").contains("small39"));
    let run = bench.run("rescue get --json a.img out");
    assert_eq!(run.status, 0, "{}", run.err);
    let took = start.elapsed();
    assert!(took < SPARSE_TIME_MAX, "{took:?}");
    let (whole, all) = saved(&bench);
    assert_eq!(whole, all);
}

#[test]
fn a_whole_image_is_saved_whole() {
    let bench = image();
    let before = std::fs::read(bench.path("a.img")).unwrap();
    let run = bench.run("rescue get --json a.img out");
    assert_eq!(run.status, 0, "{}", run.err);
    let (whole, all) = saved(&bench);
    assert_eq!(whole, all);
    assert!(!bench.path("out/lost+found").exists());
    let json = report(&run.out);
    assert!(json["part"].as_array().unwrap().is_empty() && json["lost"].as_array().unwrap().is_empty());
    assert_eq!(std::fs::read_link(bench.path("out/dir3/below/link")).unwrap(), Path::new("../nothing"));
    assert!(before == std::fs::read(bench.path("a.img")).unwrap(), "the image was changed");
    assert!(bench.ok("rescue ls a.img /dir1/below").contains("small39"));
    assert!(bench.ok("rescue roots --quiet a.img").contains("superblock"));
}

/// From a failing mount to the files, by following the messages.
#[test]
fn without_superblocks_the_program_says_what_to_run_and_saves_all() {
    let bench = image();
    Image::open(&bench.path("a.img")).wipe_supers();
    for command in ["ls a.img", "get a.img / other", "mount a.img mnt"] {
        std::fs::create_dir_all(bench.path("mnt")).unwrap();
        let run = bench.run(command);
        assert_ne!(run.status, 0);
        assert!(run.err.contains("spinney check a.img"), "{command}: {}", run.err);
        assert!(run.err.contains("spinney rescue get a.img"), "{command}: {}", run.err);
    }
    let run = bench.run("rescue get --quiet a.img out");
    assert_eq!(run.status, 0, "{}", run.err);
    let (whole, all) = saved(&bench);
    assert_eq!(whole, all);
}

#[test]
fn without_the_root_of_the_root_tree_all_is_saved() {
    let bench = image();
    let image = Image::open(&bench.path("a.img"));
    let root = u64_at(&image.superblock, 80);
    assert!(image.wipe(|_, at| at == root) > 0);
    let run = bench.run("rescue get --quiet a.img out");
    let (whole, all) = saved_anywhere(&bench);
    assert_eq!(whole, all, "{} {}", run.status, run.err);
}

/// Files saved whole under any path: with a lost root tree only the top level may be found.
fn saved_anywhere(bench: &Bench) -> (usize, usize) {
    let (truth, saved) = (files(&bench.path("src")), files(&bench.path("out")));
    let whole = truth
        .iter()
        .filter(|(path, bytes)| saved.iter().any(|(found, contents)| found.ends_with(path) && contents == *bytes));
    (whole.count(), truth.len())
}

#[test]
fn without_the_chunk_tree_all_is_saved() {
    let bench = image();
    let image = Image::open(&bench.path("a.img"));
    assert!(image.wipe(|owner, _| owner == 3) > 0);
    let run = bench.run("rescue get --quiet a.img out");
    assert_eq!(run.status, 0, "{}", run.err);
    let (whole, all) = saved(&bench);
    assert_eq!(whole, all);
    image.wipe_supers();
    std::fs::remove_dir_all(bench.path("out")).unwrap();
    let run = bench.run("rescue get --quiet a.img out");
    let (whole, all) = saved(&bench);
    assert_eq!(whole, all, "{} {}", run.status, run.err);
}

#[test]
fn blocks_that_are_overwritten_cost_the_files_in_them_and_no_others() {
    let bench = image();
    let image = Image::open(&bench.path("a.img"));
    let mut random = 7_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % (image.size / BLOCK)
    };
    let blocks: Vec<u64> =
        (0..image.size / BLOCK / 100).map(|_| next()).filter(|at| !SUPERS.contains(&(at * BLOCK))).collect();
    image.noise(blocks.into_iter());
    let run = bench.run("rescue get --json --quiet a.img out");
    let (whole, all) = saved(&bench);
    assert!(whole * 100 >= all * 95, "{whole} of {all}: {}", run.err);
    let json = report(&run.out);
    // Files that are not whole are named.
    let named: Vec<&str> = ["part", "lost"]
        .iter()
        .flat_map(|list| json[*list].as_array().unwrap())
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    let (truth, found) = (files(&bench.path("src")), files(&bench.path("out")));
    for (path, bytes) in &found {
        let is_named = named.contains(&&*format!("/{}", path.display()));
        assert!(is_named || truth.get(path).is_none_or(|truth| truth == bytes), "{} is not named", path.display());
    }
    assert_eq!(run.status, i32::from(!named.is_empty() || json["failed"].as_u64() != Some(0)), "{}", run.err);
}

#[test]
fn a_deleted_file_is_found_and_copied() {
    let bench = image();
    std::fs::write(bench.path("letter.odt"), pattern(50_000)).unwrap();
    bench.ok("put a.img letter.odt /dir2");
    bench.ok("rm a.img /dir2/letter.odt");
    let list = bench.ok("rescue undelete --quiet a.img *.odt");
    assert!(list.contains("/dir2/letter.odt"), "{list}");
    bench.run("rescue undelete --quiet a.img /dir2/*.odt found");
    let copied = files(&bench.path("found"));
    assert_eq!(copied.values().next(), Some(&pattern(50_000)), "{copied:?}");
    let run = bench.run("rescue undelete --quiet a.img small*");
    assert_eq!(run.status, 1);
    assert!(run.err.contains("nothing deleted with such a name"), "{}", run.err);
    bench.ok("subvolume snapshot a.img / /monday");
    bench.ok("subvolume delete a.img /monday");
    let run = bench.run("rescue undelete --quiet a.img monday back");
    assert_eq!(run.status, 0, "{}", run.err);
    let copied = files(&bench.path("back"));
    assert_eq!(copied.len(), files(&bench.path("src")).len(), "{}", String::from_utf8_lossy(&run.out));
}

/// Blocks of a snapshot name its source as owner: no pattern found files of a deleted snapshot, though the snapshot
/// itself was found.
#[test]
fn patterns_of_any_depth_find_what_was_in_a_deleted_subvolume() {
    let bench = Bench::in_memory();
    bench.fill("src");
    bench.ok("mkfs -q --size 96M a.img");
    bench.ok("subvolume create a.img /kept");
    bench.ok("put -q a.img src/sub src/a.txt /kept/");
    bench.ok("mkdir a.img /in");
    for name in ["/home", "/in/deep"] {
        bench.ok(&format!("subvolume snapshot a.img /kept {name}"));
        bench.ok(&format!("subvolume delete a.img {name}"));
    }
    for (pattern, expected) in [
        ("/home/*", "/home/sub/deep/file-007"),
        ("/home/a.txt", "/home/a.txt"),
        ("/home/sub/d??p/*-599", "/home/sub/deep/file-599"),
        ("*/again.txt", "/home/sub/again.txt"),
        ("*/again.txt", "/in/deep/sub/again.txt"),
        ("/in/*/a.*", "/in/deep/a.txt"),
        ("/in/deep", "/in/deep/"),
        ("file-007", "/home/sub/deep/file-007"),
        ("deep", "/in/deep/"),
        ("home", "/home/"),
    ] {
        let run = bench.run_words(&["rescue", "undelete", "--quiet", "a.img", pattern]);
        let out = String::from_utf8_lossy(&run.out);
        assert!(run.status == 0 && out.lines().any(|line| line.ends_with(expected)), "{pattern}: {out}{}", run.err);
        assert!(!out.contains("/kept"), "{pattern}: {out}");
    }
    bench.run_words(&["rescue", "undelete", "--quiet", "a.img", "/home/sub/*", "back"]);
    let copied = files(&bench.path("back"));
    assert!(copied.values().any(|bytes| *bytes == pattern(3_500_001)), "{}", copied.len());
}

#[test]
fn what_has_lost_its_checksums_is_not_called_whole() {
    let bench = image();
    assert!(Image::open(&bench.path("a.img")).wipe(|owner, _| owner == 7) > 0);
    let run = bench.run("rescue get --json a.img out");
    let json = report(&run.out);
    assert_eq!((run.status, saved(&bench)), (1, (492, 492)), "{}", run.err);
    assert_eq!(json["unverified"].as_array().unwrap().len(), 12, "the large files: others are in the tree");
    assert_eq!((&json["uncertain"], &json["failed"]), (&Value::from(12), &Value::from(0)));
    assert_eq!(json["whole"].as_u64().unwrap() + 12, json["entries"].as_u64().unwrap());
}

#[test]
fn a_lost_tree_and_a_short_image_are_told() {
    let bench = image();
    std::fs::copy(bench.path("a.img"), bench.path("short.img")).unwrap();
    std::fs::OpenOptions::new().write(true).open(bench.path("short.img")).unwrap().set_len(1 << 20).unwrap();
    let run = bench.run("rescue get --quiet short.img nothing");
    let out = String::from_utf8_lossy(&run.out).into_owned();
    assert_eq!(run.status, 1, "{}", run.err);
    assert!(out.contains("short.img has 1048576 bytes, its file system 268435456"), "{out}");
    assert!(Image::open(&bench.path("a.img")).wipe(|owner, _| owner == 5) > 0);
    for line in ["rescue get --quiet a.img out", "rescue ls a.img"] {
        let run = bench.run(line);
        let out = [String::from_utf8_lossy(&run.out).into_owned(), run.err].concat();
        assert_eq!(run.status, 1, "{line}: {out}");
        assert!(out.contains("missing: subvolume 5"), "{line}: {out}");
    }
    let run = bench.run("rescue ls --json a.img");
    assert!(run.status == 1 && run.err.contains("missing: subvolume 5"), "{}", run.err);
    report(&run.out);
}

/// An older root tree, or what mkfs left, stood in for the lost one, and was called whole.
#[test]
fn an_older_state_is_not_called_whole() {
    let bench = image();
    bench.ok("subvolume create a.img sub");
    bench.ok("put --quiet a.img src/dir0/below/large /sub/large");
    bench.ok("mkdir a.img /last");
    let image = Image::open(&bench.path("a.img"));
    let (root, last) = (u64_at(&image.superblock, 80), u64_at(&image.superblock, 72));
    assert!(image.wipe(|_, at| at == root) > 0);
    let run = bench.run("rescue get --quiet --json a.img out");
    let json = report(&run.out);
    assert_eq!(run.status, 1, "{json}");
    let older = json["older_subvolumes"].as_array().unwrap();
    assert!(older.iter().any(|older| older["last_generation"] == last && older["subvolume"] == 256), "{json}");
    assert_eq!((&json["whole"], &json["uncertain"]), (&Value::from(0), &json["entries"]));
    let run = bench.run("rescue ls a.img");
    assert!(run.status == 1 && run.err.contains("older: subvolume 256"), "{}", run.err);
    // No root is referred to any more.
    assert!(image.wipe(|owner, _| owner == 1) > 0);
    let run = bench.run("rescue get --quiet --json a.img other");
    assert_eq!(run.status, 1, "{}", String::from_utf8_lossy(&run.out));
}

#[test]
fn the_image_is_not_replaced_by_what_is_in_it() {
    let bench = image();
    let before = std::fs::read(bench.path("a.img")).unwrap();
    for line in ["rescue get --quiet -f a.img /dir1/below/large a.img", "get --quiet -f a.img /dir1/below/large a.img"]
    {
        let run = bench.run(line);
        assert_ne!(run.status, 0, "{line}");
        assert!(run.err.contains("busy"), "{line}: {}", run.err);
        assert_eq!(std::fs::read(bench.path("a.img")).unwrap(), before, "{line}");
    }
    let run = bench.run("rescue get --quiet a.img none/there");
    assert_eq!(run.status, 1);
    assert!(run.err.contains("No such file"), "{}", run.err);
}

#[test]
fn what_never_was_btrfs_is_refused() {
    let bench = Bench::new();
    std::fs::write(bench.path("a.img"), pattern(1 << 20)).unwrap();
    let run = bench.run("rescue get --quiet a.img out");
    assert_eq!(run.status, 3);
    assert!(run.err.contains("no trace of btrfs"), "{}", run.err);
}

/// The second of two deleted files with one name was not saved: "File exists".
#[test]
fn deleted_files_of_one_name_are_all_saved() {
    let bench = Bench::new();
    for (dir, text) in [("a", "one"), ("b", "two")] {
        std::fs::create_dir_all(bench.path("tree").join(dir)).unwrap();
        std::fs::write(bench.path("tree").join(dir).join("x.odt"), text).unwrap();
    }
    bench.ok("mkfs -q --size 128M a.img");
    bench.ok("put -q a.img tree/. /");
    bench.ok("rm -r a.img /a /b");
    bench.run("rescue undelete --quiet a.img x.odt out");
    let mut found = Vec::new();
    for dir in std::fs::read_dir(bench.path("out")).unwrap() {
        found.push(std::fs::read_to_string(dir.unwrap().path().join("x.odt")).unwrap());
    }
    found.sort_unstable();
    assert_eq!(found, ["one", "two"]);
}
