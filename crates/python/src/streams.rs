//! Differences between subvolumes and send streams for Python. The package's `Volume` calls it.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::Path;

use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use spinney::btrfs::receive::{Cause, Error as ReceiveError, Options as ReceiveOptions, Receiver};
use spinney::btrfs::{self, SendError, SendOptions, Sending};
use spinney::{Errno, Error};

use crate::error::{only_btrfs, raise, raise_io, raise_text};
use crate::name::Name;
use crate::progress;
use crate::records;
use crate::volume::Volume;

/// Bytes that are read from a Python object at once.
const READ_BYTES: usize = 1 << 20;

/// The differences between the subvolumes at `old` and `new`.
#[pyfunction]
pub(crate) fn diff<'py>(py: Python<'py>, volume: &Volume, old: Name, new: Name) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let volume = volume.get()?;
    let own = own_of(&volume)?;
    let changes = progress::run(py, None, |_| own.diff(&old, &new))?.map_err(raise)?;
    changes.iter().map(|change| records::change(py, change)).collect()
}

/// Writes the send stream of a subvolume by `output.write`. `bases` are the parent and the sources of clones; `form` is
/// the version, and whether compressed data stays so and data is left out.
#[pyfunction]
pub(crate) fn send(
    py: Python<'_>,
    volume: &Volume,
    subvolume: Name,
    output: Py<PyAny>,
    bases: (Option<Name>, Vec<Name>),
    form: (u32, bool, bool),
    callback: Option<Py<PyAny>>,
) -> PyResult<()> {
    let volume = volume.get()?;
    let own = own_of(&volume)?;
    let ((parent, clones), (version, compressed_data, no_data)) = (bases, form);
    let clones: Vec<&Path> = clones.iter().map(AsRef::as_ref).collect();
    let sending = Sending {
        subvolume: subvolume.as_ref(),
        parent: parent.as_ref().map(AsRef::as_ref),
        clones: &clones,
        options: SendOptions { version, compressed_data, no_data, ..SendOptions::default() },
    };
    let stream = Stream::new(output);
    let sent = progress::run(py, callback, |watch| btrfs::send(own, &sending, &mut &stream, watch))?;
    stream.finish(sent.map_err(send_failure))
}

/// Path, number and UUID of a received subvolume, and whether it began as a snapshot.
type ReceivedRow = (OsString, u64, [u8; 16], bool);

/// Receives the streams that `input.read` returns into the directory at `dir`. After a failure the incomplete subvolume
/// is deleted.
#[pyfunction]
pub(crate) fn receive(
    py: Python<'_>,
    volume: &Volume,
    input: Py<PyAny>,
    dir: Name,
    callback: Option<Py<PyAny>>,
) -> PyResult<Vec<ReceivedRow>> {
    let volume = volume.get()?;
    let own = own_of(&volume)?;
    let stream = Stream::new(input);
    let received = progress::run(py, callback, |watch| {
        let mut receiver = Receiver::new(own, dir.as_ref(), ReceiveOptions::default())?;
        let buffered = io::BufReader::with_capacity(READ_BYTES, &stream);
        let received = btrfs::receive(&mut receiver, buffered, &mut (), watch);
        if received.is_err() && receiver.unfinished().is_some() {
            receiver.discard()?;
        }
        received.map(|()| receiver.report().subvolumes.clone())
    });
    let subvolumes = stream.finish(received?.map_err(receive_failure))?;
    let rows = subvolumes.into_iter();
    Ok(rows.map(|found| (found.path.into_os_string(), found.id.0, found.uuid, found.is_snapshot)).collect())
}

fn own_of(volume: &spinney::Volume) -> PyResult<&btrfs::Volume> {
    volume.btrfs().ok_or_else(|| raise(only_btrfs(volume.format().name(), "subvolumes")))
}

/// A Python object as a stream. Its first exception is kept, since errors of streams cannot hold it.
struct Stream {
    object: Py<PyAny>,
    failure: Mutex<Option<PyErr>>,
}

impl Stream {
    fn new(object: Py<PyAny>) -> Self {
        Self { object, failure: Mutex::new(None) }
    }

    /// The result of the operation, or the exception that ended it.
    fn finish<T>(self, result: PyResult<T>) -> PyResult<T> {
        match (result, self.failure.into_inner()) {
            (Err(_), Some(failure)) => Err(failure),
            (result, _) => result,
        }
    }

    fn call<T>(&self, act: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        Python::attach(|py| act(self.object.bind(py))).map_err(|error| {
            let text = error.to_string();
            self.failure.lock().get_or_insert(error);
            io::Error::other(text)
        })
    }
}

impl Write for &Stream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.call(|object| {
            let written = object.call_method1("write", (PyBytes::new(object.py(), data),))?;
            // A raw stream may write less; other objects return nothing, or what they count.
            Ok(written.extract::<usize>().unwrap_or(data.len()).min(data.len()))
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.call(|object| {
            let read = object.call_method1("read", (buffer.len(),))?;
            let read = read.cast::<PyBytes>()?;
            let bytes = read.as_bytes();
            let Some(target) = buffer.get_mut(..bytes.len()) else {
                return Err(PyTypeError::new_err("read() returned more bytes than were asked for"));
            };
            target.copy_from_slice(bytes);
            Ok(bytes.len())
        })
    }
}

fn send_failure(error: SendError) -> PyErr {
    match error {
        SendError::Volume(error) => raise(error),
        SendError::Output(error) => raise_io(error),
        error @ SendError::Writable { .. } => raise_text(Errno::EPERM, &error.to_string()),
        error => raise_text(Errno::EINVAL, &error.to_string()),
    }
}

fn receive_failure(error: ReceiveError) -> PyErr {
    let errno = match &error {
        ReceiveError::Command { cause: Cause::Refused(error), .. } => error.errno(),
        ReceiveError::Directory { source, .. } => source.errno(),
        ReceiveError::Cancelled => Errno::ECANCELED,
        ReceiveError::Command { .. } | ReceiveError::Stream(_) => Errno::EINVAL,
        ReceiveError::Empty | ReceiveError::NotWhole { .. } | ReceiveError::Rest => Errno::EINVAL,
        _ => Errno::EIO,
    };
    match error {
        ReceiveError::Volume(error) => raise(Error::from(error)),
        error => raise_text(errno, &error.to_string()),
    }
}
