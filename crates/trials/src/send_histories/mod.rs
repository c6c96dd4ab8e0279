//! Tests send: the kernel receives from our streams the subvolumes that were sent.
//!
//! The kernel on a mount, or the library, makes random histories of a subvolume, and [`cases`] has some written by
//! hand, with snapshots in between; each snapshot is sent whole and as a difference from others, forwards and
//! backwards, in both versions of the stream, with and without clones. `btrfs receive` takes the streams, and the walks
//! of the sent and received subvolumes must be equal in everything that a stream carries. Then the receiver changes the
//! last snapshot of a history and sends it back, and the origin changes it and sends it once more: [`return_trip`].
//!
//! Needs root. Callers: `cargo trials send-histories`, and a short test.

mod cases;
mod history;
mod place;
mod return_trip;

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use btrfs::{Compression, SendOptions, TreeId, Volume};
use clap::Args;
use testkit::Random;

use crate::diff_walk::kernel;
use crate::diff_walk::record::{as_sent, differences};
use crate::system::{Mount, btrfs_program, make_image, run as run_program};
use place::{Kernel, Library, Op, Place, WORK};
use return_trip::Trip;

/// Options of the trial.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of histories
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// Seed of the first
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Number of snapshots in a history
    #[arg(long, default_value_t = 4)]
    snapshots: usize,
    /// Number of changes between two snapshots
    #[arg(long, default_value_t = 60)]
    changes: usize,
    /// Directory for the images
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// The `btrfs` that receives; by default the one that the variable BTRFS names, or that of the system.
    #[arg(long, value_name = "PROGRAM")]
    btrfs: Option<String>,
    /// Keep the images and the streams of failing histories
    #[arg(long)]
    keep: bool,
}

/// Bytes of an image.
const IMAGE_BYTES: u64 = 512 << 20;

/// Runs the cases and the histories.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut failed = 0u64;
    let mut sum = Totals::default();
    let program = options.btrfs.clone().unwrap_or_else(btrfs_program);
    for case in cases::CASES {
        let dir = Folder::new(&options.dir, case.name, options.keep)?;
        report(case.name, check_case(&dir, &program, case), &dir, (&mut failed, &mut sum));
    }
    for seed in options.first..options.first.saturating_add(options.seeds) {
        let dir = Folder::new(&options.dir, &format!("seed-{seed}"), options.keep)?;
        report(&format!("seed {seed}"), check_seed((&dir, &program), seed, options), &dir, (&mut failed, &mut sum));
    }
    let Totals { streams, names, changes } = sum;
    println!("send-histories: {streams} streams of {names} names, {changes} changes made, {failed} histories differ");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(name: &str, found: Result<Totals>, dir: &Folder, (failed, sum): (&mut u64, &mut Totals)) {
    match found {
        Ok(found) => {
            sum.streams = sum.streams.saturating_add(found.streams);
            sum.names = sum.names.saturating_add(found.names);
            sum.changes = sum.changes.saturating_add(found.changes);
            dir.forget();
        }
        Err(error) => {
            println!("{name}: FAILED: {error:#}");
            *failed = failed.saturating_add(1);
        }
    }
}

#[derive(Debug, Default)]
struct Totals {
    streams: u64,
    names: usize,
    changes: usize,
}

/// The directory of one history.
struct Folder {
    path: PathBuf,
    keeps: std::cell::Cell<bool>,
}

