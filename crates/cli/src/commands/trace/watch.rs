//! Records the requests of this process to its devices. `trace` begins and ends a recording, as does the server of a
//! mount; `image` and `target` wrap the devices that they open.

use std::io::BufWriter;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, Result};
use spinney::blockdev::Device;
use spinney::blockdev::recording::{HEADER, RecordedDevice, Recorder};

use crate::commands::output::replace;

/// Bytes that are written together.
const BUFFER_BYTES: usize = 256 << 10;

static RECORDER: OnceLock<Arc<Recorder>> = OnceLock::new();

/// Records the requests to devices that this process opens from now on in a file, which is created, or overwritten if
/// it is a recording.
///
/// # Errors
/// If the file cannot be written, or has other contents.
pub(crate) fn begin(path: &Path) -> Result<()> {
    let file = replace(path, HEADER.as_bytes())?;
    let recorder = Recorder::new(Box::new(BufWriter::with_capacity(BUFFER_BYTES, file)));
    // The first recording of a process is its only one.
    let _ = RECORDER.set(recorder);
    Ok(())
}

/// The device, recorded if a recording was begun.
pub(crate) fn watched(device: Arc<dyn Device>) -> Arc<dyn Device> {
    match RECORDER.get() {
        Some(recorder) => Arc::new(RecordedDevice::new(device, Arc::clone(recorder))),
        None => device,
    }
}

/// Ends the recording, if there is one.
///
/// # Errors
/// If it is incomplete, because its file could not be written.
pub(crate) fn finish() -> Result<()> {
    match RECORDER.get() {
        Some(recorder) => recorder.finish().context("the recording of requests is incomplete"),
        None => Ok(()),
    }
}
