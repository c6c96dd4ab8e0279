//! Records that functions return to Python: `Stat`, and dictionaries from which the package makes its data classes.
//! Every module with functions for Python uses it.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use spinney::btrfs::{Change, ChangeKind, Named, SubvolumeInfo};
use spinney::{CheckReport, Finding, Info, Metadata, Time, VolumeStatus};

/// Nanoseconds of a second.
const SECOND_NS: i128 = 1_000_000_000;

/// The attributes of a node, with the names of `os.stat_result`.
#[pyclass(frozen, eq, hash, module = "spinney", name = "Stat")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Stat {
    #[pyo3(get)]
    st_mode: u32,
    #[pyo3(get)]
    st_ino: u64,
    #[pyo3(get)]
    st_nlink: u32,
    #[pyo3(get)]
    st_uid: u32,
    #[pyo3(get)]
    st_gid: u32,
    #[pyo3(get)]
    st_rdev: u32,
    #[pyo3(get)]
    st_size: u64,
    #[pyo3(get)]
    st_blocks: u64,
    #[pyo3(get)]
    st_blksize: u32,
    /// Number of the subvolume; 0 where the format has none.
    #[pyo3(get)]
    subvolume: u64,
    /// Number of the inode within its subvolume.
    #[pyo3(get)]
    inode: u64,
    atime: (i64, u32),
    mtime: (i64, u32),
    ctime: (i64, u32),
    btime: (i64, u32),
}

impl From<Metadata> for Stat {
    fn from(found: Metadata) -> Self {
        let time = |time: Time| (time.sec, time.nsec);
        Self {
            st_mode: found.mode(),
            st_ino: found.ino,
            st_nlink: found.nlink,
            st_uid: found.uid,
            st_gid: found.gid,
            st_rdev: found.rdev,
            st_size: found.size,
            st_blocks: found.blocks,
            st_blksize: found.block_bytes,
            subvolume: found.home.subvolume,
            inode: found.home.ino,
            atime: time(found.atime),
            mtime: time(found.mtime),
            ctime: time(found.ctime),
            btime: time(found.btime),
        }
    }
}

pub(crate) fn nanoseconds((seconds, nanoseconds): (i64, u32)) -> i128 {
    i128::from(seconds).saturating_mul(SECOND_NS).saturating_add(i128::from(nanoseconds))
}

/// Seconds as `os.stat_result` has them, with the precision of a float.
fn seconds(py: Python<'_>, time: (i64, u32)) -> PyResult<Bound<'_, PyAny>> {
    nanoseconds(time).into_pyobject(py)?.div(SECOND_NS)
}

#[pymethods]
impl Stat {
    /// Number of the device: all nodes of a volume have numbers of their own, so it is always 0.
    #[getter]
    fn st_dev(&self) -> u64 {
        0
    }

    #[getter]
    fn st_atime<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        seconds(py, self.atime)
    }

    #[getter]
    fn st_mtime<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        seconds(py, self.mtime)
    }

    #[getter]
    fn st_ctime<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        seconds(py, self.ctime)
    }

    #[getter]
    fn st_birthtime<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        seconds(py, self.btime)
    }

    #[getter]
    fn st_atime_ns(&self) -> i128 {
        nanoseconds(self.atime)
    }

    #[getter]
    fn st_mtime_ns(&self) -> i128 {
        nanoseconds(self.mtime)
    }

    #[getter]
    fn st_ctime_ns(&self) -> i128 {
        nanoseconds(self.ctime)
    }

    #[getter]
    fn st_birthtime_ns(&self) -> i128 {
        nanoseconds(self.btime)
    }

    fn __repr__(&self) -> String {
        let Self { st_mode, st_ino, st_size, st_uid, st_gid, .. } = self;
        format!(
            "Stat(st_mode=0o{st_mode:o}, st_ino={st_ino}, st_size={st_size}, st_uid={st_uid}, st_gid={st_gid}, \
             st_mtime_ns={})",
            nanoseconds(self.mtime)
        )
    }
}

/// The facts of a volume.
pub(crate) fn info<'py>(py: Python<'py>, info: &Info) -> PyResult<Bound<'py, PyDict>> {
    let record = PyDict::new(py);
    record.set_item("format", info.format)?;
    record.set_item("label", info.label.as_os_str())?;
    record.set_item("uuid", info.uuid.as_slice())?;
    record.set_item("block_bytes", info.block_bytes)?;
    record.set_item("total_bytes", info.total_bytes)?;
    record.set_item("free_bytes", info.free_bytes)?;
    Ok(record)
}

