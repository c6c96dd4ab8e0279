//! Tests that Spinney reads and writes volumes on several devices as the kernel does.
//!
//! For each profile, `mkfs.btrfs` makes a volume on files of different sizes, and the kernel fills it. The library then
//! walks all files: with all devices, with each set of missing devices that the profile tolerates, and with the
//! contents of as many devices overwritten. Each walk has to equal the kernel's. A check of all data must find no
//! error, a rescue and a mount must show the same contents, and reading must not change a byte of the devices. Then
//! Spinney and the kernel write in turns ([`writing`]), and the devices change while Spinney has the volume mounted
//! ([`mounting`]). For volumes with parity, Spinney must refuse to write, a scrub must find no wrong parity, and a
//! balance converts them. The last part tests seeds ([`sprouts`]). With `--rounds`, Spinney and the kernel change one
//! volume in turns instead ([`ping_pong`]).
//!
//! Needs root, without which it is skipped, and a built `spinney` program. Called by `cargo trials several-devices`.

mod mounting;
mod ping_pong;
mod sprouts;
mod writing;

use crate::diff_walk::record::{self, Record, Walk};
use crate::diff_walk::{kernel, library};
use crate::system::{Mount, attach, btrfs_program, is_root, mkfs_program, run as run_program};
use anyhow::{Context, Result, bail, ensure};
use blockdev::{Access, Device, Locator};
use btrfs::{TreeId, Volume};
use btrfs_check::{CodeTable as _, Pass, PassTable as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testkit::Random;

/// Sizes of the devices in bytes; a volume with N devices uses the first N.
const DEVICE_BYTES: [u64; 4] = [300 << 20, 450 << 20, 330 << 20, 280 << 20];
const FILES: u64 = 70;
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Size of one file that spans many stripes.
const LARGE_BYTES: usize = 12 << 20;
/// The trial overwrites a device from this offset, after the first superblock. It also leaves out the second
/// superblock.
const DAMAGE_FROM: u64 = 1 << 20;
const SUPERBLOCK_MIRROR: std::ops::Range<u64> = 64 << 20..65 << 20;
const PIECE: usize = 1 << 20;

/// A kind of volume: options of `mkfs.btrfs`, and how many devices may be lost.
struct Layout {
    name: &'static str,
    data: &'static str,
    metadata: &'static str,
    devices: usize,
    may_lose: usize,
    /// The profile has parity, which Spinney reads but does not write.
    is_read_only: bool,
}

const fn layout(data: &'static str, metadata: &'static str, devices: usize, may_lose: usize) -> Layout {
    Layout { name: data, data, metadata, devices, may_lose, is_read_only: false }
}

const fn read_only(
    name: &'static str,
    data: &'static str,
    metadata: &'static str,
    devices: usize,
    may_lose: usize,
) -> Layout {
    Layout { name, is_read_only: true, ..layout(data, metadata, devices, may_lose) }
}

const LAYOUTS: &[Layout] = &[
    layout("single", "dup", 2, 0),
    Layout { name: "dup", ..layout("dup", "dup", 2, 0) },
    layout("raid0", "raid1", 3, 0),
    Layout { name: "raid0-all", ..layout("raid0", "raid0", 2, 0) },
    layout("raid1", "raid1", 3, 1),
    layout("raid10", "raid10", 4, 1),
    layout("raid1c3", "raid1c3", 4, 2),
    layout("raid1c4", "raid1c4", 4, 3),
    read_only("raid5", "raid5", "raid5", 3, 1),
    read_only("raid5-of-4", "raid5", "raid1", 4, 1),
    read_only("raid6", "raid6", "raid6", 4, 2),
    read_only("raid6-of-3", "raid6", "raid1c3", 3, 2),
];

/// Name of the seed tests in `--only`.
const SEEDS: &str = "seeds";

/// Options of the trial.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only layouts with this in their name; `seeds` stands for the trial of seeds.
    #[arg(long)]
    only: Option<String>,
    /// Seed of the files' contents.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only change one volume in turns, in so many rounds that are chosen at random.
    #[arg(long, value_name = "COUNT", conflicts_with = "only")]
    rounds: Option<u64>,
    /// Directory for the images
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// The `spinney` program, if not target/release/spinney.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Tests every layout.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    if !is_root() {
        println!("several-devices: skipped, mounting needs root");
        return Ok(());
    }
    let program = options.program.clone().unwrap_or_else(|| root.join("target/release/spinney"));
    let folder = options.dir.join(format!("spinney-several-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let wanted = LAYOUTS.iter().filter(|layout| options.only.as_ref().is_none_or(|only| layout.name.contains(only)));
    let trial = |layout| Trial { layout, folder: &folder, program: &program };
    if let (Some(rounds), Some(layout)) = (options.rounds, LAYOUTS.first()) {
        let played = trial(layout).ping_pong(rounds, options.seed);
        std::fs::remove_dir_all(&folder)?;
        return played.with_context(|| format!("ping-pong, seed {}", options.seed));
    }
    let tried = wanted.clone().try_for_each(|layout| {
        let tried = trial(layout).run(options.seed);
        tried.with_context(|| format!("{}, seed {}", layout.name, options.seed))
    });
    let has_seeds = options.only.as_ref().is_none_or(|only| SEEDS.contains(only.as_str()));
    let seeds = LAYOUTS.first().filter(|_| has_seeds && tried.is_ok());
    let tried = tried.and_then(|()| seeds.map_or(Ok(()), |layout| trial(layout).sprouts(options.seed)));
    std::fs::remove_dir_all(&folder)?;
    tried?;
    println!("several-devices: {} layouts, 0 differences", wanted.count());
    Ok(())
}

struct Trial<'a> {
    layout: &'a Layout,
    folder: &'a Path,
    program: &'a Path,
}

