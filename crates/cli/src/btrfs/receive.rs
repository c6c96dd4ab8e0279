//! `spinney receive` applies a send stream, making a subvolume of it in an image or a mount. Called by `args`, and by
//! `jobs` in the server of a mount.

use std::fs::File;
use std::io::{BufReader, IsTerminal as _, Read, Write as _};
use std::mem::take;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;
use spinney::ProgressFn;
use spinney::btrfs::receive::{Cause, Error, Notices, Options, Receiver};
use spinney::btrfs::stream::Decoder;
use spinney::btrfs::stream::dump::Dump;
use spinney::btrfs::{Volume, receive};
use spinney::checking::Watched;

use super::format;
use crate::commands::failure::{Failure, Status, one_line};
use crate::commands::image::ImageArgs;
use crate::commands::names::JsonPath;
use crate::commands::on_mount::OnMount;
use crate::commands::output::Output;
use crate::commands::progress::{Bar, Progress};

/// Bytes of a stream that are read at once.
const READ_BYTES: usize = 1 << 20;
/// Most failures, and most warnings, in a report.
const NOTED_MAX: usize = 16;

/// Build subvolumes from send streams
///
/// Reads streams of versions 1 and 2, as `btrfs send` writes them, and makes their subvolumes in DIR: read-only, with
/// the UUID of the sender as received UUID, so that the next incremental stream finds its parent. A subvolume stays
/// writable and without a received UUID until its stream is complete. After a failure, `spinney subvolume delete`
/// deletes the incomplete subvolume; --delete-partial does so at once.
///
/// With --resume an interrupted receive can continue. The subvolume is built as NAME.receiving; after a failure
/// NAME.resume-N stays, which holds the first N commands of the stream, and a token in its attribute
/// user.spinney.unfinished. Repeated with --resume, the same stream skips those commands; `spinney send --resume TOKEN`
/// sends only the rest. After a crash, at most 64 MiB of the stream have to be received again.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  btrfs send /mnt/snap | spinney receive site.img:/backups\n",
    "  btrfs send /mnt/snap | spinney receive site.img\n",
    "  btrfs send -p /mnt/monday /mnt/tuesday | spinney receive site.img /backups\n",
    "  spinney receive -f home.stream --delete-partial site.img /backups\n",
    "  spinney receive --resume -f home.stream site.img /backups\n",
    "  spinney receive --json -f home.stream site.img | jq -r .subvolumes[].path\n",
    "  spinney receive --dump -f home.stream"
))]
pub(crate) struct Receive {
    #[command(flatten)]
    image: OptionalImage,
    /// Directory in the image in which the subvolumes appear
    #[arg(default_value = "/")]
    dir: PathBuf,
    /// Read the streams from FILE instead of the standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Stop after the first end command; otherwise streams are read until the input ends
    #[arg(short = 'e', long)]
    end_cmd: bool,
    /// Give up after COUNT failed commands, 0 for never; a subvolume with a failed command stays unfinished
    #[arg(short = 'E', long, value_name = "COUNT", default_value_t = 1)]
    max_errors: u64,
    /// Decompress compressed data instead of writing it as it is
    #[arg(long)]
    force_decompress: bool,
    /// Delete an unfinished subvolume after a failure
    #[arg(long)]
    delete_partial: bool,
    /// Keep a partial subvolume when the receive fails, and resume one that was kept
    #[arg(long, conflicts_with_all = ["max_errors", "delete_partial"])]
    resume: bool,
    /// Use a parent or clone source that was changed after it was received, if there is no unchanged one
    #[arg(long)]
    force: bool,
    /// Print the commands of the streams, one a line, and receive nothing; no IMAGE is needed
    #[arg(long, conflicts_with_all = ["json", "delete_partial", "max_errors", "force_decompress", "resume", "force"])]
    dump: bool,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {subvolumes: [{id, path, received_uuid, snapshot}], incomplete,
    /// present, warnings, commands, bytes, left: {path, token} of what --resume goes on from}
    #[arg(long)]
    json: bool,
}

/// The image; `--dump` needs none.
#[derive(Debug, Args)]
struct OptionalImage {
    /// Image file or unmounted block device; IMAGE?offset=N for a file system that starts at byte N
    #[arg(value_name = "IMAGE", required_unless_present = "dump")]
    image: Option<PathBuf>,
    /// Take the subvolume at PATH for the root, instead of the default subvolume
    #[arg(long, value_name = "PATH", conflicts_with = "subvolume_id")]
    subvolume: Option<PathBuf>,
    /// Take the subvolume with this number for the root; 5 is the top level
    #[arg(long, value_name = "ID")]
    subvolume_id: Option<u64>,
    /// Take this copy of the superblock: 0 at 64 KiB, 1 at 64 MiB, 2 at 256 GiB
    #[arg(long = "super", value_name = "COPY")]
    superblock: Option<usize>,
}

#[derive(Serialize)]
struct Report {
    subvolumes: Vec<Entry>,
    /// Subvolumes with failed commands.
    incomplete: Vec<JsonPath>,
    /// Subvolumes that had been received earlier.
    present: Vec<JsonPath>,
    /// Warnings: the reasons why the result may be wrong.
    warnings: Vec<String>,
    commands: u64,
    /// Length of the streams.
    bytes: u64,
    /// The partial subvolume that a later receive can resume.
    left: Option<LeftEntry>,
}

#[derive(Serialize)]
struct LeftEntry {
    #[serde(flatten)]
    path: JsonPath,
    token: String,
}

#[derive(Serialize)]
struct Entry {
    id: u64,
    /// Path in the image, with the directory as it was given.
    #[serde(flatten)]
    path: JsonPath,
    received_uuid: String,
    snapshot: bool,
}

impl Receive {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        if self.dump {
            return self.dump(out);
        }
        let image = self.image();
        let mount = image.mounted_dir()?.map(|dir| OnMount::connect(&dir)).transpose()?;
        let (input, bytes_total) = self.input()?;
        let progress = Arc::new(Progress::default());
        progress.bytes_total.store(bytes_total, Ordering::Relaxed);
        let bar = Bar::new(&progress, !self.quiet);
        let (received, report) = match mount {
            Some(mount) => {
                let passed = Watched::new(input, &*progress);
                let report = mount.give(self.words(&mount)?, passed)?;
                (Ok(()), serde_json::from_str(&report).context("what the server reports")?)
            }
            None => {
                let volume = format::open_to_fill(&image)?;
                let mut printed = Events::default();
                let (received, report) = self.receive(&volume, input, &mut printed, &mut progress.follow())?;
                // Complete subvolumes are kept even if a later one failed.
                let closed = volume.close();
                (received.and_then(|()| Ok(closed?)), serde_json::to_value(&report)?)
            }
        };
        drop(bar);
        for text in report["warnings"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str) {
            eprintln!("spinney: warning: {text}");
        }
        for path in report["present"].as_array().into_iter().flatten().filter_map(|present| present["path"].as_str()) {
            eprintln!("spinney: {path}: received before");
        }
        if self.json && (received.is_ok() || !report["left"].is_null()) {
            out.json(&report)?;
        }
        received
    }

