//! Takes paths and bytes from Python. The modules with functions for Python use it for their arguments.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use spinney::{Errno, Error};

use crate::error::raise;

/// A path: `bytes`, or `str` in which surrogates stand for bytes that are not UTF-8 (`surrogateescape`).
#[derive(Debug, Clone)]
pub(crate) struct Name(PathBuf);

impl AsRef<Path> for Name {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl FromPyObject<'_, '_> for Name {
    type Error = PyErr;

    /// # Errors
    /// `TypeError` for other types, `ValueError` for a path with a NUL, which no file system can have.
    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let bytes = match object.cast::<PyBytes>() {
            Ok(bytes) => bytes.as_bytes().to_vec(),
            Err(_) => text_bytes(&*object.cast::<PyString>()?)?,
        };
        if bytes.contains(&0) {
            return Err(PyValueError::new_err("embedded null byte"));
        }
        Ok(Self(PathBuf::from(OsString::from_vec(bytes))))
    }
}

fn text_bytes(text: &Bound<'_, PyString>) -> PyResult<Vec<u8>> {
    if let Ok(utf8) = text.to_cow() {
        return Ok(utf8.into_owned().into_bytes());
    }
    let encoded = text.call_method1("encode", ("utf-8", "surrogateescape"))?;
    Ok(encoded.cast::<PyBytes>()?.as_bytes().to_vec())
}

/// A position or length that Python gives as a signed number.
///
/// # Errors
/// `OSError` with `EINVAL` for a negative one, as Python's own files have it.
pub(crate) fn unsigned(number: i64) -> PyResult<u64> {
    u64::try_from(number).map_err(|_| raise(Error::from(Errno::EINVAL)))
}

/// The part of a buffer that was filled.
pub(crate) fn filled(buffer: &[u8], len: usize) -> &[u8] {
    buffer.get(..len).unwrap_or(buffer)
}
