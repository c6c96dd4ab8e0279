//! Reads many mutated archives, documents of container images, manifests and descriptions of disks: none may panic,
//! take
//! long or much memory. Called by `cargo trials fuzz-archives`.
//!
//! The kinds share the executions by their speed. An input that is read, or refused with words that were not seen
//! before, is mutated further. A failure is kept, with the numbers that make it again.

use std::collections::HashSet;
use std::io::{Cursor, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use archive::tar::{TarWriter, WriteOptions};
use archive::{Accounts, Input, ReadOptions, read_into};
use disk::spec::Spec;
use layers::FakerootState;
use layers::manifest::{self, Form, ManifestOptions};
use layers::oci::{Image, OpenOptions};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testkit::Random;
use transfer::{NewNode, Tree, plain_metadata};
use vfs::file_system::{NodeKind, Time};

/// Inputs of a kind that are kept to be mutated.
const POOL_MAX: usize = 3000;
/// Longest input, bytes.
const BYTES_MAX: usize = 16 << 10;
/// An input that takes longer is a failure.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Most memory of the process, KiB.
const MEMORY_KIB_MAX: u64 = 1 << 20;
/// Most bytes that an archive may unpack to.
const UNPACKED_BYTES_MAX: u64 = 1 << 20;

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo trials fuzz-archives --executions 10000000\n  \
    cargo trials fuzz-archives --only tar --seed 7")]
pub(crate) struct Options {
    /// Number of inputs, of all kinds together
    #[arg(long, default_value_t = 100_000)]
    executions: u64,
    /// Seed of the mutations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Only the kinds with this in their names
    #[arg(long)]
    only: Option<String>,
    /// Directory for failing inputs
    #[arg(long, default_value = "target/fuzz-archives")]
    dir: PathBuf,
}

/// The inputs of one kind, and the function that reads them.
struct Kind {
    name: &'static str,
    /// Of a thousand executions.
    share: u64,
    seeds: fn() -> Result<Vec<Vec<u8>>>,
    /// Reads an input; returns the error.
    read: fn(&Path, &[u8]) -> std::result::Result<(), String>,
}

const KINDS: &[Kind] = &[
    Kind { name: "tar", share: 330, seeds: tar_seeds, read: archive_of },
    Kind { name: "cpio", share: 200, seeds: cpio_seeds, read: archive_of },
    Kind { name: "OCI index", share: 40, seeds: index_seeds, read: index },
    Kind { name: "OCI manifest", share: 40, seeds: manifest_seeds, read: image_manifest },
    Kind { name: "mtree", share: 150, seeds: mtree_seeds, read: mtree },
    Kind { name: "composefs dump", share: 100, seeds: dump_seeds, read: dump },
    Kind { name: "fakeroot state", share: 70, seeds: state_seeds, read: state },
    Kind { name: "disk description", share: 70, seeds: spec_seeds, read: spec },
];

/// Counts of one kind.
#[derive(Default)]
struct Count {
    done: u64,
    read: u64,
    slowest: Duration,
    took: Duration,
    pool: usize,
}

/// Reads the inputs, and prints a table.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    std::fs::create_dir_all(&options.dir)?;
    let begin = Instant::now();
    let is_wanted = |kind: &&Kind| options.only.as_ref().is_none_or(|only| kind.name.contains(only.as_str()));
    let kinds: Vec<&Kind> = KINDS.iter().filter(is_wanted).collect();
    let shares: u64 = kinds.iter().map(|kind| kind.share).sum();
    println!("{:<18} {:>10} {:>10} {:>6} {:>9} {:>10}", "input", "tried", "read", "kept", "slowest", "a second");
    let mut all = 0;
    for kind in kinds {
        let wanted = options.executions.saturating_mul(kind.share) / shares.max(1);
        let count = each(kind, wanted, options)?;
        all += count.done;
        let rate = u128::from(count.done) * 1000 / count.took.as_millis().max(1);
        let slowest = format!("{} ms", count.slowest.as_millis());
        println!("{:<18} {:>10} {:>10} {:>6} {slowest:>9} {rate:>10}", kind.name, count.done, count.read, count.pool);
    }
    let (memory, seconds) = (memory_kib()?, begin.elapsed().as_secs());
    println!("fuzz-archives: {all} inputs, seed {}, {seconds} s, {memory} KiB of memory at most", options.seed);
    if memory > MEMORY_KIB_MAX {
        bail!("expected at most {MEMORY_KIB_MAX} KiB of memory, found {memory}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Shares the executions of a kind among the threads.
fn each(kind: &Kind, wanted: u64, options: &Options) -> Result<Count> {
    let (begin, total) = (Instant::now(), Mutex::new(Count::default()));
    let threads = options.threads.max(1);
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let one = |thread: u64| {
            let count = wanted / threads + u64::from(thread < wanted % threads);
            let done = some(kind, count, options.seed.wrapping_mul(1000).wrapping_add(thread), options)?;
            let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            total.done += done.done;
            total.read += done.read;
            total.pool += done.pool;
            total.slowest = total.slowest.max(done.slowest);
            Ok(())
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        let ended = running.into_iter().map(|thread| thread.join());
        ended.map(|result| result.unwrap_or_else(|_| bail!("a thread of the trial panicked"))).collect()
    });
    results.into_iter().collect::<Result<()>>()?;
    let count = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(Count { took: begin.elapsed(), ..count })
}

fn some(kind: &Kind, wanted: u64, seed: u64, options: &Options) -> Result<Count> {
    let folder = tempfile::Builder::new().prefix("spinney-fuzz-").tempdir_in(memory_dir())?;
    let (mut random, mut seen) = (Random::new(seed), HashSet::new());
    let mut pool = (kind.seeds)()?;
    let (seed_count, mut count) = (pool.len(), Count::default());
    for seed in &pool {
        (kind.read)(folder.path(), seed)
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("{}: a seed", kind.name))?;
    }
    for number in 0..wanted {
        // An input that was mutated often is seldom read.
        let from = if random.one_in(2) { pool.get(..seed_count).unwrap_or_default() } else { &pool };
        let input = drawn(from, &mut random);
        let began = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| (kind.read)(folder.path(), &input)));
        let took = began.elapsed();
        let Ok(result) = result.map_err(drop).and_then(|result| if took < TIME_MAX { Ok(result) } else { Err(()) })
        else {
            let path = options.dir.join("failed");
            std::fs::write(&path, &input)?;
            bail!("{}: seed {seed}, input {number} failed after {took:?}; it is {}", kind.name, path.display());
        };
        count.done += 1;
        count.read += u64::from(result.is_ok());
        count.slowest = count.slowest.max(took);
        let way = result.err().map_or_else(String::new, |error| way(&error));
        if pool.len() < POOL_MAX && input.len() < BYTES_MAX && (seen.insert(way) || random.one_in(5000)) {
            pool.push(input);
        }
    }
    count.pool = pool.len();
    Ok(count)
}

