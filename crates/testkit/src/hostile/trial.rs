//! Tries one mutated image: it is read, changed, and read again. Called by `cargo trials mutate-images`.
//!
//! For any image every call ends with a result or an error, and files that could be read before the changes and were
//! not changed can be read after them, with the same bytes. (Except files that show other data because their own items
//! are wrong.)

use super::base::{Base, options};
use super::mutate::mutate;
use crate::Random;
use anyhow::{Result, bail};
use blockdev::Device;
use btrfs::Volume;
use std::collections::{BTreeMap, BTreeSet, hash_map::DefaultHasher};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::file_system::{AllocateFlags, NodeKind, XattrMode};
use vfs::{File, FileOptions, Metadata, SnapshotMode};

/// Names that a walk looks at.
const NAMES_MAX: usize = 1500;
/// Names below one another.
const DEPTH_MAX: usize = 40;
/// Bytes read of each end of a file.
const READ_MAX: usize = 256 << 10;
/// Changes to one image.
const STEPS: u64 = 14;

/// The result for an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// It had a log.
    pub has_log: bool,
    /// It could be read.
    pub is_readable: bool,
    /// It could be opened for writing.
    pub is_writable: bool,
    /// All changes could be made durable.
    pub is_written: bool,
    /// Names that were compared.
    pub compared: u64,
}

/// Properties of one name in a walk; `None` for unreadable ones.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    inode: (u64, u64),
    kind: NodeKind,
    attributes: (u32, u32, u32, u64, u32),
    xattrs: Option<u64>,
    contents: Option<u64>,
    /// Where its data lies.
    places: u64,
}

type Walk = BTreeMap<PathBuf, Seen>;

/// Paths that the changes concern.
#[derive(Debug, Default)]
struct Touched {
    /// These names, and everything below.
    paths: BTreeSet<PathBuf>,
    /// These inodes, under whatever name.
    inodes: BTreeSet<(u64, u64)>,
}

/// The image that [`trial`] tries, as it is before that.
///
/// # Errors
/// When there is no base for it.
pub fn mutated(bases: &[Base], seed: u64, number: u64) -> Result<Arc<dyn Device>> {
    let (_, device, _) = make(bases, number, &mut random_of(seed, number))?;
    Ok(device)
}

fn random_of(seed: u64, number: u64) -> Random {
    Random::new(seed ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d))
}

/// Mutates a copy of one of the bases; says how.
fn make<'a>(bases: &'a [Base], number: u64, random: &mut Random) -> Result<(&'a Base, Arc<dyn Device>, Vec<String>)> {
    // Every second one has a log.
    let alike: Vec<&Base> = bases.iter().filter(|base| base.has_log == (number % 2 == 1)).collect();
    let Some(base) = random.pick(&alike).copied() else {
        bail!("no base image");
    };
    let (device, editor) = base.copy();
    let said = mutate(base, &editor, random)?;
    Ok((base, device, said))
}

/// Mutates a copy of one of the bases and tries it. `number` chooses the base, the mutations and
/// the changes, together with `seed`.
///
/// # Errors
/// Lost files, with the mutations and the changes.
pub fn trial(bases: &[Base], seed: u64, number: u64, is_told: bool) -> Result<Outcome> {
    let mut random = random_of(seed, number);
    let (base, device, said) = make(bases, number, &mut random)?;
    let mut outcome = Outcome { has_log: base.has_log, ..Outcome::default() };
    let before = look(&device);
    outcome.is_readable = before.is_some();
    let mut steps = Vec::new();
    let touched = change(&device, before.as_ref(), &mut random, (&mut outcome, &mut steps));
    let story = || format!("base {}, log: {}; {}; {}", base.name, base.has_log, said.join("; "), steps.join("; "));
    if is_told {
        println!("{}\n{outcome:?}", story());
    }
    let Some((before, _)) = before else {
        return Ok(outcome);
    };
    let Some((after, _)) = look(&device) else {
        bail!("nothing can be read any more: {}", story());
    };
    for (path, was) in &before {
        if touched.has(path, was) {
            continue;
        }
        outcome.compared = outcome.compared.saturating_add(1);
        if let Some(lost) = compare(was, after.get(path)) {
            if lost.starts_with("contents") && shows_foreign_data(base, path, was) {
                continue;
            }
            let why = why(&device, path);
            bail!("{}: {lost}: {why}: {}", path.display(), story());
        }
    }
    Ok(outcome)
}

impl Touched {
    fn has(&self, path: &Path, seen: &Seen) -> bool {
        self.inodes.contains(&seen.inode) || path.ancestors().any(|above| self.paths.contains(above))
    }
}