impl Trial<'_> {
    fn run(&self, seed: u64) -> Result<()> {
        let images: Vec<PathBuf> = (0..self.layout.devices).map(|n| self.folder.join(format!("{n}.img"))).collect();
        let expected = self.make(&images, seed)?;
        let list = joined(&images);
        let before = digests(&images)?;
        compare(&expected, &walk(&list, false)?).context("a walk")?;
        self.check(&images)?;
        self.rescue(&images, &expected)?;
        self.refusals(&images)?;
        if self.layout.is_read_only {
            self.only_read(&list)?;
        }
        self.mounted(&list, &expected)?;
        let mut sets = 0usize;
        for lost in lost_sets(images.len()).filter(|lost| lost.len() <= self.layout.may_lose) {
            let left: Vec<PathBuf> =
                (0..).zip(&images).filter(|(n, _)| !lost.contains(n)).map(|(_, path)| path.clone()).collect();
            compare(&expected, &walk(&joined(&left), true)?)
                .with_context(|| format!("without the devices {lost:?}"))?;
            sets += 1;
        }
        ensure!(digests(&images)? == before, "a device was changed by reading");
        for (count, image) in (1usize..).zip(&images).take(self.layout.may_lose) {
            if count < self.layout.may_lose && self.layout.is_read_only {
                // In addition to the devices overwritten so far, one more device is missing.
                self.destroyed_and_missing(&images, count, &expected, seed)?;
            }
            destroy(image, seed)?;
            compare(&expected, &walk(&list, false)?).with_context(|| format!("with {count} devices destroyed"))?;
        }
        if self.layout.is_read_only {
            // The contents were destroyed above.
            let _ = self.make(&images, seed)?;
            self.left_parity(&images, seed + 200).context("leaving parity")?;
        } else {
            self.written(&images, seed).context("writing in turns")?;
            let _ = self.make(&images, seed)?;
            if images.len() > 2 || self.layout.may_lose == 0 {
                self.changed_while_mounted(&images, seed + 300).context("while mounted")?;
            }
        }
        let (name, count) = (self.layout.name, expected.len());
        println!("{name}: {} devices, {count} names, {sets} sets of missing devices, 0 differences", images.len());
        Ok(())
    }

    /// Makes and fills a volume, and returns the kernel's walk of it.
    fn make(&self, images: &[PathBuf], seed: u64) -> Result<Walk> {
        for (image, bytes) in images.iter().zip(DEVICE_BYTES) {
            std::fs::File::create(image)?.set_len(bytes)?;
        }
        let words: Vec<String> = images.iter().map(|image| image.display().to_string()).collect();
        let mut arguments = vec!["-q", "-f", "-d", self.layout.data, "-m", self.layout.metadata];
        arguments.extend(words.iter().map(String::as_str));
        run_program(&mkfs_program(), &arguments)?;
        let mount = Attached::new(images)?.mount("subvolid=5")?;
        fill(mount.path(), seed)?;
        mount.unmount()?;
        let mount = Attached::new(images)?.mount("ro,subvolid=5")?;
        let walk = kernel::walk(mount.path())?;
        mount.unmount()?;
        Ok(walk)
    }

    fn check(&self, images: &[PathBuf]) -> Result<()> {
        let passes = Pass::all().iter().map(|info| info.pass).collect();
        let options = btrfs_check::Options { passes, threads: 2, ..btrfs_check::Options::default() };
        let report = btrfs_check::check(&open(images)?, &options, &())?;
        let codes: Vec<_> = report.counts.iter().map(|(code, count)| format!("{} {count}", code.id())).collect();
        ensure!(codes.is_empty(), "a check finds {codes:?}");
        Ok(())
    }

    /// Asserts that Spinney refuses to open a volume with parity for writing, and that a scrub finds no wrong parity.
    fn only_read(&self, list: &Path) -> Result<()> {
        let program = self.program.to_string_lossy();
        let list = list.to_string_lossy();
        let name = self.layout.data.to_ascii_uppercase();
        let refused = run_program(&program, &["mkdir", &list, "/new"]).err().context("parity was written")?;
        ensure!(format!("{refused:#}").contains(&format!("writing with {name} block groups")), "{refused:#}");
        run_program(&program, &["scrub", "start", "--readonly", &list]).map(drop)
    }

    /// Asserts that the volume can be read with the first devices overwritten and any one of the others missing.
    fn destroyed_and_missing(&self, images: &[PathBuf], destroyed: usize, expected: &Walk, seed: u64) -> Result<()> {
        let copies: Vec<PathBuf> = images.iter().map(|image| image.with_extension("copy")).collect();
        for (image, copy) in images.iter().zip(&copies) {
            run_program("cp", &["--sparse=always".as_ref(), image.as_os_str(), copy.as_os_str()])?;
        }
        copies.iter().take(destroyed).try_for_each(|copy| destroy(copy, seed))?;
        for missing in copies.iter().skip(destroyed) {
            let left: Vec<PathBuf> = copies.iter().filter(|copy| *copy != missing).cloned().collect();
            compare(expected, &walk(&joined(&left), true)?)
                .with_context(|| format!("{destroyed} devices destroyed, {} missing", missing.display()))?;
        }
        copies.iter().try_for_each(|copy| Ok(std::fs::remove_file(copy)?))
    }

    /// Asserts that a rescue finds the same contents as the kernel's walk.
    fn rescue(&self, images: &[PathBuf], expected: &Walk) -> Result<()> {
        let rescue = btrfs_rescue::Rescue::open(&open(images)?, 2, Arc::new(()))?;
        let volume = rescue.view(None)?.volume();
        for (path, record) in expected.iter().filter(|(_, record)| record.sha256.is_some()) {
            let found = library::sha256(&volume, path, record.size);
            let name = || format!("a rescue: /{}", path.escape_ascii());
            ensure!(Some(found.with_context(name)?) == record.sha256, "{}: other contents", name());
        }
        Ok(())
    }

    /// Asserts that a mount by Spinney shows the same contents.
    fn mounted(&self, list: &Path, expected: &Walk) -> Result<()> {
        let point = self.folder.join("mnt");
        std::fs::create_dir_all(&point)?;
        let (list, shown) = (list.to_string_lossy(), point.to_string_lossy());
        run_program(&self.program.to_string_lossy(), &["mount", &list, &shown, "-o", "ro,subvolid=5"])?;
        let walked = kernel::walk(&point);
        run_program(&self.program.to_string_lossy(), &["umount", &shown])?;
        same_contents(expected, &walked?).context("a mount")
    }

    /// Asserts that Spinney refuses to open the volume with one device, and refuses to repair it even with all devices.
    fn refusals(&self, images: &[PathBuf]) -> Result<()> {
        let first = &images[..1];
        let error = Volume::options().read_only(true).open(joined(first)).err().context("one device was enough")?;
        let count = format!("1 of {} devices", images.len());
        let is_of_members = matches!(error.cause::<btrfs::Error>(), Some(btrfs::Error::Members(_)));
        ensure!(is_of_members && format!("{error:?}").contains("present: 1"), "{error}");
        let list = joined(images).display().to_string();
        let one = joined(first).display().to_string();
        let name = self.layout.data.to_ascii_uppercase();
        let unwritten = format!("writing with {name} block groups");
        // Opening reads the system chunks in the superblock before it compares the number of devices.
        let is_seen_first = self.layout.is_read_only && self.layout.data == self.layout.metadata;
        for (words, expected) in [
            (vec!["mkdir", &one, "/new"], if is_seen_first { &unwritten } else { count.as_str() }),
            (vec!["repair", "--apply", &list], "is not repaired"),
            (vec!["repair", "--apply", &one], "is not repaired"),
            (vec!["ls", &one], &count),
        ] {
            let refused = run_program(&self.program.to_string_lossy(), &words).err();
            let refused = refused.with_context(|| format!("{words:?} succeeded"))?.to_string();
            ensure!(refused.contains(expected), "{words:?}: {refused}");
        }
        let mut words = vec!["ls".to_owned(), one];
        words.extend(images.iter().skip(1).flat_map(|image| ["--device".to_owned(), image.display().to_string()]));
        ensure!(run_program(&self.program.to_string_lossy(), &words)?.contains("large"), "{words:?}");
        Ok(())
    }
}

