//! Writes backups as one stream: always the whole state, since it is unknown which states the reader has. The command
//! `backup` sends to it for a destination that is standard output.

use std::io::{BufWriter, Write};

use checking::{Watch, Watched};

use crate::destination::{Destination, Sent};
use crate::error::{Error, Result};
use crate::rule::Rule;
use crate::stamp::Stamp;
use crate::state::State;

/// Bytes of a stream that are written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// A writer that gets the whole state as a stream.
#[derive(Debug)]
pub struct StreamDestination<W>(pub W);

/// A writer that counts its bytes.
struct Counted<W> {
    inner: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.bytes = self.bytes.saturating_add(u64::try_from(count).unwrap_or(0));
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

impl<W: Write> Destination for StreamDestination<W> {
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

    fn receive(&mut self, sent: &Sent<'_>, watch: &dyn Watch) -> Result<u64> {
        let output = BufWriter::with_capacity(WRITE_BYTES, Watched::new(&mut self.0, watch));
        let mut output = Counted { inner: output, bytes: 0 };
        sent.write(&mut output)?;
        output.flush().map_err(Error::Output)?;
        Ok(output.bytes)
    }

    fn verify(&mut self, _sent: &Sent<'_>, _watch: &dyn Watch) -> Result<()> {
        Ok(())
    }

    fn prune(&mut self, _rule: &Rule, _newest: Stamp, _is_trial: bool) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}