/// Why a file cannot be read.
fn why(device: &Arc<dyn Device>, path: &Path) -> String {
    let volume = match options(2).read_only(true).open_device(Arc::clone(device)) {
        Ok(volume) => volume,
        Err(error) => return error.to_string(),
    };
    volume.read(path).map_or_else(|error| error.to_string(), |_| "it can".to_owned())
}

/// The first difference.
fn compare(was: &Seen, is: Option<&Seen>) -> Option<String> {
    let Some(is) = is else {
        return Some("cannot be found any more".to_owned());
    };
    if (was.kind, was.attributes, was.inode) != (is.kind, is.attributes, is.inode) {
        return Some(format!("was {was:?}, is {is:?}"));
    }
    if was.xattrs.is_some() && was.xattrs != is.xattrs {
        return Some("attributes".to_owned());
    }
    if was.contents.is_some() && was.contents != is.contents {
        return Some(format!("contents, readable: {}", is.contents.is_some()));
    }
    None
}

/// Reads everything, with the log where that can be replayed.
fn look(device: &Arc<dyn Device>) -> Option<(Walk, bool)> {
    for with_log in [true, false] {
        let options = options(2).read_only(true).replay_log(with_log);
        if let Ok(volume) = options.open_device(Arc::clone(device)) {
            return Some((walk(&volume), with_log));
        }
    }
    None
}

fn walk(volume: &Volume) -> Walk {
    let _ = (volume.info(), volume.default_subvolume(), volume.subvolumes());
    let mut walk = Walk::new();
    let mut todo = vec![PathBuf::from("/")];
    while let Some(dir) = todo.pop() {
        let Ok(entries) = volume.read_dir(&dir) else {
            continue;
        };
        for entry in entries {
            let Ok(entry) = entry else {
                break;
            };
            if walk.len() >= NAMES_MAX {
                return walk;
            }
            let path = dir.join(entry.file_name());
            let Some(seen) = see(volume, &path) else {
                continue;
            };
            if seen.kind.is_dir() && path.components().count() < DEPTH_MAX {
                todo.push(path.clone());
            }
            walk.insert(path, seen);
        }
    }
    walk
}

fn see(volume: &Volume, path: &Path) -> Option<Seen> {
    let metadata = volume.symlink_metadata(path).ok()?;
    let kind = metadata.kind;
    let size = if kind.is_dir() { 0 } else { metadata.size };
    Some(Seen {
        inode: (metadata.home.subvolume, metadata.home.ino),
        kind,
        attributes: (metadata.mode(), metadata.uid, metadata.gid, size, metadata.rdev),
        xattrs: xattrs(volume, path),
        contents: contents(volume, path, &metadata),
        places: places(volume, path),
    })
}

fn xattrs(volume: &Volume, path: &Path) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    for name in volume.list_xattrs(path).ok()? {
        let value = volume.get_xattr(path, name.as_encoded_bytes()).ok()?;
        (name, value).hash(&mut hasher);
    }
    Some(hasher.finish())
}

fn contents(volume: &Volume, path: &Path, metadata: &Metadata) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    match metadata.kind {
        NodeKind::Symlink => volume.read_link(path).ok()?.hash(&mut hasher),
        NodeKind::File => {
            let file = File::open(volume, path).ok()?;
            let mut buffer = vec![0; READ_MAX];
            for start in [0, metadata.size.saturating_sub(5000)] {
                let count = file.read_at(&mut buffer, start).ok()?;
                buffer.get(..count).hash(&mut hasher);
            }
            let _ = (file.seek_data(0), file.seek_hole(0));
        }
        _ => {}
    }
    Some(hasher.finish())
}

fn places(volume: &Volume, path: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    if let Ok(file) = File::open(volume, path) {
        format!("{:?}", file.extents()).hash(&mut hasher);
    }
    hasher.finish()
}

/// True if a file's own items have wrong positions of its data. It has no reference to the data that it shows, which is
/// removed with the file that owns it.
fn shows_foreign_data(base: &Base, path: &Path, was: &Seen) -> bool {
    let places = base.places.get_or_init(|| {
        let walk = look(&base.copy().0).map(|(walk, _)| walk).unwrap_or_default();
        walk.into_iter().map(|(path, seen)| (path, seen.places)).collect()
    });
    places.get(path) != Some(&was.places)
}