impl Folder {
    fn new(dir: &Path, name: &str, keeps: bool) -> Result<Self> {
        let path = dir.join(format!("send-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self { path, keeps: std::cell::Cell::new(keeps) })
    }

    fn forget(&self) {
        self.keeps.set(false);
    }

    fn image(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keeps.get() {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// The side that makes the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maker {
    Kernel,
    Library,
}

/// Runs `change` on the subvolume, which is reopened, so that inode numbers are reused.
fn changed<R>(
    image: &Path,
    (maker, compression): (Maker, u64),
    change: impl FnOnce(&dyn Place) -> Result<R>,
) -> Result<R> {
    let names = ["none", "zlib", "lzo", "zstd"];
    let name = names.get(usize::try_from(compression)?).copied().unwrap_or("none");
    match maker {
        Maker::Kernel => {
            let mount = Mount::new(image, &format!("noatime,subvolid=5,compress-force={name}"))?;
            let answer = change(&Kernel(mount.path()))?;
            mount.unmount()?;
            Ok(answer)
        }
        Maker::Library => {
            let compress = Compression::parse(name);
            let volume = Volume::options().subvolume_id(TreeId::FS).compress(compress).open(image)?;
            let answer = change(&Library(&volume))?;
            volume.close()?;
            Ok(answer)
        }
    }
}

fn make_work(image: &Path, maker: Maker) -> Result<()> {
    make_image(image, IMAGE_BYTES, &[])?;
    match maker {
        Maker::Kernel => {
            let mount = Mount::new(image, "subvolid=5")?;
            run_program("btrfs", &["subvolume", "create", &mount.path().join(WORK).to_string_lossy()])?;
            mount.unmount()
        }
        Maker::Library => {
            let volume = Volume::options().subvolume_id(TreeId::FS).open(image)?;
            volume.create_subvolume(WORK)?;
            Ok(volume.close()?)
        }
    }
}

fn check_seed((dir, program): (&Folder, &str), seed: u64, options: &Options) -> Result<Totals> {
    let mut random = Random::new(seed);
    let image = dir.image("sent.img");
    let maker = if random.one_in(3) { Maker::Library } else { Maker::Kernel };
    make_work(&image, maker)?;
    let mut totals = Totals::default();
    let names: Vec<String> = (0..options.snapshots).map(|number| format!("s{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let how = (maker, random.below(4));
        totals.changes = totals.changes.saturating_add(changed(&image, how, |place| {
            if number == 0 {
                history::begin(place, &mut random)?;
            }
            let done = history::change(place, options.changes, &mut random)?;
            place.snapshot(name)?;
            Ok(done)
        })?);
    }
    let mut streams = Vec::new();
    let last = names.len().saturating_sub(1);
    for (number, name) in names.iter().enumerate() {
        let before = number.checked_sub(1).and_then(|number| names.get(number)).cloned();
        let clones: Vec<String> = if random.one_in(3) { names.iter().take(number).cloned().collect() } else { vec![] };
        streams.push(Stream { folder: "chain", name: name.clone(), parent: before, clones });
    }
    // Whole, from an early parent, and backwards.
    for (folder, name, parent) in [("whole", last, None), ("far", last, Some(0)), ("back", 0, Some(last))] {
        let parent = parent.and_then(|number: usize| names.get(number)).cloned();
        let name = names.get(name).cloned().unwrap_or_default();
        streams.push(Stream { folder, name, parent, clones: Vec::new() });
    }
    let sending =
        SendOptions { version: 1 + u32::from(seed % 2 == 1), compressed_data: seed % 4 == 3, ..SendOptions::default() };
    let received = dir.image("received.img");
    make_image(&received, IMAGE_BYTES, &[])?;
    check_streams((dir, program), (&image, &received), &streams, &sending, &mut totals)?;
    let mut parent = format!("chain/{}", names.get(last).map_or("", String::as_str));
    for (from, to, name) in [(&received, &image, "returned"), (&image, &received, "again")] {
        let trip = Trip { from, to, parent: &parent, name, maker, changes: options.changes };
        parent = trip.go((dir, program), &sending, &mut random, &mut totals)?;
    }
    Ok(totals)
}

fn check_case(dir: &Folder, program: &str, case: &cases::Case) -> Result<Totals> {
    let mut totals = Totals::default();
    let image = dir.image("sent.img");
    make_work(&image, Maker::Kernel)?;
    for (name, ops) in [("s0", (case.before)()), ("s1", (case.after)())] {
        for part in ops.split(|op| matches!(op, Op::Sync)) {
            changed(&image, (Maker::Kernel, 0), |place| {
                part.iter().try_for_each(|op| place.apply(op).with_context(|| format!("{op:?}")))
            })?;
        }
        changed(&image, (Maker::Kernel, 0), |place| place.snapshot(name))?;
    }
    let stream = |folder, name: &str, parent: Option<&str>| Stream {
        folder,
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        clones: Vec::new(),
    };
    let streams = [stream("chain", "s0", None), stream("chain", "s1", Some("s0")), stream("back", "s0", Some("s1"))];
    let received = dir.image("received.img");
    make_image(&received, IMAGE_BYTES, &[])?;
    check_streams((dir, program), (&image, &received), &streams, &SendOptions::default(), &mut totals)?;
    Ok(totals)
}

/// A stream to be made and received.
struct Stream {
    /// Directory in which it is received.
    folder: &'static str,
    name: String,
    parent: Option<String>,
    clones: Vec<String>,
}

/// Sends, has the kernel receive on the other image, and compares.
fn check_streams(
    (dir, program): (&Folder, &str),
    (image, received): (&Path, &Path),
    streams: &[Stream],
    options: &SendOptions,
    totals: &mut Totals,
) -> Result<()> {
    let volume = Volume::options().read_only(true).subvolume_id(TreeId::FS).open(image)?;
    let target = Mount::new(received, "noatime,subvolid=5")?;
    for (number, stream) in streams.iter().enumerate() {
        let file = dir.image(&format!("{number}.stream"));
        let parent = stream.parent.as_ref().map(Path::new);
        let clones: Vec<&Path> = stream.clones.iter().map(Path::new).collect();
        let context = || format!("{} from {:?}, {options:?}", stream.name, stream.parent);
        let mut output = BufWriter::new(File::create(&file)?);
        volume.send(Path::new(&stream.name), parent, &clones, options, &mut output).with_context(context)?;
        output.flush()?;
        let folder = target.path().join(stream.folder);
        std::fs::create_dir_all(&folder)?;
        let (file, folder) = (file.to_string_lossy(), folder.to_string_lossy());
        run_program(program, &["receive", "-f", &file, &folder]).with_context(context)?;
    }
    drop(volume);
    let source = Mount::new(image, "ro,noatime,subvolid=5")?;
    for stream in streams {
        let sent = as_sent(kernel::walk(&source.path().join(&stream.name))?);
        let found = as_sent(kernel::walk(&target.path().join(stream.folder).join(&stream.name))?);
        let different = differences(&sent, &found);
        if !different.is_empty() {
            let shown: Vec<String> = different.into_iter().take(5).collect();
            bail!("{} from {:?}, {options:?}: {}", stream.name, stream.parent, shown.join("; "));
        }
        totals.streams = totals.streams.saturating_add(1);
        totals.names = totals.names.saturating_add(sent.len());
    }
    source.unmount()?;
    target.unmount()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_makes_of_streams_what_was_sent() {
        if !crate::system::is_root() || run_program(&btrfs_program(), &["--version"]).is_err() {
            println!("SKIPPED: needs root and btrfs");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            seeds: 3,
            first: 1000,
            snapshots: 3,
            changes: 50,
            dir: dir.path().to_path_buf(),
            btrfs: None,
            keep: false,
        };
        assert_eq!(run(&options).unwrap(), ExitCode::SUCCESS);
    }
}
