//! What check, scrub, rescue and repair make of any image. Whatever it says, each of them ends, soon, and keeps its
//! promises: what only reads writes nothing, which the caller's device watches; a repair that calls itself complete
//! leaves a clean image, and its undo brings every byte back; a scrub leaves nothing that it could have mended.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::Cursor;
use std::ops::ControlFlow;
use std::sync::Arc;

use blockdev::Device;
use blockdev::backends::OverlayDevice;
use btrfs::{Env, Fate, ScrubFault, ScrubOptions, ScrubReport, ScrubbedKind, Volume};
use btrfs_check::{Pass, Report, check as run_check};
use btrfs_disk::superblock::{MIRRORS_MAX, mirror_offset};
use btrfs_repair::{Undo, plan};
use btrfs_rescue::Rescue;

use super::walk::walk;

/// Older states that are looked at.
const STATES_MAX: usize = 3;
/// Bytes of changes that a repair or a scrub may keep in memory.
const CHANGES_BYTES_MAX: usize = 64 << 20;
/// Bytes that an undo brings back at a time.
const PAGE_BYTES: usize = 4096;

/// How one of them ended.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "used by `cargo trials fuzz-images`")]
pub struct End {
    /// In a word.
    pub word: &'static str,
    /// What tells it from other ends: which codes were found, which steps taken.
    pub detail: u64,
}

fn end(word: &'static str, detail: impl Hash) -> End {
    let mut hasher = DefaultHasher::new();
    detail.hash(&mut hasher);
    End { word, detail: hasher.finish() }
}

/// A check with all passes, the data's too.
pub fn check(device: &Arc<dyn Device>) -> End {
    match report(device, vec![Pass::Csums, Pass::Files, Pass::Roots, Pass::Quota, Pass::Log, Pass::Space, Pass::Data]) {
        None => end("refused", ()),
        Some(report) if report.counts.is_empty() => end("clean", ()),
        Some(report) => end("errors", report.counts.iter().map(|(code, _)| *code).collect::<Vec<_>>()),
    }
}

fn report(device: &Arc<dyn Device>, passes: Vec<Pass>) -> Option<Report> {
    let options = btrfs_check::Options { passes, ..btrfs_check::Options::default() };
    run_check(&[Arc::clone(device)], &options, &()).ok()
}

/// A scrub that only counts, and one that mends, on an overlay.
pub fn scrub(device: &Arc<dyn Device>, mends: bool) -> End {
    let above: Arc<dyn Device> = match mends {
        true => Arc::new(OverlayDevice::new(Arc::clone(device), CHANGES_BYTES_MAX)),
        false => Arc::clone(device),
    };
    let Ok(volume) = volume_options().read_only(!mends).open_device(above) else { return end("refused", mends) };
    let scrub = |read_only| volume.scrub(ScrubOptions { read_only, from: 0 }, &mut |_| ControlFlow::Continue(()));
    let found = match scrub(!mends) {
        Ok(found) => found,
        Err(error) => return end("failed", (error.errno(), error.blame())),
    };
    let (mended, left, lost) = counts(&found);
    if mends {
        // What a chunk says to lie on the superblock is left.
        let is_told = found.faults.len() < ScrubReport::FAULTS_MAX;
        let others = found.faults.iter().filter(|fault| fault.fate == Fate::Left && !is_on_superblock(fault));
        assert!(!is_told || others.count() == 0, "a scrub that mends left what another copy has: {found:?}");
        if let Ok(again) = scrub(true) {
            assert_eq!(counts(&again).1, left, "what was mended is bad again: first {found:?}, then {again:?}");
        }
    }
    let detail = (mended > 0, left > 0, lost.min(3), found.lost.len().min(3), found.unreadable.len());
    let word = match (mended.saturating_add(left), lost) {
        (0, 0) => "clean",
        (_, 0) => "all had another copy",
        _ => "lost",
    };
    end(word, detail)
}

fn is_on_superblock(fault: &ScrubFault) -> bool {
    let mut copies = (0..MIRRORS_MAX).filter_map(mirror_offset);
    fault.kind != ScrubbedKind::Superblock
        && copies.any(|copy| fault.offset < copy + 4096 && copy < fault.offset + fault.len)
}

