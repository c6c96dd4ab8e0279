//! Open files and directories for Python. `volume` opens them; the package wraps a file as `io.RawIOBase`.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use spinney::{Extent, ExtentKind, ReadDir};

use crate::error::{raise, raise_io};
use crate::name::{filled, unsigned};
use crate::records::Stat;
use crate::slot::Slot;

/// Most names that one call of [`Listing::batch`] returns.
const BATCH_NAMES: usize = 512;

/// An open file with a position, for many threads at once.
#[pyclass(frozen, weakref, module = "spinney._spinney")]
pub(crate) struct File(Slot<spinney::File>);

impl File {
    pub(crate) fn new(file: spinney::File) -> Self {
        Self(Slot::new("file", file))
    }
}

#[pymethods]
impl File {
    /// Reads up to `size` bytes at the position; fewer only at the end of the file.
    fn read<'py>(&self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let file = self.0.get()?;
        let left = py.detach(|| {
            let at = (&*file).stream_position().map_err(raise_io)?;
            Ok::<_, PyErr>(file.metadata().map_err(raise)?.size.saturating_sub(at))
        })?;
        let mut done = 0;
        let mut fill = |buffer: &mut [u8]| {
            done = py.detach(|| (&*file).read(buffer)).map_err(raise_io)?;
            Ok(())
        };
        let wanted = size.min(usize::try_from(left)?);
        let bytes = PyBytes::new_with(py, wanted, &mut fill)?;
        Ok(if done == wanted { bytes } else { PyBytes::new(py, filled(bytes.as_bytes(), done)) })
    }

    /// Reads up to `size` bytes at `offset`, and leaves the position.
    fn pread<'py>(&self, py: Python<'py>, size: usize, offset: i64) -> PyResult<Bound<'py, PyBytes>> {
        let (file, offset) = (self.0.get()?, unsigned(offset)?);
        let left = py.detach(|| file.metadata()).map_err(raise)?.size.saturating_sub(offset);
        let mut done = 0;
        let wanted = size.min(usize::try_from(left)?);
        let bytes = PyBytes::new_with(py, wanted, |buffer| {
            done = py.detach(|| file.read_at(buffer, offset)).map_err(raise)?;
            Ok(())
        })?;
        Ok(if done == wanted { bytes } else { PyBytes::new(py, filled(bytes.as_bytes(), done)) })
    }

    /// Writes all of `data` at the position, or at the end of a file that was opened for appending.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyBytes>) -> PyResult<usize> {
        let (file, data) = (self.0.get()?, data.as_bytes());
        py.detach(|| (&*file).write(data)).map_err(raise_io)
    }

    /// Writes all of `data` at `offset`, and leaves the position.
    fn pwrite(&self, py: Python<'_>, data: &Bound<'_, PyBytes>, offset: i64) -> PyResult<usize> {
        let (file, data, offset) = (self.0.get()?, data.as_bytes(), unsigned(offset)?);
        py.detach(|| file.write_at(data, offset)).map_err(raise)?;
        Ok(data.len())
    }

    /// Moves the position, and returns it. `whence` is one of `os.SEEK_*`.
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<u64> {
        let file = self.0.get()?;
        let to = match whence {
            0 => SeekFrom::Start(unsigned(offset)?),
            1 => SeekFrom::Current(offset),
            2 => SeekFrom::End(offset),
            3 => SeekFrom::Start(self.seek_data(py, offset)?),
            4 => SeekFrom::Start(self.seek_hole(py, offset)?),
            other => return Err(PyValueError::new_err(format!("invalid whence ({other}, should be 0 to 4)"))),
        };
        py.detach(|| (&*file).seek(to)).map_err(raise_io)
    }

    /// The first byte of data at or after `offset`.
    fn seek_data(&self, py: Python<'_>, offset: i64) -> PyResult<u64> {
        let (file, offset) = (self.0.get()?, unsigned(offset)?);
        py.detach(|| file.seek_data(offset)).map_err(raise)
    }

    /// The first byte of a hole at or after `offset`; the end of the file counts as one.
    fn seek_hole(&self, py: Python<'_>, offset: i64) -> PyResult<u64> {
        let (file, offset) = (self.0.get()?, unsigned(offset)?);
        py.detach(|| file.seek_hole(offset)).map_err(raise)
    }

    /// Cuts the file, or extends it with a hole.
    fn truncate(&self, py: Python<'_>, size: i64) -> PyResult<()> {
        let (file, size) = (self.0.get()?, unsigned(size)?);
        py.detach(|| file.set_len(size)).map_err(raise)
    }

    /// The attributes of the file.
    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        let file = self.0.get()?;
        Ok(py.detach(|| file.metadata()).map_err(raise)?.into())
    }

    /// Makes the file durable; with `data_only` not the metadata that reading does not need.
    fn sync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        let file = self.0.get()?;
        py.detach(|| if data_only { file.sync_data() } else { file.sync_all() }).map_err(raise)
    }

    /// The extents in order: offset, bytes, kind, address, bytes on disk, compression.
    fn extents(&self, py: Python<'_>) -> PyResult<Vec<Row>> {
        let file = self.0.get()?;
        let extents = py.detach(|| file.extents()).map_err(raise)?;
        Ok(extents.into_iter().map(row).collect())
    }

    /// Closes the file.
    fn close(&self, py: Python<'_>) {
        let file = self.0.take();
        py.detach(|| drop(file));
    }
}

/// An extent as a tuple.
type Row = (u64, u64, &'static str, Option<u64>, u64, Option<&'static str>);

fn row(extent: Extent) -> Row {
    let Extent { offset, len, kind, logical, disk_len, compression } = extent;
    let kind = match kind {
        ExtentKind::Inline => "inline",
        ExtentKind::Data => "data",
        ExtentKind::Preallocated => "preallocated",
    };
    (offset, len, kind, logical, disk_len, compression)
}

/// The names of a directory.
#[pyclass(frozen, weakref, module = "spinney._spinney")]
pub(crate) struct Listing(Slot<Mutex<ReadDir>>);

impl Listing {
    pub(crate) fn new(names: ReadDir) -> Self {
        Self(Slot::new("directory", Mutex::new(names)))
    }
}

#[pymethods]
impl Listing {
    /// The next names, each with the type bits of its mode; empty at the end.
    fn batch<'py>(&self, py: Python<'py>) -> PyResult<Vec<(Bound<'py, PyBytes>, u32)>> {
        let names = self.0.get()?;
        let entries: spinney::Result<Vec<_>> = py.detach(|| names.lock().by_ref().take(BATCH_NAMES).collect());
        let entries = entries.map_err(raise)?.into_iter();
        Ok(entries.map(|entry| (PyBytes::new(py, entry.name_bytes()), entry.file_type().mode_bits())).collect())
    }

    /// Closes the directory.
    fn close(&self, py: Python<'_>) {
        let names = self.0.take();
        py.detach(|| drop(names));
    }
}
