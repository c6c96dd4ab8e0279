//! What the program needs to know of a format: a row of [`Format`] for each, which `formats` lists and [`know`] makes
//! known when the program starts. What a row answers with knows no format any more.

use std::error::Error as StdError;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Result;
use blockdev::Device;
use remote::Jobs;
use vfs::{AtimeMode, FileSystem, Volume};

use super::failure::{self, Failure, Status};
use super::magic::{self, HEAD_BYTES, Look, Magic};
use super::output::Output;

/// One format.
#[derive(Debug)]
pub struct Format {
    /// Its name.
    pub name: &'static str,
    /// By which bytes an image of it is known.
    pub magic: Magic,
    /// The same of further copies of what begins an image, looked for where nothing else is recognised.
    pub copies: &'static [Magic],
    /// Files of its own that are no images, and by which bytes they are known.
    pub relatives: &'static [(&'static str, Magic)],
    /// Opens an image for the commands on files and directories.
    pub open: fn(Arc<dyn Device>, &OpenRequest) -> Result<Opened>,
    /// What else may be tried on a damaged image, as the end of a message: `--super 1 takes the copy at byte ...`.
    pub remedies: fn(&dyn Device) -> Vec<String>,
    /// The exit status for an error of its own; `None` for one that it does not know.
    pub status: fn(&(dyn StdError + 'static)) -> Option<Status>,
    /// How it is mounted.
    pub mount: MountFormat,
}

/// Opens the file system on a device for a mount.
pub type Opener = fn(Arc<dyn Device>, &Request) -> Result<Served>;

/// What a mount serves.
pub struct Served {
    /// To the kernel, and to commands.
    pub file_system: Arc<dyn FileSystem>,
    /// To commands that only the format knows.
    pub jobs: Option<Arc<dyn Jobs>>,
}

/// How an image of a format is mounted.
#[derive(Debug)]
pub struct MountFormat {
    /// Opens one.
    pub open: Opener,
    /// Refuses options of its own that it does not know, or whose value is wrong.
    pub check_options: fn(&Request) -> Result<()>,
    /// True for the name of an option of its own.
    pub is_option: fn(&str) -> bool,
    /// True for one of those that choose what of an image is shown.
    pub chooses: fn(&str) -> bool,
    /// Where, beneath the root of a mount, is what a further mount of the same image asks for; or why nowhere.
    pub place: fn(&Path, &Request, &Request) -> Result<PathBuf>,
    /// Refuses what was found there if it is not what the further mount asks for: that directory, and the one above it
    /// unless that is the root of the mount.
    pub check_place: fn(&Path, Option<&Path>, &Request) -> Result<()>,
    /// True if the root of a mount is the root that its image has when it is opened without options.
    pub shows_image: fn(&Path) -> bool,
    /// The lines of the help on its options.
    pub options_help: &'static str,
}

/// What a format is told when its image is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Nothing may change.
    pub read_only: bool,
    /// Access times.
    pub atime: AtimeMode,
    /// Longest time between two commits.
    pub commit_interval: Duration,
    /// File data that may wait in memory; the format's default if not given.
    pub dirty_bytes: Option<usize>,
    /// Metadata kept in memory; the format's default if not given.
    pub cache_bytes: Option<usize>,
    /// Nodes that the kernel knows are to stay in memory: it opens files without asking.
    pub keep_known: bool,
    /// Options that only the format can know, in order.
    pub own: Vec<(String, Option<String>)>,
}

/// All of them.
pub type Formats = &'static [Format];

/// What of an image a command wants. A format refuses by name what it does not have.
#[derive(Debug, Clone, Default)]
pub struct OpenRequest {
    /// Nothing is written.
    pub read_only: bool,
    /// The last commit is shown, without what a crash left in the log.
    pub skips_log: bool,
    /// The subvolume at this path is the root.
    pub subvolume: Option<PathBuf>,
    /// The subvolume with this number is the root.
    pub subvolume_id: Option<u64>,
    /// This copy of the superblock is taken.
    pub superblock: Option<usize>,
    /// The state that this transaction committed is shown.
    pub generation: Option<u64>,
    /// How new contents are compressed, in the words of the format.
    pub compression: Option<String>,
}

