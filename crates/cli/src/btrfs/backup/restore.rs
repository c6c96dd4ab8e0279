//! Parses the arguments of `spinney restore` and prints its report; the library's `backup` does the work. Called by
//! `args`.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::btrfs::backup::{Error, Name, Origin, Restore as Restored};
use spinney::btrfs::{restore, verify_restored};

use super::mounted::Mounted;
use super::{failure, image_args, repository};
use crate::btrfs::format;
use crate::commands::failure::Failure;
use crate::commands::image::ImageArgs;
use crate::commands::names::JsonPath;
use crate::commands::output::Output;
use crate::commands::progress::{Bar, Progress};

/// Bring back a state that `backup` has kept, from an image, a directory of streams, S3 or a web server
///
/// The state becomes a subvolume of IMAGE that can be changed. Streams are read and compared with the manifest before
/// any of them is used; the restored subvolume is compared with the state in an image. The state is kept in DIR of
/// --snapshots, so that the next backup sends only the difference. Only root and the user who mounted it may restore
/// into a mount.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney restore backup.img site.img:/home-restored\n",
    "  spinney restore backup.img site.img /home-restored\n",
    "  spinney restore backup.img /mnt/site /home-restored     into what is mounted\n",
    "  spinney restore --state home.2026-11-25T031500Z ./streams site.img /home\n",
    "  spinney restore --identity key.txt s3://bucket/site site.img /home\n",
    "  spinney restore --verify=10 s3://bucket/site\n",
    "  spinney restore --list --json backup.img | jq -r .states[].state"
))]
pub(crate) struct Restore {
    /// Image, directory or URL that a backup went to
    #[arg(value_name = "FROM")]
    from: PathBuf,
    /// Image, or directory of a mount, in which the state is brought back
    #[arg(value_name = "IMAGE", required_unless_present_any = ["list", "verify"])]
    image: Option<PathBuf>,
    /// The subvolume that it becomes there
    #[arg(value_name = "PATH", required_unless_present_any = ["list", "verify"])]
    path: Option<PathBuf>,
    /// The state, as NAME.TIME; by default the newest
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Take the newest state of this name; needed where there are several
    #[arg(long, value_parser = Name::new)]
    name: Option<Name>,
    /// Directory in the image FROM that has the states
    #[arg(long, value_name = "DIR", default_value = "/")]
    from_dir: PathBuf,
    /// Directory in IMAGE that keeps the state, as the parent of the next backup
    #[arg(long, value_name = "DIR", default_value = "/.spinney-backups")]
    snapshots: PathBuf,
    /// Do not keep the state: the next backup sends everything again
    #[arg(long, conflicts_with = "snapshots")]
    no_snapshot: bool,
    /// File with the secret key that opens encrypted states, as `age-keygen` writes it
    #[arg(long, value_name = "FILE")]
    identity: Vec<PathBuf>,
    /// Check that all objects of FROM, a URL, are there; and read so many of 100, others each time
    #[arg(long, value_name = "PERCENT", num_args = 0..=1, require_equals = true, default_missing_value = "5",
          value_parser = clap::value_parser!(u8).range(0..=100), conflicts_with = "list")]
    verify: Option<u8>,
    /// List the states, and restore nothing
    #[arg(long)]
    list: bool,
    /// No progress bar
    #[arg(short, long)]
    quiet: bool,
    /// Report as JSON: {state, path}, or {states: [{state}]} with --list
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    state: String,
    #[serde(flatten)]
    path: JsonPath,
}

#[derive(Serialize)]
struct List {
    states: Vec<ListEntry>,
}

#[derive(Serialize)]
struct ListEntry {
    state: String,
}

impl Restore {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let place = repository::place(&self.from);
        match (self.verify, place) {
            (Some(percent), Some(place)) => return repository::verify(place, percent, self.quiet, self.json, out),
            (Some(_), None) => {
                let text =
                    "--verify is for s3://, https://, http:// and file://; restore compares the streams of others";
                return Err(Failure::usage(text).into());
            }
            (None, _) => {}
        }
        let from = match self.from.is_dir() {
            _ if place.is_some() => {
                let repository = repository::open_to_read(place.unwrap_or_default())?;
                Ok(Origin::repository(repository, repository::identities(&self.identity)?))
            }
            true => Origin::directory(&self.from),
            false => Origin::volume(format::open_image_as(&image_args(&self.from), true)?, &self.from_dir),
        };
        let from = from.map_err(failure)?;
        if self.list {
            return list(&from, self.json, out);
        }
        let (Some(image), Some(path)) = (&self.image, &self.path) else {
            return Err(Failure::usage("an image and a path are needed").into());
        };
        let image = image_args(image);
        let chosen = from.choose(self.state.as_deref(), self.name.as_ref()).map_err(|error| self.explain(error))?;
        let progress = Arc::new(Progress::default());
        let bar = Bar::new(&progress, !self.quiet);
        let kept = (!self.no_snapshot).then(|| self.snapshots.join(chosen.state()));
        let to = Restored { path, kept: kept.as_deref() };
        match image.mounted_dir()? {
            Some(dir) => {
                let mounted = Mounted::open(&dir, &image)?;
                restore(&to, &from, chosen, &mounted, &mut progress.follow()).map_err(failure)?;
            }
            None => {
                let volume = format::open_writable(&image)?;
                let done = restore(&to, &from, chosen, &volume, &mut progress.follow());
                let closed = volume.close();
                done.map_err(failure)?;
                closed?;
            }
        }
        verify_restored(&to, &from, chosen, &files(&image)?, &mut progress.follow()).map_err(failure)?;
        drop(bar);
        let (state, path) = (chosen.state(), JsonPath(path.as_os_str().as_bytes().to_vec()));
        if self.json { out.json(&Report { state, path }) } else { Ok(()) }
    }

    /// Names the origin and the options that choose a state.
    fn explain(&self, error: Error) -> anyhow::Error {
        let from = self.from.display();
        match error {
            Error::NoState(_) => Failure::refused(format!("{from}: {error}; --list shows all")).into(),
            Error::SeveralNames(..) => Failure::usage(format!("{from}: {error}; choose with --name or --state")).into(),
            error => Failure::refused(format!("{from}: {error}")).into(),
        }
    }
}

/// The files of what was restored, opened anew.
fn files(image: &ImageArgs) -> Result<spinney::Files> {
    match image.mounted_dir()? {
        Some(_) => image.open_writable(),
        None => Ok(format::open_image_as(image, true)?.by_paths().clone()),
    }
}

fn list(from: &Origin, json: bool, out: &mut Output) -> Result<()> {
    let states = from.states().into_iter().map(|chosen| chosen.state());
    if json {
        return out.json(&List { states: states.map(|state| ListEntry { state }).collect() });
    }
    for state in states {
        std::io::Write::write_all(out, format!("{state}\n").as_bytes())?;
    }
    Ok(())
}
