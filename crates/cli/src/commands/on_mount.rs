//! Asks the server of a mount to run a command, whose input and output pass through a stream. Callers: commands that
//! accept a mount in place of an image.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use spinney::remote::JobFailure;

use super::failure::{Failure, Status};
use super::image::connect_mount;
use super::names;
use super::output::Output;

/// Bytes that are passed on at once.
const PASSED_BYTES: usize = 256 << 10;

/// Longest line that is shown on a terminal at once.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Added to a command if a person reads its report.
pub(crate) const TERMINAL: &str = "--terminal";

/// A connection to the server of a mount, and the path of the named directory from the root of the mount.
#[derive(Debug)]
pub(crate) struct OnMount {
    remote: spinney::remote::Remote,
    base: PathBuf,
}

impl OnMount {
    /// Connects to the server of the mount that contains the directory `dir`.
    ///
    /// # Errors
    /// If the server takes no commands.
    pub(crate) fn connect(dir: &Path) -> Result<Self> {
        let (remote, base) = connect_mount(dir)?;
        Ok(Self { remote, base })
    }

    /// A path in the form that the server takes.
    ///
    /// # Errors
    /// `Unsupported` for one that is not UTF-8.
    pub(crate) fn word(&self, path: &Path) -> Result<String> {
        let plain = path.strip_prefix("/").unwrap_or(path);
        let whole = self.base.join(plain).into_os_string().into_string();
        whole.map_err(|path| Failure::new(Status::Unsupported, format!("{}: not UTF-8", path.display())).into())
    }

    /// A single name, or a path from the root of the mount, in the form that the server takes.
    ///
    /// # Errors
    /// As [`Self::word`].
    pub(crate) fn name(&self, name: &Path) -> Result<String> {
        let text = name.as_os_str().to_str().map(str::to_owned);
        text.ok_or_else(|| Failure::new(Status::Unsupported, format!("{}: not UTF-8", name.display())).into())
    }

    /// A path from the root of the mount as a path on this machine. `dir` is the directory that was connected to.
    pub(crate) fn on_host(&self, dir: &Path, path: &Path) -> Option<PathBuf> {
        let depth = self.base.components().filter(|part| matches!(part, Component::Normal(_))).count();
        let dir = dir.canonicalize().ok()?;
        Some(dir.ancestors().nth(depth)?.join(path.strip_prefix("/").unwrap_or(path)))
    }

    /// Asks the server to run the command `name`, and returns its report.
    ///
    /// # Errors
    /// The server's.
    pub(crate) fn report(&self, name: &str, words: Vec<String>) -> Result<Vec<u8>> {
        let mut report = Vec::new();
        self.take([name.to_owned()].into_iter().chain(words).collect(), &mut report)?;
        Ok(report)
    }

    /// Asks the server to write a stream, and passes it on to `output`.
    ///
    /// # Errors
    /// The server's; those of the output.
    pub(crate) fn take(&self, words: Vec<String>, mut output: impl Write) -> Result<String> {
        self.ask(words, |stream| pass(stream, &mut output))
    }

    /// Asks the server to run the command `name`, and prints its report.
    ///
    /// # Errors
    /// The server's; those of the output.
    pub(crate) fn run(&self, name: &str, words: Vec<String>, out: &mut Output) -> Result<()> {
        let is_terminal = out.is_terminal();
        let all = [name.to_owned()].into_iter().chain(is_terminal.then(|| TERMINAL.to_owned())).chain(words).collect();
        match is_terminal {
            true => self.ask(all, |stream| show(stream, out))?,
            false => self.take(all, &mut *out)?,
        };
        out.finish()
    }

    fn ask(&self, words: Vec<String>, read: impl FnOnce(&UnixStream) -> io::Result<()>) -> Result<String> {
        let (done, passed) = self.talk_while(words, read)?;
        // If the reader is gone, that is also the cause of the server's error.
        passed.context("the stream")?;
        done
    }

    /// Asks the server to run a command while `talk` exchanges questions and answers with it through the stream.
    ///
    /// # Errors
    /// The server's; those of `talk`.
    pub(crate) fn converse<T>(&self, words: Vec<String>, talk: impl FnOnce(&UnixStream) -> Result<T>) -> Result<T> {
        let (done, said) = self.talk_while(words, talk)?;
        // If the server ended, that is also the cause of the stream's end.
        done?;
        said
    }

    /// Returns how the command ended, and the result of `talk`.
    fn talk_while<T>(&self, words: Vec<String>, talk: impl FnOnce(&UnixStream) -> T) -> Result<(Result<String>, T)> {
        let (ours, theirs) = UnixStream::pair().context("a stream")?;
        let (done, said) = std::thread::scope(|scope| {
            let asking = scope.spawn(move || self.remote.job(words, theirs));
            let said = talk(&ours);
            // After a failure here the server has to stop, too.
            let _ = ours.shutdown(Shutdown::Both);
            (asking.join(), said)
        });
        let done = done.map_err(|_| Failure::new(Status::Io, "the stream"))?;
        Ok((done.map_err(told), said))
    }

    /// Passes a stream on to the server, which reads it.
    ///
    /// # Errors
    /// The server's; those of the input.
    pub(crate) fn give(&self, words: Vec<String>, mut input: impl Read + Send) -> Result<String> {
        let (ours, theirs) = UnixStream::pair().context("a stream")?;
        let end = ours.try_clone().context("a stream")?;
        let (done, passed) = std::thread::scope(|scope| {
            let passing = scope.spawn(move || {
                let passed = fill(&mut input, &ours);
                // Marks the end of the stream, even if it came too early.
                let _ = ours.shutdown(Shutdown::Write);
                passed
            });
            let done = self.remote.job(words, theirs);
            // Ends a reader that would wait for input.
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

/// Passes all of `input` on, until the server stops reading.
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
            // The server needs no more input, or reports an error.
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
        output.write_all(buffer.get(..count).unwrap_or_default())?;
    }
}

/// Passes lines on to a terminal. They are escaped: a server must not control it.
fn show(from: &UnixStream, output: &mut impl Write) -> io::Result<()> {
    let mut from = BufReader::with_capacity(PASSED_BYTES, from);
    let mut line = Vec::new();
    while from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? > 0 {
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        output.write_all(names::escaped_text(&String::from_utf8_lossy(text)).as_bytes())?;
        output.write_all(line.get(text.len()..).unwrap_or_default())?;
        line.clear();
    }
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_does_not_speak_to_a_terminal() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all("label: \x1b[2J gr\u{fc}n \\x07\nand \x07".as_bytes()).unwrap();
        drop(theirs);
        let mut shown = Vec::new();
        show(&ours, &mut shown).unwrap();
        assert_eq!(String::from_utf8(shown).unwrap(), "label: \\x1b[2J gr\u{fc}n \\x07\nand \\x07");
    }
}