/// Opens the image for writing and makes some changes; returns the concerned paths.
fn change(
    device: &Arc<dyn Device>,
    before: Option<&(Walk, bool)>,
    random: &mut Random,
    (outcome, said): (&mut Outcome, &mut Vec<String>),
) -> Touched {
    let mut touched = Touched::default();
    let volume = match options(3).open_device(Arc::clone(device)) {
        Ok(volume) => volume,
        Err(error) => {
            said.push(format!("refused: {error}"));
            return touched;
        }
    };
    outcome.is_writable = true;
    let known: Vec<(&PathBuf, &Seen)> = before.iter().flat_map(|(walk, _)| walk).collect();
    for number in 0..STEPS {
        let (what, result) = step(&volume, &known, random, (number, &mut touched));
        let answer = result.map_or_else(|error| error.to_string(), |()| "ok".to_owned());
        said.push(format!("{what}: {answer}"));
    }
    let closed = volume.close();
    outcome.is_written = closed.is_ok();
    said.push(format!("close: {closed:?}"));
    touched
}

/// One change; returns its description and result.
fn step(
    volume: &Volume,
    known: &[(&PathBuf, &Seen)],
    random: &mut Random,
    (number, touched): (u64, &mut Touched),
) -> (String, vfs::Result<()>) {
    let root = PathBuf::from("/");
    let files: Vec<&(&PathBuf, &Seen)> = known.iter().filter(|(_, seen)| seen.kind.is_file()).collect();
    let dirs: Vec<&(&PathBuf, &Seen)> = known.iter().filter(|(_, seen)| seen.kind.is_dir()).collect();
    let file = random.pick(&files).map_or(&root, |(path, _)| *path).clone();
    let other = random.pick(&files).map_or(&root, |(path, _)| *path).clone();
    let dir = random.pick(&dirs).map_or(&root, |(path, _)| *path).clone();
    let new = dir.join(format!("new{number}"));
    let what = random.below(18);
    let said = format!("change {what} of {} in {}", file.display(), new.display());
    touched.paths.insert(new.clone());
    if matches!(what, 2..=9) {
        touched.meant(volume, known, &file);
    }
    let len = usize::try_from(random.skewed(100_000)).unwrap_or(0);
    let at = random.skewed(400_000);
    let open = |path: &Path| FileOptions::new().read(true).write(true).open(volume, path);
    let result = match what {
        0 | 1 => volume.write(&new, random.content(len)),
        2 | 3 => open(&file).and_then(|file| file.write_at(&random.content(len), at)),
        4 => open(&file).and_then(|file| file.set_len(at)),
        5 => volume.remove_file(&file),
        6 => volume.rename(&file, &new),
        7 => volume.hard_link(&file, &new),
        8 => volume.set_xattr(&file, "user.new", random.noise(30), XattrMode::Either),
        9 => open(&file).and_then(|file| {
            let modes = [
                AllocateFlags::PUNCH_HOLE | AllocateFlags::KEEP_SIZE,
                AllocateFlags::KEEP_SIZE,
                AllocateFlags::empty(),
            ];
            let mode = *random.pick(&modes).unwrap_or(&AllocateFlags::KEEP_SIZE);
            file.allocate(mode, at, 50_000)
        }),
        10 => volume.create_dir(&new),
        11 => volume.symlink("target", &new),
        12 => volume.snapshot(&dir, &new, SnapshotMode::ReadWrite).map(drop),
        13 => {
            touched.paths.insert(dir.clone());
            volume.delete_subvolume(&dir)
        }
        14 => {
            touched.below(known, &dir);
            volume.remove_dir_all(&dir)
        }
        15 => volume.sync(),
        16 => open(&file).and_then(|file| file.sync_all()),
        _ => {
            touched.paths.insert(new.clone());
            volume
                .write(&new, b"")
                .and_then(|()| open(&new))
                .and_then(|copy| copy.reflink(&File::open(volume, &other)?, 0, 0, 4096))
        }
    };
    (said, result)
}

impl Touched {
    /// Notes a change of the present node of `path`: another change may have put another one there.
    fn meant(&mut self, volume: &Volume, known: &[(&PathBuf, &Seen)], path: &Path) {
        self.paths.insert(path.to_owned());
        if let Ok(metadata) = volume.symlink_metadata(path) {
            self.inodes.insert((metadata.home.subvolume, metadata.home.ino));
        }
        let seen = known.iter().find(|(known, _)| *known == path);
        self.inodes.extend(seen.map(|(_, seen)| seen.inode));
    }

    /// A change of everything below `dir`, hard links to it included.
    fn below(&mut self, known: &[(&PathBuf, &Seen)], dir: &Path) {
        self.paths.insert(dir.to_owned());
        let below = known.iter().filter(|(path, _)| path.starts_with(dir));
        self.inodes.extend(below.map(|(_, seen)| seen.inode));
    }
}