    /// Receives the streams. The inner result is the outcome of the streams; a receive that cannot begin fails as a
    /// whole.
    fn receive(
        &self,
        volume: &Volume,
        input: impl Read,
        events: &mut Events,
        watch: ProgressFn<'_>,
    ) -> Result<(Result<()>, Report)> {
        let options = Options {
            stops_at_end: self.end_cmd,
            errors_max: self.max_errors,
            force_decompress: self.force_decompress,
            resumable: self.resume,
            takes_changed: self.force,
            ..Options::default()
        };
        let mut receiver = Receiver::new(volume, &self.dir, options).map_err(failure)?;
        let received = receive(&mut receiver, input, events, watch).map_err(failure);
        let received = received.or_else(|error| self.clear_up(&mut receiver, error));
        Ok((received, Report { warnings: take(&mut events.warnings), ..shown(receiver.report()) }))
    }

    /// The command line for the server of a mount.
    fn words(&self, mount: &OnMount) -> Result<Vec<String>> {
        let mut words = vec!["receive".to_owned()];
        if !self.resume {
            words.push(format!("--max-errors={}", self.max_errors));
        }
        let flags = [
            (self.resume, "--resume"),
            (self.end_cmd, "--end-cmd"),
            (self.force_decompress, "--force-decompress"),
            (self.delete_partial, "--delete-partial"),
            (self.force, "--force"),
        ];
        words.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| (*flag).to_owned()));
        words.extend(["--".to_owned(), "IMAGE".to_owned(), mount.word(&self.dir)?]);
        Ok(words)
    }

    /// As the server of a mount: receives from a client. Returns the report of `--json`.
    pub(super) fn receive_from(&self, volume: &Volume, input: impl Read, changed: &mut Vec<Vec<u8>>) -> Result<String> {
        use std::os::unix::ffi::OsStrExt as _;
        let input = BufReader::with_capacity(READ_BYTES, input);
        let mut events = Events { failures: Some(Vec::new()), ..Events::default() };
        let (received, report) = self.receive(volume, input, &mut events, &mut |_| ControlFlow::Continue(()))?;
        let made = report.subvolumes.iter().map(|made| &made.path).chain(&report.incomplete);
        changed.extend(made.map(|path| path.0.clone()));
        // A failure leaves an entry of unknown name.
        changed.push([self.dir.as_os_str().as_bytes(), b"/?"].concat());
        let synced = volume.sync();
        received.map_err(|error| {
            let texts: Vec<String> = events.failures.take().into_iter().flatten().chain([one_line(&error)]).collect();
            Failure::new(crate::commands::failure::status_of(&error), texts.join("; "))
        })?;
        synced?;
        Ok(serde_json::to_string(&report)?)
    }

    /// Names the partial subvolume that a failure leaves, or deletes it.
    fn clear_up(&self, receiver: &mut Receiver<'_>, error: anyhow::Error) -> Result<()> {
        let status = crate::commands::failure::status_of(&error);
        if let Some(left) = &receiver.report().left {
            let (path, token) = (left.path.display(), left.point);
            let text = format!(
                "{}; what was received stays in {path}: go on with --resume and the same stream, or with the rest of \
                 it, which `spinney send --resume {token}` sends",
                one_line(&error)
            );
            return Err(Failure::new(status, text).into());
        }
        let Some(path) = receiver.unfinished() else {
            return Err(error);
        };
        let (path, text) = (path.display(), one_line(&error));
        let text = match self.delete_partial.then(|| receiver.discard()) {
            Some(Ok(())) => format!("{text}; the unfinished subvolume {path} was deleted"),
            Some(Err(error)) => format!("{text}; the unfinished subvolume {path} stays: {error}"),
            None => format!("{text}; the unfinished subvolume {path} stays: delete it before you try again"),
        };
        Err(Failure::new(status, text).into())
    }

    fn image(&self) -> ImageArgs {
        let OptionalImage { image, subvolume, subvolume_id, superblock } = &self.image;
        ImageArgs {
            image: image.clone().unwrap_or_default(),
            subvolume: subvolume.clone(),
            subvolume_id: *subvolume_id,
            superblock: *superblock,
            ..ImageArgs::default()
        }
    }

    /// The streams, and their length in bytes if it is known.
    fn input(&self) -> Result<(Box<dyn Read + Send>, u64)> {
        let Some(path) = &self.file else {
            if std::io::stdin().is_terminal() {
                let text = "the standard input is a terminal; pipe a send stream to it, or name one with -f";
                return Err(Failure::usage(text).into());
            }
            return Ok((Box::new(BufReader::with_capacity(READ_BYTES, std::io::stdin())), 0));
        };
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let bytes = file.metadata().map_or(0, |found| found.len());
        Ok((Box::new(BufReader::with_capacity(READ_BYTES, file)), bytes))
    }

    fn dump(&self, out: &mut Output) -> Result<()> {
        let (input, _) = self.input()?;
        let stream = |error| failure(Error::Stream(error));
        let mut decoder = Decoder::open(input).map_err(stream)?.ok_or_else(|| failure(Error::Empty))?;
        let mut dump = Dump::new();
        loop {
            let at = decoder.position();
            let command = decoder.command().map_err(stream)?.ok_or_else(|| failure(Error::NotWhole { at }))?;
            dump.line(&command, &mut *out)?;
            let is_end = command == spinney::btrfs::stream::Command::End;
            if is_end && (self.end_cmd || !decoder.next_stream().map_err(stream)?) {
                return Ok(out.flush()?);
            }
        }
    }
}

