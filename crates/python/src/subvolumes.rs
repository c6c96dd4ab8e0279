//! Subvolumes for Python, by their numbers and paths. The package's `Volume` and `btrfsutil` call it.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use spinney::btrfs::{self, SubvolumeInfo, TreeId};
use spinney::{Result, SnapshotMode};

use crate::error::{only_btrfs, raise};
use crate::name::Name;
use crate::records;
use crate::volume::Volume;

/// All subvolumes but the top level, in the order of their numbers.
#[pyfunction]
pub(crate) fn subvolumes<'py>(py: Python<'py>, volume: &Volume) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let found = with(py, volume, btrfs::Volume::subvolumes)?;
    found.iter().map(|found| records::subvolume(py, found)).collect()
}

/// The subvolumes that are deleted and whose space is not free yet.
#[pyfunction]
pub(crate) fn deleted_subvolumes<'py>(py: Python<'py>, volume: &Volume) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let found = with(py, volume, btrfs::Volume::deleted_subvolumes)?;
    found.iter().map(|found| records::subvolume(py, found)).collect()
}

/// The subvolume of a number.
#[pyfunction]
pub(crate) fn subvolume_info<'py>(py: Python<'py>, volume: &Volume, id: u64) -> PyResult<Bound<'py, PyDict>> {
    let found: SubvolumeInfo = with(py, volume, |volume| volume.subvolume_info(TreeId(id)))?;
    records::subvolume(py, &found)
}

/// The number of the subvolume whose root is at `path`.
#[pyfunction]
pub(crate) fn subvolume_at(py: Python<'_>, volume: &Volume, path: Name) -> PyResult<u64> {
    with(py, volume, |volume| Ok(volume.subvolume_at(path.as_ref())?.0))
}

/// The number of the last commit.
#[pyfunction]
pub(crate) fn generation(py: Python<'_>, volume: &Volume) -> PyResult<u64> {
    with(py, volume, |volume| Ok(volume.info()?.generation.0))
}

/// The number of the subvolume that is opened by default.
#[pyfunction]
pub(crate) fn default_subvolume(py: Python<'_>, volume: &Volume) -> PyResult<u64> {
    with(py, volume, |volume| Ok(volume.default_subvolume()?.0))
}

/// Chooses the subvolume that is opened by default.
#[pyfunction]
pub(crate) fn set_default_subvolume(py: Python<'_>, volume: &Volume, path: Name) -> PyResult<()> {
    with(py, volume, |volume| volume.set_default_subvolume(&path))
}

/// Makes a subvolume read-only, or writable again.
#[pyfunction]
pub(crate) fn set_subvolume_read_only(py: Python<'_>, volume: &Volume, path: Name, read_only: bool) -> PyResult<()> {
    let mode = if read_only { SnapshotMode::ReadOnly } else { SnapshotMode::ReadWrite };
    with(py, volume, |volume| volume.set_subvolume_mode(&path, mode))
}

fn with<T: Send>(
    py: Python<'_>,
    volume: &Volume,
    operation: impl FnOnce(&btrfs::Volume) -> Result<T> + Send,
) -> PyResult<T> {
    let volume = volume.get()?;
    let own = volume.btrfs().ok_or_else(|| raise(only_btrfs(volume.format().name(), "subvolumes")))?;
    py.detach(|| operation(own)).map_err(raise)
}