/// An error without what is of this input alone.
fn way(error: &str) -> String {
    let is_plain = |word: &&str| word.len() < 20 && word.chars().all(|letter| letter.is_ascii_lowercase());
    error.split_whitespace().filter(is_plain).take(12).collect::<Vec<_>>().join(" ")
}

fn drawn(pool: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = random.pick(pool).cloned().unwrap_or_default();
    for _ in 0..=random.below(4) {
        mutate(&mut bytes, random);
    }
    // Wrong checksums of headers hide what is behind them.
    if !random.one_in(10) {
        bytes.chunks_exact_mut(512).filter(|block| block.get(257..262) == Some(b"ustar")).for_each(sum);
    }
    bytes
}

/// Texts that readers of numbers and paths treat differently.
const WORDS: [&str; 12] = [
    "18446744073709551615",
    "-1",
    "4294967296",
    "999999999999999999999",
    "../..",
    "/",
    "null",
    "[",
    "{}",
    "1e9",
    ".wh.",
    "\u{e9}",
];

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let (at, len) = (random.index(bytes.len().max(1)), bytes.len());
    let to = random.index(len.max(1));
    let value = random.pick(b"\x8001234567LKSxgDV\0=,:").copied().unwrap_or_default();
    match random.below(8) {
        0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
        1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = value),
        2 if len > 1 => bytes.truncate(at.max(1)),
        3 => drop(bytes.drain(at.min(len)..at.saturating_add(random.index(600)).min(len))),
        4 => {
            let piece = bytes.get(at..at.saturating_add(random.index(1100)).min(len)).unwrap_or_default().to_vec();
            bytes.splice(to.min(len)..to.min(len), piece);
        }
        5 if len >= 512 => {
            let block = bytes.get(at / 512 * 512..).and_then(|rest| rest.get(..512)).unwrap_or_default().to_vec();
            bytes.iter_mut().skip(to / 512 * 512).zip(block).for_each(|(to, from)| *to = from);
        }
        6 => {
            let word = random.pick(&WORDS).copied().unwrap_or_default();
            bytes.splice(at.min(len)..at.min(len), word.bytes());
        }
        _ => {
            let field = random.pick(&[124_usize, 156, 257, 345, 386, 482, 483]).copied().unwrap_or_default();
            bytes.iter_mut().skip(at / 512 * 512 + field).take(1).for_each(|byte| *byte = value);
        }
    }
    if bytes.is_empty() {
        bytes.push(b'0');
    }
    bytes.truncate(BYTES_MAX * 4);
}

