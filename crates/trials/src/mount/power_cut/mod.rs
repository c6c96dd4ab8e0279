//! Tests power cuts of the disk below a mount: no promised data is lost.
//!
//! `kill -9` of a server (`kill-mount`) leaves the system's page cache, and so does not notice a missing flush. Here
//! the image is on a disk that records each write, each discard and each flush, with the time of their answers:
//!
//! * [`disk`] is that disk, a file system with one file;
//! * [`record`] is its record;
//! * [`session`] makes an image there, mounts it, runs the writers of `promises`, and unmounts;
//! * [`cuts`] draws moments, and makes the images that a power cut at these moments can leave;
//! * [`mod@judge`] checks each: `btrfs check` must find no error, the library (and for some images the kernel) replays
//!   the log, and then all promises made before the moment must be kept. A promise counts from the end of the record at
//!   the return of the call.
//!
//! `--self-test` checks the same record again as if the disk had forgotten flushes that it had answered. That must lose
//! data, or the trial is worth nothing; the kernel is not asked then.
//!
//! Fails at the end, with the losses; the seed repeats the writers' operations and the drawn moments, but not how
//! requests interleave, so the first image with a loss is kept. Needs root. Called by `cargo trials power-cut`.

mod cuts;
pub(crate) mod disk;
mod judge;
mod record;
mod session;

use super::promises::{Ledger, Replay, print_histories};
use crate::system;
use anyhow::{Context as _, Result, ensure};
use cuts::{Cut, Platter};
use judge::judge;
use record::Record;
use session::{DISK_BYTES, Recorded, Work};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use testkit::Random;

/// Names of modes, and their mount options.
const MODES: &[(&str, &str)] = &[
    ("default", "allow_other,user_subvol_ioctls,commit=1"),
    ("writeback", "allow_other,user_subvol_ioctls,commit=1,writeback"),
    ("nodatacow", "allow_other,user_subvol_ioctls,nodatacow"),
    ("compress", "allow_other,user_subvol_ioctls,commit=1,compress-force=lzo"),
    ("io_uring", "allow_other,user_subvol_ioctls,commit=1,io_uring"),
];
/// Modes of the short form.
const MODES_CI: [&str; 2] = ["default", "writeback"];
/// The kernel's switch for rings.
const RING_SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// Tries with fewer writers or operations: requests interleave differently each time.
const SHRINK_TRIES: usize = 3;
/// Most losses that are printed.
const SHOWN: usize = 20;
/// Number of cuts of which one must lose data if flushes are forgotten.
const SELF_TEST_CUTS: u64 = 100;

/// Why a record is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// To find losses; prints the history of the first one, and keeps its image.
    Search,
    /// To find whether data is lost, silently and without the kernel; ends with the first loss.
    Shrink,
    /// To find that data is lost, likewise.
    SelfTest,
}

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo trials power-cut --cuts 300 --seed 1\n  \
    cargo trials power-cut --mode writeback --self-test")]
pub(crate) struct Options {
    /// Modes: default, writeback, nodatacow, compress, io_uring; all if none is given
    #[arg(long, value_delimiter = ',')]
    mode: Vec<String>,
    /// Number of cuts in each mode
    #[arg(long, default_value_t = 100)]
    cuts: u64,
    /// Seed of the writers' operations and of the moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writers at the same time.
    #[arg(long, default_value_t = 8)]
    writers: u64,
    /// Operations of each writer.
    #[arg(long, default_value_t = 100)]
    operations: u64,
    /// The kernel checks every n-th cut; 0 for none
    #[arg(long, default_value_t = 10)]
    judge_every: u64,
    /// After a loss, look for fewer writers and operations that still cause one
    #[arg(long)]
    shrink: bool,
    /// Check once more with forgotten flushes, which must lose data
    #[arg(long)]
    self_test: bool,
    /// The short form: two modes, few cuts, with the self-test.
    #[arg(long)]
    ci: bool,
    /// Directory for disks, records and mounts
    #[arg(long, default_value = "/dev/shm/spinney-power-cut")]
    dir: PathBuf,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

impl Options {
    fn shortened(&self) -> Self {
        Self {
            mode: MODES_CI.map(String::from).to_vec(),
            cuts: 25,
            writers: 6,
            operations: 40,
            judge_every: 10,
            shrink: false,
            self_test: true,
            seed: self.seed,
            ci: true,
            dir: self.dir.clone(),
            program: self.program.clone(),
        }
    }

