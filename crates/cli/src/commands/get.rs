//! `spinney get` copies files and directories out of an image or a mount to the host. Called by `args`; `cp` and
//! `rescue` use its `CopyOut`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;
use spinney::transfer::{
    Existing, HostOptions, HostSink, Observer, Options, Rules, Transfer, VolumeSource, default_threads, measure,
};
use spinney::vfs::Volume;

use super::archives::ArchiveOut;
use super::dest::Dest;
use super::emulation;
use super::failure::Failure;
use super::failures::Failures;
use super::image::ReadArgs;
use super::interrupt::{Interrupt, is_interruption};
use super::output::{Output, warn};
use super::progress::{Bar, Progress};
use super::tally::{Counted, Tally, count};
use super::trust::{Trust, Withheld};

/// Copy files and directories out of an image
///
/// Directories are copied with their contents. Owners (as root), modes, times, attributes, hard links and holes are
/// kept. Nothing is written outside DEST, whatever the image contains. Files that cannot be copied are reported at the
/// end, and the others are copied.
///
/// For an image that another user may have written (its file belongs neither to you nor to root, or others may write to
/// it), --no-devices and --no-setid are implied, unless --trust is given. Give both for an image from an untrusted
/// source.
///
/// If SIGINT, SIGTERM or SIGHUP interrupts a copy, it removes the incomplete file, finishes the directories that it has
/// made, and says how to continue. A killed copy is continued in the same way: files whose size and modification time
/// match the image are kept, and incomplete files (mode 0600, with a prefix of the contents) are replaced. To continue
/// the copy of a directory that DEST was made from, write PATH/. for it.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney get site.img:/etc/hosts .        IMAGE:/PATH, or a path below a mount\n",
    "  spinney get site.img / ./copy            everything, into the directory copy\n",
    "  spinney get site.img /etc/hosts .        into this directory\n",
    "  spinney get site.img /etc/hosts h.txt    under another name\n",
    "  spinney get -c site.img / ./copy         the rest, after an interrupted copy\n",
    "  spinney get --tar - site.img:/etc | tar t    as a tar archive\n",
    "  spinney get --tar new.tar --oci-layer /old site.img:/new   what differs, as a container layer\n",
    "  spinney get --json site.img / ./copy | jq .failed\n",
    "  sudo spinney get --no-devices --no-setid --no-owner found.img / ./look"
))]
pub(crate) struct Get {
    #[command(flatten)]
    image: ReadArgs,
    #[command(flatten)]
    ends: Ends,
    #[command(flatten)]
    archive: ArchiveOut,
    #[command(flatten)]
    copy: CopyOut,
    /// Report as JSON: {entries, bytes, present, failed, left_out: {owners, attributes, devices, setid}}
    #[arg(long)]
    json: bool,
}

/// The ends of a copy.
#[derive(Debug, Args)]
#[group(skip)]
struct Ends {
    /// Files and directories in the image (a path that ends in /. means its contents), and the destination on this
    /// machine: an existing directory, or a new name
    #[arg(required_unless_present_any = ["tar", "composefs_dump"], value_names = ["PATH", "DEST"])]
    words: Vec<PathBuf>,
}

impl Ends {
    /// The sources and the destination.
    fn both(&self) -> Result<(&[PathBuf], &Path)> {
        match self.words.split_last() {
            Some((dest, paths)) if !paths.is_empty() => Ok((paths, dest)),
            _ => Err(Failure::usage("DEST is missing; --tar FILE writes an archive").into()),
        }
    }

    /// The only word, where the other end is an option; the root if there is none.
    fn only(&self, name: &str) -> Result<&Path> {
        match self.words.as_slice() {
            [] => Ok(Path::new("/")),
            [word] => Ok(word),
            words => Err(Failure::usage(format!("{name}: expected one, found {}", words.len())).into()),
        }
    }
}

/// How files are copied out of an image: options shared by `get` and similar commands.
#[derive(Debug, Args)]
pub(crate) struct CopyOut {
    /// Replace existing files
    #[arg(short, long)]
    force: bool,
    /// Continue an interrupted copy: keep complete files, replace incomplete ones
    #[arg(short, long = "continue")]
    continues: bool,
    /// Stop at the first file that cannot be copied, instead of copying the others
    #[arg(long)]
    fail_fast: bool,
    /// Give all copies to the caller; files then get no set-user and set-group bits
    #[arg(long, visible_alias = "no-same-owner")]
    no_owner: bool,
    #[command(flatten)]
    trust: Trust,
    /// Threads that copy
    #[arg(long, value_name = "COUNT", default_value_t = default_threads(), hide_default_value = true)]
    threads: usize,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Of a copy by `cp`: true if the copied part of a failed file is kept. `get` keeps it for `--continue`.
    #[arg(skip)]
    cp_keeps_partial: Option<bool>,
}

