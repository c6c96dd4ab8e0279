//! Holds one run of `mkfs`: the target, the contents that are copied into it, and the clock and UUIDs of an image that
//! is to be the same each time. `mkfs` of btrfs and of f2fs make their file systems with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Error, Result};
use spinney::transfer::{Observer, Options, Rules, Totals, VolumeSink, VolumeSinkOptions, default_threads};
use spinney::vfs::Volume;
use spinney::{Contents, ContentsOptions, Env, Time, derived_uuid, reproducible_env};

use crate::commands::emulation;
use crate::commands::failure::Failure;
use crate::commands::progress::{Bar, Progress};
use crate::target::{Common, Target};

/// How often a size that was too small is increased before giving up.
const GROWTH_COUNT_MAX: u32 = 6;
/// The time of an image that is to be the same each time: <https://reproducible-builds.org/specs/source-date-epoch>
const EPOCH_VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// A file system that is to be made.
pub(crate) struct Job<'a> {
    pub(crate) common: &'a Common,
    pub(crate) target: Target,
    pub(crate) contents: Option<Contents>,
    pub(crate) reproducible: Option<Reproducible>,
    /// Files with equal contents share their data.
    pub(crate) shares_equal: bool,
    /// Bytes that this saved.
    saved: AtomicU64,
}

/// The properties of an image that is to be the same each time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reproducible {
    /// UUID of the file system.
    pub(crate) uuid: [u8; 16],
    /// The time of everything that `mkfs` makes; no file is newer.
    pub(crate) now: Time,
}

impl Reproducible {
    /// The clock and the random numbers.
    pub(crate) fn env(&self) -> Env {
        reproducible_env(self.uuid, (self.now.sec, self.now.nsec))
    }
}

impl<'a> Job<'a> {
    /// Opens the contents and looks at the target; nothing is written.
    ///
    /// # Errors
    /// Those of [`Common::target`], of the contents, and `Usage` for a SOURCE_DATE_EPOCH that is no number.
    pub(crate) fn new(common: &'a Common) -> Result<Self> {
        let target = common.target()?;
        let contents = match common.contents.sources.as_slice() {
            [] => None,
            sources => {
                emulation::check()?;
                let options = ContentsOptions { skip: target.id(), ..common.contents.options()? };
                Some(Contents::read(sources, &options, &())?)
            }
        };
        let reproducible = reproducible(common, contents.as_ref())?;
        Ok(Self { common, target, contents, reproducible, shares_equal: false, saved: AtomicU64::new(0) })
    }

