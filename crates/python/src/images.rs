//! Opens, makes, checks and recognises images for Python. The package's `open`, `make` and `check` call it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use spinney::{CheckOptions, MakeOptions, VolumeOptions};

use crate::error::raise;
use crate::name::Name;
use crate::progress;
use crate::records;
use crate::volume::Volume;

/// Opens the volume in an image, which `image` names as [`spinney::open`] says. `options` are those of one format.
#[pyfunction]
pub(crate) fn open_volume(
    py: Python<'_>,
    image: Name,
    writable: bool,
    owner: (u32, u32),
    options: Vec<(String, Option<Vec<u8>>)>,
) -> PyResult<Volume> {
    let mut wanted = VolumeOptions::new().read_only(!writable).owner(owner.0, owner.1);
    wanted.own = options.into_iter().map(|(name, value)| (name, value.map(OsString::from_vec))).collect();
    let volume = py.detach(|| spinney::open(&image, &wanted)).map_err(raise)?;
    Ok(Volume::new(volume))
}

/// Makes a volume, as [`spinney::make`], and opens it for writing. `name` is its label and its UUID.
#[pyfunction]
pub(crate) fn make_volume(
    py: Python<'_>,
    image: Name,
    format: &str,
    size: Option<u64>,
    name: (String, Option<[u8; 16]>),
    owner: (u32, u32),
    options: Vec<(String, String)>,
) -> PyResult<Volume> {
    let (label, uuid) = name;
    let wanted = MakeOptions { size, label, uuid, owner, own: options };
    let volume = py.detach(|| spinney::make(&image, format, &wanted)).map_err(raise)?;
    Ok(Volume::new(volume))
}

/// Checks the volume in an image, as [`spinney::check`].
#[pyfunction]
pub(crate) fn check_image<'py>(
    py: Python<'py>,
    image: Name,
    passes: Vec<String>,
    data: bool,
    threads: Option<usize>,
    callback: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let wanted = CheckOptions { passes, data, threads, ..CheckOptions::default() };
    let report = progress::run(py, callback, |watch| spinney::check(&image, &wanted, watch))?;
    records::report(py, &report.map_err(raise)?)
}

/// Names of the formats.
#[pyfunction]
pub(crate) fn format_names() -> Vec<&'static str> {
    spinney::formats().into_iter().map(|format| format.name()).collect()
}

/// The format of the first bytes of an image; `None` for none that is known.
#[pyfunction]
pub(crate) fn recognise_image(head: &[u8]) -> Option<&'static str> {
    spinney::recognise_bytes(head)
}
