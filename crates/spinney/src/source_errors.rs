//! Turns the failures of archives, container images and manifests into those of volumes, with the party at fault.
//! Called by `contents` and `btrfs::layers`.

use std::ffi::OsStr;
use std::path::Path;

use vfs::{Blame, Errno, Error};

/// The failure of the host about a source.
pub(crate) fn of_host(path: &Path, error: std::io::Error) -> Error {
    let errno = Errno::of_host(&error);
    Error::new(errno, Blame::Device, error).at(path)
}

/// The failure of an archive.
pub(crate) fn of_archive(source: &OsStr, error: archive::Error) -> Error {
    let (errno, blame) = match &error {
        archive::Error::Transfer(cause) if cause.is_cancelled() => (Errno::ECANCELED, Blame::Caller),
        archive::Error::Read { .. } | archive::Error::Spool(_) | archive::Error::Write(_) => {
            (Errno::EIO, Blame::Device)
        }
        archive::Error::Unsupported { .. } => (Errno::EOPNOTSUPP, Blame::Program),
        archive::Error::TooLarge { .. } | archive::Error::TooManyNames { .. } => (Errno::E2BIG, Blame::Caller),
        _ => (Errno::EIO, Blame::Image),
    };
    Error::new(errno, blame, error).at(source)
}

/// The failure of a container image, a manifest or a rule for owners.
pub(crate) fn of_layers(error: layers::Error) -> Error {
    let (errno, blame) = match &error {
        layers::Error::Transfer(cause) if cause.is_cancelled() => (Errno::ECANCELED, Blame::Caller),
        layers::Error::Host { cause, .. } => (Errno::of_host(cause), Blame::Device),
        layers::Error::Rule { .. } | layers::Error::Unmapped { .. } | layers::Error::Choice { .. } => {
            (Errno::EINVAL, Blame::Caller)
        }
        layers::Error::Unsupported { .. } => (Errno::EOPNOTSUPP, Blame::Program),
        _ => (Errno::EIO, Blame::Image),
    };
    Error::new(errno, blame, error)
}
