//! Lists the formats of the library, and recognises one by its magic number. Called by `open`, `repair` and the command
//! line.

use blockdev::Device;
use formats::Format;
use formats::magic::{self, HEAD_BYTES, Magic};
use parking_lot::RwLock;
use vfs::{Blame, Errno, Error, Result};

use crate::btrfs::Btrfs;
use crate::device_errors::device_error;
use crate::f2fs::F2fsFormat;

/// The formats that the library has, in the order in which they are tried.
const BUILT_IN: &[&dyn Format] = &[&Btrfs, &F2fsFormat];

/// Those that a program has added.
static ADDED: RwLock<Vec<&'static dyn Format>> = RwLock::new(Vec::new());

/// Adds a format for the rest of the process; it is tried after those of the library. Its name must differ from theirs,
/// since [`format_named`] returns the first with a name.
pub fn add_format(format: &'static dyn Format) {
    ADDED.write().push(format);
}

/// All formats: those of the library, and those that the program has added.
#[must_use]
pub fn formats() -> Vec<&'static dyn Format> {
    let mut formats = BUILT_IN.to_vec();
    formats.extend(ADDED.read().iter().copied());
    formats
}

/// The format with this name.
#[must_use]
pub fn format_named(name: &str) -> Option<&'static dyn Format> {
    formats().into_iter().find(|format| format.name() == name)
}

/// The names of all formats, for messages: `btrfs or f2fs`.
#[must_use]
pub fn format_names() -> String {
    formats().iter().map(|format| format.name()).collect::<Vec<_>>().join(" or ")
}

/// Name of the file system that begins with these bytes: one of [`formats()`], or a foreign one (`xfs`, `LUKS`) that
/// the library recognises but cannot open; `None` for unknown bytes. Give the first [`magic::HEAD_BYTES`] bytes of the
/// device: with fewer, magic numbers further on are missed; more are ignored.
#[must_use]
pub fn recognise_bytes(head: &[u8]) -> Option<&'static str> {
    let formats = formats();
    let has = |magics: &[Magic]| magics.iter().any(|magic| magic.is_in(head));
    let named = |format: &&dyn Format| format.name();
    let first = formats.iter().find(|format| format.magic().is_in(head)).map(named);
    let by_copy = || formats.iter().find(|format| has(format.copies())).map(named);
    first.or_else(|| magic::foreign(head)).or_else(by_copy)
}

/// Recognises the format of the volume on a device by its magic numbers; `None` for bytes that match no format.
///
/// # Errors
/// `EIO` with [`NotRecognised`] for a device of 0 bytes, and for a file system that the library cannot open (ext4,
/// xfs, ...), which the message names; the error of the device if it cannot be read.
pub fn recognise(device: &dyn Device) -> Result<Option<&'static dyn Format>> {
    if device.size_bytes() == 0 {
        return Err(not_ours(format!("no {} image: it is empty", format_names())));
    }
    let mut head = vec![0; usize::try_from(device.size_bytes().min(HEAD_BYTES)).unwrap_or_default()];
    device.read_at(0, &mut head).map_err(device_error)?;
    let Some(name) = recognise_bytes(&head) else { return Ok(None) };
    let foreign = || not_ours(format!("file system: expected {}, found {name}", format_names()));
    format_named(name).map(Some).ok_or_else(foreign)
}

/// The format of the volume on a device. Bytes that match no format are taken for btrfs, whose superblock may be
/// damaged: its operations fail with the reason, and its check reports it.
///
/// # Errors
/// As [`recognise`].
pub(crate) fn assume(device: &dyn Device) -> Result<&'static dyn Format> {
    Ok(recognise(device)?.unwrap_or(&Btrfs))
}

/// The device holds no volume that this library can open. The cause of an `EIO` of [`recognise`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotRecognised(String);

fn not_ours(text: String) -> Error {
    Error::new(Errno::EIO, Blame::Image, NotRecognised(text))
}
