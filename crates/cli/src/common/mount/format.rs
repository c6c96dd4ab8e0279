//! What a mount needs to know of a format.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use blockdev::Device;
use vfs::FileSystem;

use super::settings::Request;
use crate::common::failure::{Failure, Status};
use crate::common::magic::{self, HEAD_BYTES};

/// Opens the file system on a device.
pub(crate) type Opener = fn(Arc<dyn Device>, &Request) -> Result<Arc<dyn FileSystem>>;

/// A format that can be mounted.
#[derive(Debug)]
pub(crate) struct Format {
    /// Its name, as `magic` has it.
    pub(crate) name: &'static str,
    /// Opens one.
    pub(crate) open: Opener,
    /// Refuses options of its own that it does not know, or whose value is wrong.
    pub(crate) check_options: fn(&Request) -> Result<()>,
    /// True for the name of an option of its own.
    pub(crate) is_option: fn(&str) -> bool,
    /// True for one of those that choose what of an image is shown.
    pub(crate) chooses: fn(&str) -> bool,
    /// Where, beneath the root of a mount, is what a further mount of the same image asks for; or why nowhere.
    pub(crate) place: fn(&Path, &Request, &Request) -> Result<PathBuf>,
    /// Refuses what was found there if it is not what the further mount asks for: that directory, and the one above it
    /// unless that is the root of the mount.
    pub(crate) check_place: fn(&Path, Option<&Path>, &Request) -> Result<()>,
    /// The lines of the help on them.
    pub(crate) options_help: &'static str,
}

/// All of them.
pub(crate) type Formats = &'static [Format];

/// The file system on a device.
///
/// # Errors
/// `Corrupt` for one that is not known; whatever its format says.
pub(super) fn open(formats: Formats, device: Arc<dyn Device>, request: &Request) -> Result<Arc<dyn FileSystem>> {
    let len = device.size_bytes().min(HEAD_BYTES);
    let mut head = vec![0; usize::try_from(len)?];
    device.read_at(0, &mut head)?;
    let name = magic::recognise_bytes(&head);
    let known = formats.iter().find(|format| Some(format.name) == name);
    match (known.or(formats.first()), name) {
        (None, _) => Err(Failure::new(Status::Corrupt, "no format is known").into()),
        (Some(_), Some(name)) if known.is_none() => {
            let ours = magic::ours().collect::<Vec<_>>().join(" or ");
            let text = format!("file system: expected {ours}, found {name}");
            Err(Failure::new(Status::Corrupt, text).into())
        }
        // Where nothing is recognised, the first says best what is missing.
        (Some(format), _) => (format.open)(device, request),
    }
}

/// Refuses options that no format takes.
///
/// # Errors
/// `Usage`, with the name of the option.
pub(super) fn check_options(formats: Formats, request: &Request) -> Result<()> {
    let mut refusal = None;
    for format in formats {
        match (format.check_options)(request) {
            Ok(()) => return Ok(()),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    refusal.map_or(Ok(()), Err)
}

/// True for the name of an option that a format has.
pub(super) fn is_option(formats: Formats, name: &str) -> bool {
    formats.iter().any(|format| (format.is_option)(name))
}
