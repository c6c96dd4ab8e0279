//! `spinney scrub`

use std::io::Write as _;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;
use spinney::{
    DeviceErrors, Fate, LostRange, ScrubFault, ScrubOptions, ScrubProgress, ScrubReport, ScrubbedKind, Volume,
};

use super::format;
use commands::failure::{Failure, Status};
use commands::human;
use commands::image::ImageArgs;
use commands::interrupt::Interrupt;
use commands::names;
use commands::on_mount::OnMount;
use commands::output::Output;
use commands::progress::{Bar, Progress};

/// Faults and lost parts of files that are printed; `--json` has more.
const LINES_MAX: usize = 50;

/// Read everything, check it, and write bad copies anew from good ones
///
/// All copies of all data and metadata are read and compared with their checksums. Where one is bad and another good,
/// the good one is written over it; where none is good, the files are named that it belongs to, in snapshots too.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney scrub start site.img\n",
    "  spinney scrub start --readonly --json site.img | jq .lost\n",
    "  spinney scrub stats site.img"
))]
pub(crate) struct Scrub {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Scrub an image or a mount
    #[command(after_help = concat!(
        "Exit status 3 tells that something is damaged still: no copy is good, or --readonly left it so.\n",
        "When it is interrupted it says where it was, for --from.\n\n",
        "Examples:\n",
        "  spinney scrub start site.img\n",
        "  spinney scrub start --limit 100M ./mnt\n",
        "  spinney scrub start --readonly site.img\n",
        "  spinney scrub start --json site.img | jq '.lost[].path'"
    ))]
    Start(Start),
    /// Show the device's error counters, as `btrfs device stats`
    #[command(after_help = concat!(
        "They are kept in the image, by the kernel too: errors met since they were set to zero. Exit status\n",
        "3 tells that one of them is not zero.\n\n",
        "Examples:\n",
        "  spinney scrub stats site.img\n",
        "  spinney scrub stats --reset site.img\n",
        "  spinney scrub stats --json site.img | jq .corruption"
    ))]
    Stats(Stats),
}

/// Arguments of `scrub start`.
#[derive(Debug, Args)]
pub(crate) struct Start {
    #[command(flatten)]
    image: ImageArgs,
    /// Only count: write nothing
    #[arg(short, long)]
    readonly: bool,
    /// Begin at this logical address, where another was interrupted
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    from: u64,
    /// Read at most so many bytes a second, of all copies
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes)]
    limit: Option<u64>,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {is_whole, place, bytes, errors, mended, left, lost_copies, faults, lost, ...}
    #[arg(long)]
    json: bool,
}

/// Arguments of `scrub stats`.
#[derive(Debug, Args)]
pub(crate) struct Stats {
    #[command(flatten)]
    image: ImageArgs,
    /// Set them to zero after showing them
    #[arg(short = 'z', long)]
    reset: bool,
    /// Report as JSON: {device, write, read, flush, corruption, generation}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    is_whole: bool,
    place: u64,
    bytes: u64,
    tree_bytes: u64,
    data_bytes: u64,
    unchecked_bytes: u64,
    errors: u64,
    read_errors: u64,
    data_errors: u64,
    tree_errors: u64,
    generation_errors: u64,
    superblock_errors: u64,
    mended: u64,
    left: u64,
    lost_copies: u64,
    faults: Vec<Fault>,
    lost: Vec<Lost>,
    unreadable_subvolumes: Vec<u64>,
}

#[derive(Serialize)]
struct Fault {
    kind: &'static str,
    logical: u64,
    bytes: u64,
    copy: u32,
    device: u64,
    offset: u64,
    problem: String,
    fate: &'static str,
}

#[derive(Serialize)]
struct Lost {
    path: Option<String>,
    subvolume: u64,
    inode: u64,
    offset: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Counters {
    device: u64,
    write: u64,
    read: u64,
    flush: u64,
    corruption: u64,
    generation: u64,
}

impl Scrub {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        match &self.command {
            Command::Start(start) => start.run(out),
            Command::Stats(stats) => stats.run(out),
        }
    }
}

impl Start {
    /// The name of the job on a mount.
    pub(super) const JOB: &str = "scrub-start";