/// Loop devices of images, detached when dropped.
struct Attached(Vec<String>);

impl Attached {
    fn new(images: &[PathBuf]) -> Result<Self> {
        let mut attached = Self(Vec::new());
        for image in images {
            attached.0.push(attach(image, false)?);
        }
        Ok(attached)
    }

    /// Mounts the volume on these devices.
    fn mount(self, options: &str) -> Result<OnLoop> {
        let (first, others) = self.0.split_first().context("no device")?;
        let others = others.iter().map(|device| format!(",device={device}")).collect::<String>();
        let mount = Mount::of_device(first, &format!("{options}{others}"))?;
        Ok(OnLoop { mount, _devices: self })
    }
}

impl Attached {
    /// Detaches the devices when the mount that took them lets them go.
    fn leave_to_mount(mut self) {
        for device in std::mem::take(&mut self.0) {
            // The kernel keeps a loop device in use until then.
            if let Err(error) = run_program("losetup", &["-d", &device]) {
                eprintln!("{error:#}");
            }
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        for device in &self.0 {
            if let Err(error) = run_program("losetup", &["-d", device]) {
                eprintln!("{error:#}");
            }
        }
    }
}

/// A mount by the kernel, and its loop devices, which are detached when it is dropped.
struct OnLoop {
    mount: Mount,
    _devices: Attached,
}

impl OnLoop {
    fn path(&self) -> &Path {
        self.mount.path()
    }

