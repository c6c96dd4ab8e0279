//! What is made durable while others change the volume.
//!
//! ```text
//!    who has the volume: places blocks, which readers find (`outgoing`) from then on -> lets the volume go
//!      -> sends them -> flush -> sends the one block again that makes them count -> flush -> arrived
//! ```
//!
//! One departure is under way at a time, and whoever writes or flushes otherwise waits for its end
//! ([`Blocks::arrived`]). So the device sees all writes and flushes in the order in which the volume was changed, as if
//! the volume had been kept all the while: what others change meanwhile they change in memory.
//!
//! Failure: who sent it hears of it, and whoever writes later.

use std::sync::Arc;

use f2fs_disk::{At, Block, BlockAddr, Corrupt, Detail};

use crate::blocks::{Blocks, Run};
use crate::error::{Error, Result};

/// What is to be sent, in this order.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) runs: Vec<Run>,
    /// What is written over one of these blocks once all are on the disk, and makes them count.
    pub(crate) key: Option<(BlockAddr, Arc<Block>)>,
    /// Whether the device is flushed: behind all, and behind the key.
    pub(crate) is_flushed: bool,
}

/// What is under way. Dropped before it was carried out, it counts as failed.
#[derive(Debug)]
#[must_use = "others wait for it"]
pub(crate) struct Departure {
    blocks: Arc<Blocks>,
    load: Load,
    is_over: bool,
}

impl Departure {
    /// The caller has the volume, and keeps it until this returns; nothing is under way.
    pub(crate) fn new(blocks: &Arc<Blocks>, load: Load) -> Self {
        blocks.outgoing().depart();
        Self { blocks: Arc::clone(blocks), load, is_over: false }
    }

    /// Sends all of it.
    ///
    /// # Errors
    /// What the device says.
    pub(crate) fn carry_out(mut self) -> Result<()> {
        let sent = self.send();
        self.is_over = true;
        self.blocks.outgoing().end(&sent);
        sent
    }

    fn send(&self) -> Result<()> {
        self.blocks.send(&self.load.runs)?;
        if let Some((at, block)) = &self.load.key {
            self.flush()?;
            self.blocks.send(&[Run { at: *at, blocks: vec![Arc::clone(block)] }])?;
        }
        self.flush()
    }

    fn flush(&self) -> Result<()> {
        if self.load.is_flushed { self.blocks.flush_sent() } else { Ok(()) }
    }
}

impl Drop for Departure {
    fn drop(&mut self) {
        if !self.is_over {
            let (expected, found) = (Detail::Text("an end of what was under way"), Detail::Text("none"));
            let lost = Corrupt::new("fsync", expected, found).at(At::Unknown);
            self.blocks.outgoing().end(&Err(Error::Bug(Box::new(lost))));
        }
    }
}
