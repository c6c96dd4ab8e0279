//! Where reports go: text or JSON on the standard output, recordings and pictures into files.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal as _, StdoutLock, Write};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;
use spinney::fuse::stdout_was_closed;

use super::failure::Failure;
use super::names;

/// The standard output, buffered, or what stands for it. Unlike `println!`, a reader that went away is an error here,
/// which `main` recognises as none; and writing to an output that was closed from the start fails.
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

    /// Reports go to `out`, behind which a person may look at them.
    #[must_use]
    pub(crate) fn to(out: impl Write + 'static, is_terminal: bool) -> Self {
        Self { out: BufWriter::with_capacity(64 << 10, Box::new(out)), is_terminal, outlives_reader: false }
    }

    /// For commands whose exit status says more than their report: where its reader goes away, the rest is not written,
    /// and the command goes on to its end.
    pub(crate) fn outlive_reader(&mut self) {
        self.outlives_reader = true;
    }

    /// What became of writing; without the reader that it is given up for.
    fn written<T>(&mut self, result: io::Result<T>, without_reader: T) -> io::Result<T> {
        match result {
            Err(error) if self.outlives_reader && error.kind() == io::ErrorKind::BrokenPipe => {
                self.out = BufWriter::new(Box::new(io::sink()));
                Ok(without_reader)
            }
            result => result,
        }
    }

    /// True when a person looks at it.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// A name as it is to be written here: escaped for a terminal only.
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

    /// Writes a report as JSON, indented, with a newline behind it.
    pub(crate) fn json(&mut self, report: &impl Serialize) -> Result<()> {
        serde_json::to_writer_pretty(&mut *self, report).map_err(io::Error::from)?;
        self.write_all(b"\n")?;
        self.finish()
    }

    /// Writes everything out, so that a failure is seen.
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

/// The standard output as the caller gave it.
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

/// For those who are about to write to the standard output.
///
/// # Errors
/// When the program was started without one (`>&-`): Rust's runtime has put `/dev/null` there, which takes all that
/// is written.
pub(crate) fn check_open() -> io::Result<()> {
    if stdout_was_closed() {
        return Err(io::Error::other("the standard output is closed"));
    }
    Ok(())
}

/// Tells the user something that is no failure, on the standard error.
pub(crate) fn warn(text: &str) {
    // Nothing can be done when even this fails.
    let _ = writeln!(io::stderr().lock(), "spinney: {text}");
}

/// Opens a file that a command writes beside an image, to be written anew. What is there already is replaced only where
/// it begins as that does which is to come: it may be anything else, the image itself included.
///
/// # Errors
/// `Refused` for another file, and a block device; what keeps it from being opened.
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
