//! Sends a state of one volume to a receiver on another, through a socket between two threads.

use std::io::{BufReader, BufWriter, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use spinney::btrfs::Volume;
use spinney::btrfs::receive::{Error as ReceiveError, Options, Receiver, Report, Watch};

use super::super::receive;
use super::source::Source;
use crate::commands::failure::Failure;
use crate::commands::progress::Progress;

/// Bytes that are passed on at once.
pub(super) const BUFFER_BYTES: usize = 1 << 20;

struct Counting<'a>(&'a Progress);

impl Watch for Counting<'_> {
    fn position(&mut self, bytes: u64) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
    }

    fn made(&mut self) {
        self.0.add_name();
    }
}

/// Sends the state at `path`, or what differs from `parent`, to a directory of another volume.
///
/// # Errors
/// What sending and receiving can fail with; the receiver's failure first, since it ends the sender.
pub(super) fn transfer(
    from: &dyn Source,
    (path, parent): (&Path, Option<&Path>),
    to: &Volume,
    dir: &Path,
    progress: &Progress,
) -> Result<Report> {
    let (output, input) = UnixStream::pair().context("a socket")?;
    let resumable = Options { resumable: true, ..Options::default() };
    let mut receiver = Receiver::new(to, dir, resumable).map_err(receive::failure)?;
    let (sent, received) = std::thread::scope(|scope| {
        let sender = scope.spawn(move || -> Result<()> {
            let mut output = BufWriter::with_capacity(BUFFER_BYTES, output);
            from.send(path, parent, &mut output)?;
            output.flush().context("the stream")
        });
        // The input is closed when this ends, and the sender with it.
        let received = receiver.receive(BufReader::with_capacity(BUFFER_BYTES, input), &mut Counting(progress));
        (sender.join(), received)
    });
    let sent = sent.map_err(|_| Failure::refused("the sender failed"))?;
    let is_cut = matches!(
        received,
        Err(ReceiveError::NotWhole { .. }
            | ReceiveError::Empty
            | ReceiveError::Stream(spinney::btrfs::stream::Error::Truncated { .. }))
    );
    match (received, sent) {
        // A stream that was cut short was so by the sender.
        (Err(_), Err(error)) if is_cut => Err(error),
        (Err(error), _) => Err(receive::failure(error)),
        (Ok(()), Err(error)) => Err(error),
        (Ok(()), Ok(())) => Ok(receiver.report().clone()),
    }
}
