//! A sparse image on a host that fills up: programs get ENOSPC, synced data stays, and everything continues once there
//! is space again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::Error;

use anyhow::{Context as _, Result, ensure};
use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, Volume};
use testkit::Random;
use testkit::faults::FullDevice;
use testkit::reference;
use vfs::{FileOptions, SnapshotMode};

const IMAGE_BYTES: u64 = 256 << 20;
/// The length of every file of the random programs.
const FILE_BYTES_MAX: usize = 200_000;
const FILES: u64 = 24;

struct Host {
    memory: Arc<MemoryDevice>,
    device: Arc<FullDevice>,
}

impl Host {
    fn new() -> Self {
        let memory = Arc::new(MemoryDevice::new(IMAGE_BYTES));
        let device = Arc::new(FullDevice::new(Arc::<MemoryDevice>::clone(&memory)));
        Self { memory, device }
    }

    fn make(&self) -> Result<Volume> {
        let make = MakeOptions { size: Some(IMAGE_BYTES), ..MakeOptions::default() };
        let volume = Volume::options().make_device(Arc::<FullDevice>::clone(&self.device), &make)?;
        volume.sync()?;
        Ok(volume)
    }

    /// The volume that a crash leaves at this moment, with `btrfs check` passed after the log is replayed.
    fn after_crash(&self) -> Result<Volume> {
        let left = Arc::new(MemoryDevice::from_bytes(&self.memory.to_bytes()));
        Volume::options().open_device(Arc::<MemoryDevice>::clone(&left))?.close()?;
        check(&*left)?;
        Ok(Volume::options().open_device(left)?)
    }
}

fn check(device: &dyn Device) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("image");
    crash_explorer::store_device(device, &path)?;
    reference::check(&path).map(drop)
}

fn is_full(error: &Error) -> bool {
    error.blame() == vfs::Blame::Space && std::io::Error::from(error.clone()).kind() == std::io::ErrorKind::StorageFull
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut all = Vec::new();
    while all.len() < len {
        all.extend_from_slice(&random.number().to_le_bytes());
    }
    all.truncate(len);
    all
}

fn write(volume: &Volume, path: &Path, contents: &[u8]) -> Result<(), Error> {
    let file = FileOptions::new().write(true).create(true).truncate(true).open(volume, path)?;
    file.write_at(contents, 0)?;
    Ok(())
}

fn sync(volume: &Volume, path: &Path) -> Result<(), Error> {
    FileOptions::new().read(true).open(volume, path)?.sync_all()
}

#[test]
fn who_syncs_is_told_and_all_is_there_when_there_is_room() -> Result<()> {
    let host = Host::new();
    let volume = host.make()?;
    let (kept, late) = (PathBuf::from("/kept"), PathBuf::from("/late"));
    write(&volume, &kept, &bytes(1, 300_000))?;
    sync(&volume, &kept)?;
    host.device.leave_room(64 << 10);
    // Large writes go to the device at once, others with a sync.
    assert!(is_full(&write(&volume, &late, &bytes(2, 4 << 20)).unwrap_err()));
    assert_eq!(volume.read(&late)?, b"");
    let file = FileOptions::new().write(true).open(&volume, &late)?;
    for (piece, offset) in bytes(2, 200_000).chunks(20_000).zip((0..).step_by(20_000)) {
        file.write_at(piece, offset)?;
    }
    for _ in 0..3 {
        assert!(is_full(&sync(&volume, &late).unwrap_err()), "fsync");
        assert!(is_full(&volume.sync().unwrap_err()), "sync");
    }
    assert!(host.device.refused() > 0);
    // Written and still dirty data can be read.
    assert_eq!(volume.read(&kept)?, bytes(1, 300_000));
    assert_eq!(volume.read(&late)?, bytes(2, 200_000));
    let crashed = host.after_crash()?;
    assert_eq!(crashed.read(&kept)?, bytes(1, 300_000));

    host.device.leave_room(64 << 20);
    sync(&volume, &late)?;
    assert_eq!(host.after_crash()?.read(&late)?, bytes(2, 200_000));
    volume.close()?;
    check(&*host.device)
}

#[test]
fn a_commit_without_room_is_made_up_for() -> Result<()> {
    let host = Host::new();
    let volume = host.make()?;
    host.device.leave_room(0);
    for index in 0..200 {
        volume.create_dir(format!("/dir-{index}"))?;
    }
    assert!(is_full(&volume.sync().unwrap_err()));
    // Changes join the next transaction.
    for index in 0..100 {
        volume.remove_dir(format!("/dir-{index}"))?;
    }
    write(&volume, Path::new("/small"), b"inline")?;
    assert!(is_full(&volume.sync().unwrap_err()));
    assert!(is_full(&sync(&volume, Path::new("/small")).unwrap_err()));
    assert!(is_full(&volume.snapshot("/", "/snap", SnapshotMode::ReadOnly).unwrap_err()));
    let names = |volume: &Volume| -> Result<usize> { Ok(volume.read_dir("/")?.count()) };
    assert_eq!(names(&host.after_crash()?)?, 0);

    host.device.leave_room(u64::MAX / 2);
    sync(&volume, Path::new("/small"))?;
    volume.snapshot("/", "/snap", SnapshotMode::ReadOnly)?;
    assert_eq!(names(&volume)?, 102);
    volume.close()?;
    check(&*host.device)?;
    let again = Volume::options().open_device(host.device)?;
    assert_eq!(names(&again)?, 102);
    assert_eq!(again.read("/snap/small")?, b"inline");
    Ok(())
}

