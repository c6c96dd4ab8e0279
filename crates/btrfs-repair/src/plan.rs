//! Plans a repair as a whole, on an overlay until a check finds no more that can be repaired, and writes it at once.
//!
//! Order of the writes: everything but superblocks, flush, the primary superblock, flush, its mirrors, flush. Until the
//! primary is written the old state is valid, of which only bad copies are overwritten; then the repaired one is. The
//! command line calls it, through the `spinney` library (`repairing`).

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use blockdev::Device;
use blockdev::backends::OverlayDevice;
use btrfs_check::{Code, CodeTable as _, Pass, PassTable as _, Report, Watch, check, open_media};
use btrfs_disk::superblock::{DiskSuperblock, SUPERBLOCK_OFFSET, mirror_offsets};

use crate::backup_roots::{self, Older};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::round;
use crate::space::Ranges;
use crate::step::Step;
use crate::undo::{self, PageWrite, read_page, write_page};

/// Rounds of mending and checking; one may uncover damage that was hidden before.
const ROUNDS_MAX: usize = 6;

/// The options of a repair.
#[derive(Clone, Debug)]
pub struct Options {
    /// Steps that may be taken; all if empty.
    pub steps: Vec<Step>,
    /// Bytes of changes that may be kept in memory.
    pub changes_bytes_max: usize,
    /// Memory of each check, bytes.
    pub check_memory_bytes: usize,
    /// Folder for the temporary files of checks.
    pub folder: PathBuf,
    /// Threads of each check; 0 for one per processor.
    pub threads: usize,
}

/// A planned repair, worked out to the last byte.
#[derive(Debug)]
pub struct Plan {
    /// The findings of a check now.
    pub before: Report,
    /// The findings of a check after the repair.
    pub after: Report,
    /// The steps, each with its reasons: codes and how often they were found.
    pub steps: Vec<(Step, Vec<(Code, u64)>)>,
    /// Why steps cannot be taken.
    pub refusals: Vec<String>,
    /// The earlier commit that it goes back to, where the last one cannot be read.
    pub older: Option<Older>,
    pages: Vec<PageWrite>,
    primary: (Vec<u8>, Vec<u8>),
    image_bytes: u64,
}

impl Plan {
    /// True if nothing is wrong.
    #[must_use]
    pub fn is_needless(&self) -> bool {
        self.before.counts.is_empty()
    }

    /// True if a check would find nothing afterwards.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.after.counts.is_empty()
    }

    /// True if there is something to write.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.pages.is_empty()
    }

    /// Bytes that would be written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        btrfs_disk::convert::to_u64(self.pages.len().saturating_mul(undo::PAGE))
    }

    /// Writes the undo file, which restores every byte. It has to be durable before [`Plan::apply`].
    ///
    /// # Errors
    /// The file's.
    pub fn write_undo(&self, out: &mut dyn Write) -> Result<()> {
        Ok(undo::write(out, self.image_bytes, (&self.primary.0, &self.primary.1), &self.pages)?)
    }

    /// Writes the repair to the image of the plan.
    ///
    /// # Errors
    /// `Changed` where the image has changed since; nothing is written then. The device's: the image is then in one of
    /// the two states, and the undo file leads back.
    pub fn apply(&self, device: &dyn Device) -> Result<()> {
        let is_same =
            device.size_bytes() == self.image_bytes && read_page(device, SUPERBLOCK_OFFSET)? == self.primary.0;
        if !is_same {
            return Err(Error::Changed("it was changed since the repair was planned"));
        }
        let supers: Vec<u64> = mirror_offsets(self.image_bytes).collect();
        let phase = |offset: u64| match (offset, supers.contains(&offset)) {
            (SUPERBLOCK_OFFSET, _) => 1,
            (_, true) => 2,
            _ => 0,
        };
        for wanted in 0..3 {
            for page in self.pages.iter().filter(|page| phase(page.offset) == wanted) {
                write_page(device, page.offset, &page.new)?;
            }
            device.flush()?;
        }
        Ok(())
    }
}

/// The state of the planning.
struct Planner<'a> {
    options: &'a Options,
    watch: &'a dyn Watch,
    /// The image, and the overlays of the rounds so far, one over the other.
    base: Arc<dyn Device>,
    layers: Vec<Arc<OverlayDevice>>,
    /// Ranges that no round may overwrite.
    kept: Ranges,
    refusals: Vec<String>,
    steps: Vec<(Step, Vec<(Code, u64)>)>,
}

