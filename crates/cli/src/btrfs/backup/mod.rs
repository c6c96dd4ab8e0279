//! Parses the arguments of `spinney backup` and prints its report; the library's `backup` does the work.
//!
//! [`repository`] opens places of objects; [`mounted`] is the side of a backup that the server of a mount has open,
//! [`served`] the part of that server.
//!
//! Failure: every error of the library gets its exit status in [`failure`]. Callers: `args`; `jobs` for a server.

mod mounted;
mod repository;
mod restore;
mod served;

use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::btrfs::back_up;
use spinney::btrfs::backup::{
    Action, Backup as Job, Destination, Directory, Error, Name, Report, Rule, Source, Stamp, StreamDestination,
    VolumeDestination,
};

use super::{format, receive, send};
use crate::commands::failure::{Failure, Status, one_line, status_of};
use crate::commands::human::parse_bytes;
use crate::commands::image::ImageArgs;
use crate::commands::output::Output;
use crate::commands::progress::{Bar, Progress};
use mounted::Mounted;
use repository::How;
pub(crate) use restore::Restore;
pub(super) use served::serve;

/// The name of the job for the server of a mount.
const JOB: &str = "backup";

/// Keep states of a subvolume, and send them to another image, a directory, S3 or the standard output
///
/// Makes a read-only snapshot, sends what differs from the newest one that both sides have, reads back what
/// arrived, and deletes on both sides what --keep lets go of: never the newest state that both have, and never a
/// stream that another one builds on. A backup that was cut short is finished, or cleared away, by the next one.
#[derive(Debug, Args)]
#[command(allow_missing_positional = true, after_help = concat!(
    "Destinations:\n",
    "  an image     each state is a read-only subvolume there, as `spinney receive` makes them\n",
    "  a directory  each state is a file NAME.TIME.UUID.stream, and manifest.json says which build on which;\n",
    "               without --full now and then no stream can be deleted, since the next builds on it\n",
    "  s3://BUCKET/PREFIX, https://HOST/PATH, http://HOST/PATH, file://DIR\n",
    "               compressed objects that are never changed, and manifest.json, which is written only if it is\n",
    "               still the one that was read: of two backups at once one is told so. A web server needs PUT,\n",
    "               DELETE, If-Match and If-None-Match. Credentials for S3 are those of the AWS tools\n",
    "  -            the whole state as a stream; the report goes to the standard error\n\n",
    "Of a mount root, and the user who mounted it, may make a backup; paths begin at its directory. Data written to\n",
    "an image is compared with its source, which the user has to be allowed to read.\n\n",
    "Snapshots are called NAME.TIME. For several destinations use several names: each keeps snapshots of its own.\n",
    "A name belongs to one subvolume, and `spinney restore` makes a new one. Use --adopt once to continue the name\n",
    "with it: the next state is sent as the difference to the restored one.\n\n",
    "Examples:\n",
    "  spinney backup site.img:/home backup.img\n",
    "  spinney backup site.img /home backup.img\n",
    "  spinney backup --keep hourly=24,daily=7 site.img /home backup.img\n",
    "  spinney backup /mnt/site /home backup.img               of what is mounted\n",
    "  spinney backup --full --keep weekly=8 site.img /home ./streams\n",
    "  spinney backup site.img - | ssh host spinney receive backup.img\n",
    "  spinney backup --encrypt age1... --keep daily=7 site.img /home s3://bucket/site\n",
    "  spinney backup --dry-run --json site.img /home backup.img | jq .actions[]"
))]
pub(crate) struct Backup {
    #[command(flatten)]
    image: ImageArgs,
    /// The subvolume in the image; the root by default
    #[arg(value_name = "SUBVOL", default_value = "/")]
    source: PathBuf,
    /// Image, directory or URL that the backup goes to, or - for the standard output
    #[arg(value_name = "DEST", required = true)]
    dest: PathBuf,
    /// Keep the last state of so many periods, and let others go: last, hourly, daily, weekly, monthly, yearly
    #[arg(long, value_name = "PERIOD=COUNT,..")]
    keep: Option<Rule>,
    /// Call the states NAME.TIME; by default after the subvolume
    #[arg(long, value_parser = Name::new)]
    name: Option<Name>,
    /// Directory in the image for the snapshots
    #[arg(long, value_name = "DIR", default_value = "/.spinney-backups")]
    snapshots: PathBuf,
    /// Directory in the destination image for the states
    #[arg(long, value_name = "DIR", default_value = "/")]
    into: PathBuf,
    /// Go on under a name that another subvolume's states have, or whose states are gone from the image
    #[arg(long)]
    adopt: bool,
    /// Send the whole state, not what differs from another
    #[arg(long)]
    full: bool,
    /// Encrypt objects to this public key (age1..., as `age-keygen` prints it); may be given several times
    #[arg(long, value_name = "RECIPIENT")]
    encrypt: Vec<String>,
    /// Bytes of the stream in an object: 64K to 64M
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "16M")]
    object_size: u64,
    /// Take objects over from a backup of another host that no longer runs
    #[arg(long)]
    take_over: bool,
    /// Take this for the time, in seconds since 1970
    #[arg(long, value_name = "SECONDS")]
    time: Option<i64>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {name, actions: [{action, side, state, parent, bytes}]}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct JsonReport<'a> {
    name: &'a str,
    actions: &'a [Action],
}

