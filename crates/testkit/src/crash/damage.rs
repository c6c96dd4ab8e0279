//! Flips bytes of an image, and lets reads fail: a block with a good copy must be read and repaired, one without must
//! give an error at its place. Called by `testkit/tests/crash.rs`.

use super::judge::{files_of, read_one};
use super::workload::{Journal, Settings, fresh, open_on, options, store};
use crate::Random;
use crate::faults::{FailingDevice, Fault, FaultKind};
use crate::number::to_usize;
use crate::reference;
use anyhow::{Context, Result, bail, ensure};
use blockdev::backends::MemoryDevice;
use blockdev::{Device, Op};
use btrfs::Volume as Btrfs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Blame, Volume};
use vfs_conformance::model::{Model, Operation};
use vfs_conformance::property::{Generator, compare_trees, drive, is_refusal};

/// Blocks start at multiples of this on the device.
const SECTOR_BYTES: u64 = 4096;
/// Where in a block bytes are flipped: behind the header and any first item's head.
const FLIP_AT: u64 = 200;
/// Operations tried on a damaged volume.
const OPERATIONS: u64 = 40;
/// Where superblocks are, which look like blocks.
const SUPERBLOCKS: [u64; 2] = [64 << 10, 64 << 20];

/// Counts of the damages of one seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct DamageReport {
    /// Damages or failed reads that were answered well.
    pub damages: u64,
    /// Bad copies that were mended.
    pub mended: u64,
    /// Operations that failed because of damage.
    pub failed: u64,
    /// Failures that stopped the volume from writing.
    pub poisoned: u64,
}

/// A tree block's newest version, by the places of its copies.
type Blocks = BTreeMap<u64, (u64, Vec<u64>)>;

/// A volume after a workload, at rest.
struct Rest {
    image: MemoryDevice,
    model: Model,
    form: String,
}

impl Rest {
    fn new(seed: u64, settings: &Settings, folder: &Path) -> Result<Self> {
        let (image, form) = fresh(seed, settings, folder)?;
        let device = Arc::new(image);
        let volume = open_on(&device, &options(seed))?;
        let (journal, error) = Journal::run(seed, settings, &volume, || 0)?;
        ensure!(error.is_none(), "the workload failed: {error:?}");
        volume.close()?;
        let model = journal.moments.last().context("no moment")?.model.clone();
        Ok(Self { image: device.duplicate(), model, form })
    }

    fn volume(&self) -> Result<Btrfs> {
        open_on(&Arc::new(self.image.duplicate()), &Btrfs::options().read_only(true))
    }
}

/// Flips bytes: in one copy of every block, in all copies of some blocks, in data.
///
/// # Errors
/// The first damage that was not answered as it should be.
pub fn run_damage(seed: u64, settings: &Settings, folder: &Path) -> Result<DamageReport> {
    let rest = Rest::new(seed, settings, folder)?;
    let blocks = find_blocks(&rest)?;
    let story = |what: &str| format!("seed {seed}, image by {}, {what}", rest.form);
    let mut report = DamageReport::default();
    one_copy_of_each(&rest, &blocks, &mut report).with_context(|| story("one copy of each block"))?;
    rotten_data(&rest, &mut report).with_context(|| story("rotten data"))?;
    let mut random = Random::new(seed ^ 0xba5e);
    let all: Vec<&(u64, Vec<u64>)> = blocks.values().collect();
    for number in 0..settings.states {
        let Some((_, places)) = random.pick(&all) else {
            break;
        };
        let what = format!("damage {number}, all copies of the block at {places:?}");
        every_copy(&rest, places, (seed, number), folder, &mut report).with_context(|| story(&what))?;
    }
    Ok(report)
}

fn find_blocks(rest: &Rest) -> Result<Blocks> {
    let uuid = rest.volume()?.info()?.uuid;
    let mut blocks = Blocks::new();
    let mut head = [0; 101];
    for offset in (0..rest.image.size_bytes()).step_by(to_usize(SECTOR_BYTES)) {
        rest.image.read_at(offset, &mut head)?;
        if head.get(32..48) != Some(uuid.as_slice()) || SUPERBLOCKS.contains(&offset) {
            continue;
        }
        let number = |from: usize| head.get(from..from.saturating_add(8)).and_then(|b| b.try_into().ok());
        let (Some(at), Some(generation)) = (number(48), number(80)) else {
            continue;
        };
        let (at, generation) = (u64::from_le_bytes(at), u64::from_le_bytes(generation));
        let known = blocks.entry(at).or_default();
        if known.0 < generation {
            *known = (generation, Vec::new());
        }
        if known.0 == generation {
            known.1.push(offset);
        }
    }
    Ok(blocks)
}