fn counts(found: &ScrubReport) -> (u64, u64, u64) {
    (found.progress.mended, found.progress.left, found.progress.lost)
}

fn volume_options() -> btrfs::VolumeOptions {
    let env = Env::seeded(1, (1_700_000_000, 0));
    Volume::options().workers(1).cache_bytes(4 << 20).dirty_bytes(1 << 20).env(env)
}

/// What a rescue looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Older states, too.
    pub states: bool,
    /// What was deleted, too.
    pub undelete: bool,
}

/// Reads what is left: the newest state, older ones, what was deleted.
pub fn rescue(device: &Arc<dyn Device>, depth: Depth) -> End {
    let Ok(found) = Rescue::open(&[Arc::clone(device)], 1, Arc::new(())) else { return end("refused", ()) };
    let mut names = 0;
    let (mut losses, mut missing) = (0, 0);
    if let Ok(view) = found.view(None) {
        names = walk(&view.volume());
        (losses, missing) = (view.losses().len(), view.missing().len());
    }
    if depth.states {
        for root in found.roots().iter().take(STATES_MAX) {
            if let Ok(view) = found.view(Some(root.at)) {
                walk(&view.volume());
            }
        }
    }
    if depth.undelete {
        let undeleted = found.undelete(b"*");
        undeleted.views().iter().take(STATES_MAX).for_each(|view| {
            walk(&view.volume());
        });
    }
    let word = match (names, losses, missing) {
        (0, ..) => "nothing",
        (_, 0, 0) => "whole",
        _ => "losses",
    };
    end(word, (depth.states, depth.undelete, names.min(40), losses.min(5), missing.min(5), found.notes().len()))
}

/// Plans a repair, applies it to an overlay, and undoes it.
pub fn repair(device: &Arc<dyn Device>) -> End {
    let options = btrfs_repair::Options {
        steps: Vec::new(),
        changes_bytes_max: CHANGES_BYTES_MAX,
        check_memory_bytes: 0,
        folder: std::env::temp_dir(),
        threads: 1,
    };
    let Ok(plan) = plan(device, &options, &()) else { return end("refused", ()) };
    if plan.is_needless() {
        return end("clean", ());
    }
    let steps: Vec<_> = plan.steps.iter().map(|(step, _)| *step).collect();
    if !plan.has_changes() {
        return end("left as it was", plan.refusals.len());
    }
    let overlay = Arc::new(OverlayDevice::new(Arc::clone(device), CHANGES_BYTES_MAX));
    let mut undo = Vec::new();
    plan.write_undo(&mut undo).expect("memory takes it");
    plan.apply(&*overlay).expect("the image is as it was planned for");
    if plan.is_complete() {
        let above: Arc<dyn Device> = Arc::<OverlayDevice>::clone(&overlay);
        let after = report(&above, Vec::new()).expect("a repaired image can be checked");
        assert!(after.counts.is_empty(), "a complete repair by {steps:?} left {:?}", after.findings);
    }
    let mut source = Cursor::new(undo);
    let undo = Undo::open(&mut source).expect("it was just written");
    undo.apply(&*overlay).expect("the image is as the repair left it");
    compare(&**device, &overlay);
    let word = match (plan.is_complete(), plan.older.is_some()) {
        (true, true) => "an older state",
        (true, false) => "repaired",
        _ => "repaired in part",
    };
    end(word, (steps, plan.refusals.len().min(3)))
}

/// Compares what lies on an overlay with what is below: nothing else can differ.
fn compare(below: &dyn Device, overlay: &OverlayDevice) {
    for (offset, page) in overlay.changes() {
        let mut was = [0; PAGE_BYTES];
        let len =
            usize::try_from(below.size_bytes().saturating_sub(offset)).map_or(PAGE_BYTES, |len| len.min(PAGE_BYTES));
        below.read_at(offset, &mut was[..len]).expect("the overlay has read it");
        assert!(was == *page, "an undo left other bytes at {offset}");
    }
}
