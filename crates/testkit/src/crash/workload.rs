//! Drives random operations with syncs in between over an image, and keeps the journal of promises. Called by
//! `explore`, `inject` and `damage`.

use crate::Random;
use crate::property::make as make_image;
use anyhow::{Context, Result, ensure};
use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{Volume, VolumeOptions};
use crash_explorer::store_device;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use vfs_conformance::model::{Model, Operation};
use vfs_conformance::property::{Generator, drive, is_full, is_refusal};

/// Operations that would make a file larger are left out: every state is read whole, many times.
const FILE_LEN_MAX: u64 = 4 << 20;
/// Bytes of an image file that are looked at together.
const PIECE_BYTES: usize = 64 << 10;

/// How much is done.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Operations of a workload.
    pub operations: u64,
    /// A sync comes once in so many operations.
    pub sync_every: u64,
    /// Size of the image.
    pub image_bytes: u64,
    /// Crash states tried per seed.
    pub states: u64,
    /// `btrfs check` looks at one state in so many.
    pub check_every: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { operations: 250, sync_every: 12, image_bytes: 256 << 20, states: 60, check_every: 10 }
    }
}

/// The state after one operation.
#[derive(Debug, Clone)]
pub struct Moment {
    /// The operation; none for a sync.
    pub operation: Option<Operation>,
    /// The tree as it should be.
    pub model: Model,
    /// Writes and flushes that the device had seen.
    pub events: usize,
    /// The last generation that was committed, or at least settled in memory.
    pub generation: u64,
}

/// Operations and promises. The first moment is the volume before any operation, synced.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    /// In the order of time.
    pub moments: Vec<Moment>,
}

impl Journal {
    /// Runs `settings.operations` over `volume` until an error other than the caller's, which is returned.
    ///
    /// # Errors
    /// If volume and model disagree about the validity of an operation.
    pub(super) fn run(
        seed: u64,
        settings: &Settings,
        volume: &Volume,
        events: impl Fn() -> usize,
    ) -> Result<(Self, Option<vfs::Error>)> {
        let mut journal = Self::default();
        let mut model = Model::new();
        volume.sync()?;
        journal.note(None, &model, events(), volume)?;
        let mut random = Random::new(seed ^ 0xc4a5);
        let mut generator = Generator::new(seed, "/");
        for _ in 0..settings.operations {
            let operation = Some(generator.next(&model)).filter(is_small);
            if let Some(operation) = operation {
                let before = model.clone();
                let expected = model.apply(&operation);
                match drive(volume, &operation) {
                    Ok(()) => {
                        ensure!(expected.is_ok(), "succeeds, but should not: {operation:?}");
                        journal.note(Some(operation), &model, events(), volume)?;
                    }
                    Err(error) if is_full(&error) => model = before,
                    Err(error) if is_refusal(&error) => {
                        ensure!(expected.is_err(), "fails with {error}: {operation:?}");
                    }
                    Err(error) => {
                        journal.note_failed(Some(operation), &model);
                        return Ok((journal, Some(error)));
                    }
                }
            }
            if random.one_in(settings.sync_every) {
                if let Err(error) = volume.sync() {
                    journal.note_failed(None, &model);
                    return Ok((journal, Some(error)));
                }
                journal.note(None, &model, events(), volume)?;
            }
        }
        Ok((journal, None))
    }

    fn note(&mut self, operation: Option<Operation>, model: &Model, events: usize, volume: &Volume) -> Result<()> {
        self.moments.push(Moment { operation, model: model.clone(), events, generation: volume.info()?.generation.0 });
        Ok(())
    }

    /// An operation or a sync that did not return well: whatever it committed may be there or not.
    fn note_failed(&mut self, operation: Option<Operation>, model: &Model) {
        self.moments.push(Moment { operation, model: model.clone(), events: usize::MAX, generation: u64::MAX });
    }

    /// The last sync that had returned when the device had seen `events`.
    #[must_use]
    pub fn promised(&self, events: usize) -> Option<&Moment> {
        self.moments.iter().rev().find(|moment| moment.operation.is_none() && moment.events <= events)
    }
}

pub(super) fn is_small(operation: &Operation) -> bool {
    let end = match operation {
        Operation::Write { offset, len, .. }
        | Operation::Allocate { offset, len, .. }
        | Operation::Reflink { offset, len, .. } => offset.saturating_add(*len),
        Operation::SetLen { len, .. } => *len,
        _ => 0,
    };
    end <= FILE_LEN_MAX
}

/// A fresh image of a random form, in memory; says how it was made.
///
/// # Errors
/// Those of making it.
pub(super) fn fresh(seed: u64, settings: &Settings, folder: &Path) -> Result<(MemoryDevice, String)> {
    let path = folder.join(format!("fresh-{seed}.img"));
    let (volume, form) = make_image(&path, settings.image_bytes, &mut Random::new(seed))?;
    volume.close()?;
    let device = load(&path, settings.image_bytes)?;
    std::fs::remove_file(&path)?;
    Ok((device, form))
}

fn load(path: &Path, size_bytes: u64) -> Result<MemoryDevice> {
    let device = MemoryDevice::new(size_bytes);
    let mut file = std::fs::File::open(path)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = 0;
    while offset < size_bytes {
        file.read_exact(&mut piece).context("the image is short")?;
        if piece.iter().any(|byte| *byte != 0) {
            device.write_at(offset, &[&piece])?;
        }
        offset = offset.saturating_add(crate::number::to_u64(PIECE_BYTES));
    }
    Ok(device)
}

/// Writes an image to a file, for `btrfs check`.
///
/// # Errors
/// The file system's.
pub(super) fn store(device: &MemoryDevice, path: &Path) -> Result<()> {
    store_device(device, path)
}

/// Options that vary with the seed: small budgets make commits and write-back happen in between.
pub(super) fn options(seed: u64) -> VolumeOptions {
    let options = Volume::options();
    match seed % 3 {
        0 => options.dirty_bytes(256 << 10).cache_bytes(1 << 20),
        1 => options.max_inline(0),
        _ => options,
    }
}

/// Opens a volume on a device that the caller keeps too.
///
/// # Errors
/// The volume's.
pub(super) fn open_on(device: &Arc<impl Device + 'static>, options: &VolumeOptions) -> Result<Volume> {
    let device = Arc::clone(device);
    Ok(options.open_device(device)?)
}