/// Makes the checksum of a header right.
fn sum(block: &mut [u8]) {
    block.iter_mut().skip(148).take(8).for_each(|byte| *byte = b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block.iter_mut().skip(148).zip(format!("{sum:06o}\0").bytes()).for_each(|(to, from)| *to = from);
}

fn memory_dir() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

fn memory_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn read_options() -> ReadOptions {
    let accounts = Accounts::parse("root:x:0:", "root:x:0:");
    ReadOptions { temp_dir: memory_dir(), max_bytes: UNPACKED_BYTES_MAX, accounts }
}

fn new_tree() -> Tree {
    Tree::new(Time::default())
}

fn archive_of(_: &Path, bytes: &[u8]) -> std::result::Result<(), String> {
    let input = Input::stream(Cursor::new(bytes.to_vec()));
    read_into(&mut new_tree(), input, &read_options(), &()).map_err(|error| error.to_string())
}

fn node(kind: NodeKind) -> NewNode {
    let attr = plain_metadata(kind, 0o644, Time::new(1_600_000_000, 5));
    NewNode { attr, target: None, xattrs: Vec::new(), contents: None }
}

fn tar_of(names: &[&str]) -> Result<Vec<u8>> {
    let mut writer = TarWriter::new(Vec::new(), WriteOptions::default());
    for name in names {
        let mut made = node(if name.ends_with('/') { NodeKind::Directory } else { NodeKind::Fifo });
        if name.contains("rich") {
            made.xattrs = vec![(b"user.a".to_vec(), b"v".to_vec())];
        }
        writer.append(Path::new(name), &made)?;
    }
    let link = NewNode { target: Some(b"d".to_vec()), ..node(NodeKind::Symlink) };
    writer.append(Path::new("link"), &link)?;
    Ok(writer.finish()?)
}

fn compressed(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes)?;
    Ok(vec![gzip.finish()?, zstd::encode_all(bytes, 1)?])
}

/// By `tar`, where that is installed, with contents, holes and long names; and by our writer.
fn tar_seeds() -> Result<Vec<Vec<u8>>> {
    let long = format!("d/{}", "long/".repeat(30));
    let plain = tar_of(&["d/", "d/pipe", &long, "rich"])?;
    let mut seeds = compressed(&plain)?;
    let folder = tempfile::tempdir_in(memory_dir())?;
    let script = "mkdir d; echo text > d/file; ln d/file hard; ln -s d link; truncate -s 40000 hole; \
        echo x >> hole; mknod fifo p; mkdir -p $(yes long-name | head -12 | tr '\\n' '/')";
    let made = std::process::Command::new("sh").args(["-c", script]).current_dir(folder.path()).status()?;
    for format in ["gnu", "pax", "ustar", "v7"] {
        let words = ["-c", "--sparse", "--format", format, "."];
        let output = std::process::Command::new("tar").args(words).current_dir(folder.path()).output();
        seeds
            .extend(output.ok().filter(|output| made.success() && output.status.success()).map(|output| output.stdout));
    }
    // The records of the end alone are many zeros.
    seeds.iter_mut().for_each(|seed| seed.truncate(BYTES_MAX));
    seeds.push(plain);
    let read: Vec<Vec<u8>> = seeds.into_iter().filter(|seed| archive_of(Path::new(""), seed).is_ok()).collect();
    Ok(read)
}