fn flip(device: &MemoryDevice, offset: u64) -> Result<()> {
    let mut bytes = [0; 8];
    device.read_at(offset, &mut bytes)?;
    device.write_at(offset, &[&bytes.map(|byte| !byte)])?;
    Ok(())
}

fn read8(device: &MemoryDevice, offset: u64) -> Result<[u8; 8]> {
    let mut bytes = [0; 8];
    device.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

/// Damages the first copy of every block with two: nothing is lost, and blocks that were read are repaired.
fn one_copy_of_each(rest: &Rest, blocks: &Blocks, report: &mut DamageReport) -> Result<()> {
    let device = Arc::new(rest.image.duplicate());
    let twice = blocks.values().filter(|(_, places)| places.len() == 2);
    let flipped: Vec<u64> = twice.filter_map(|(_, places)| places.first()).map(|at| at + FLIP_AT).collect();
    for offset in &flipped {
        flip(&device, *offset)?;
    }
    let volume = open_on(&device, &Btrfs::options().read_only(true))?;
    compare_trees(&volume, &rest.model, Path::new("/")).context("opened to read")?;
    drop(volume);
    for offset in &flipped {
        ensure!(read8(&device, *offset)? != read8(&rest.image, *offset)?, "a read-only volume wrote");
    }
    let volume = open_on(&device, &Btrfs::options())?;
    compare_trees(&volume, &rest.model, Path::new("/")).context("opened to write")?;
    volume.close()?;
    let mut mended = 0u64;
    for offset in &flipped {
        mended = mended.saturating_add(u64::from(read8(&device, *offset)? == read8(&rest.image, *offset)?));
    }
    ensure!(flipped.is_empty() || mended > 0, "none of {} bad copies was mended", flipped.len());
    report.mended = report.mended.saturating_add(mended);
    report.damages = report.damages.saturating_add(1);
    Ok(())
}

/// A sector of a file rots: an error that names the place where there is no copy, and nothing else is hurt.
fn rotten_data(rest: &Rest, report: &mut DamageReport) -> Result<()> {
    let device = Arc::new(rest.image.duplicate());
    let data = Random::new(0x0dd).noise(5 * to_usize(SECTOR_BYTES));
    // The directory's own time is no longer the model's.
    let mut model = rest.model.clone();
    let path: PathBuf = "rotten".into();
    let made = model.apply(&Operation::Create { path: path.clone() });
    let removed = model.apply(&Operation::Remove { path });
    ensure!(made.is_ok() && removed.is_ok(), "the model has no room");
    let volume = open_on(&device, &Btrfs::options())?;
    volume.write("rotten", &data)?;
    volume.close()?;
    let marked = data.get(to_usize(SECTOR_BYTES)..).unwrap_or_default();
    let places = find_sectors(&device, marked)?;
    ensure!(!places.is_empty(), "the data is not on the device");
    for (index, place) in places.iter().enumerate() {
        flip(&device, *place)?;
        let volume = open_on(&device, &Btrfs::options())?;
        let read = volume.read("rotten");
        if index + 1 < places.len() {
            ensure!(read? == data, "the other copy was not used");
            ensure!(find_sectors(&device, marked)?.len() == places.len(), "the copy was not mended");
            flip(&device, *place)?;
        } else {
            let error = read.err().context("bad bytes were given out")?;
            ensure!(error.blame() == Blame::Image, "the caller is blamed: {error}");
            for (path, kind) in files_of(&rest.model) {
                read_one(&volume, &path, kind)?;
            }
            volume.remove_file("rotten")?;
            compare_trees(&volume, &model, Path::new("/"))?;
        }
        volume.close()?;
    }
    report.damages = report.damages.saturating_add(1);
    Ok(())
}

/// Where the first sector of `data` is on the device.
fn find_sectors(device: &MemoryDevice, data: &[u8]) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    let mut sector = vec![0; to_usize(SECTOR_BYTES)];
    for offset in (0..device.size_bytes()).step_by(to_usize(SECTOR_BYTES)) {
        device.read_at(offset, &mut sector)?;
        if data.starts_with(&sector) {
            found.push(offset);
        }
    }
    Ok(found)
}