/// The space of a volume, in the order of `os.statvfs_result` without its flags.
pub(crate) fn status(status: &VolumeStatus) -> [u64; 9] {
    let VolumeStatus { block_bytes, blocks, blocks_free, blocks_available, nodes, nodes_free, name_bytes_max } =
        *status;
    let (bytes, name_bytes) = (u64::from(block_bytes), u64::from(name_bytes_max));
    [bytes, bytes, blocks, blocks_free, blocks_available, nodes, nodes_free, nodes_free, name_bytes]
}

/// A subvolume.
pub(crate) fn subvolume<'py>(py: Python<'py>, found: &SubvolumeInfo) -> PyResult<Bound<'py, PyDict>> {
    let record = PyDict::new(py);
    let time = |time: &Time| nanoseconds((time.sec, time.nsec));
    record.set_item("id", found.id.0)?;
    record.set_item("parent_id", found.parent.map_or(0, |parent| parent.0))?;
    record.set_item("dir_id", found.dir.map_or(0, |dir| dir.0))?;
    record.set_item("path", found.path.as_os_str())?;
    record.set_item("uuid", found.uuid.as_slice())?;
    record.set_item("parent_uuid", found.parent_uuid.as_slice())?;
    record.set_item("received_uuid", found.received_uuid.as_slice())?;
    record.set_item("generation", found.generation.0)?;
    record.set_item("created", found.created.0)?;
    record.set_item("changed", found.changed.0)?;
    record.set_item("sent", found.sent.0)?;
    record.set_item("received", found.received.0)?;
    record.set_item("otime_ns", time(&found.otime))?;
    record.set_item("stime_ns", time(&found.stime))?;
    record.set_item("rtime_ns", time(&found.rtime))?;
    record.set_item("read_only", found.read_only)?;
    Ok(record)
}

/// An inode that differs between two subvolumes.
pub(crate) fn change<'py>(py: Python<'py>, change: &Change) -> PyResult<Bound<'py, PyDict>> {
    let record = PyDict::new(py);
    record.set_item("inode", change.ino.0)?;
    record.set_item("type_bits", change.kind.mode_bits())?;
    match &change.what {
        ChangeKind::Added => record.set_item("kind", "added")?,
        ChangeKind::Removed => record.set_item("kind", "removed")?,
        ChangeKind::Changed { path, data, size, metadata } => {
            let ranges: Vec<(u64, u64)> = data.iter().map(|range| (range.start, range.end)).collect();
            record.set_item("kind", "changed")?;
            record.set_item("path", path.as_os_str())?;
            record.set_item("data", ranges)?;
            record.set_item("size", *size)?;
            record.set_item("metadata", *metadata)?;
        }
    }
    let names = change.names.iter().map(|named| match named {
        Named::Added(new) => (None, Some(new.as_os_str())),
        Named::Removed(old) => (Some(old.as_os_str()), None),
        Named::Renamed(old, new) => (Some(old.as_os_str()), Some(new.as_os_str())),
    });
    record.set_item("names", names.collect::<Vec<_>>())?;
    Ok(record)
}

/// The findings of a check.
pub(crate) fn report<'py>(py: Python<'py>, report: &CheckReport) -> PyResult<Bound<'py, PyDict>> {
    let findings = report.findings.iter().map(|found| finding(py, found)).collect::<PyResult<Vec<_>>>()?;
    let counts = report.counts.iter().map(|(meaning, count)| (meaning.code, *count));
    let record = PyDict::new(py);
    record.set_item("errors", report.errors())?;
    record.set_item("findings", findings)?;
    record.set_item("counts", counts.collect::<Vec<_>>())?;
    record.set_item("passes", &report.passes)?;
    record.set_item("notes", &report.notes)?;
    record.set_item("inodes", report.inodes)?;
    record.set_item("bytes", report.bytes)?;
    Ok(record)
}

fn finding<'py>(py: Python<'py>, found: &Finding) -> PyResult<Bound<'py, PyDict>> {
    let place = found.place.iter().filter(|part| !part.numbers.is_empty());
    let record = PyDict::new(py);
    record.set_item("code", found.code)?;
    record.set_item("check", found.pass)?;
    record.set_item("about", found.about)?;
    record.set_item("what", &found.what)?;
    record.set_item("path", &found.path)?;
    record.set_item("place", place.map(|part| (part.name, &part.numbers)).collect::<Vec<_>>())?;
    record.set_item("expected", &found.expected)?;
    record.set_item("found", &found.found)?;
    Ok(record)
}