/// Works out a repair. Nothing is written to the device.
///
/// # Errors
/// When the check cannot be done: no superblock, an I/O error. Damage that cannot be repaired is not an error.
pub fn plan(device: &Arc<dyn Device>, options: &Options, watch: &dyn Watch) -> Result<Plan> {
    let mut planner = Planner {
        options,
        watch,
        base: Arc::clone(device),
        layers: Vec::new(),
        kept: Ranges::default(),
        refusals: Vec::new(),
        steps: Vec::new(),
    };
    let overlay = OverlayDevice::new(Arc::clone(device), options.changes_bytes_max);
    if let Err(error @ Error::SeveralDevices(_)) = Image::open(Arc::new(overlay)) {
        return Err(error);
    }
    let before = planner.check(device)?;
    let mut now = before.clone();
    for _ in 0..ROUNDS_MAX {
        let steps = planner.wanted(&now);
        if steps.is_empty() {
            break;
        }
        match planner.round(&steps, &now)? {
            Some(report) => now = report,
            None => break,
        }
    }
    if !is_better(&before, &now) {
        if now.counts != before.counts {
            let codes: Vec<&str> = now.counts.iter().map(|(code, _)| code.id()).collect();
            planner.refusals.push(format!("the steps would leave the image no better: {}", codes.join(", ")));
        }
        planner.layers.clear();
        planner.steps.clear();
        now = before.clone();
    }
    let mut older = None;
    if !now.counts.is_empty()
        && let Some((clean, state)) = planner.go_back(&before)?
    {
        (now, older) = (clean, Some(state));
    }
    planner.finish(before, now, older)
}

/// True for fewer findings, and none of a new kind.
fn is_better(before: &Report, after: &Report) -> bool {
    let sum = |report: &Report| report.counts.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
    let is_known = |code: &Code| before.counts.iter().any(|(known, _)| known == code);
    sum(after) < sum(before) && after.counts.iter().all(|(code, _)| is_known(code))
}