/// All copies of one block are bad. Whatever is done then, mending the block by hand afterwards gives a sound volume.
fn every_copy(
    rest: &Rest,
    places: &[u64],
    (seed, number): (u64, u64),
    folder: &Path,
    report: &mut DamageReport,
) -> Result<()> {
    let device = Arc::new(rest.image.duplicate());
    for place in places {
        flip(&device, place + FLIP_AT)?;
    }
    report.damages = report.damages.saturating_add(1);
    let mut model = rest.model.clone();
    let volume = match open_on(&device, &Btrfs::options().cache_bytes(0)) {
        Ok(volume) => Some(volume),
        Err(error) => {
            let text = format!("{error:#}");
            ensure!(text.contains(|c: char| c.is_ascii_digit()), "no place is named: {text}");
            report.failed = report.failed.saturating_add(1);
            None
        }
    };
    let mut is_known = true;
    if let Some(volume) = volume {
        for (path, kind) in files_of(&rest.model) {
            report.failed = report.failed.saturating_add(u64::from(read_one(&volume, &path, kind).is_err()));
        }
        is_known = change(&volume, &mut model, seed ^ number, report, || {})?;
        is_known &= volume.sync().is_ok();
    }
    for place in places {
        let (damaged, original) = (read8(&device, place + FLIP_AT)?, read8(&rest.image, place + FLIP_AT)?);
        // Unless other things were written there meanwhile.
        if damaged == original.map(|byte| !byte) {
            flip(&device, place + FLIP_AT)?;
        }
    }
    finish(&device, &model, is_known, folder, &format!("damage-{seed}-{number}"))
}

/// Does random operations. Returns whether the model still matches the volume.
fn change(
    volume: &Volume,
    model: &mut Model,
    seed: u64,
    report: &mut DamageReport,
    mut after_failure: impl FnMut(),
) -> Result<bool> {
    let mut generator = Generator::new(seed, "/");
    for _ in 0..OPERATIONS {
        let operation = generator.next(model);
        let before = model.clone();
        let expected = model.apply(&operation);
        match drive(volume, &operation) {
            Ok(()) => ensure!(expected.is_ok(), "succeeds, but should not: {operation:?}"),
            Err(error) if is_refusal(&error) => {
                *model = before;
                if expected.is_ok() {
                    bail!("the caller is blamed for damage: {operation:?}: {error}");
                }
            }
            Err(error) => {
                report.failed = report.failed.saturating_add(1);
                *model = before;
                after_failure();
                if error.blame() == Blame::EarlierFailure || volume.sync().is_err() {
                    report.poisoned = report.poisoned.saturating_add(1);
                    return Ok(false);
                }
                if !is_atomic(&operation) {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

/// Whether an operation that failed must have done nothing.
fn is_atomic(operation: &Operation) -> bool {
    use Operation as O;
    !matches!(
        operation,
        O::Write { .. }
            | O::SetLen { .. }
            | O::Allocate { .. }
            | O::Reflink { .. }
            | O::RemoveAll { .. }
            | O::DeleteSubvolume { .. }
    )
}

fn finish(device: &Arc<MemoryDevice>, model: &Model, is_known: bool, folder: &Path, name: &str) -> Result<()> {
    let path = folder.join(format!("{name}.img"));
    store(device, &path)?;
    reference::check(&path).with_context(|| format!("image kept: {}", path.display()))?;
    let volume = open_on(device, &Btrfs::options()).context("after it was mended")?;
    if is_known {
        compare_trees(&volume, model, Path::new("/")).context("after it was mended")?;
    }
    volume.close()?;
    std::fs::remove_file(&path)?;
    Ok(())
}

/// Reads fail, once or from some moment on for a while: operations fail whole, and the volume stays sound.
///
/// # Errors
/// The first failure that was not answered as it should be.
pub fn run_read_errors(seed: u64, settings: &Settings, folder: &Path) -> Result<DamageReport> {
    let rest = Rest::new(seed, settings, folder)?;
    let mut report = DamageReport::default();
    let mut random = Random::new(seed ^ 0xe10);
    for number in 0..settings.states {
        let kind = if random.one_in(4) { FaultKind::Once } else { FaultKind::Always };
        let fault = Fault { op: Op::Read, after: random.skewed(300), kind };
        let story = || format!("seed {seed}, image by {}, read {number}: {fault:?}", rest.form);
        one_read_error(&rest, fault, (seed, number), folder, &mut report).with_context(story)?;
    }
    Ok(report)
}

fn one_read_error(
    rest: &Rest,
    fault: Fault,
    (seed, number): (u64, u64),
    folder: &Path,
    report: &mut DamageReport,
) -> Result<()> {
    let device = Arc::new(rest.image.duplicate());
    let inner: Arc<dyn Device> = Arc::<MemoryDevice>::clone(&device);
    let failing = Arc::new(FailingDevice::new(inner));
    let volume = open_on(&failing, &Btrfs::options().cache_bytes(0))?;
    failing.plan(vec![fault]);
    let mut model = rest.model.clone();
    let is_known = change(&volume, &mut model, seed.wrapping_add(number), report, || failing.plan(Vec::new()))?;
    report.damages = report.damages.saturating_add(1);
    failing.plan(Vec::new());
    if is_known {
        compare_trees(&volume, &model, Path::new("/")).context("while it is open")?;
        volume.sync()?;
    }
    drop(volume);
    finish(&device, &model, is_known, folder, &format!("read-{seed}-{number}"))
}
