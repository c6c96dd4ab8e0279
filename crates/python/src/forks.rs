//! Forks of subvolumes for Python. The package's `Volume` calls it.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use spinney::btrfs::Change;
use spinney::btrfs::forks::{self, Error as ForkError, Fork, ForkOptions, Forks, Merge, Strategy, write_patch};
use spinney::{Errno, Time};

use crate::error::{only_btrfs, raise, raise_text};
use crate::name::Name;
use crate::records;
use crate::volume::Volume;

/// Makes a fork; `limits` are the bytes that its own data may take, and when it expires.
#[pyfunction]
pub(crate) fn fork<'py>(
    py: Python<'py>,
    volume: &Volume,
    base: Name,
    target: Name,
    read_only: bool,
    limits: (Option<u64>, Option<i64>),
) -> PyResult<Bound<'py, PyDict>> {
    let (limit, expires) = limits;
    let options = ForkOptions { read_only, expires, limit };
    let made = with(py, volume, |forks| forks.fork(base.as_ref(), target.as_ref(), &options))?;
    record(py, &made)
}

/// All forks, in the order of their paths.
#[pyfunction(name = "forks")]
pub(crate) fn all_forks<'py>(py: Python<'py>, volume: &Volume) -> PyResult<Vec<Bound<'py, PyDict>>> {
    with(py, volume, Forks::list)?.iter().map(|fork| record(py, fork)).collect()
}

/// The changes of a fork since it was made, or since its last merge into its base.
#[pyfunction]
pub(crate) fn fork_changes<'py>(py: Python<'py>, volume: &Volume, path: Name) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let changes = with(py, volume, |forks| {
        let mut changes: Vec<Change> = Vec::new();
        forks.status(path.as_ref(), |change| changes.push(change))?;
        Ok(changes)
    })?;
    changes.iter().map(|change| records::change(py, change)).collect()
}

/// The same as a patch.
#[pyfunction]
pub(crate) fn fork_patch<'py>(py: Python<'py>, volume: &Volume, path: Name) -> PyResult<Bound<'py, PyBytes>> {
    let patch = with(py, volume, |forks| {
        let fork = forks.at(path.as_ref())?;
        let mut patch = Vec::new();
        match write_patch(forks.volume(), &fork.ancestor, &fork.path, &mut patch) {
            Err(forks::PatchError::Volume(error)) => Err(error.into()),
            // Memory takes all of it.
            _ => Ok(patch),
        }
    })?;
    Ok(PyBytes::new(py, &patch))
}

/// Merges a fork: the target, the number of changed names, conflicts as (path, kind, kept), and if it was merged.
#[pyfunction]
pub(crate) fn merge_fork<'py>(
    py: Python<'py>,
    volume: &Volume,
    path: Name,
    into: Option<Name>,
    strategy: &str,
) -> PyResult<Bound<'py, PyDict>> {
    let strategy = match strategy {
        "fail" => Strategy::Fail,
        "ours" => Strategy::Ours,
        "theirs" => Strategy::Theirs,
        _ => return Err(raise_text(Errno::EINVAL, "strategy: expected `fail`, `ours` or `theirs`")),
    };
    let into = into.map(|into| AsRef::<Path>::as_ref(&into).to_owned());
    let merged = with(py, volume, |forks| forks.merge(path.as_ref(), &Merge { into, strategy }))?;
    let conflict = |conflict: &forks::Conflict| {
        let kept = conflict.kept.as_ref().map(|path| path.as_os_str().to_owned());
        (conflict.path.as_os_str().to_owned(), conflict.kind.to_string(), kept)
    };
    let found = PyDict::new(py);
    found.set_item("target", shown(&merged.target))?;
    found.set_item("changes", merged.changes)?;
    found.set_item("conflicts", merged.conflicts.iter().map(conflict).collect::<Vec<_>>())?;
    found.set_item("is_merged", merged.is_merged)?;
    Ok(found)
}

/// Deletes a fork.
#[pyfunction]
pub(crate) fn drop_fork(py: Python<'_>, volume: &Volume, path: Name) -> PyResult<()> {
    with(py, volume, |forks| forks.drop_fork(path.as_ref())).map(drop)
}

/// Deletes the forks that expired before `now`, in seconds since 1970. Returns their paths.
#[pyfunction]
pub(crate) fn drop_expired_forks(py: Python<'_>, volume: &Volume, now: i64) -> PyResult<Vec<PathBuf>> {
    let dropped = with(py, volume, |forks| forks.drop_expired(now))?;
    Ok(dropped.iter().map(|fork| shown(&fork.path)).collect())
}

fn with<T: Send>(
    py: Python<'_>,
    volume: &Volume,
    operation: impl FnOnce(&Forks) -> forks::Result<T> + Send,
) -> PyResult<T> {
    let volume = volume.get()?;
    let own = volume.btrfs().ok_or_else(|| raise(only_btrfs(volume.format().name(), "forks")))?;
    let forks = Forks::new(own.clone()).owner(uid());
    py.detach(|| operation(&forks)).map_err(|error| match error {
        ForkError::Volume(error) => raise(error),
        error => raise_text(Errno::EINVAL, &error.to_string()),
    })
}

/// The user of this process, to whom the hidden directory of forks belongs.
fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn shown(path: &Path) -> PathBuf {
    Path::new("/").join(path)
}

fn record<'py>(py: Python<'py>, fork: &Fork) -> PyResult<Bound<'py, PyDict>> {
    let Time { sec, nsec } = fork.created;
    let found = PyDict::new(py);
    found.set_item("path", shown(&fork.path).as_os_str())?;
    found.set_item("id", fork.id.0)?;
    found.set_item("uuid", fork.uuid.as_slice())?;
    found.set_item("base", fork.base.as_ref().map(|base| shown(base).as_os_str().to_owned()))?;
    found.set_item("created_ns", records::nanoseconds((sec, nsec)))?;
    found.set_item("expires", fork.expires)?;
    found.set_item("limit", fork.limit)?;
    found.set_item("read_only", fork.read_only)?;
    Ok(found)
}