/// Result of a copy.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Entries that were copied, or existed already.
    pub(crate) entries: u64,
    /// Bytes of copied contents.
    pub(crate) bytes: u64,
    /// Files that --continue found complete.
    pub(crate) present: u64,
    /// Entries that could not be copied; the standard error has the reasons.
    pub(crate) failed: u64,
    left_out: LeftOut,
}

/// Number of omitted owners, attributes, device nodes and set-user bits.
#[derive(Debug, Serialize)]
struct LeftOut {
    owners: u64,
    attributes: u64,
    devices: u64,
    setid: u64,
}

impl Report {
    fn of(tally: &Tally<'_>, failures: &Failures) -> Self {
        let losses = &tally.losses;
        Self {
            entries: count(&tally.progress.names),
            bytes: count(&tally.progress.bytes),
            present: count(&tally.found),
            failed: failures.count(),
            left_out: LeftOut {
                owners: count(&losses.owners),
                attributes: count(&losses.xattrs),
                devices: count(&losses.nodes) + count(&losses.withheld_nodes),
                setid: count(&losses.withheld_setid),
            },
        }
    }
}

impl Get {
    /// Runs the command.
    ///
    /// # Errors
    /// The first failure; `failure::status_of` gives its status.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let (volume, is_own) = self.image.open_with_trust()?;
        if self.archive.is_wanted() {
            let path = self.ends.only("PATH")?;
            return self.archive.write(&volume, path, self.copy.force, &());
        }
        let (paths, dest) = self.ends.both()?;
        let image = &self.image.image.image;
        let copied = self.copy.run(&volume, (image, is_own), (paths, dest))?;
        if self.json && copied.result.is_ok() {
            out.json(&copied.report)?;
        }
        copied.finish()
    }
}

/// A finished copy.
pub(crate) struct Copied {
    /// Its counts.
    pub(crate) report: Report,
    /// The failure that ended it early.
    pub(crate) result: Result<()>,
    failures: Failures,
}

impl Copied {
    /// Reports the entries that could not be copied.
    ///
    /// # Errors
    /// The failure that ended the copy, or the number of entries that could not be copied.
    pub(crate) fn finish(self) -> Result<()> {
        let told = self.failures.tell(self.report.entries, "copied");
        self.result.and(told)
    }
}

/// Source and destination of a copy.
#[derive(Clone, Copy)]
pub(crate) struct FromTo<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) paths: &'a [PathBuf],
    pub(crate) to: &'a Path,
}

/// Options of a copy, and the observers of its progress.
struct Copying<'a> {
    options: Options,
    host: HostOptions,
    tally: &'a Tally<'a>,
}

/// Ends an estimate that is no longer needed.
struct Estimate<'a>(&'a AtomicBool);

