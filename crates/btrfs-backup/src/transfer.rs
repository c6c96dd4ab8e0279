//! Passes a stream from a sender to a receiver, through a socket between two threads. Called by `image`, `restore` and
//! `target`.

use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use btrfs::Volume;
use btrfs_receive::{Options, Receiver, Report};
use checking::Watch;

use crate::error::{Error, Result};

/// Bytes that are passed on at once.
const BUFFER_BYTES: usize = 1 << 20;

/// Runs a sender and a receiver of one stream.
///
/// # Errors
/// The failure that came first: that of the sender if it cut the stream short, else that of the receiver.
pub fn pipe<T>(
    send: impl FnOnce(&mut dyn Write) -> Result<()> + Send,
    receive: impl FnOnce(&mut (dyn Read + Send)) -> Result<T>,
) -> Result<T> {
    let (output, input) = connected().map_err(Error::Output)?;
    let (sent, received) = std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
            send(&mut output)?;
            output.flush().map_err(Error::Output)
        });
        let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
        let received = receive(&mut input);
        // Closed, so that a sender that goes on ends.
        drop(input);
        (sender.join(), received)
    });
    let sent = sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    match (received, sent) {
        (Err(received), Err(sent)) if received.may_be_cut() && !sent.is_of_output() => Err(sent),
        (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        (Ok(done), Ok(())) => Ok(done),
    }
}

/// Both ends of a socket: a write to one that is closed fails, where one to a pipe could end the program.
#[cfg(unix)]
fn connected() -> std::io::Result<(impl Write + Send, impl Read + Send)> {
    std::os::unix::net::UnixStream::pair()
}

/// Both ends of a pipe.
#[cfg(not(unix))]
fn connected() -> std::io::Result<(impl Write + Send, impl Read + Send)> {
    let (input, output) = std::io::pipe()?;
    Ok((output, input))
}

/// Receives a stream in the directory `dir` of a volume. With `resumable` an incomplete subvolume can be resumed.
///
/// # Errors
/// [`Error::Receive`].
pub(crate) fn receive(
    volume: &Volume,
    dir: &Path,
    resumable: bool,
    input: &mut (dyn Read + Send),
    watch: &dyn Watch,
) -> Result<Report> {
    let mut receiver = Receiver::new(volume, dir, Options { resumable, ..Options::default() })?;
    receiver.receive(input, watch, &mut ())?;
    Ok(receiver.report().clone())
}

/// The path of the last subvolume that was received.
pub(crate) fn last(report: &Report) -> Result<PathBuf> {
    report.subvolumes.last().map(|made| made.path.clone()).ok_or(Error::NothingReceived)
}
