//! Runs the long operations of btrfs (scrub, balance, send, receive, backup, restore), with one callback for progress
//! and cancellation. The commands `backup`, `restore`, `send` and `receive` call it, and programs.

use std::io::{self, Read, Write};
use std::path::Path;

use ::btrfs::{
    BalanceEnd, BalanceProgress, BalanceSpec, ScrubOptions, ScrubProgress, ScrubReport, SendError, SendOptions, Volume,
};
use btrfs_backup::{Backup, Chosen, Destination, Inspection, Origin, Report, Repository, Restore, Source, Target};
use btrfs_receive::{Notices, Receiver};
use checking::Watched;
use vfs::{Errno, Result};

use crate::progress::{Progress, ProgressFn, Reporter};

impl From<&ScrubProgress> for Progress {
    fn from(progress: &ScrubProgress) -> Self {
        // Others may write meanwhile, so that more is read than there was at first.
        Self { bytes: progress.bytes.min(progress.bytes_total), bytes_total: progress.bytes_total, inodes: 0 }
    }
}

impl From<&BalanceProgress> for Progress {
    fn from(progress: &BalanceProgress) -> Self {
        let BalanceProgress { completed, bytes, moved_bytes, .. } = progress;
        Self { bytes: (*moved_bytes).min(*bytes), bytes_total: *bytes, inodes: *completed }
    }
}

/// Reads all copies of everything in the last commit and rewrites bad ones from good ones, as [`Volume::scrub`]. A
/// scrub that is cancelled returns its report, whose [`ScrubProgress::place`] another scrub can start from.
///
/// # Errors
/// As [`Volume::scrub`].
pub fn scrub(volume: &Volume, options: ScrubOptions, watch: ProgressFn<'_>) -> Result<ScrubReport> {
    reported(watch, |reporter| {
        let report = volume.scrub(options, &mut |progress| reporter.set(progress.into()))?;
        let _ = reporter.set(Progress::from(&report.progress));
        Ok(report)
    })
}

/// Rewrites block groups, as [`Volume::balance`]. A balance that is cancelled ends as [`BalanceEnd::Paused`], and
/// [`resume_balance`] or the kernel resumes it.
///
/// # Errors
/// As [`Volume::balance`].
pub fn balance(volume: &Volume, spec: BalanceSpec, watch: ProgressFn<'_>) -> Result<BalanceEnd> {
    balanced(watch, |watch| volume.balance(spec, watch))
}

/// Resumes a balance that has not ended, as [`balance`].
///
/// # Errors
/// As [`Volume::resume_balance`].
pub fn resume_balance(volume: &Volume, watch: ProgressFn<'_>) -> Result<BalanceEnd> {
    balanced(watch, |watch| volume.resume_balance(watch))
}

/// The callback of a balance of the volume.
type BalanceWatch<'a> = &'a mut dyn FnMut(&BalanceProgress) -> std::ops::ControlFlow<()>;

fn balanced(watch: ProgressFn<'_>, run: impl FnOnce(BalanceWatch<'_>) -> Result<BalanceEnd>) -> Result<BalanceEnd> {
    reported(watch, |reporter| {
        let end = run(&mut |progress| reporter.set(progress.into()))?;
        let (BalanceEnd::Done(progress) | BalanceEnd::Paused(progress)) = &end;
        let _ = reporter.set(progress.into());
        Ok(end)
    })
}

/// A send stream to write.
#[derive(Debug, Clone)]
pub struct Sending<'a> {
    /// The read-only subvolume.
    pub subvolume: &'a Path,
    /// A snapshot that the receiver has; without one all of the subvolume is sent.
    pub parent: Option<&'a Path>,
    /// Further subvolumes that the receiver has, to clone data from.
    pub clones: &'a [&'a Path],
    /// The options of the stream.
    pub options: SendOptions,
}

/// Writes a send stream, as [`Volume::send`]. Its progress has no total; [`Volume::send_bytes`] estimates one. A stream
/// that was cancelled is incomplete.
///
/// # Errors
/// As [`Volume::send`]; [`SendError::Volume`] with `ECANCELED` after `watch` cancelled it.
pub fn send(
    volume: &Volume,
    sending: &Sending<'_>,
    output: &mut dyn Write,
    watch: ProgressFn<'_>,
) -> Result<(), SendError> {
    let reporter = Reporter::new(watch);
    let Sending { subvolume, parent, clones, options } = sending;
    // Between the buffer and the output, so that each call counts many commands.
    let mut output = io::BufWriter::with_capacity(1 << 20, Watched::new(output, &reporter));
    let sent = volume.send(subvolume, *parent, clones, options, &mut output);
    let sent = sent.and_then(|()| output.flush().map_err(SendError::Output));
    // Without its buffer, which the cancelled output refuses.
    drop(output.into_parts());
    reporter.finish();
    if sent.is_err() && reporter.is_cancelled() { Err(SendError::Volume(Errno::ECANCELED.into())) } else { sent }
}

/// Receives streams, as [`Receiver::receive`]. Subvolumes that are complete stay after a cancellation; the one that is
/// being built can be resumed or discarded as after any failure.
///
/// # Errors
/// As [`Receiver::receive`]; [`btrfs_receive::Error::Cancelled`].
pub fn receive(
    receiver: &mut Receiver<'_>,
    input: impl Read,
    notices: &mut dyn Notices,
    watch: ProgressFn<'_>,
) -> Result<(), btrfs_receive::Error> {
    reported(watch, |reporter| receiver.receive(input, reporter, notices))
}

/// Runs a backup, as [`Backup::run`].
///
/// # Errors
/// As [`Backup::run`].
pub fn back_up(
    backup: &Backup,
    source: &dyn Source,
    destination: &mut dyn Destination,
    report: &mut Report,
    watch: ProgressFn<'_>,
) -> Result<(), btrfs_backup::Error> {
    reported(watch, |reporter| backup.run(source, destination, reporter, report))
}

/// Restores a state of a backup, as [`Restore::run`].
///
/// # Errors
/// As [`Restore::run`].
pub fn restore(
    restore: &Restore<'_>,
    from: &Origin,
    chosen: Chosen<'_>,
    target: &dyn Target,
    watch: ProgressFn<'_>,
) -> Result<(), btrfs_backup::Error> {
    reported(watch, |reporter| restore.run(from, chosen, target, reporter))
}

/// Compares a restored subvolume with the state in a volume, as [`Restore::verify`].
///
/// # Errors
/// As [`Restore::verify`].
pub fn verify_restored(
    restore: &Restore<'_>,
    from: &Origin,
    chosen: Chosen<'_>,
    files: &vfs::Volume,
    watch: ProgressFn<'_>,
) -> Result<(), btrfs_backup::Error> {
    reported(watch, |reporter| restore.verify(from, chosen, files, reporter))
}

/// Verifies a repository, as [`Repository::verify_objects`].
///
/// # Errors
/// As [`Repository::verify_objects`].
pub fn verify_repository(
    repository: &Repository,
    percent: u8,
    seed: u64,
    watch: ProgressFn<'_>,
) -> Result<Inspection, btrfs_backup::Error> {
    reported(watch, |reporter| repository.verify_objects(percent, seed, reporter))
}

/// Runs an operation that reports to `watch`, and reports its end.
fn reported<T>(watch: ProgressFn<'_>, run: impl FnOnce(&Reporter<'_>) -> T) -> T {
    let reporter = Reporter::new(watch);
    let done = run(&reporter);
    reporter.finish();
    done
}
