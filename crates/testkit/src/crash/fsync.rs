//! Crashes a workload between commits: promises of an fsync must be kept, and all files be consistent. Called by
//! `testkit/tests/crash.rs`.
//!
//! Files and directories are synced one by one during random operations. A promise is the contents of a file, or the
//! names of a directory, when its sync returned; it holds until an operation changes it or the path to it. The state
//! after a crash must keep every promise that held before the crash and would have held after the interrupted
//! operation.

use super::judge::{probe, read_all};
use super::workload::{Settings, fresh, is_small, open_on, options, store};
use crate::Random;
use crate::faults::{Event, RecordingDevice};
use crate::number::to_u64;
use crate::reference;
use anyhow::{Context, Result, ensure};
use blockdev::backends::MemoryDevice;
use btrfs::Volume as Btrfs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::file_system::NodeKind;
use vfs::{FileOptions, Volume};
use vfs_conformance::model::{Content, Model, Node, NodeId, Operation};
use vfs_conformance::property::{Generator, compare_content, drive, is_full, is_refusal};

/// A sync comes once in so many operations.
const SYNC_EVERY: u64 = 3;
/// One sync in so many is one of the whole volume.
const FULL_SYNC_EVERY: u64 = 25;

/// Counts of the crashes of one seed.
#[derive(Debug, Clone, Copy, Default)]
pub struct FsyncReport {
    /// States that were judged, all well.
    pub states: u64,
    /// Of those, states with a log to replay.
    pub replayed: u64,
    /// Promises that were looked at, over all states.
    pub promises: u64,
    /// States that `btrfs check` found clean after the replay.
    pub checked: u64,
    /// Files and directories that were synced.
    pub syncs: u64,
}

type Place = (u64, u64);

/// Contents promised by a sync.
enum Held {
    File(Content),
    Names(BTreeMap<Vec<u8>, NodeKind>),
    Other(NodeKind),
}

struct Promise {
    path: PathBuf,
    node: NodeId,
    /// Subvolume and inode number: the way to it may have been renamed without a sync.
    place: Place,
    held: Held,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Events of the device when it was made.
    events: usize,
    /// Index of the first moment that no longer kept it.
    broken_at: usize,
}

/// A workload with its promises.
struct Story {
    promises: Vec<Promise>,
    /// Events of the device after each operation.
    moments: Vec<usize>,
}

/// Runs the workload of a seed, and judges `settings.states` states that a crash could have left. Images with a log
/// that are to be looked at by others are stored in `keep`.
///
/// # Errors
/// The first state that is wrong, with its crash point.
pub fn explore_fsync(seed: u64, settings: &Settings, folder: &Path, keep: Option<&Path>) -> Result<FsyncReport> {
    let (image, form) = fresh(seed, settings, folder)?;
    let device = Arc::new(RecordingDevice::new(image));
    let volume = open_on(&device, &options(seed))?;
    let story = Story::run(seed, settings, &volume, || device.event_count())
        .with_context(|| format!("seed {seed} on an image by {form}"))?;
    let first = story.moments.first().copied().unwrap_or(0);
    let mut random = Random::new(seed ^ 0xf51c);
    let mut report = FsyncReport { syncs: to_u64(story.promises.len()), ..FsyncReport::default() };
    let flushes: Vec<usize> = {
        let events = device.events();
        let is_flush = |(index, event): (usize, &Event)| (*event == Event::Flush).then_some(index);
        events.iter().enumerate().skip(first).filter_map(is_flush).collect()
    };
    for number in 0..settings.states {
        let count = super::explore::pick_point(&mut random, &flushes, first, device.event_count());
        let image = device.crash_after(count, &mut random)?;
        let context = || format!("seed {seed}, image by {form}, state {number}: a crash after {count} events");
        let judged = story.judge(&image, count);
        if judged.is_err() {
            store(&image, &folder.join(format!("fsync-{seed}-{count}.img")))?;
        }
        report.promises += judged.with_context(context)?;
        report.states += 1;
        if has_log(&image)? {
            report.replayed += 1;
            if let Some(keep) = keep.filter(|_| number.is_multiple_of(settings.check_every)) {
                store(&image, &keep.join(format!("fsync-{seed}-{number}.img")))?;
            }
        }
        if number.is_multiple_of(settings.check_every) {
            check(&image, &folder.join(format!("fsync-{seed}-{count}.img"))).with_context(context)?;
            report.checked += 1;
        }
    }
    Ok(report)
}

