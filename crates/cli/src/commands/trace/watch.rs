//! Writing down what this process asks of its devices.

use std::io::BufWriter;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result};
use spinney::blockdev::Device;
use spinney::blockdev::recording::{HEADER, RecordedDevice, Recorder};

use crate::commands::output::replace;

/// What is written together.
const BUFFER_BYTES: usize = 256 << 10;

static RECORDER: OnceLock<Arc<Recorder>> = OnceLock::new();

/// From now on, requests to devices that this process opens are written to a file, which is made, or emptied where it
/// is a recording.
///
/// # Errors
/// When the file cannot be written, and when something else is there.
pub(crate) fn begin(path: &Path) -> Result<()> {
    let file = replace(path, HEADER.as_bytes())?;
    let recorder = Recorder::new(Box::new(BufWriter::with_capacity(BUFFER_BYTES, file)));
    // The first recording of a process is its only one.
    let _ = RECORDER.set(recorder);
    Ok(())
}

/// The device, watched if that is wanted.
pub(crate) fn watched(device: Arc<dyn Device>) -> Arc<dyn Device> {
    match RECORDER.get() {
        Some(recorder) => Arc::new(RecordedDevice::new(device, Arc::clone(recorder))),
        None => device,
    }
}

/// Ends the recording, if there is one.
///
/// # Errors
/// When it is incomplete: its file could not be written.
pub(crate) fn finish() -> Result<()> {
    match RECORDER.get() {
        Some(recorder) => recorder.finish().context("the recording of requests is incomplete"),
        None => Ok(()),
    }
}
