//! Compares results of a case with its expectations, and describes a mismatch. All cases call it.

use std::fmt::Debug;

use vfs::file_system::{Errno, Result};

pub(super) type Outcome<T = ()> = std::result::Result<T, Mismatch>;

/// Something was otherwise than expected.
#[derive(Debug, Clone)]
pub(super) struct Mismatch {
    pub(super) what: String,
    pub(super) expected: String,
    pub(super) found: String,
}

impl Mismatch {
    pub(super) fn new(what: &str, expected: &str, found: &str) -> Self {
        Self { what: what.to_owned(), expected: expected.to_owned(), found: found.to_owned() }
    }
}

pub(super) fn ok<T>(what: &str, result: Result<T>) -> Outcome<T> {
    result.map_err(|errno| Mismatch::new(what, "success", &format!("{errno:?}")))
}

pub(super) fn equal<T: Debug + PartialEq>(what: &str, expected: T, found: T) -> Outcome {
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
    Err(Mismatch::new(what, &expected, &found))
}

/// As [`equal`] for long contents: only the first difference is told.
pub(super) fn same_bytes(what: &str, expected: &[u8], found: &[u8]) -> Outcome {
    equal(&format!("{what}: length"), expected.len(), found.len())?;
    let differing = expected.iter().zip(found).position(|(a, b)| a != b);
    match differing {
        None => Ok(()),
        Some(at) => equal(&format!("{what}: byte {at}"), expected[at], found[at]),
    }
}

pub(super) fn holds(what: &str, condition: bool) -> Outcome {
    equal(what, true, condition)
}

pub(super) fn refused<T>(what: &str, errno: Errno, result: Result<T>) -> Outcome {
    refused_as(what, &[errno], result)
}

/// For calls that Linux refuses before a file system sees them: any of these numbers is accepted.
pub(super) fn refused_as<T>(what: &str, errnos: &[Errno], result: Result<T>) -> Outcome {
    let found = match result {
        Err(errno) if errnos.contains(&errno) => return Ok(()),
        Err(errno) => format!("{errno:?}"),
        Ok(_) => "success".to_owned(),
    };
    Err(Mismatch::new(what, &format!("{errnos:?}"), &found))
}
