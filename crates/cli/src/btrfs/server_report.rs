//! Reads reports of the server of a mount, which are text in virtual extended attributes, and gives it orders by
//! setting one. Callers: `balance`, `resize`, `usage`, `du` and `qgroup` on a mount.

use std::error::Error as StdError;
use std::io;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, Error, Result};
use rustix::io::Errno;

use crate::commands::failure::Failure;
use crate::commands::kernel;
use spinney::mounts;

/// Longest attribute value in Linux, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Reads the attribute `name` of `path`. For a server that does not know it, `lacks` completes the error "its server
/// does not ...".
///
/// # Errors
/// The host's, and a text that cannot be parsed.
pub(super) fn read_reply<T>(path: &Path, name: &str, lacks: &str) -> Result<T>
where
    T: FromStr<Err: StdError + Send + Sync + 'static>,
{
    let mut text = vec![0; TEXT_BYTES_MAX];
    let len = kernel::read_attribute(path, name, &mut text).map_err(|error| match error {
        error if error == Errno::OPNOTSUPP || error == kernel::NO_ATTRIBUTE => missing(path, lacks),
        error => Error::new(io::Error::from(error)).context(path.display().to_string()),
    })?;
    text.truncate(len);
    read(path, &text)
}

/// Gives an order by setting an attribute. `own` explains failures particular to the order; `lacks` as in
/// [`read_reply`].
///
/// # Errors
/// The server's, in words.
pub(super) fn order(
    dir: &Path,
    name: &str,
    text: &str,
    lacks: &str,
    own: impl Fn(Errno) -> Option<Error>,
) -> Result<()> {
    kernel::write_attribute(dir, name, text.as_bytes()).map_err(|error| match error {
        error if let Some(own) = own(error) => own,
        Errno::PERM => refusal(dir, "this is for root, and for the user who mounted it"),
        Errno::OPNOTSUPP => missing(dir, lacks),
        error => Error::new(io::Error::from(error)).context(dir.display().to_string()),
    })
}

/// A server that does not know a report or an order, or none: a mount whose server was killed is a plain directory.
fn missing(path: &Path, lacks: &str) -> Error {
    let is_mount = std::fs::metadata(path).is_ok_and(|found| mounts::of(&found).is_ok_and(|row| row.is_some()));
    match is_mount {
        true => refusal(path, &format!("its server does not {lacks}: it is of another version")),
        false => refusal(path, "no mount any more: its server has ended"),
    }
}

/// The refusal of an order by a mount.
pub(super) fn refusal(dir: &Path, text: &str) -> Error {
    Failure::refused(format!("{}: {text}", dir.display())).into()
}

/// Parses a report.
pub(super) fn read<T>(path: &Path, text: &[u8]) -> Result<T>
where
    T: FromStr<Err: StdError + Send + Sync + 'static>,
{
    let text = String::from_utf8_lossy(text);
    text.parse().with_context(|| format!("{}: unexpected report of the server", path.display()))
}