impl Observer for Estimate<'_> {
    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl CopyOut {
    /// The options of `cp`.
    pub(crate) fn of_cp(force: bool, quiet: bool, keeps_partial: bool, trust: Trust) -> Self {
        Self {
            force,
            continues: false,
            fail_fast: false,
            no_owner: false,
            trust,
            threads: default_threads(),
            quiet,
            cp_keeps_partial: Some(keeps_partial),
        }
    }

    /// True if a progress bar is wanted.
    #[must_use]
    pub(crate) fn shows_progress(&self) -> bool {
        !self.quiet
    }

    /// Copies paths of a volume to a directory or name. `is_own` is true if the image belongs to the caller.
    ///
    /// # Errors
    /// If signals cannot be caught; failures of the copy are in the result.
    pub(crate) fn run(
        &self,
        volume: &Volume,
        (image, is_own): (&Path, bool),
        (paths, to): (&[PathBuf], &Path),
    ) -> Result<Copied> {
        emulation::check()?;
        let allowed = self.trust.allowed(is_own);
        let interrupt = Interrupt::catch()?;
        // New files get exactly the modes of the image.
        let _ = rustix::process::umask(rustix::fs::Mode::empty());
        let rules = Rules { makes_devices: allowed.devices, keeps_setid: allowed.setid, ..Rules::default() };
        let host = HostOptions {
            existing: if self.force { Existing::Replace } else { Existing::Fail },
            continues: self.continues,
            keeps_owners: !self.no_owner,
            keeps_partial: self.cp_keeps_partial.unwrap_or(true),
        };
        let (progress, failures) = (Arc::new(Progress::default()), Failures::default());
        let own = (!self.fail_fast).then_some(&failures);
        let tally = Tally { failures: own, interrupt: Some(&interrupt), ..Tally::new(&progress, Counted::Done) };
        let copying = Copying { options: Options { thread_count: self.threads, rules }, host, tally: &tally };
        let from_to = FromTo { volume, paths, to };
        let bar = Bar::new(&progress, !self.quiet);
        let is_over = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            if bar.is_shown() {
                // The copy meets the same failures, and reports them.
                scope.spawn(|| estimate(from_to, &progress, &is_over));
            }
            let result = self.copy(from_to, &copying, &failures);
            is_over.store(true, Ordering::Relaxed);
            result
        });
        drop(bar);
        tell(&tally);
        tally.tell_shortened();
        let losses = &tally.losses;
        let withheld = Withheld { devices: count(&losses.withheld_nodes), setid: count(&losses.withheld_setid) };
        self.trust.tell_withheld((image, is_own), withheld);
        let report = Report::of(&tally, &failures);
        if result.as_ref().is_err_and(|error| is_interruption(&**error)) {
            // Earlier failures are reported first.
            let _ = failures.tell(report.entries, "copied");
            self.tell_interrupted(report.entries, from_to);
            interrupt.end_by_it();
        }
        Ok(Copied { report, result, failures })
    }

    fn tell_interrupted(&self, names: u64, from_to: FromTo<'_>) {
        let how = match made_dest(from_to) {
            _ if self.cp_keeps_partial.is_some() => "use `spinney get --continue`".to_owned(),
            Some(path) => format!("add --continue, and write {}/. for {0}", path.display()),
            None => "add --continue".to_owned(),
        };
        let dest = from_to.to.display();
        warn(&format!("interrupted; {names} files and directories are in {dest}; for the rest, {how}"));
    }

    fn copy(&self, from_to: FromTo<'_>, copying: &Copying<'_>, failures: &Failures) -> Result<()> {
        let FromTo { volume, paths, to } = from_to;
        if self.continues
            && let Some(path) = made_dest(from_to)
            && volume.symlink_metadata(path).is_ok_and(|found| found.is_dir())
        {
            let (dest, path) = (to.display(), path.display());
            let text = format!("{dest}: nothing named like {path} is in it; write {path}/. if {dest} is its copy");
            return Err(Failure::refused(text).into());
        }
        let dest = Dest::new(to, to.is_dir(), paths.len())?;
        for path in paths {
            failures.note(copying.one(from_to, path, dest), self.fail_fast)?;
        }
        Ok(())
    }
}

impl Copying<'_> {
    fn one(&self, FromTo { volume, to, .. }: FromTo<'_>, path: &Path, dest: Dest<'_>) -> Result<()> {
        if means_contents(path) {
            // Before the target is made.
            volume.metadata(path)?;
            let (source, sink) = (VolumeSource::new(volume, path), HostSink::create(to, self.host)?);
            return Ok(Transfer::new(&source, &sink, &self.options, self.tally).contents()?);
        }
        let is_dir = volume.symlink_metadata(path)?.is_dir();
        let target = dest.target(path, is_dir)?;
        let name = target.file_name().context("the target has no name")?;
        let source = VolumeSource::new(volume, "");
        let sink = HostSink::open(target.parent().unwrap_or(Path::new(".")), self.host)?;
        let copied = Transfer::new(&source, &sink, &self.options, self.tally).one(path, Path::new(name));
        copied.map(drop).map_err(|error| error.about(&target).into())
    }
}

/// The only source, if the destination itself is its copy; a copy inside the destination would be another one.
fn made_dest<'a>(FromTo { paths, to, .. }: FromTo<'a>) -> Option<&'a Path> {
    let [path] = paths else { return None };
    let inside = to.join(path.file_name()?);
    let is_dest = !means_contents(path) && to.is_dir() && std::fs::symlink_metadata(inside).is_err();
    is_dest.then_some(path)
}

/// Adds up the bytes to copy, until the copy is over.
pub(crate) fn estimate(FromTo { volume, paths, .. }: FromTo<'_>, progress: &Progress, is_over: &AtomicBool) {
    let options = Options { thread_count: 1, ..Options::default() };
    let watch = Estimate(is_over);
    let totals = paths.iter().map(|path| measure(&VolumeSource::new(volume, path), &options, &watch));
    if let Ok(totals) = totals.collect::<spinney::transfer::Result<Vec<_>>>() {
        totals.iter().for_each(|total| progress.add_total(total.bytes));
    }
}

/// True for `/`, and for paths that end in `.` or `..`.
pub(super) fn means_contents(path: &Path) -> bool {
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    path.file_name().is_none() || bytes.ends_with(b"/.")
}

fn tell(tally: &Tally<'_>) {
    let losses = &tally.losses;
    for (count, what) in [
        (count(&tally.found), "files were there already, whole"),
        (count(&losses.owners), "files could not be given their owner"),
        (count(&losses.xattrs), "attributes could not be set"),
        (count(&losses.nodes), "device nodes could not be made (that needs root)"),
    ] {
        if count > 0 {
            warn(&format!("{count} {what}"));
        }
    }
}
