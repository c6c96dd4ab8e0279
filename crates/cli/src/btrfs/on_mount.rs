//! Streams of a mount, as a client passes them on.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use remote::JobFailure;

use commands::failure::{Failure, Status};

/// Bytes that are passed on at once.
const PASSED_BYTES: usize = 256 << 10;

/// A directory of a mount, connected, with its path from the root of what is mounted.
pub(crate) struct OnMount {
    remote: remote::Remote,
    base: PathBuf,
}

impl OnMount {
    /// Connects to the server of the mount that has the directory `dir`.
    ///
    /// # Errors
    /// When it takes no commands.
    pub(crate) fn connect(dir: &Path) -> Result<Self> {
        let (remote, base) = commands::image::connect_mount(dir)?;
        Ok(Self { remote, base })
    }

    /// A path as the server takes it.
    ///
    /// # Errors
    /// `Unsupported` for one that is not UTF-8.
    pub(crate) fn word(&self, path: &Path) -> Result<String> {
        let plain = path.strip_prefix("/").unwrap_or(path);
        let whole = self.base.join(plain).into_os_string().into_string();
        whole.map_err(|path| Failure::new(Status::Unsupported, format!("{}: not UTF-8", path.display())).into())
    }

    /// Has the server write a stream, and passes it on to `output`.
    ///
    /// # Errors
    /// The server's; those of the output.
    pub(crate) fn take(&self, words: Vec<String>, mut output: impl Write + std::marker::Send) -> Result<String> {
        let (ours, theirs) = UnixStream::pair().context("a stream")?;
        let (done, passed) = std::thread::scope(|scope| {
            let passing = scope.spawn(move || pass(&ours, &mut output));
            let done = self.remote.job(words, theirs);
            (done, passing.join())
        });
        // A reader that is gone is the cause of what the server says.
        passed.map_err(|_| Failure::new(Status::Io, "the stream"))?.context("the stream")?;
        done.map_err(told)
    }

    /// Passes a stream on to the server, which reads it.
    ///
    /// # Errors
    /// The server's; those of the input.
    pub(crate) fn give(&self, words: Vec<String>, mut input: impl Read + std::marker::Send) -> Result<String> {
        let (ours, theirs) = UnixStream::pair().context("a stream")?;
        let end = ours.try_clone().context("a stream")?;
        let (done, passed) = std::thread::scope(|scope| {
            let passing = scope.spawn(move || {
                let passed = fill(&mut input, &ours);
                // The end of the stream, also where it came too early.
                let _ = ours.shutdown(Shutdown::Write);
                passed
            });
            let done = self.remote.job(words, theirs);
            // What is not wanted any more waits for nobody.
            let _ = end.shutdown(Shutdown::Both);
            (done, passing.join())
        });
        let report = done.map_err(told)?;
        passed.map_err(|_| Failure::new(Status::Io, "the stream"))?.context("the stream")?;
        Ok(report)
    }
}

fn told(failure: JobFailure) -> anyhow::Error {
    Failure::new(Status::from_code(failure.status), failure.text).into()
}

/// Passes all of `input` on, for as long as somebody reads it.
fn fill(input: &mut impl Read, mut to: &UnixStream) -> io::Result<()> {
    let mut buffer = vec![0; PASSED_BYTES];
    loop {
        let count = match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        match to.write_all(buffer.get(..count).unwrap_or_default()) {
            // The server has what it wants, or says why not.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
}

fn pass(mut from: &UnixStream, output: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; PASSED_BYTES];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => return output.flush(),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if let Err(error) = output.write_all(buffer.get(..count).unwrap_or_default()) {
            // The server is to stop, too.
            let _ = from.shutdown(Shutdown::Both);
            return Err(error);
        }
    }
}