    fn run(&self, out: &mut Output) -> Result<()> {
        if let Some(dir) = self.image.mounted_dir()? {
            let mount = OnMount::connect(&dir)?;
            let mut words = vec![dir.display().to_string(), format!("--from={}", self.from)];
            words.extend(self.limit.map(|limit| format!("--limit={limit}")));
            words.extend(self.readonly.then(|| "--readonly".to_owned()));
            words.extend(self.json.then(|| "--json".to_owned()));
            return mount.run(Self::JOB, words, out);
        }
        let volume =
            if self.readonly { format::open_image_as(&self.image, true)? } else { format::open_writable(&self.image)? };
        let interrupt = Interrupt::catch()?;
        let left = self.scrub(&volume, &|| interrupt.check().is_err(), out)?;
        interrupt.end_by_it();
        self.tell_left(left)
    }

    /// Scrubs a volume that is served, and reports.
    pub(super) fn run_on(&self, volume: &Volume, out: &mut Output) -> Result<()> {
        let left = self.scrub(volume, &|| false, out)?;
        self.tell_left(left)
    }

    /// Scrubs, and reports; how many bad copies are left.
    fn scrub(&self, volume: &Volume, is_over: &dyn Fn() -> bool, out: &mut Output) -> Result<u64> {
        let shown = Arc::new(Progress::default());
        let bar = Bar::new(&shown, !self.quiet && !self.json);
        let begun = Instant::now();
        let options = ScrubOptions { read_only: self.readonly, from: self.from };
        let report = volume.scrub(options, &mut |progress| {
            show(&shown, progress);
            if let Some(wait) = self.limit.and_then(|limit| ahead(progress.bytes, limit, begun.elapsed())) {
                std::thread::sleep(wait);
            }
            if is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        drop(bar);
        let report = report?;
        match self.json {
            true => out.json(&Report::from(&report))?,
            false => print(&report, begun.elapsed(), out)?,
        }
        out.flush()?;
        Ok(report.progress.left.saturating_add(report.progress.lost))
    }

    fn tell_left(&self, left: u64) -> Result<()> {
        if left == 0 {
            return Ok(());
        }
        let name = names::escaped(self.image.image.as_os_str().as_bytes());
        Err(Failure::new(Status::Corrupt, format!("{name}: {left} bad copies are left")).into())
    }
}

/// How long to wait so that no more than `limit` bytes are read in a second.
fn ahead(bytes: u64, limit: u64, elapsed: Duration) -> Option<Duration> {
    let wanted = u128::from(bytes).checked_mul(1_000_000)?.checked_div(u128::from(limit))?;
    let wanted = Duration::from_micros(u64::try_from(wanted).ok()?);
    wanted.checked_sub(elapsed)
}

fn show(shown: &Progress, progress: &ScrubProgress) {
    shown.bytes.store(progress.bytes.min(progress.bytes_total), Ordering::Relaxed);
    shown.bytes_total.store(progress.bytes_total, Ordering::Relaxed);
}

impl Stats {
    /// The name of the job on a mount.
    pub(super) const JOB: &str = "scrub-stats";

    fn run(&self, out: &mut Output) -> Result<()> {
        if let Some(dir) = self.image.mounted_dir()? {
            let mut words = vec![dir.display().to_string()];
            words.extend(self.reset.then(|| "--reset".to_owned()));
            words.extend(self.json.then(|| "--json".to_owned()));
            return OnMount::connect(&dir)?.run(Self::JOB, words, out);
        }
        let volume =
            if self.reset { format::open_writable(&self.image)? } else { format::open_image_as(&self.image, true)? };
        self.run_on(&volume, out)
    }

    /// Shows the counters of a volume that is open.
    pub(super) fn run_on(&self, volume: &Volume, out: &mut Output) -> Result<()> {
        let errors = if self.reset { volume.reset_device_errors()? } else { volume.device_errors()? };
        let DeviceErrors { device, write, read, flush, corruption, generation } = errors;
        if self.json {
            out.json(&Counters { device, write, read, flush, corruption, generation })?;
        } else {
            let lines = [
                ("write_io_errs", write),
                ("read_io_errs", read),
                ("flush_io_errs", flush),
                ("corruption_errs", corruption),
                ("generation_errs", generation),
            ];
            for (name, count) in lines {
                writeln!(out, "[devid {device}].{name:<17}{count}")?;
            }
        }
        out.flush()?;
        if write.max(read).max(flush).max(corruption).max(generation) > 0 {
            return Err(Failure::new(Status::Corrupt, format!("device {device} has had errors")).into());
        }
        Ok(())
    }
}

impl From<&ScrubReport> for Report {
    fn from(report: &ScrubReport) -> Self {
        let progress = &report.progress;
        Self {
            is_whole: report.is_whole,
            place: progress.place,
            bytes: progress.bytes,
            tree_bytes: progress.tree_bytes,
            data_bytes: progress.data_bytes,
            unchecked_bytes: progress.unchecked_bytes,
            errors: progress.errors(),
            read_errors: progress.read_errors,
            data_errors: progress.data_errors,
            tree_errors: progress.tree_errors,
            generation_errors: progress.generation_errors,
            superblock_errors: progress.superblock_errors,
            mended: progress.mended,
            left: progress.left,
            lost_copies: progress.lost,
            faults: report.faults.iter().map(Fault::from).collect(),
            lost: report.lost.iter().map(Lost::from).collect(),
            unreadable_subvolumes: report.unreadable.clone(),
        }
    }
}

impl From<&ScrubFault> for Fault {
    fn from(fault: &ScrubFault) -> Self {
        let ScrubFault { kind, logical, len, copy, device, offset, problem, fate } = fault;
        Self {
            kind: kind_name(*kind),
            logical: *logical,
            bytes: *len,
            copy: *copy,
            device: *device,
            offset: *offset,
            problem: problem.clone(),
            fate: fate_name(*fate),
        }
    }
}

impl From<&LostRange> for Lost {
    fn from(range: &LostRange) -> Self {
        let path = range.path.as_ref().map(|path| names::escaped(path.as_os_str().as_bytes()).to_string());
        Self { path, subvolume: range.subvolume, inode: range.inode, offset: range.offset, bytes: range.len }
    }
}

fn kind_name(kind: ScrubbedKind) -> &'static str {
    match kind {
        ScrubbedKind::Superblock => "superblock",
        ScrubbedKind::TreeBlock => "tree block",
        ScrubbedKind::Data => "data",
    }
}

fn fate_name(fate: Fate) -> &'static str {
    match fate {
        Fate::Mended => "mended",
        Fate::Left => "left",
        Fate::Lost => "lost",
    }
}