fn has_log(image: &MemoryDevice) -> Result<bool> {
    use blockdev::Device;
    let mut log_root = [0; 8];
    image.read_at((64 << 10) + 96, &mut log_root)?;
    Ok(log_root != [0; 8])
}

fn check(image: &MemoryDevice, path: &Path) -> Result<()> {
    let device = Arc::new(image.duplicate());
    let volume = open_on(&device, &Btrfs::options())?;
    probe(&volume)?;
    volume.close()?;
    store(&device, path)?;
    reference::check(path).with_context(|| format!("after the replay, image kept: {}", path.display()))?;
    Ok(std::fs::remove_file(path)?)
}

impl Story {
    fn run(seed: u64, settings: &Settings, volume: &Volume, events: impl Fn() -> usize) -> Result<Self> {
        let mut model = Model::new();
        volume.sync()?;
        let mut story = Self { promises: Vec::new(), moments: vec![events()] };
        let mut random = Random::new(seed ^ 0x109);
        let mut generator = Generator::new(seed, "/");
        let mut last = None;
        for _ in 0..settings.operations {
            let operation = generator.next(&model);
            if is_small(&operation) && apply(volume, &mut model, &operation)? {
                last = Some(operation);
            }
            story.end_moment(&model, events());
            if !random.one_in(SYNC_EVERY) {
                continue;
            }
            if random.one_in(FULL_SYNC_EVERY) {
                volume.sync()?;
            } else if let Some(path) = pick(&model, last.as_ref(), &mut random) {
                story.sync(volume, &model, path, &events)?;
            }
            story.end_moment(&model, events());
        }
        Ok(story)
    }

    /// Syncs one file or directory, and records its contents as promised.
    fn sync(&mut self, volume: &Volume, model: &Model, path: PathBuf, events: &impl Fn() -> usize) -> Result<()> {
        let Some(node) = model.id_at(&path) else { return Ok(()) };
        let Some(found) = model.node(node) else { return Ok(()) };
        if !matches!(found.file_type(), NodeKind::File | NodeKind::Directory) {
            return Ok(());
        }
        let file = FileOptions::new().read(true).open(volume, &path)?;
        match file.sync_all() {
            Err(error) if is_full(&error) => return Ok(()),
            result => result.with_context(|| format!("syncing {}", path.display()))?,
        }
        let metadata = file.metadata()?;
        self.promises.push(Promise {
            place: (metadata.home.subvolume, metadata.home.ino),
            held: held(model, found),
            xattrs: found.xattrs.clone(),
            path,
            node,
            events: events(),
            broken_at: usize::MAX,
        });
        Ok(())
    }

    /// Notes which promises no longer stand.
    fn end_moment(&mut self, model: &Model, events: usize) {
        let index = self.moments.len();
        self.moments.push(events);
        for promise in self.promises.iter_mut().filter(|promise| promise.broken_at == usize::MAX) {
            if !promise.stands(model) {
                promise.broken_at = index;
            }
        }
    }

    fn judge(&self, image: &MemoryDevice, events: usize) -> Result<u64> {
        let device = Arc::new(image.duplicate());
        let volume = open_on(&device, &Btrfs::options()).context("opened to write")?;
        // The operation after the last whole one may have been under way.
        let cut_short = self.moments.partition_point(|at| *at <= events);
        let mut found = BTreeMap::new();
        read_all(&volume, Path::new("/"), &mut found)?;
        let mut places: BTreeMap<Place, Vec<PathBuf>> = BTreeMap::new();
        for path in found.into_keys().map(|path| Path::new("/").join(path)) {
            let metadata = volume.symlink_metadata(&path)?;
            places.entry((metadata.home.subvolume, metadata.home.ino)).or_default().push(path);
        }
        let top = volume.symlink_metadata("/")?;
        places.entry((top.home.subvolume, top.home.ino)).or_default().push("/".into());
        let mut kept = 0;
        for promise in &self.promises {
            if promise.events <= events && promise.broken_at > cut_short {
                promise
                    .check(&volume, &places)
                    .with_context(|| format!("{}, synced by event {}", promise.path.display(), promise.events))?;
                kept += 1;
            }
        }
        probe(&volume).context("changing the volume after the crash")?;
        volume.close().context("closing the volume after the crash")?;
        Ok(kept)
    }
}

