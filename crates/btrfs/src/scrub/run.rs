//! Runs a scrub from its beginning to its end. Called by `volume/scrub`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use btrfs_disk::convert::to_u64;
use btrfs_disk::superblock::SUPERBLOCK_SIZE;
use btrfs_disk::verify::BLOCK_GENERATION;
use btrfs_disk::{DevId, Logical};
use btrfs_pool::{DeviceCounts, Profile};
use btrfs_store::error::{BadCopy, Cause};
use btrfs_store::{BadUnit, Fate, GroupState, ScrubStep, Store};

use super::lost_files;
use super::report::{ScrubFault, ScrubOptions, ScrubProgress, ScrubReport, ScrubbedKind};
use crate::dir::Namespace;
use crate::error::{CallerError, Result};

/// Times that a scrub restarts at the same place, after its view was given up.
const RESTARTS_MAX: u32 = 16;

/// Places of lost data that are kept to find their files.
const LOST_PLACES_MAX: usize = 1 << 20;

/// Receives the progress, and decides whether to continue.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(&ScrubProgress) -> ControlFlow<()>;

/// Scrubs a volume, until the end or until `watch` breaks.
///
/// # Errors
/// `ReadOnly` where it cannot repair; damage of the extent and checksum trees without a good copy; I/O.
pub(crate) fn run(names: &Namespace, options: ScrubOptions, watch: Watch<'_>) -> Result<ScrubReport> {
    let store = &names.core.store;
    let mends = !options.read_only;
    if mends && store.is_read_only() {
        return Err(CallerError::ReadOnly.into());
    }
    let mut found = Found::new(store, options.from);
    found.superblocks(store, mends)?;
    let is_whole = found.extents(store, mends, watch)?;
    if found.report.progress.mended > 0 {
        store.flush_devices()?;
    }
    found.report.is_whole = is_whole;
    found.lost.sort_unstable();
    found.lost.dedup();
    lost_files::find(names, &found.lost, &mut found.report);
    if mends && !found.errors.is_empty() {
        found.errors.iter().for_each(|(device, errors)| store.count_device_errors(*device, errors));
        store.commit()?;
    }
    Ok(found.report)
}

/// The results so far.
struct Found {
    report: ScrubReport,
    /// Places of data of which no copy is good, and bytes there.
    lost: Vec<(u64, u64)>,
    /// The errors of each device.
    errors: BTreeMap<DevId, DeviceCounts>,
}

impl Found {
    fn new(store: &Store, from: u64) -> Self {
        let bytes_total = store.groups().iter().map(|group| group.used.saturating_mul(copies(group))).sum();
        let progress = ScrubProgress { bytes_total, place: from, ..ScrubProgress::default() };
        Self { report: ScrubReport { progress, ..ScrubReport::default() }, lost: Vec::new(), errors: BTreeMap::new() }
    }

    /// Superblocks are skipped where an earlier scrub was stopped behind them.
    fn superblocks(&mut self, store: &Store, mends: bool) -> Result<()> {
        if self.report.progress.place > 0 {
            return Ok(());
        }
        let (bytes, bad) = store.scrub_superblocks(mends)?;
        let progress = &mut self.report.progress;
        progress.bytes = progress.bytes.saturating_add(bytes);
        progress.bytes_total = progress.bytes_total.saturating_add(bytes);
        for bad in bad {
            progress.superblock_errors += 1;
            self.errors.entry(bad.copy.device).or_default().corruptions += 1;
            count(progress, bad.fate);
            let len = to_u64(SUPERBLOCK_SIZE);
            self.report.faults.push(fault(ScrubbedKind::Superblock, (bad.copy.offset, len), &bad.copy, bad.fate));
        }
        Ok(())
    }

    fn extents(&mut self, store: &Store, mends: bool, watch: Watch<'_>) -> Result<bool> {
        let mut restarts = 0;
        let mut begun_at = None;
        loop {
            let mut scrub = store.scrub(Logical(self.report.progress.place), mends)?;
            let failure = loop {
                if watch(&self.report.progress).is_break() {
                    return Ok(false);
                }
                match scrub.step() {
                    Ok(Some(step)) => self.add(step),
                    Ok(None) => return Ok(true),
                    Err(error) => break error,
                }
                self.report.progress.place = scrub.place().0;
            };
            let place = self.report.progress.place;
            restarts = if begun_at == Some(place) { restarts + 1 } else { 0 };
            begun_at = Some(place);
            if restarts >= RESTARTS_MAX || !is_given_up(&failure) {
                return Err(failure.into());
            }
        }
    }

    fn add(&mut self, step: ScrubStep) {
        let progress = &mut self.report.progress;
        progress.tree_bytes = progress.tree_bytes.saturating_add(step.tree_bytes);
        progress.data_bytes = progress.data_bytes.saturating_add(step.data_bytes);
        progress.unchecked_bytes = progress.unchecked_bytes.saturating_add(step.unchecked_bytes);
        progress.bytes = progress.bytes.saturating_add(step.tree_bytes).saturating_add(step.data_bytes);
        for bad in step.bad {
            self.add_bad(&bad);
        }
    }

    fn add_bad(&mut self, bad: &BadUnit) {
        let progress = &mut self.report.progress;
        let errors = self.errors.entry(bad.copy.device).or_default();
        match (&bad.copy.cause, bad.is_tree) {
            (Cause::Device(_), _) => {
                progress.read_errors += 1;
                errors.read_errors += 1;
            }
            (Cause::Corrupt(error), true) => {
                progress.tree_errors += 1;
                let is_generation = error.what == BLOCK_GENERATION;
                progress.generation_errors += u64::from(is_generation);
                let counter = if is_generation { &mut errors.generation_errors } else { &mut errors.corruptions };
                *counter += 1;
            }
            (Cause::Corrupt(_), false) => {
                progress.data_errors += 1;
                errors.corruptions += 1;
            }
        }
        count(progress, bad.fate);
        if bad.fate == Fate::Lost && !bad.is_tree && self.lost.len() < LOST_PLACES_MAX {
            self.lost.push((bad.at.0, bad.len));
        }
        if self.report.faults.len() < ScrubReport::FAULTS_MAX {
            let kind = if bad.is_tree { ScrubbedKind::TreeBlock } else { ScrubbedKind::Data };
            self.report.faults.push(fault(kind, (bad.at.0, bad.len), &bad.copy, bad.fate));
        }
    }
}

fn fault(kind: ScrubbedKind, (logical, len): (u64, u64), copy: &BadCopy, fate: Fate) -> ScrubFault {
    let problem = copy.cause.to_string();
    ScrubFault { kind, logical, len, copy: copy.mirror, device: copy.device.0, offset: copy.offset, problem, fate }
}

fn count(progress: &mut ScrubProgress, fate: Fate) {
    match fate {
        Fate::Mended => progress.mended += 1,
        Fate::Left => progress.left += 1,
        Fate::Lost => progress.lost += 1,
    }
}

/// Copies of each byte in a group.
fn copies(group: &GroupState) -> u64 {
    Profile::from_flags(group.flags).map_or(1, |profile| profile.mirror_count().into())
}

/// True if the view was given up because its space was needed: the scrub continues with a newer state.
fn is_given_up(error: &btrfs_store::Error) -> bool {
    matches!(error, btrfs_store::Error::Device(blockdev::Error::Gone { .. }))
}
