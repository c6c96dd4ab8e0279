//! Turns errors of the library into Python exceptions. Every other module calls it.

use std::error::Error as _;
use std::io;
use std::path::Path;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use spinney::{Blame, Errno, Error, OptionError};

/// An `OSError`, of the subclass that Python has for the errno, with the attribute `blame`. `filename` is the path and
/// `strerror` the cause: the program prints `filename: strerror`.
pub(crate) fn raise(error: Error) -> PyErr {
    let cause = error.source().map_or_else(|| error.errno().to_string(), ToString::to_string);
    let raised = os_error(error.errno(), &cause, error.path());
    Python::attach(|py| {
        // Without the attribute the exception is still right.
        let value = raised.value(py);
        let _ = value.setattr("blame", blame(error.blame()));
        if let Some(shortage) = error.shortage() {
            let _ = value.setattr("needed", shortage.needed);
            let _ = value.setattr("available", shortage.available);
        }
    });
    raised
}

/// As [`raise`], for an error of a stream: that of the library inside it, or the host's.
pub(crate) fn raise_io(error: io::Error) -> PyErr {
    match error.downcast::<Error>() {
        Ok(error) => raise(error),
        Err(error) => error.into(),
    }
}

/// An `OSError` that has only a number and a text.
pub(crate) fn raise_text(errno: Errno, text: &str) -> PyErr {
    os_error(errno, text, None)
}

/// The refusal of an operation of btrfs for a volume of another format.
pub(crate) fn only_btrfs(format: &str, what: &str) -> Error {
    OptionError::unsupported(format!("the format {format} has no {what}")).into()
}

fn os_error(errno: Errno, text: &str, path: Option<&Path>) -> PyErr {
    match path {
        Some(path) => PyOSError::new_err((errno.0, text.to_owned(), path.as_os_str().to_owned())),
        None => PyOSError::new_err((errno.0, text.to_owned())),
    }
}

fn blame(blame: Blame) -> &'static str {
    match blame {
        Blame::Caller => "caller",
        Blame::Device => "device",
        Blame::Image => "image",
        Blame::Program => "program",
        Blame::Bug => "bug",
        Blame::Space => "space",
        Blame::EarlierFailure => "earlier failure",
        _ => "unknown",
    }
}