fn cpio_seeds() -> Result<Vec<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut put = |ino: u32, mode: u32, nlink: u32, name: &str, data: &[u8]| {
        let size = |len: usize| u32::try_from(len).unwrap_or_default();
        let numbers = [ino, mode, 0, 0, nlink, 1000, size(data.len()), 8, 1, 5, 1, size(name.len() + 1), 0];
        bytes.extend(b"070701");
        numbers.iter().for_each(|number| bytes.extend(format!("{number:08x}").as_bytes()));
        bytes.extend(name.as_bytes());
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    };
    put(1, 0o040_755, 2, ".", b"");
    put(2, 0o100_644, 2, "one", b"");
    put(2, 0o100_644, 2, "two", b"contents");
    put(3, 0o120_777, 1, "link", b"one");
    put(4, 0o020_600, 1, "dev", b"");
    put(0, 0, 1, "TRAILER!!!", b"");
    let mut seeds = compressed(&bytes)?;
    seeds.push(bytes);
    Ok(seeds)
}

/// A layout in a directory; documents have the digests of what they name.
struct Layout<'a>(&'a Path);

const OCI: &str = "application/vnd.oci.image";

impl Layout<'_> {
    fn blob(&self, kind: &str, bytes: &[u8]) -> Result<Value, String> {
        let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let dir = self.0.join("blobs/sha256");
        std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
        std::fs::write(dir.join(&hex), bytes).map_err(|error| error.to_string())?;
        Ok(json!({ "mediaType": format!("{OCI}.{kind}"), "digest": format!("sha256:{hex}"), "size": bytes.len() }))
    }

    /// The manifest of an image with one layer.
    fn manifest(&self) -> Result<Value, String> {
        let layer = tar_of(&["d/", "d/pipe"]).map_err(|error| error.to_string())?;
        let blob = self.blob("layer.v1.tar", &layer)?;
        let ids = json!({ "type": "layers", "diff_ids": [blob["digest"]] });
        let config = json!({ "architecture": "amd64", "os": "linux", "rootfs": ids });
        let config = self.blob("config.v1+json", config.to_string().as_bytes())?;
        let kind = format!("{OCI}.manifest.v1+json");
        Ok(json!({ "schemaVersion": 2, "mediaType": kind, "config": config, "layers": [blob] }))
    }

    fn open(&self, index: &[u8]) -> Result<(), String> {
        std::fs::write(self.0.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).map_err(|e| e.to_string())?;
        std::fs::write(self.0.join("index.json"), index).map_err(|error| error.to_string())?;
        let place = format!("oci:{}", self.0.display()).parse().map_err(|error: layers::Error| error.to_string())?;
        let options = OpenOptions { read: read_options(), ..OpenOptions::default() };
        let image = Image::open(&place, &options, &()).map_err(|error| error.to_string())?;
        image.apply(&mut new_tree(), &()).map_err(|error| error.to_string())
    }

    fn index_of(&self, manifest: &[u8]) -> Result<Vec<u8>, String> {
        let entry = self.blob("manifest.v1+json", manifest)?;
        Ok(json!({ "schemaVersion": 2, "manifests": [entry] }).to_string().into_bytes())
    }
}

fn index_seeds() -> Result<Vec<Vec<u8>>> {
    let folder = tempfile::tempdir_in(memory_dir())?;
    let layout = Layout(folder.path());
    let index = layout.manifest().and_then(|manifest| layout.index_of(manifest.to_string().as_bytes()));
    Ok(vec![index.map_err(anyhow::Error::msg)?])
}

fn manifest_seeds() -> Result<Vec<Vec<u8>>> {
    let folder = tempfile::tempdir_in(memory_dir())?;
    let manifest = Layout(folder.path()).manifest().map_err(anyhow::Error::msg)?;
    Ok(vec![manifest.to_string().into_bytes()])
}