impl Backup {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let name = self.name.clone().map_or_else(|| Name::of_path(&self.source), Ok);
        let name = name.map_err(|error| Failure::usage(format!("{error}; give one with --name")))?;
        let is_output = self.dest.as_os_str() == "-";
        if is_output && !self.dry_run && std::io::stdout().is_terminal() {
            let text = "the stream would go to the terminal: redirect the standard output";
            return Err(Failure::refused(text).into());
        }
        let mut dest = self.destination(&name)?;
        let job = Job {
            subvolume: self.source.clone(),
            name,
            snapshots: self.snapshots.clone(),
            time: self.time()?,
            keep: self.keep.clone(),
            adopt: self.adopt,
            full: self.full,
            dry_run: self.dry_run,
        };
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        let mut report = Report::default();
        let mut run = |source: &dyn Source| back_up(&job, source, &mut *dest, &mut report, &mut progress.follow());
        let (done, closed) = match self.image.mounted_dir()? {
            Some(dir) => (run(&Mounted::open(&dir, &self.image)?), Ok(())),
            None => {
                let volume = format::open_image_as(&self.image, self.dry_run)?;
                (run(&volume), volume.close())
            }
        };
        drop(bar);
        for text in &report.warnings {
            eprintln!("spinney: {text}");
        }
        // The report says what was done also if the rest failed.
        match is_output {
            true => self.tell(&job.name, &report, &mut std::io::stderr().lock())?,
            false => self.tell(&job.name, &report, out)?,
        }
        done.map_err(failure)?;
        Ok(closed?)
    }

    /// Opens the place that the backup goes to.
    fn destination<'a>(&'a self, name: &Name) -> Result<Box<dyn Destination + 'a>> {
        if let Some(place) = repository::place(&self.dest) {
            let how = How {
                time: self.time()?,
                recipients: &self.encrypt,
                takes_over: self.take_over,
                part_bytes: Some(self.object_size),
            };
            return Ok(Box::new(repository::open_to_write(place, name, &how)?));
        }
        if !self.encrypt.is_empty() || self.take_over {
            let text = "--encrypt and --take-over are for s3://, https://, http:// and file://";
            return Err(Failure::usage(text).into());
        }
        let image = image_args(&self.dest);
        let open =
            move |writes: bool| format::open_image_as(&image, !writes).map_err(|error| Error::Side(boxed(&error)));
        Ok(match self.dest.as_os_str() == "-" {
            true => Box::new(StreamDestination(std::io::stdout())),
            false if self.dest.is_dir() => Box::new(Directory::open(&self.dest, name).map_err(failure)?),
            false => Box::new(VolumeDestination::open(open, &self.into, name).map_err(failure)?),
        })
    }

    fn time(&self) -> Result<Stamp> {
        let clock =
            || SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|now| i64::try_from(now.as_secs()).ok());
        self.time.or_else(clock).and_then(Stamp::new).ok_or_else(|| failure(Error::Time))
    }

    fn tell(&self, name: &Name, report: &Report, out: &mut impl Write) -> Result<()> {
        let actions = &report.actions;
        if self.json {
            serde_json::to_writer(&mut *out, &JsonReport { name: name.text(), actions })?;
            return Ok(writeln!(out)?);
        }
        let would = if self.dry_run { "would " } else { "" };
        for Action { kind, side, state, parent, bytes } in actions {
            write!(out, "{would}{kind} {state} ({side})")?;
            if let Some(parent) = parent {
                write!(out, ", from {parent}")?;
            }
            if let Some(bytes) = bytes {
                write!(out, ", {bytes} bytes")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// The image at a path.
fn image_args(path: &Path) -> ImageArgs {
    ImageArgs { image: path.to_owned(), ..ImageArgs::default() }
}

/// An error of the program for the library, which hands it back in [`Error::Side`].
fn boxed(error: &anyhow::Error) -> spinney::btrfs::backup::SideError {
    Box::new(Failure::new(status_of(error), one_line(error)))
}

/// Gives an error of the library its exit status, and names the options that help.
fn failure(error: Error) -> anyhow::Error {
    let status = match &error {
        Error::Name(_) | Error::Time => Status::Usage,
        Error::Busy(_) | Error::Claimed { .. } | Error::Overtaken { .. } => Status::Busy,
        Error::NoConditions(_) => Status::Unsupported,
        Error::Store { .. } => Status::Io,
        Error::Corrupt { .. } | Error::Differs { .. } | Error::NothingReceived => Status::Corrupt,
        _ => Status::Refused,
    };
    match error {
        Error::Volume(error) => error.into(),
        Error::Send { path, error } => send::explain(error, &path),
        Error::Receive(error) => receive::failure(error),
        Error::Side(error) => match error.downcast::<Failure>() {
            Ok(failure) => anyhow::Error::new(*failure),
            Err(error) => anyhow::Error::from_boxed(error),
        },
        Error::Host { .. } | Error::Output(_) => error.into(),
        Error::OtherSubvolume { .. } | Error::UnknownStates { .. } => {
            Failure::refused(format!("{error}; give another --name, or --adopt to go on under this one")).into()
        }
        error => Failure::new(status, error.to_string()).into(),
    }
}
