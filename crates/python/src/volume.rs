//! Open volumes for Python, used by paths. `images` opens them; the package's `Volume` and `Path` call the methods.

use std::ffi::OsString;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use spinney::{
    Errno, Error, Files, NodeKind, OpenOptions, RenameFlags, Result, SetAttr, SetTime, SnapshotMode, Time, XattrMode,
};

use crate::error::{only_btrfs, raise};
use crate::file::{File, Listing};
use crate::name::Name;
use crate::progress;
use crate::records::{self, Stat};
use crate::slot::Slot;

/// An open volume.
#[pyclass(frozen, weakref, module = "spinney._spinney")]
pub(crate) struct Volume(Slot<spinney::Volume>);

impl Volume {
    pub(crate) fn new(volume: spinney::Volume) -> Self {
        Self(Slot::new("volume", volume))
    }

    pub(crate) fn get(&self) -> PyResult<Arc<spinney::Volume>> {
        self.0.get()
    }

    fn with<T: Send>(&self, py: Python<'_>, operation: impl FnOnce(&Files) -> Result<T> + Send) -> PyResult<T> {
        let volume = self.0.get()?;
        py.detach(|| operation(&volume)).map_err(raise)
    }
}

#[pymethods]
impl Volume {
    #[getter]
    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    #[getter]
    fn is_read_only(&self) -> PyResult<bool> {
        Ok(self.get()?.is_read_only())
    }