impl Promise {
    fn stands(&self, model: &Model) -> bool {
        let found = model.id_at(&self.path);
        let Some(node) = model.node(self.node).filter(|_| found == Some(self.node)) else { return false };
        let is_same = match &self.held {
            Held::File(content) => node.content() == Some(content),
            Held::Names(names) => *names == names_in(model, node),
            Held::Other(kind) => *kind == node.file_type(),
        };
        is_same && node.xattrs == self.xattrs
    }

    fn check(&self, volume: &Volume, places: &BTreeMap<Place, Vec<PathBuf>>) -> Result<()> {
        let mut paths = places.get(&self.place).into_iter().flatten();
        let path = paths.find(|path| path.file_name() == self.path.file_name()).context("is not there")?;
        let metadata = volume.symlink_metadata(path)?;
        match &self.held {
            Held::File(content) => {
                ensure!(metadata.size == content.len(), "size {}, not {}", metadata.size, content.len());
                compare_content(volume, path, content)?;
            }
            Held::Names(names) => {
                let mut found = BTreeMap::new();
                for entry in volume.read_dir(path)? {
                    let entry = entry?;
                    found.insert(entry.name_bytes().to_vec(), entry.file_type());
                }
                ensure!(found == *names, "has {} names, not {}", found.len(), names.len());
            }
            Held::Other(kind) => ensure!(metadata.kind == *kind, "is {:?}", metadata.kind),
        }
        for (name, value) in &self.xattrs {
            let found = volume.get_xattr(path, name)?;
            ensure!(found.as_ref() == Some(value), "attribute {} differs", String::from_utf8_lossy(name));
        }
        Ok(())
    }
}

fn held(model: &Model, node: &Node) -> Held {
    match node.content() {
        Some(content) => Held::File(content.clone()),
        None if node.directory().is_some() => Held::Names(names_in(model, node)),
        None => Held::Other(node.file_type()),
    }
}

fn names_in(model: &Model, node: &Node) -> BTreeMap<Vec<u8>, NodeKind> {
    let entries = node.directory().into_iter().flat_map(|directory| &directory.entries);
    let kind_of = |id| model.node(id).map(Node::file_type);
    entries.filter_map(|(name, id)| Some((name.clone(), kind_of(*id)?))).collect()
}

/// True when the operation was possible.
fn apply(volume: &Volume, model: &mut Model, operation: &Operation) -> Result<bool> {
    let before = model.clone();
    let expected = model.apply(operation);
    match drive(volume, operation) {
        Ok(()) => {
            ensure!(expected.is_ok(), "succeeds, but should not: {operation:?}");
            Ok(true)
        }
        Err(error) if is_full(&error) => {
            *model = before;
            Ok(false)
        }
        Err(error) if is_refusal(&error) => {
            ensure!(expected.is_err(), "fails with {error}: {operation:?}");
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// The path to sync: mostly one just changed, or its directory.
fn pick(model: &Model, last: Option<&Operation>, random: &mut Random) -> Option<PathBuf> {
    let paths: Vec<PathBuf> = last.map(Operation::paths).into_iter().flatten().cloned().collect();
    let recent = random.pick(&paths).cloned();
    if let Some(path) = recent.filter(|_| !random.one_in(4)) {
        let parent = path.parent().map(Path::to_path_buf);
        return if random.one_in(4) { parent } else { Some(path) };
    }
    let all = model.walk();
    random.pick(&all).map(|(path, _)| Path::new("/").join(path))
}