impl Planner<'_> {
    fn check(&self, device: &Arc<dyn Device>) -> Result<Report> {
        self.check_passes(device, Vec::new())
    }

    fn check_passes(&self, device: &Arc<dyn Device>, passes: Vec<Pass>) -> Result<Report> {
        let options = btrfs_check::Options {
            passes,
            memory_bytes: self.options.check_memory_bytes,
            folder: self.options.folder.clone(),
            threads: self.options.threads,
            marks: None,
        };
        Ok(check(&[Arc::clone(device)], &options, self.watch)?)
    }

    /// The steps for the findings.
    fn wanted(&self, report: &Report) -> BTreeSet<Step> {
        let steps = report.findings.iter().filter_map(Step::for_finding);
        steps.filter(|step| self.options.steps.is_empty() || self.options.steps.contains(step)).collect()
    }

    fn top(&self) -> Arc<dyn Device> {
        match self.layers.last() {
            Some(layer) => Arc::<OverlayDevice>::clone(layer),
            None => Arc::clone(&self.base),
        }
    }

    /// Goes back to an earlier commit, where the last one cannot be read and an earlier one is whole, which a check
    /// verifies; returns its report. Discards the layers and steps so far.
    fn go_back(&mut self, before: &Report) -> Result<Option<(Report, Older)>> {
        let fields = open_media(&[Arc::clone(&self.base)])?.fields;
        let is_allowed = self.options.steps.is_empty() || self.options.steps.contains(&Step::OlderState);
        if !is_allowed || !backup_roots::is_needed(before, &fields) {
            return Ok(None);
        }
        let (layers, steps) = (std::mem::take(&mut self.layers), std::mem::take(&mut self.steps));
        for state in backup_roots::states(&fields) {
            let to = state.generation.get();
            let report = self.state(state)?;
            if report.counts.is_empty() {
                let mut codes = before.counts.clone();
                codes.retain(|(code, _)| code.id().starts_with("block-"));
                self.steps = vec![(Step::OlderState, codes)];
                return Ok(Some((report, Older { from: fields.generation.get(), to })));
            }
            let codes: Vec<&str> = report.counts.iter().map(|(code, _)| code.id()).collect();
            self.refusals.push(format!("the state of generation {to} is not whole any more: {}", codes.join(", ")));
            self.layers.clear();
        }
        (self.layers, self.steps) = (layers, steps);
        Ok(None)
    }

    /// Puts the superblocks of an earlier commit on a layer; returns the report of a check.
    fn state(&mut self, state: Box<DiskSuperblock>) -> Result<Report> {
        let layer = Arc::new(OverlayDevice::new(Arc::clone(&self.base), self.options.changes_bytes_max));
        let mut image = Image::open(Arc::clone(&layer))?;
        image.fields = state;
        image.write_superblocks()?;
        self.layers = vec![layer];
        // The devices and system chunks in a superblock are those of its own commit.
        let tops = BTreeSet::from([Step::Superblock]);
        let found = self.check(&self.top())?;
        if !found.counts.is_empty() && self.wanted(&found).is_subset(&tops) {
            self.attempt(&tops, &found)?;
        }
        let passes = Pass::all().iter().map(|info| info.pass).chain([Pass::Data]).collect();
        self.check_passes(&self.top(), passes)
    }

    /// Takes all steps at once or, where that fails, each by itself; returns the report of a check, if anything was
    /// done.
    fn round(&mut self, steps: &BTreeSet<Step>, now: &Report) -> Result<Option<Report>> {
        if self.attempt(steps, now)? {
            return Ok(Some(self.check(&self.top())?));
        }
        let mut is_done = false;
        if steps.len() > 1 {
            for step in steps {
                is_done |= self.attempt(&BTreeSet::from([*step]), now)?;
            }
        }
        if is_done { Ok(Some(self.check(&self.top())?)) } else { Ok(None) }
    }

    /// Takes steps on an overlay of their own, which is kept only on success.
    fn attempt(&mut self, steps: &BTreeSet<Step>, now: &Report) -> Result<bool> {
        let layer = Arc::new(OverlayDevice::new(self.top(), self.options.changes_bytes_max));
        let mut kept = self.kept.clone();
        let done = Image::open(Arc::clone(&layer)).and_then(|mut image| round::run(&mut image, steps, &mut kept));
        match done {
            Ok(()) => {
                self.layers.push(layer);
                self.kept = kept;
                steps.iter().for_each(|step| self.took(*step, now));
                Ok(true)
            }
            Err(error) => {
                let text = error.to_string();
                if !self.refusals.contains(&text) {
                    self.refusals.push(text);
                }
                Ok(false)
            }
        }
    }

    /// Notes a step, with its reasons.
    fn took(&mut self, step: Step, now: &Report) {
        let mut codes: Vec<(Code, u64)> = Vec::new();
        for finding in now.findings.iter().filter(|finding| Step::for_finding(finding) == Some(step)) {
            if !codes.iter().any(|(code, _)| *code == finding.code) {
                let count = now.counts.iter().find(|(code, _)| *code == finding.code).map_or(1, |(_, count)| *count);
                codes.push((finding.code, count));
            }
        }
        match self.steps.iter_mut().find(|(known, _)| *known == step) {
            Some((_, known)) => {
                known.extend(
                    codes.into_iter().filter(|(code, _)| known.iter().all(|(old, _)| old != code)).collect::<Vec<_>>(),
                );
            }
            None => self.steps.push((step, codes)),
        }
    }

    /// The pages that differ from the image.
    fn finish(mut self, before: Report, after: Report, older: Option<Older>) -> Result<Plan> {
        let top = self.top();
        let offsets: BTreeSet<u64> =
            self.layers.iter().flat_map(|layer| layer.changes()).map(|(offset, _)| offset).collect();
        let mut pages = Vec::new();
        for offset in offsets {
            let (old, new) = (read_page(&*self.base, offset)?, read_page(&*top, offset)?);
            if old != new {
                pages.push(PageWrite { offset, old: old.into_boxed_slice(), new: new.into_boxed_slice() });
            }
        }
        let primary = (read_page(&*self.base, SUPERBLOCK_OFFSET)?, read_page(&*top, SUPERBLOCK_OFFSET)?);
        self.steps.sort_by_key(|(step, _)| *step);
        let image_bytes = self.base.size_bytes();
        Ok(Plan { before, after, steps: self.steps, refusals: self.refusals, older, pages, primary, image_bytes })
    }
}