fn index(dir: &Path, bytes: &[u8]) -> std::result::Result<(), String> {
    let layout = Layout(dir);
    if !dir.join("index.json").exists() {
        let manifest = layout.manifest()?;
        layout.index_of(manifest.to_string().as_bytes())?;
    }
    layout.open(bytes)
}

fn image_manifest(dir: &Path, bytes: &[u8]) -> std::result::Result<(), String> {
    let layout = Layout(dir);
    if !dir.join("index.json").exists() {
        layout.manifest()?;
    }
    // Blobs have their digests as names: the same file would be written each time but for this.
    let kept = dir.join("blobs/sha256").join(hex_of(bytes));
    let opened = layout.index_of(bytes).and_then(|index| layout.open(&index));
    let _ = std::fs::remove_file(kept);
    opened
}

fn hex_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn applied(bytes: &[u8], form: Form) -> std::result::Result<(), String> {
    let options = ManifestOptions { name: "m".to_owned(), ..ManifestOptions::default() };
    manifest::apply(&mut new_tree(), bytes, form, &options).map(drop).map_err(|error| error.to_string())
}

fn mtree(_: &Path, bytes: &[u8]) -> std::result::Result<(), String> {
    applied(bytes, Form::Mtree)
}

fn mtree_seeds() -> Result<Vec<Vec<u8>>> {
    let text = "#mtree\n/set type=file uid=3 gid=4 mode=640\n. type=dir mode=0755\netc type=dir time=5.7\n  a size=0\n \
        l type=link link=a\\040b\n..\n./n type=char device=native,1,3 xattr.user.a=eA==\n";
    Ok(vec![text.as_bytes().to_vec()])
}

fn dump(_: &Path, bytes: &[u8]) -> std::result::Result<(), String> {
    applied(bytes, Form::ComposefsDump)
}

fn dump_seeds() -> Result<Vec<Vec<u8>>> {
    let text = "/ 0 40755 2 0 0 0 1.0 - - - user.a=\\x00\n/- 3 100644 2 1 2 0 -5.6 x \\x2d\\n\\x00 ab\n\
        /l 1 120777 1 0 0 0 1.0 \\x2d - -\n/n 0 20600 1 0 0 259 7.0 - - -\n";
    Ok(vec![text.as_bytes().to_vec()])
}

fn state(_: &Path, bytes: &[u8]) -> std::result::Result<(), String> {
    FakerootState::read(bytes, "state").map(drop).map_err(|error| error.to_string())
}

fn state_seeds() -> Result<Vec<Vec<u8>>> {
    Ok(vec![b"dev=fe00,ino=9979872,mode=104755,uid=5,gid=6,nlink=2,rdev=0\n".repeat(3)])
}

fn spec(_: &Path, bytes: &[u8]) -> std::result::Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    let spec = Spec::parse(&text, Path::new("/d/disk.toml")).map_err(|error| error.to_string())?;
    disk::spec::plan(&spec, |_| Ok::<_, disk::Error>(1 << 20)).map(drop).map_err(|error| error.to_string())
}

fn spec_seeds() -> Result<Vec<Vec<u8>>> {
    let text = "[disk]\nsize = \"8G\"\nsector-size = 512\nlabel = \"gpt\"\n[[partition]]\nname = \"swap\"\n\
        type = \"swap\"\nsize = \"1G\"\nformat = \"swap\"\n[[partition]]\nname = \"root\"\ntype = \"root-x86-64\"\n\
        size = \"20%\"\nformat = \"any\"\nsubvolumes = [{ path = \"@\", default = true, mode = \"ro\" }]\n\
        options = { compress = \"zstd:9\", threads = 4 }\nowner = \"0:0\"\n[[partition]]\nname = \"var\"\n\
        type = \"4d21b016-b534-45c2-a9fb-5c16e091fd2d\"\nsize = \"rest\"\nattributes = [\"read-only\"]\n\
        [output]\nfile = \"disk.qcow2\"\ncompress = \"zstd:9\"\n";
    Ok(vec![text.as_bytes().to_vec()])
}
