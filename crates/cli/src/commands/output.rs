//! Writes reports to their destinations: text or JSON to the standard output, recordings and pictures into files. Every
//! command gets an `Output`.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal as _, StdoutLock, Write};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::failure::Failure;
use super::kernel::stdout_was_closed;
use super::names;

/// The buffered standard output, or a replacement for it. Unlike with `println!`, a closed reader is an error here,
/// which `main` does not count as a failure; and writing to an output that was closed from the start fails.
pub(crate) struct Output {
    out: BufWriter<Box<dyn Write>>,
    is_terminal: bool,
    outlives_reader: bool,
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

impl Output {
    /// Locks the standard output.
    #[must_use]
    pub(crate) fn new() -> Self {
        let is_terminal = io::stdout().is_terminal();
        Self::to(Stdout(io::stdout().lock()), is_terminal)
    }

    /// Writes reports to `out`; `is_terminal` is true if a person reads them.
    #[must_use]
    pub(crate) fn to(out: impl Write + 'static, is_terminal: bool) -> Self {
        Self { out: BufWriter::with_capacity(64 << 10, Box::new(out)), is_terminal, outlives_reader: false }
    }

    /// For commands whose exit status matters more than their report: if the reader closes the output, the rest is
    /// discarded, and the command runs to its end.
    pub(crate) fn outlive_reader(&mut self) {
        self.outlives_reader = true;
    }

    /// The result of a write, or `without_reader` if the output is abandoned.
    fn written<T>(&mut self, result: io::Result<T>, without_reader: T) -> io::Result<T> {
        match result {
            Err(error) if self.outlives_reader && error.kind() == io::ErrorKind::BrokenPipe => {
                self.out = BufWriter::new(Box::new(io::sink()));
                Ok(without_reader)
            }
            result => result,
        }
    }

    /// True if a person reads it.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// A name as it is written here: escaped for a terminal only.
    pub(crate) fn name<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if !self.is_terminal {
            return Cow::Borrowed(bytes);
        }
        match names::escaped(bytes) {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }

    /// Writes a name.
    pub(crate) fn put_name(&mut self, bytes: &[u8]) -> Result<()> {
        let name = self.name(bytes);
        Ok(self.write_all(&name)?)
    }

    /// Writes a report as indented JSON and a newline.
    pub(crate) fn json(&mut self, report: &impl Serialize) -> Result<()> {
        serde_json::to_writer_pretty(&mut *self, report).map_err(io::Error::from)?;
        self.write_all(b"\n")?;
        self.finish()
    }

    /// Flushes the buffer, and reports a failure to do so.
    pub(crate) fn finish(&mut self) -> Result<()> {
        Ok(self.flush()?)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.written(result, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.written(result, ())
    }
}

/// The standard output of the process.
struct Stdout(StdoutLock<'static>);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        check_open()?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Checks that the standard output is open.
///
/// # Errors
/// If the program was started without one (`>&-`): Rust's runtime then opens `/dev/null` in its place, which would
/// swallow all output.
pub(crate) fn check_open() -> io::Result<()> {
    if stdout_was_closed() {
        return Err(io::Error::other("the standard output is closed"));
    }
    Ok(())
}

/// Under which name messages are printed; not set for the program's own.
static SPEAKER: OnceLock<String> = OnceLock::new();

/// Prints messages as another program does that this one is called as.
pub(crate) fn speak_as(name: &OsStr) {
    let name = Path::new(name).file_name().unwrap_or(name);
    // It is called once, at the start.
    let _ = SPEAKER.set(name.to_string_lossy().into_owned());
}

/// Prints a message that is no failure on the standard error.
pub(crate) fn warn(text: &str) {
    // A failure of the standard error cannot be reported.
    let _ = writeln!(io::stderr().lock(), "{}: {text}", SPEAKER.get().map_or("spinney", String::as_str));
}

/// Opens a file beside an image for writing. An existing file is replaced only if it has the same beginning as the new
/// contents: any other may be precious, or the image itself.
///
/// # Errors
/// `Refused` for another file, and a block device; the host's.
pub(crate) fn replace(path: &Path, beginning: &[u8]) -> Result<File> {
    let about = || path.display().to_string();
    let refused = || Failure::refused(format!("{}: is there already, and is something else", path.display()));
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).with_context(about)?;
    let found = file.metadata().with_context(about)?;
    if found.file_type().is_block_device() {
        return Err(refused().into());
    }
    if found.is_file() && found.len() > 0 {
        let mut begins = vec![0; beginning.len()];
        let read = File::open(path).and_then(|there| there.read_exact_at(&mut begins, 0));
        if read.is_err() || begins != beginning {
            return Err(refused().into());
        }
        file.set_len(0).with_context(about)?;
    }
    Ok(file)
}