/// State of one file of the random workload.
#[derive(Clone, Default, PartialEq, Debug)]
struct Known {
    /// Its present contents.
    now: Option<Vec<u8>>,
    /// Its contents at its last successful sync, and all later ones.
    after_crash: Vec<Option<Vec<u8>>>,
}

struct Program {
    host: Host,
    random: Random,
    known: BTreeMap<PathBuf, Known>,
    told: u64,
}

impl Program {
    /// Fails with every error but the one that there is no room; true when there was.
    fn went_well(&mut self, result: Result<(), Error>) -> Result<bool> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if is_full(&error) => {
                self.told += 1;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn step(&mut self, volume: &Volume) -> Result<()> {
        let path = PathBuf::from(format!("/f{}", self.random.below(FILES)));
        let known = self.known.entry(path.clone()).or_insert_with(|| Known { now: None, after_crash: vec![None] });
        let mut known = known.clone();
        match self.random.below(10) {
            0..5 => {
                let len = self.random.index(FILE_BYTES_MAX);
                let contents = bytes(self.random.number(), len);
                // A file that is written as a whole is empty before; a write that fails may be there in part.
                let written = write(volume, &path, &contents);
                let is_there = self.went_well(written)?;
                known.after_crash.push(Some(Vec::new()));
                known.now = Some(if is_there { contents } else { volume.read(&path).unwrap_or_default() });
                known.after_crash.push(known.now.clone());
            }
            5 if known.now.is_some() => {
                let removed = volume.remove_file(&path);
                if self.went_well(removed)? {
                    known.now = None;
                    known.after_crash.push(None);
                }
            }
            6..9 if known.now.is_some() => {
                let synced = sync(volume, &path);
                if self.went_well(synced)? {
                    known.after_crash = vec![known.now.clone()];
                }
            }
            9 => {
                let synced = volume.sync();
                if self.went_well(synced)? {
                    self.known.values_mut().for_each(|known| known.after_crash = vec![known.now.clone()]);
                    known.after_crash = vec![known.now.clone()];
                }
            }
            _ => {}
        }
        self.known.insert(path, known);
        Ok(())
    }

    fn compare(&self, volume: &Volume, is_crashed: bool) -> Result<()> {
        for (path, known) in &self.known {
            let found = match volume.read(path) {
                Ok(found) => Some(found),
                Err(error) if error.is_not_found() => None,
                Err(error) => return Err(error.into()),
            };
            let is_right = match is_crashed {
                true => known.after_crash.contains(&found),
                false => known.now == found,
            };
            let len = found.map(|found| found.len());
            ensure!(is_right, "{}: {len:?} bytes found, crashed: {is_crashed}", path.display());
        }
        Ok(())
    }
}

fn random_program(seed: u64) -> Result<u64> {
    let host = Host::new();
    let volume = host.make()?;
    let mut program = Program { host, random: Random::new(seed), known: BTreeMap::new(), told: 0 };
    for round in 0..12 {
        let room = program.random.skewed(2 << 20);
        program.host.device.leave_room(room);
        for _ in 0..program.random.below(40) {
            program.step(&volume)?;
        }
        program.compare(&volume, false).with_context(|| format!("round {round}"))?;
        if round % 4 == 1 {
            let crashed = program.host.after_crash().with_context(|| format!("round {round}"))?;
            program.compare(&crashed, true).with_context(|| format!("round {round}"))?;
        }
    }
    program.host.device.leave_room(u64::MAX / 2);
    program.compare(&volume, false)?;
    volume.close().context("with room again")?;
    check(&*program.host.device)?;
    let again = Volume::options().open_device(Arc::<FullDevice>::clone(&program.host.device))?;
    program.compare(&again, false)?;
    Ok(program.told)
}

#[test]
fn random_programs_lose_nothing_on_a_host_that_fills_up() -> Result<()> {
    let seeds = std::env::var("SPINNEY_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let mut told = 0;
    for seed in 0..seeds {
        told += random_program(seed).with_context(|| format!("seed {seed}"))?;
    }
    eprintln!("{seeds} programs, {told} calls found no room");
    assert!(told > 0);
    Ok(())
}

/// Deleted data takes space on the host until a write needs it: then it is discarded.
#[test]
fn contents_that_change_take_no_more_of_the_host_than_there_is_at_a_time() -> Result<()> {
    let host = Host::new();
    let volume = host.make()?;
    host.device.leave_room(10 << 20);
    for round in 0..60_u64 {
        let path = PathBuf::from(format!("f{}", round % 3));
        let contents = bytes(round, 1 << 20);
        write(&volume, &path, &contents).with_context(|| format!("round {round}"))?;
        match round % 2 {
            0 => sync(&volume, &path).with_context(|| format!("round {round}"))?,
            _ => volume.sync().with_context(|| format!("round {round}"))?,
        }
        if round % 20 == 19 {
            let left = host.after_crash()?;
            ensure!(left.read(&path)? == contents, "round {round}: synced data is there");
        }
    }
    ensure!(host.device.refused() > 0, "the host was never full");
    Ok(volume.close()?)
}