    fn work(&self, words: &str) -> Work {
        Work {
            program: self.program.clone(),
            options: words.to_owned(),
            seed: self.seed,
            writers: self.writers,
            operations: self.operations,
        }
    }

    /// The image of the cuts.
    fn image(&self, name: &str) -> PathBuf {
        self.dir.join(format!("cut-{name}.img"))
    }

    fn modes(&self) -> Result<Vec<(&'static str, &'static str)>> {
        if self.mode.is_empty() {
            return Ok(MODES.to_vec());
        }
        let find = |name: &String| {
            let mode = MODES.iter().find(|(known, _)| known == name);
            mode.copied().with_context(|| format!("there is no mode {name}"))
        };
        self.mode.iter().map(find).collect()
    }
}

/// Cuts and checks.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    ensure!(system::is_root(), "mounting as the kernel does needs root");
    let short = options.ci.then(|| options.shortened());
    let options = short.as_ref().unwrap_or(options);
    std::fs::create_dir_all(&options.dir)?;
    let mut has_losses = false;
    for (name, words) in options.modes()? {
        if name == "io_uring" && !has_rings() {
            println!("power-cut: {name}: SKIPPED: this kernel's FUSE has no rings (echo Y > {RING_SWITCH})");
            continue;
        }
        has_losses |= one(options, name, words).with_context(|| format!("-o {words}"))?;
    }
    if !has_losses {
        std::fs::remove_dir_all(&options.dir)?;
    }
    Ok(if has_losses { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn has_rings() -> bool {
    std::fs::read_to_string(RING_SWITCH).is_ok_and(|switch| switch.trim() == "Y")
}

/// Runs one mode; true if data was lost.
fn one(options: &Options, name: &str, words: &str) -> Result<bool> {
    let start = Instant::now();
    let work = options.work(words);
    let recorded = Recorded::of(&work, &options.dir)?;
    let worked = start.elapsed();
    let trial = Trial { options, recorded: &recorded, image: options.image(name) };
    let tally = trial.run(&recorded.record, Purpose::Search)?;
    for loss in tally.losses.iter().take(SHOWN) {
        println!("LOST: {name}, seed {}: {loss}", options.seed);
    }
    println!(
        "power-cut: {name}: {} cuts in {} writes, {} flushes and {} promises, {} with a log, {} with a torn \
         superblock, {} seen by the kernel, {} lost something, seed {}, {:.1} s of work, {:.1} s",
        tally.cuts,
        recorded.record.changes.len(),
        recorded.record.flushes.len(),
        recorded.promises(),
        tally.with_log,
        tally.torn,
        tally.by_kernel,
        tally.bad,
        options.seed,
        worked.as_secs_f64(),
        start.elapsed().as_secs_f64(),
    );
    if options.self_test && tally.bad == 0 {
        let every = |every| self_test(&trial, name, every);
        every(1)?;
        every(2)?;
    }
    match tally.bad {
        0 => std::fs::remove_file(&trial.image)?,
        _ if options.shrink => shrink(options, name, words)?,
        _ => println!("power-cut: {name}: --mode {name} --shrink looks for less that loses something"),
    }
    Ok(tally.bad > 0)
}

/// Finds and prints the fewest writers and operations that still lose data.
fn shrink(options: &Options, name: &str, words: &str) -> Result<()> {
    let mut work = options.work(words);
    loop {
        let smaller = [(work.writers / 2, work.operations), (work.writers, work.operations / 2)];
        let mut found = None;
        for (writers, operations) in smaller.into_iter().filter(|(writers, operations)| writers.min(operations) > &0) {
            let tried = Work { writers, operations, ..work.clone() };
            if loses(options, name, &tried)? {
                found = Some(tried);
                break;
            }
        }
        match found {
            Some(smaller) => work = smaller,
            None => break,
        }
    }
    println!(
        "power-cut: still lost with --mode {name} --seed {} --cuts {} --writers {} --operations {}",
        work.seed, options.cuts, work.writers, work.operations
    );
    Ok(())
}

fn loses(options: &Options, name: &str, work: &Work) -> Result<bool> {
    for _ in 0..SHRINK_TRIES {
        let recorded = Recorded::of(work, &options.dir)?;
        let trial = Trial { options, recorded: &recorded, image: options.image(name) };
        if trial.run(&recorded.record, Purpose::Shrink)?.bad > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Forgets one of `every` flushes since the image was made.
fn self_test(trial: &Trial<'_>, name: &str, every: usize) -> Result<()> {
    let record = Record::open(&trial.options.dir.join("record"))?.forgetting(trial.recorded.made, every);
    let tally = trial.run(&record, Purpose::SelfTest)?;
    ensure!(tally.bad > 0, "a disk that forgets one flush of {every} was not noticed");
    println!("power-cut: {name}: one flush of {every} forgotten: noticed after {} cuts", tally.cuts);
    Ok(())
}

/// Counts of some cuts.
#[derive(Debug, Default)]
struct Tally {
    cuts: u64,
    /// Cuts with a loss.
    bad: u64,
    by_kernel: u64,
    with_log: u64,
    torn: u64,
    losses: Vec<String>,
}

/// Cuts in one recording.
struct Trial<'a> {
    options: &'a Options,
    recorded: &'a Recorded,
    /// The image of the cuts.
    image: PathBuf,
}

impl Trial<'_> {
    /// `record` is the recorded one, or a part of it.
    fn run(&self, record: &Record, purpose: Purpose) -> Result<Tally> {
        let is_search = purpose == Purpose::Search;
        let judge_every = if is_search { self.options.judge_every } else { 0 };
        let mut random = Random::new(self.options.seed);
        let count = if purpose == Purpose::SelfTest { SELF_TEST_CUTS } else { self.options.cuts };
        let mut cuts = cuts::draw(record, self.recorded.made, count, &mut random)?;
        if purpose == Purpose::SelfTest {
            cuts.iter_mut().for_each(Cut::drop_the_rest);
        }
        let mut platter = Platter::new(record, &self.image, DISK_BYTES)?;
        let mut replays: Vec<Replay<'_>> = self.recorded.diaries.iter().map(|diary| diary.replay()).collect();
        let mut tally = Tally::default();
        for cut in &cuts {
            platter.cut(cut)?;
            let ledgers: Vec<&Ledger> = replays.iter_mut().map(|replay| replay.at(cut.place)).collect();
            let ask_kernel = judge_every > 0 && cut.number % judge_every == judge_every / 2;
            let verdict = judge(&self.image, &ledgers, ask_kernel).with_context(|| format!("{cut}"))?;
            tally.cuts += 1;
            tally.by_kernel += u64::from(verdict.by_kernel);
            tally.with_log += u64::from(verdict.with_log);
            tally.torn += u64::from(verdict.is_torn);
            let lines = verdict.lines();
            if lines.is_empty() {
                continue;
            }
            if is_search && tally.bad == 0 {
                print_histories(ledgers.iter().copied(), &verdict.missed);
                self.keep(cut)?;
            }
            tally.bad += 1;
            tally.losses.extend(lines.into_iter().map(|line| format!("{cut}: {line}")));
            if !is_search {
                break;
            }
        }
        Ok(tally)
    }

    fn keep(&self, cut: &Cut) -> Result<()> {
        let kept = self.image.with_extension(format!("lost-{}.img", cut.number));
        system::copy_sparse(&self.image, &kept)?;
        println!("the image of {cut} is kept as {}", kept.display());
        Ok(())
    }
}