    /// Counts bytes that are shared with the source.
    pub(crate) fn add_saved(&self, bytes: u64) {
        self.saved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of files that share their data with others.
    pub(crate) fn saved_bytes(&self) -> u64 {
        self.saved.load(Ordering::Relaxed)
    }

    /// UUID of the file system; `None` for a random one.
    pub(crate) fn uuid(&self) -> Option<[u8; 16]> {
        self.reproducible.map(|reproducible| reproducible.uuid).or(self.common.uuid)
    }

    /// The clock and random numbers of the new volume.
    pub(crate) fn env(&self) -> Env {
        self.reproducible.as_ref().map_or_else(Env::system, Reproducible::env)
    }

    /// How contents are copied. Where the image is to be the same each time, one thread makes all names, since their
    /// order decides where they lie; the workers of the volume may be many. The same goes for equal files: of two that
    /// are copied at the same time neither would find the other.
    pub(crate) fn transfer_options(&self) -> Options {
        let latest = self.reproducible.map(|reproducible| reproducible.now);
        let thread_count = match latest.is_some() || self.shares_equal {
            true => 1,
            false => self.common.threads.unwrap_or_else(default_threads),
        };
        let (owner, skip) = (self.common.contents.owner_of_copies(), self.target.id());
        Options { thread_count, rules: Rules { owner, skip, latest, ..Rules::default() } }
    }

    /// Copies the contents, of `bytes_total` bytes if that is known, into a file system on the target.
    ///
    /// # Errors
    /// Those of the copy.
    pub(crate) fn copy_in(&self, volume: &Volume, bytes_total: u64) -> Result<()> {
        let Some(source) = &self.contents else { return Ok(()) };
        let options = self.transfer_options();
        let progress = Arc::new(Progress::default());
        progress.bytes_total.store(bytes_total, Ordering::Relaxed);
        let _bar = Bar::new(&progress, !self.common.quiet);
        let volume_options =
            VolumeSinkOptions { keeps_ctime: true, shares_equal: self.shares_equal, ..VolumeSinkOptions::default() };
        let sink = VolumeSink::new(volume, "/", volume_options);
        self.saved.store(0, Ordering::Relaxed);
        Ok(source.copy(&sink, &options, &Copied { progress: &progress, saved: &self.saved })?)
    }

    /// Makes an image and fills it with the contents. Its size is the given one, or `size_of` the contents, which grows
    /// as long as they do not fit. `fill` gets the size, and the bytes of the contents or 0.
    ///
    /// # Errors
    /// The host's, and what `fill` fails with.
    pub(crate) fn make_filled<T>(
        &self,
        contents: &Contents,
        size_of: impl FnOnce(&Totals) -> u64,
        is_full: impl Fn(&Error) -> bool,
        fill: impl Fn(u64, u64) -> Result<T>,
    ) -> Result<T> {
        let (common, target) = (self.common, &self.target);
        let may_grow = common.size.is_none() && !target.is_device && target.part.size().is_none();
        let counting = Options { thread_count: common.threads.unwrap_or_else(default_threads), ..Options::default() };
        if let Some(size) = common.fixed_size(target).filter(|_| !may_grow) {
            // The total needs a walk of the whole tree, so it is measured only where a progress bar shows it.
            let bytes_total = match Bar::would_show(!common.quiet) {
                true => contents.measure(&counting)?.bytes,
                false => 0,
            };
            return fill(size, bytes_total);
        }
        let totals = contents.measure(&counting)?;
        let wanted = size_of(&totals);
        // A file keeps its size where the contents fit into it, which the estimate, with room to spare, may deny.
        if wanted > target.size && target.size > totals.bytes.saturating_add(totals.bytes / 2) {
            match fill(target.size, totals.bytes) {
                Err(error) if is_full(&error) => {}
                result => return result,
            }
        }
        let mut size = wanted.max(target.size);
        for _ in 0..GROWTH_COUNT_MAX {
            match fill(size, totals.bytes) {
                Err(error) if is_full(&error) => size = size.saturating_add(size / 2),
                result => return result,
            }
        }
        fill(size, totals.bytes)
    }
}

/// The fixed clock and UUID of an image that is to be the same each time; `None` for one that is not.
fn reproducible(common: &Common, contents: Option<&Contents>) -> Result<Option<Reproducible>> {
    let epoch = source_date_epoch()?;
    if epoch.is_none() && !common.deterministic {
        return Ok(None);
    }
    let now = match (epoch, contents) {
        (Some(seconds), _) => Time::new(seconds, 0),
        (None, Some(contents)) => contents.measure(&Options::default())?.newest,
        (None, None) => Time::default(),
    };
    let uuid = match common.uuid {
        Some(uuid) => uuid,
        None if common.deterministic => derived_uuid(common.label.as_bytes()),
        None => Env::system().uuid(),
    };
    Ok(Some(Reproducible { uuid, now }))
}

/// The seconds since 1970 that SOURCE_DATE_EPOCH gives.
pub(crate) fn source_date_epoch() -> Result<Option<i64>> {
    let Some(text) = std::env::var_os(EPOCH_VARIABLE) else { return Ok(None) };
    let seconds = text.to_str().and_then(|text| text.parse::<i64>().ok()).filter(|seconds| *seconds >= 0);
    let wrong = || Failure::usage(format!("{EPOCH_VARIABLE}: expected seconds since 1970, found {}", text.display()));
    Ok(Some(seconds.ok_or_else(wrong)?))
}

/// Passes the progress of a copy on to the progress bar, and counts the bytes that are shared.
struct Copied<'a> {
    progress: &'a Progress,
    saved: &'a AtomicU64,
}

impl Observer for Copied<'_> {
    fn tried(&self) {
        self.progress.add_name();
    }

    fn copied(&self, bytes: u64) {
        self.progress.add_bytes(bytes);
    }

    fn shared(&self, bytes: u64) {
        self.progress.add_bytes(bytes);
        self.saved.fetch_add(bytes, Ordering::Relaxed);
    }
}
