//! Applies many hostile send streams to a volume in memory: the fuzz target `apply`, without nightly and without
//! coverage. An input with a new outcome is kept and mutated, so that outcomes multiply. Or gives many more streams to
//! the decoder alone: the target `stream`. Called by `cargo trials fuzz-streams`.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use blockdev::Device as _;
use testkit::Random;
use testkit::reference::{self, Checked};

#[allow(
    clippy::all,
    clippy::as_conversions,
    clippy::indexing_slicing,
    clippy::expect_used,
    clippy::allow_attributes_without_reason,
    unreachable_pub,
    dead_code,
    reason = "it belongs to a crate of its own, with rules of its own"
)]
#[path = "../../../fuzz/src/apply.rs"]
mod apply;

#[allow(
    clippy::all,
    clippy::expect_used,
    clippy::allow_attributes_without_reason,
    unreachable_pub,
    reason = "it belongs to a crate of its own, with rules of its own"
)]
#[path = "../../../fuzz/src/stream.rs"]
mod stream;

/// Longest input in bytes.
const BYTES_MAX: usize = 400;
/// Most inputs that are kept to be mutated.
const POOL_MAX: usize = 4000;
/// An input that takes longer is a failure.
const INPUT_TIME_MAX: Duration = Duration::from_secs(20);
/// Bytes of the device that are copied at once.
const COPY_BYTES: usize = 1 << 20;

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo trials fuzz-streams --executions 100000")]
pub(crate) struct Options {
    /// Number of streams to apply
    #[arg(long, default_value_t = 10_000)]
    executions: u64,
    /// Only decode them, which is a thousand times as fast
    #[arg(long)]
    decoder: bool,
    /// Seed of the streams
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Streams to one volume before `btrfs check`, if that is installed
    #[arg(long, default_value_t = 2000)]
    check_every: u64,
    /// Directory for the checked image, and for failing inputs
    #[arg(long, default_value = "target/fuzz-streams")]
    dir: PathBuf,
}

/// Applies them, or decodes them.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.dir)?;
    if options.decoder {
        return decode(root, options);
    }
    let mut random = Random::new(options.seed);
    let mut pool = seeds(root, "apply")?;
    let mut ways: BTreeMap<String, u64> = BTreeMap::new();
    let (start, mut done, mut checks) = (Instant::now(), 0, 0);
    while done < options.executions {
        let applier = apply::Applier::new();
        let count = options.check_every.max(1).min(options.executions.saturating_sub(done));
        for _ in 0..count {
            let input = drawn(&pool, &mut random);
            let said = timed(options, done, &input, || applier.apply(&input))?;
            let times = ways.entry(way(&said)).or_default();
            *times += 1;
            if *times <= 3 && pool.len() < POOL_MAX {
                pool.push(input);
            }
            done += 1;
        }
        checks += u64::from(check(applier, &options.dir)?);
    }
    let (ways, seconds) = (ways.len(), start.elapsed().as_secs());
    println!("fuzz-streams: {done} streams applied, seed {}, {ways} ways to end, {seconds} s", options.seed);
    println!("fuzz-streams: {checks} images passed btrfs check");
    Ok(())
}

/// Decodes streams, half of which have correct framing.
fn decode(root: &Path, options: &Options) -> Result<()> {
    let (mut random, start) = (Random::new(options.seed), Instant::now());
    let mut pool = seeds(root, "stream")?;
    let mut commands = BTreeMap::new();
    for number in 0..options.executions {
        let input = drawn(&pool, &mut random);
        let decoded = timed(options, number, &input, || stream::stream(&input))?;
        let times: &mut u64 = commands.entry(decoded).or_default();
        *times += 1;
        // An input with a new number of commands or bytes is worth mutating.
        if *times <= 3 && pool.len() < POOL_MAX {
            pool.push(input);
        }
    }
    let (most, seconds) = (commands.keys().next_back().copied().unwrap_or(0), start.elapsed().as_secs());
    let decoded: u64 = commands.iter().filter(|(count, _)| **count > 0).map(|(_, times)| *times).sum();
    println!(
        "fuzz-streams: {} inputs decoded, seed {}, {decoded} of them had commands that could be read, {most} at most, \
         {seconds} s",
        options.executions, options.seed
    );
    Ok(())
}

/// The result of an input; a failure if it panics or takes too long.
fn timed<R>(options: &Options, number: u64, input: &[u8], work: impl FnOnce() -> R) -> Result<R> {
    let began = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(work)).ok();
    let took = began.elapsed();
    match result.filter(|_| took < INPUT_TIME_MAX) {
        Some(result) => Ok(result),
        None => {
            let path = options.dir.join("failed");
            std::fs::write(&path, input)?;
            bail!("seed {}, stream {number}: failed after {took:?}; the input is {}", options.seed, path.display())
        }
    }
}

fn seeds(root: &Path, target: &str) -> Result<Vec<Vec<u8>>> {
    let corpus = root.join("fuzz/corpus").join(target);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&corpus).with_context(|| corpus.display().to_string())? {
        paths.push(entry?.path());
    }
    paths.sort();
    paths.iter().map(|path| Ok(std::fs::read(path)?)).collect()
}

/// The outcome of a stream, without the numbers in its message.
fn way(said: &str) -> String {
    said.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

/// An input of the pool, mutated a few times.
fn drawn(pool: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = pool.get(random.index(pool.len())).cloned().unwrap_or_default();
    for _ in 0..=random.below(5) {
        change(&mut input, pool, random);
    }
    input
}

fn change(input: &mut Vec<u8>, pool: &[Vec<u8>], random: &mut Random) {
    let byte = |random: &mut Random| u8::try_from(random.below(256)).unwrap_or(0);
    let at = random.index(input.len().max(1)).min(input.len());
    match random.below(5) {
        0 | 1 => {
            let new = byte(random);
            if let Some(old) = input.get_mut(at) {
                *old = new;
            }
        }
        2 => {
            let new: Vec<u8> = (0..random.below(12)).map(|_| byte(random)).collect();
            input.splice(at..at, new);
        }
        3 => {
            let end = at.saturating_add(random.index(8)).min(input.len());
            input.drain(at..end);
        }
        _ => {
            let other = pool.get(random.index(pool.len())).map_or(&[][..], |other| other.get(2..).unwrap_or_default());
            let from = random.index(other.len().max(1)).min(other.len());
            let piece: Vec<u8> = other.iter().skip(from).take(random.index(40)).copied().collect();
            input.splice(at..at, piece);
        }
    }
    input.truncate(BYTES_MAX);
}

/// Passes the volume through `btrfs check`; false if that is not installed.
fn check(applier: apply::Applier, dir: &Path) -> Result<bool> {
    let device = applier.close();
    let path = dir.join("checked.img");
    let file = File::create(&path)?;
    let size = device.size_bytes();
    file.set_len(size)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    while at < size {
        device.read_at(at, &mut buffer)?;
        if buffer.iter().any(|byte| *byte != 0) {
            file.write_all_at(&buffer, at)?;
        }
        at += u64::try_from(COPY_BYTES)?;
    }
    drop(file);
    let checked = reference::check(&path)?;
    std::fs::remove_file(&path)?;
    Ok(checked == Checked::Clean)
}