    fn unmount(self) -> Result<()> {
        self.mount.unmount()
    }
}

fn fill(top: &Path, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    for number in 0..FILES {
        let dir = top.join(format!("d{}", number % 7));
        std::fs::create_dir_all(&dir)?;
        let len = usize::try_from(random.below(FILE_BYTES_MAX))?;
        std::fs::write(dir.join(format!("f{number}")), random.noise(if number % 3 == 0 { len / 500 } else { len }))?;
        if number == FILES / 2 {
            run_program(
                &btrfs_program(),
                &["subvolume", "snapshot", &top.to_string_lossy(), &top.join("snap").to_string_lossy()],
            )?;
        }
    }
    std::fs::write(top.join("large"), random.noise(LARGE_BYTES))?;
    Ok(())
}

fn joined(images: &[PathBuf]) -> PathBuf {
    let words: Vec<_> = images.iter().map(|image| image.as_os_str()).collect();
    words.join(std::ffi::OsStr::new(",")).into()
}

fn open(images: &[PathBuf]) -> Result<Vec<Arc<dyn Device>>> {
    images.iter().map(|image| Ok(blockdev::open(&Locator::parse(image)?, Access::READ)?)).collect()
}

fn walk(list: &Path, degraded: bool) -> Result<Walk> {
    let options = Volume::options().read_only(true).degraded(degraded).subvolume_id(TreeId::FS);
    library::walk_volume(&*options.open(list)?)
}

fn compare(expected: &Walk, found: &Walk) -> Result<()> {
    let differences = record::differences(expected, found);
    match differences.first() {
        None => Ok(()),
        Some(first) => bail!("{} differences from the kernel's walk, the first: {first}", differences.len()),
    }
}

/// Asserts that names, types, sizes and contents are equal.
fn same_contents(expected: &Walk, found: &Walk) -> Result<()> {
    let contents = |record: &Record| (record.mode, record.sha256, record.target.clone());
    for (path, record) in expected {
        let there = found.get(path).map(contents);
        ensure!(there == Some(contents(record)), "/{}: differs", path.escape_ascii());
    }
    Ok(())
}

/// Every non-empty proper subset of the devices.
fn lost_sets(count: usize) -> impl Iterator<Item = Vec<usize>> {
    (1..(1usize << count) - 1).map(move |bits| (0..count).filter(|n| bits >> n & 1 == 1).collect())
}

/// Overwrites the contents of a device except its superblocks.
fn destroy(image: &Path, seed: u64) -> Result<()> {
    let device = blockdev::open(&Locator::parse(image)?, Access::WRITE)?;
    let noise = Random::new(seed).noise(PIECE);
    for at in (DAMAGE_FROM..device.size_bytes()).step_by(PIECE).filter(|at| !SUPERBLOCK_MIRROR.contains(at)) {
        let len = usize::try_from(device.size_bytes() - at)?.min(PIECE);
        device.write_at(at, &[noise.get(..len).context("a piece")?])?;
    }
    Ok(())
}

fn digests(images: &[PathBuf]) -> Result<Vec<String>> {
    images.iter().map(|image| run_program("sha256sum", &[image])).collect()
}