/// The events of a receipt: warnings are kept, failed commands too if there is a list for them, else they are printed.
#[derive(Default)]
struct Events {
    warnings: Vec<String>,
    failures: Option<Vec<String>>,
}

impl Notices for Events {
    fn warned(&mut self, cause: &Cause) {
        if self.warnings.len() < NOTED_MAX {
            self.warnings.push(cause.to_string());
        }
    }

    fn failed(&mut self, error: &Error) {
        match &mut self.failures {
            None => eprintln!("spinney: {error}"),
            Some(failures) if failures.len() < NOTED_MAX => failures.push(error.to_string()),
            Some(_) => {}
        }
    }
}

/// The failure of a receive with its exit status: errors of the volume have their own, faults of the stream are
/// refusals.
pub(super) fn failure(error: Error) -> anyhow::Error {
    let is_own = match &error {
        Error::Stream(spinney::btrfs::stream::Error::Read { .. }) => {
            return Failure::new(Status::Io, error.to_string()).into();
        }
        Error::Stream(
            spinney::btrfs::stream::Error::Unsupported { .. } | spinney::btrfs::stream::Error::Version { .. },
        ) => {
            return Failure::new(Status::Unsupported, error.to_string()).into();
        }
        Error::Command { cause, .. } => matches!(cause, Cause::Refused(_) | Cause::Volume(_)),
        Error::GoOn(cause) => matches!(cause, Cause::Refused(_) | Cause::Volume(_)),
        Error::Directory { .. } | Error::Volume(_) | Error::Discard(_) => true,
        _ => false,
    };
    if is_own { error.into() } else { Failure::refused(error.to_string()).into() }
}

fn shown(report: &spinney::btrfs::receive::Report) -> Report {
    let json = |path: &Path| JsonPath(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec());
    let entry = |subvolume: &spinney::btrfs::receive::ReceivedSubvolume| Entry {
        id: subvolume.id.0,
        path: json(&subvolume.path),
        received_uuid: spinney::btrfs::disk::Uuid(subvolume.uuid).to_string(),
        snapshot: subvolume.is_snapshot,
    };
    Report {
        subvolumes: report.subvolumes.iter().map(entry).collect(),
        incomplete: report.incomplete.iter().map(|path| json(path)).collect(),
        present: report.present.iter().map(|path| json(path)).collect(),
        warnings: Vec::new(),
        commands: report.commands,
        bytes: report.bytes,
        left: report.left.as_ref().map(|left| LeftEntry { path: json(&left.path), token: left.point.to_string() }),
    }
}
