//! Copies files out of a damaged volume, with one callback for progress and cancellation. Programs call it as
//! `spinney::btrfs::rescue`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use btrfs_rescue::{Error as Cause, LostFile, Rescue, Watch as ScanWatch};
use formats::Devices;
use transfer::{HostOptions, HostSink, Options, Rules, Transfer, VolumeSource};
use vfs::{Blame, Errno, Error, Result};

use crate::progress::{Cancellable, INTERVAL, ProgressFn, Reporter};

/// The extent of a rescue.
#[derive(Debug, Clone, Copy, Default)]
pub struct RescueOptions {
    /// The state whose root tree has this generation or address; `None`: the newest.
    pub root: Option<u64>,
}

/// The report of a rescue.
#[derive(Debug, Clone, Default)]
pub struct RescueReport {
    /// Files that were copied in part or not at all.
    pub losses: Vec<LostFile>,
    /// The damage that was found on the way.
    pub notes: Vec<String>,
}

/// Bytes of a scan, which outlive the call because the rescued tree may scan later.
#[derive(Default)]
struct Scanned(AtomicU64);

impl ScanWatch for Scanned {
    fn add_bytes(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Copies all files that can be read of a damaged volume into the host directory `to`, which is created if missing, as
/// [`crate::Volume::export`] does. Nothing is written to the devices. All blocks are read only if the trees are too
/// damaged to follow; their bytes count in the progress with those of the copied files. Files that were complete stay
/// after a cancellation.
///
/// # Errors
/// `EIO` without a trace of a file system, `ENOENT` without such a root; those of the host; `ECANCELED` after `watch`
/// cancelled it. A loss is in the report, not an error.
pub fn rescue(
    devices: Devices,
    to: impl AsRef<Path>,
    options: RescueOptions,
    watch: ProgressFn<'_>,
) -> Result<RescueReport> {
    let reporter = Reporter::new(watch);
    let devices: Devices = devices.into_iter().map(|device| Cancellable::over(device, reporter.cancelled())).collect();
    let scanned = Arc::new(Scanned::default());
    let ended = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        // The scan cannot call a watch that borrows, so its bytes are passed on by this thread.
        let passing = scope.spawn(|| {
            while !ended.load(Ordering::Acquire) {
                thread::park_timeout(INTERVAL);
                reporter.add(scanned.0.swap(0, Ordering::Relaxed), 0);
            }
        });
        let watch: Arc<dyn ScanWatch> = scanned.clone();
        let report = copy(&devices, to.as_ref(), options, watch, &reporter);
        ended.store(true, Ordering::Release);
        passing.thread().unpark();
        report
    });
    reporter.end(report)
}

fn copy(
    devices: &Devices,
    to: &Path,
    options: RescueOptions,
    scan: Arc<dyn ScanWatch>,
    reporter: &Reporter<'_>,
) -> Result<RescueReport> {
    let found = Rescue::open(devices, 0, scan).map_err(of_rescue)?;
    let view = found.view(options.root).map_err(of_rescue)?;
    let volume = view.volume();
    let source = VolumeSource::new(&volume, Path::new("/"));
    let sink = HostSink::create(to, HostOptions::default())?;
    let options = Options { rules: Rules::untrusted(), ..Options::default() };
    Transfer::new(&source, &sink, &options, reporter).contents()?;
    Ok(RescueReport { losses: view.losses(), notes: found.notes() })
}

fn of_rescue(error: Cause) -> Error {
    let (errno, blame) = match &error {
        Cause::Unsupported(_) => (Errno::EOPNOTSUPP, Blame::Program),
        Cause::NoSuchRoot(_) => (Errno::ENOENT, Blame::Caller),
        Cause::Members(_) => (Errno::EINVAL, Blame::Caller),
        _ => (Errno::EIO, Blame::Image),
    };
    Error::new(errno, blame, error)
}
