//! The format-specific parts of the command line: a [`Face`] for each format, registered by [`know`] when the program
//! starts. The formats themselves are in the library. `image`, `mount` and `info` ask it for the face of an opened
//! image.

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result};
use serde_json::json;
use spinney::blockdev::{Device, Locator};
use spinney::remote::Jobs;
use spinney::{Format, Volume, VolumeOptions};
use spinney::{Look, magic};

use super::failure::{self, Status};
use super::names as shown;
use super::output::Output;

pub(crate) use spinney::format_names;

/// Commands and texts of the program for one format.
pub(crate) struct Face {
    /// The name of the format.
    pub(crate) name: &'static str,
    /// Prints the report of `info`, as JSON or for people.
    pub(crate) report: fn(&Volume, bool, &mut Output) -> Result<()>,
    /// Warns of facts that a reader of the volume should know.
    pub(crate) warn: fn(&Volume) -> Result<()>,
    /// The exit status of an error of the format; `None` for other errors.
    pub(crate) status: fn(&(dyn StdError + 'static)) -> Option<Status>,
    /// The remedy for an error of the format's own, as the end of a message.
    pub(crate) advice: fn(&(dyn StdError + 'static)) -> Option<&'static str>,
    /// Commands of the format that the server of a mount runs.
    pub(crate) jobs: fn(&Volume) -> Option<Arc<dyn Jobs>>,
    /// True for mount options that choose the visible part of an image.
    pub(crate) chooses: fn(&str) -> bool,
    /// For a second mount of an image that is mounted already. Takes the root of the first mount and the options of the
    /// first and the second; returns the path below that root to bind, or an error if it is not visible there.
    pub(crate) place: fn(&Path, &VolumeOptions, &VolumeOptions) -> Result<PathBuf>,
    /// Refuses that directory if it is not the one that the further mount asks for; the second path is the directory
    /// above it, unless that is the root of the mount.
    pub(crate) check_place: fn(&Path, Option<&Path>, &VolumeOptions) -> Result<()>,
    /// True if `spinney rescue` reads damaged images of the format.
    pub(crate) is_rescued: bool,
    /// True if the root of a mount is the root that its image has when it is opened without options.
    pub(crate) shows_image: fn(&Path) -> bool,
}

impl fmt::Debug for Face {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Face").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Face {
    /// The face of a format without commands or texts of its own.
    pub(crate) const PLAIN: Self = Self {
        name: "",
        report,
        warn: |_| Ok(()),
        status: |_| None,
        advice: |_| None,
        jobs: |_| None,
        chooses: |_| false,
        place: |_, _, _| Ok(PathBuf::new()),
        check_place: |_, _, _| Ok(()),
        is_rescued: false,
        shows_image: |_| true,
    };
}

/// Prints the facts common to all formats.
fn report(volume: &Volume, json: bool, out: &mut Output) -> Result<()> {
    use std::io::Write as _;
    let info = volume.info()?;
    let (label, uuid) = (info.label.to_string_lossy(), shown::uuid(&info.uuid));
    if json {
        return out.json(&json!({
            "format": info.format,
            "label": label,
            "uuid": uuid,
            "block_bytes": info.block_bytes,
            "total_bytes": info.total_bytes,
            "free_bytes": info.free_bytes,
        }));
    }
    let human = super::human::bytes;
    writeln!(out, "Format:      {}\nLabel:       {}\nUUID:        {uuid}", info.format, shown::escaped_text(&label))?;
    Ok(writeln!(out, "Size:        {}\nFree:        {}", human(info.total_bytes), human(info.free_bytes))?)
}

static KNOWN: OnceLock<&'static [Face]> = OnceLock::new();

/// Registers the program's faces; called once, first.
pub(crate) fn know(faces: &'static [Face]) {
    let _ = KNOWN.set(faces);
    failure::classify_by(|cause| known().iter().find_map(|face| (face.status)(cause)));
}

fn known() -> &'static [Face] {
    KNOWN.get().copied().unwrap_or_default()
}

/// The remedy that a format knows for an error.
pub(crate) fn advice(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(|cause| known().iter().find_map(|face| (face.advice)(cause)))
}

/// The face of a format.
pub(crate) fn face(format: &dyn Format) -> &'static Face {
    known().iter().find(|face| face.name == format.name()).unwrap_or(&Face::PLAIN)
}

/// The format of the volume on a device. If none or a foreign one is recognised there, a superblock copy of ours may
/// still exist: the first format is returned, and the message of its failed open says what is there.
///
/// # Errors
/// For a device that cannot be read.
pub(crate) fn of(device: &dyn Device) -> Result<&'static dyn Format> {
    let first = || spinney::formats().into_iter().next();
    let format = match spinney::recognise(device) {
        Err(error) if error.cause::<spinney::NotRecognised>().is_some() && device.size_bytes() > 0 => first(),
        found => found?.or_else(first),
    };
    format.context("no format is known")
}

/// The format of a volume on several devices, by the first one.
///
/// # Errors
/// As [`of`].
pub(crate) fn of_all(devices: &[Arc<dyn Device>]) -> Result<&'static dyn Format> {
    let missing = || failure::Failure::usage("no device is named");
    of(&**devices.first().ok_or_else(missing)?)
}

/// Name of the format on the device that a locator names; `None` if it is not recognised.
///
/// # Errors
/// The host's.
pub(crate) fn recognise(image: &Locator) -> spinney::blockdev::Result<Option<&'static str>> {
    Ok(spinney::recognise_bytes(&magic::head(image)?))
}

/// The kind of file that a device without a known file system looks like.
///
/// # Errors
/// The host's.
pub(crate) fn look(image: &Locator) -> spinney::blockdev::Result<Look> {
    let head = magic::head(image)?;
    let formats = spinney::formats();
    let mut relatives = formats.iter().flat_map(|format| format.relatives());
    let relative = relatives.find(|(_, magic)| magic.is_in(&head));
    Ok(relative.map_or_else(|| magic::look(&head), |(name, _)| Look::Like(name)))
}

/// Refuses mount options of no known format.
///
/// # Errors
/// `Usage`, with the name of the option.
pub(crate) fn check_options(options: &VolumeOptions) -> Result<()> {
    let mut refusal = None;
    for format in spinney::formats() {
        match format.check_options(options) {
            Ok(()) => return Ok(()),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    refusal.map_or(Ok(()), |error| Err(error.into()))
}

/// True for the name of a mount option that a format has.
pub(crate) fn is_option(name: &str) -> bool {
    spinney::formats().iter().any(|format| format.is_option(name))
}