/// An image that was opened.
#[derive(Debug)]
pub struct Opened {
    /// What all formats have.
    pub volume: Volume,
    /// What this format says of itself.
    pub about: Box<dyn About>,
}

/// What a format says of an image as a whole: the answer of `info`.
pub trait About: Debug {
    /// Reports it, as JSON or for people.
    ///
    /// # Errors
    /// When it cannot be read, or the report not written.
    fn report(&self, json: bool, out: &mut Output) -> Result<()>;
}

static KNOWN: OnceLock<Formats> = OnceLock::new();

/// Makes the program's formats known to all commands; to be called once, first.
pub fn know(formats: Formats) {
    let _ = KNOWN.set(formats);
    failure::classify_by(|cause| known().iter().find_map(|format| (format.status)(cause)));
}

/// The formats that are known.
pub fn known() -> Formats {
    KNOWN.get().copied().unwrap_or_default()
}

/// Their names, for messages.
pub fn names() -> String {
    known().iter().map(|format| format.name).collect::<Vec<_>>().join(" or ")
}

/// The format of what is on a device.
///
/// # Errors
/// `Corrupt` for one that is not known.
pub fn of(device: &dyn Device) -> Result<&'static Format> {
    let formats = known();
    if device.size_bytes() == 0 {
        return Err(Failure::new(Status::Corrupt, format!("no {} image: it is empty", names())).into());
    }
    let len = device.size_bytes().min(HEAD_BYTES);
    let mut head = vec![0; usize::try_from(len)?];
    device.read_at(0, &mut head)?;
    let name = recognise_bytes(&head);
    let found = formats.iter().find(|format| Some(format.name) == name);
    match (found.or(formats.first()), name) {
        (None, _) => Err(Failure::new(Status::Corrupt, "no format is known").into()),
        (Some(_), Some(name)) if found.is_none() => {
            let text = format!("file system: expected {}, found {name}", names());
            Err(Failure::new(Status::Corrupt, text).into())
        }
        // Where nothing is recognised, the first says best what is missing.
        (Some(format), _) => Ok(format),
    }
}

/// Name of what begins at byte `offset` of a file or device; `None` where nothing is recognised.
///
/// # Errors
/// The host's.
pub fn recognise(path: &Path, offset: u64) -> std::io::Result<Option<&'static str>> {
    Ok(recognise_bytes(&magic::head(path, offset)?))
}

/// Name of what begins with these bytes.
fn recognise_bytes(head: &[u8]) -> Option<&'static str> {
    let ours = known().iter().find(|format| format.magic.is_in(head));
    let by_copy = || known().iter().find(|format| format.copies.iter().any(|magic| magic.is_in(head)));
    let ours = ours.map(|format| format.name);
    ours.or_else(|| magic::foreign(head)).or_else(|| by_copy().map(|format| format.name))
}

/// What a file without a file system that is known here looks like, from byte `offset` on.
///
/// # Errors
/// The host's.
pub fn look(path: &Path, offset: u64) -> std::io::Result<Look> {
    let head = magic::head(path, offset)?;
    let mut relatives = known().iter().flat_map(|format| format.relatives);
    let relative = relatives.find(|(_, magic)| magic.is_in(&head));
    Ok(relative.map_or_else(|| magic::look(&head), |(name, _)| Look::Like(name)))
}

/// Refuses mount options that no format takes.
///
/// # Errors
/// `Usage`, with the name of the option.
pub fn check_options(request: &Request) -> Result<()> {
    let mut refusal = None;
    for format in known() {
        match (format.mount.check_options)(request) {
            Ok(()) => return Ok(()),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    refusal.map_or(Ok(()), Err)
}

/// True for the name of a mount option that a format has.
pub fn is_option(name: &str) -> bool {
    known().iter().any(|format| (format.mount.is_option)(name))
}