    /// Makes everything durable and closes the volume.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(volume) = self.0.take() else { return Ok(()) };
        py.detach(|| {
            let synced = volume.sync();
            drop(volume);
            synced
        })
        .map_err(raise)
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Files::sync)
    }

    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let volume = self.get()?;
        records::info(py, &py.detach(|| volume.info()).map_err(raise)?)
    }

    fn status(&self, py: Python<'_>) -> PyResult<[u64; 9]> {
        Ok(records::status(&self.with(py, Files::status)?))
    }

    fn stat(&self, py: Python<'_>, path: Name, follow: bool) -> PyResult<Stat> {
        let find = |files: &Files| if follow { files.metadata(&path) } else { files.symlink_metadata(&path) };
        Ok(self.with(py, find)?.into())
    }

    fn canonicalize(&self, py: Python<'_>, path: Name) -> PyResult<OsString> {
        self.with(py, |files| Ok(files.canonicalize(&path)?.into_os_string()))
    }

    fn read<'py>(&self, py: Python<'py>, path: Name) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.with(py, |files| {
            let bytes = files.read(&path)?;
            // An empty directory reads as an empty file.
            match bytes.is_empty() && files.metadata(&path)?.is_dir() {
                true => Err(Error::from(Errno::EISDIR).during("read").at(&path)),
                false => Ok(bytes),
            }
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn write(&self, py: Python<'_>, path: Name, data: &[u8]) -> PyResult<()> {
        self.with(py, |files| files.write(&path, data))
    }

    fn open(&self, py: Python<'_>, path: Name, flags: &str, permissions: u32) -> PyResult<File> {
        let has = |flag: char| flags.contains(flag);
        let options = OpenOptions::new()
            .read(has('r'))
            .write(has('w'))
            .append(has('a'))
            .truncate(has('t'))
            .create(has('c'))
            .create_new(has('x'))
            .mode(permissions);
        self.with(py, |files| {
            let file = options.open(files, &path)?;
            match file.metadata()?.kind.is_dir() {
                true => Err(Error::from(Errno::EISDIR).during("open").at(&path)),
                false => Ok(File::new(file)),
            }
        })
    }

    fn read_dir(&self, py: Python<'_>, path: Name) -> PyResult<Listing> {
        Ok(Listing::new(self.with(py, |files| files.read_dir(&path))?))
    }

    /// Makes a directory, a file or a special file: `mode` has type and permission bits.
    fn mknod(&self, py: Python<'_>, path: Name, mode: u32, rdev: u32) -> PyResult<()> {
        let kind = kind_of(mode)?;
        self.with(py, |files| files.mknod(&path, kind, mode & !NodeKind::MODE_MASK, rdev))
    }

    fn unlink(&self, py: Python<'_>, path: Name) -> PyResult<()> {
        self.with(py, |files| files.remove_file(&path))
    }

    fn remove_dir(&self, py: Python<'_>, path: Name) -> PyResult<()> {
        self.with(py, |files| files.remove_dir(&path))
    }

    fn remove_tree(&self, py: Python<'_>, path: Name) -> PyResult<()> {
        self.with(py, |files| files.remove_dir_all(&path))
    }

    fn rename(&self, py: Python<'_>, from: Name, to: Name, replaces: bool) -> PyResult<()> {
        let flags = if replaces { RenameFlags::empty() } else { RenameFlags::NO_REPLACE };
        self.with(py, |files| files.rename_with(&from, &to, flags))
    }

    fn symlink(&self, py: Python<'_>, target: Name, link: Name) -> PyResult<()> {
        self.with(py, |files| files.symlink(&target, &link))
    }

    fn read_link(&self, py: Python<'_>, path: Name) -> PyResult<OsString> {
        self.with(py, |files| Ok(files.read_link(&path)?.into_os_string()))
    }

    fn link(&self, py: Python<'_>, original: Name, link: Name) -> PyResult<()> {
        self.with(py, |files| files.hard_link(&original, &link))
    }

    fn copy(&self, py: Python<'_>, from: Name, to: Name) -> PyResult<u64> {
        self.with(py, |files| files.copy(&from, &to))
    }

    fn set_permissions(&self, py: Python<'_>, path: Name, permissions: u32) -> PyResult<()> {
        self.with(py, |files| files.set_permissions(&path, permissions))
    }

    /// Sets owner and group, of a symbolic link itself; `None` leaves one.
    fn set_owner(&self, py: Python<'_>, path: Name, uid: Option<u32>, gid: Option<u32>) -> PyResult<()> {
        self.with(py, |files| files.set_owner(&path, uid, gid))
    }

    /// Sets the times of access and of the last change, of a symbolic link itself: seconds and nanoseconds, or `None`
    /// for now.
    fn set_times(&self, py: Python<'_>, path: Name, times: Option<[(i64, u32); 2]>) -> PyResult<()> {
        let [atime, mtime] = match times {
            None => [SetTime::Now; 2],
            Some(times) => times.map(|(sec, nsec)| SetTime::To(Time::new(sec, nsec))),
        };
        let changes = SetAttr { atime: Some(atime), mtime: Some(mtime), ..SetAttr::default() };
        self.with(py, |files| files.set_attributes(&path, &changes))
    }

    fn get_xattr<'py>(&self, py: Python<'py>, path: Name, name: Name) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let value = self.with(py, |files| files.get_xattr(&path, raw(&name)))?;
        Ok(value.map(|value| PyBytes::new(py, &value)))
    }

    fn set_xattr(&self, py: Python<'_>, path: Name, name: Name, value: &[u8], mode: i32) -> PyResult<()> {
        let mode = match mode {
            0 => XattrMode::Either,
            1 => XattrMode::Create,
            2 => XattrMode::Replace,
            other => return Err(PyValueError::new_err(format!("flags: expected 0, 1 or 2, found {other}"))),
        };
        self.with(py, |files| files.set_xattr(&path, raw(&name), value, mode))
    }

    fn remove_xattr(&self, py: Python<'_>, path: Name, name: Name) -> PyResult<()> {
        self.with(py, |files| files.remove_xattr(&path, raw(&name)))
    }

    fn list_xattrs(&self, py: Python<'_>, path: Name) -> PyResult<Vec<OsString>> {
        self.with(py, |files| files.list_xattrs(&path))
    }

    fn create_subvolume(&self, py: Python<'_>, path: Name) -> PyResult<()> {
        self.with(py, |files| files.create_subvolume(&path))
    }

    fn snapshot(&self, py: Python<'_>, source: Name, target: Name, read_only: bool) -> PyResult<()> {
        let mode = if read_only { SnapshotMode::ReadOnly } else { SnapshotMode::ReadWrite };
        self.with(py, |files| files.snapshot(&source, &target, mode))
    }

    fn delete_subvolume(&self, py: Python<'_>, path: Name) -> PyResult<()> {
        self.with(py, |files| files.delete_subvolume(&path))
    }

    /// Copies the host directory `from` into the directory `to`.
    fn import_tree(&self, py: Python<'_>, from: Name, to: Name, callback: Option<Py<PyAny>>) -> PyResult<()> {
        let volume = self.get()?;
        progress::run(py, callback, |watch| volume.import(&from, &to, watch))?.map_err(raise)
    }

    /// Copies the directory `from` into the host directory `to`.
    fn export_tree(&self, py: Python<'_>, from: Name, to: Name, callback: Option<Py<PyAny>>) -> PyResult<()> {
        let volume = self.get()?;
        progress::run(py, callback, |watch| volume.export(&from, &to, watch))?.map_err(raise)
    }

    fn resize(&self, py: Python<'_>, bytes: u64) -> PyResult<u64> {
        self.with(py, |files| files.resize(spinney::vfs::file_system::Size::Bytes(bytes)))
    }

    fn set_label(&self, py: Python<'_>, label: Name) -> PyResult<()> {
        let volume = self.get()?;
        let own = volume.btrfs().ok_or_else(|| raise(only_btrfs(volume.format().name(), "label to change")))?;
        py.detach(|| own.set_label(label.as_ref())).map_err(raise)
    }
}

/// The bytes of the name of an extended attribute.
fn raw(name: &Name) -> &[u8] {
    use std::os::unix::ffi::OsStrExt as _;
    AsRef::<std::path::Path>::as_ref(name).as_os_str().as_bytes()
}

fn kind_of(mode: u32) -> PyResult<NodeKind> {
    use NodeKind as K;
    let kinds = [K::File, K::Directory, K::CharDevice, K::BlockDevice, K::Fifo, K::Socket];
    let kind = kinds.into_iter().find(|kind| kind.mode_bits() == mode & K::MODE_MASK);
    kind.ok_or_else(|| raise(Errno::EINVAL.into()))
}
