//! Tests receive. The kernel's btrfs makes random histories of a subvolume, takes snapshots and sends them, whole and
//! as differences, in both versions of the format. Spinney receives all of it into an image of its own; `btrfs check`
//! must find no error there, and the kernel must walk the same files in each snapshot. Called by
//! `cargo trials send-receive`.
//!
//! `history` draws the changes between two snapshots. A [`Chain`] holds the streams of one history and the kernel's
//! walks of its snapshots. Needs root.

mod history;

use crate::diff_walk::kernel;
use crate::diff_walk::record::{self, Walk};
use crate::system::{self, Mount, btrfs_program};
use anyhow::{Context, Result, ensure};
use btrfs::{MakeOptions, Volume};
use btrfs_receive::{Options as ReceiveOptions, Receiver};
use history::History;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const IMAGE_BYTES: u64 = 1 << 30;
const DIFFERENCES_SHOWN: usize = 10;
/// Mount options that decide how the kernel stores the sent data.
const MOUNT_OPTIONS: [&str; 4] = ["rw", "rw,compress=zstd", "rw,compress-force=lzo", "rw,compress=zlib"];
/// Options of the kernel's streams.
const STREAM_OPTIONS: [&[&str]; 3] = [&[], &["--proto", "2"], &["--proto", "2", "--compressed-data"]];

/// Options of the trial.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of histories
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// Seed of the first
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of snapshots of each
    #[arg(long, default_value_t = 4)]
    snapshots: u64,
    /// Number of changes between two snapshots
    #[arg(long, default_value_t = 60)]
    steps: u64,
    /// Directory for the images
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
}

/// The streams of one history, in the order of receiving, and the snapshots.
struct Chain {
    streams: Vec<PathBuf>,
    /// Path of each received snapshot, and the kernel's walk of it.
    snapshots: Vec<(String, Walk)>,
}

/// Runs all histories.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if !system::is_root() {
        println!("send-receive: skipped, mounting needs root");
        return Ok(ExitCode::SUCCESS);
    }
    let folder = options.dir.join(format!("spinney-send-receive-{}", std::process::id()));
    let (mut failed, mut names) = (0u64, 0usize);
    for seed in options.seed..options.seed.saturating_add(options.seeds) {
        std::fs::create_dir_all(&folder)?;
        match run_one(options, seed, &folder) {
            Ok(count) => names = names.saturating_add(count),
            Err(error) => {
                println!("seed {seed}: FAILED: {error:#}");
                failed = failed.saturating_add(1);
            }
        }
        std::fs::remove_dir_all(&folder)?;
    }
    println!("send-receive: {} histories, {names} names received, {failed} failed", options.seeds);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one history; returns the number of compared names.
fn run_one(options: &Options, seed: u64, folder: &Path) -> Result<usize> {
    let chain = sent_by_kernel(options, seed, folder)?;
    let image = folder.join("received.img");
    receive(&chain, &image)?;
    let checked = testkit::reference::check(&image).context("btrfs check")?;
    ensure!(checked == testkit::reference::Checked::Clean, "btrfs check is not installed");
    let mount = Mount::new(&image, "ro,subvolid=5")?;
    let mut count = 0;
    for (name, expected) in &chain.snapshots {
        let found = record::as_sent(kernel::walk(&mount.path().join(name))?);
        let differences = record::differences(expected, &found);
        for difference in differences.iter().take(DIFFERENCES_SHOWN) {
            println!("  {name}: {difference}");
        }
        ensure!(differences.is_empty(), "{} differences in {name}", differences.len());
        count += found.len();
    }
    mount.unmount()?;
    Ok(count)
}

/// A history that the kernel made and sent.
fn sent_by_kernel(options: &Options, seed: u64, folder: &Path) -> Result<Chain> {
    let pick = |count: usize| usize::try_from(seed).unwrap_or_default().checked_rem(count).unwrap_or_default();
    let image = folder.join("sent.img");
    system::make_image(&image, IMAGE_BYTES, &[])?;
    let mount = Mount::new(&image, MOUNT_OPTIONS.get(pick(MOUNT_OPTIONS.len())).copied().unwrap_or("rw"))?;
    let top = mount.path();
    let path = |name: &str| top.join(name).to_string_lossy().into_owned();
    let btrfs = |words: &[&str]| system::run(&btrfs_program(), words);
    btrfs(&["subvolume", "create", &path("live")])?;
    let mut history = History::new(seed, &top.join("live"));
    let stream_options = STREAM_OPTIONS.get(pick(STREAM_OPTIONS.len())).copied().unwrap_or_default();
    let mut chain = Chain { streams: Vec::new(), snapshots: Vec::new() };
    for number in 0..options.snapshots {
        history.go_on(options.steps)?;
        let name = format!("s{number}");
        btrfs(&["subvolume", "snapshot", "-r", &path("live"), &path(&name)])?;
        let stream = folder.join(format!("{name}.stream"));
        let (file, source) = (stream.to_string_lossy().into_owned(), path(&name));
        let mut words = vec!["send", "-q", "-f", &file];
        words.extend_from_slice(stream_options);
        let (parent, first) = (path(&format!("s{}", number.saturating_sub(1))), path("s0"));
        if number > 0 {
            words.extend(["-p", &parent]);
        }
        if number > 1 && seed.is_multiple_of(2) {
            words.extend(["-c", &first]);
        }
        words.push(&source);
        btrfs(&words)?;
        chain.streams.push(stream);
        chain.snapshots.push((name.clone(), record::as_sent(kernel::walk(&top.join(&name))?)));
    }
    // Snapshots sent as differences are also sent whole: to a directory of its own, as the names are the same.
    let stream = folder.join("whole.stream");
    let (file, source) = (stream.to_string_lossy().into_owned(), path(&format!("s{}", options.snapshots - 1)));
    btrfs(&[&["send", "-q", "-f", &file], stream_options, &[&source]].concat())?;
    chain.streams.push(stream);
    let last = chain.snapshots.last().context("no snapshots")?.clone();
    chain.snapshots.push((format!("whole/{}", last.0), last.1));
    mount.unmount()?;
    std::fs::remove_file(image)?;
    Ok(chain)
}

/// Receives a chain to a new image: a stream named `whole` to a directory of that name.
fn receive(chain: &Chain, image: &Path) -> Result<()> {
    let make = MakeOptions { size: Some(IMAGE_BYTES), ..MakeOptions::default() };
    let volume = Volume::make(image, &make)?;
    volume.create_dir("whole")?;
    for stream in &chain.streams {
        let is_whole = stream.file_stem().is_some_and(|stem| stem == "whole");
        let dir = Path::new(if is_whole { "/whole" } else { "/" });
        let mut receiver = Receiver::new(&volume, dir, ReceiveOptions::default())?;
        let received = receiver.receive(BufReader::new(File::open(stream)?), &(), &mut ());
        received.with_context(|| stream.display().to_string())?;
        ensure!(receiver.report().subvolumes.len() == 1, "not one subvolume in {}", stream.display());
    }
    volume.close()?;
    Ok(())
}
