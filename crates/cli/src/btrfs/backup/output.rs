//! Backups that go to the standard output: whole, since nothing is known of what is there.

use std::io::{self, BufWriter, IsTerminal as _, Write};

use anyhow::{Context as _, Result};

use super::rule::Rule;
use super::stamp::Stamp;
use super::state::State;
use super::{Destination, Sent};
use crate::commands::failure::Failure;
use crate::commands::progress::Progress;

/// Bytes of a stream that are written at a time.
const WRITE_BYTES: usize = 1 << 20;

pub(super) struct StandardOutput;

/// A writer that counts.
struct Counted<W> {
    inner: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.bytes = self.bytes.saturating_add(u64::try_from(count).unwrap_or(0));
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Destination for StandardOutput {
    fn keeps(&self) -> bool {
        false
    }

    fn has(&self, _state: &State) -> bool {
        false
    }

    fn count(&self) -> usize {
        0
    }

    fn clear(&mut self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn receive(&mut self, sent: &Sent<'_>, _progress: &Progress) -> Result<u64> {
        if io::stdout().is_terminal() {
            return Err(Failure::refused("the stream would go to the terminal: redirect the standard output").into());
        }
        let mut output = Counted { inner: BufWriter::with_capacity(WRITE_BYTES, io::stdout()), bytes: 0 };
        sent.source.send(&sent.path(), None, &mut output)?;
        output.flush().context("the stream")?;
        Ok(output.bytes)
    }

    fn verify(&mut self, _sent: &Sent<'_>, _progress: &Progress) -> Result<()> {
        Ok(())
    }

    fn prune(&mut self, _rule: &Rule, _newest: Stamp, _is_trial: bool) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}