fn print(report: &ScrubReport, took: Duration, out: &mut Output) -> Result<()> {
    for fault in report.faults.iter().take(LINES_MAX) {
        let Fault { kind, logical, bytes, copy, device, offset, problem, fate } = Fault::from(fault);
        writeln!(
            out,
            "{fate}: {kind} at {logical}, {bytes} bytes, copy {copy} at byte {offset} of device {device}: {problem}"
        )?;
    }
    let progress = &report.progress;
    let untold = progress.errors().saturating_sub(report.faults.len().min(LINES_MAX).try_into().unwrap_or(u64::MAX));
    if untold > 0 {
        writeln!(out, "... and {untold} more")?;
    }
    for range in report.lost.iter().take(LINES_MAX) {
        let Lost { path, subvolume, inode, offset, bytes } = Lost::from(range);
        let path = path.unwrap_or_else(|| format!("inode {inode} of subvolume {subvolume}"));
        writeln!(out, "lost: {path}: {bytes} bytes at {offset}")?;
    }
    if report.lost.len() > LINES_MAX {
        writeln!(out, "... and {} more parts of files", report.lost.len() - LINES_MAX)?;
    }
    for id in &report.unreadable {
        writeln!(out, "subvolume {id} could not be searched for what is lost: it is damaged")?;
    }
    let rate = u128::from(progress.bytes).saturating_mul(1000).checked_div(took.as_millis().max(1)).unwrap_or(0);
    let rate = human::bytes(u64::try_from(rate).unwrap_or(u64::MAX));
    let state =
        if report.is_whole { "done".to_owned() } else { format!("stopped at {0} (--from {0})", progress.place) };
    writeln!(
        out,
        "{state}: {} read ({rate} a second): {} of metadata, {} of data, {} of it without checksums",
        human::bytes(progress.bytes),
        human::bytes(progress.tree_bytes),
        human::bytes(progress.data_bytes),
        human::bytes(progress.unchecked_bytes)
    )?;
    match progress.errors() {
        0 => writeln!(out, "no errors")?,
        errors => writeln!(
            out,
            "{errors} bad copies: {} mended, {} left as they are, {} lost",
            progress.mended, progress.left, progress.lost
        )?,
    }
    Ok(())
}
