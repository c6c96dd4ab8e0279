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

/// While blocks get their places, and are no longer kept as changed. Dropped before its end, by a panic, they count as
/// lost: nothing is written any more, or a checkpoint would lead to what was never sent.
#[derive(Debug)]
#[must_use = "it guards what follows"]
pub(crate) struct Placing(Option<Arc<Blocks>>);

impl Placing {
    pub(crate) fn new(blocks: &Arc<Blocks>) -> Self {
        Self(Some(Arc::clone(blocks)))
    }

    /// They have their places, or whoever placed them has noted why not.
    pub(crate) fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Placing {
    fn drop(&mut self) {
        if let Some(blocks) = &self.0 {
            blocks.outgoing().end(&Err(lost()));
        }
    }
}

fn lost() -> Error {
    let (expected, found) = (Detail::Text("an end of what was begun"), Detail::Text("none"));
    Error::Bug(Box::new(Corrupt::new("fsync", expected, found).at(At::Unknown)))
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
            self.blocks.outgoing().end(&Err(lost()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::backends::MemoryDevice;
    use f2fs_disk::BLOCK_SIZE;

    fn blocks() -> Arc<Blocks> {
        Arc::new(Blocks::new(Arc::new(MemoryDevice::new(1 << 20))))
    }

    fn load() -> Load {
        let run = Run { at: BlockAddr(3), blocks: vec![Arc::new([7; BLOCK_SIZE])] };
        Load { runs: vec![run], key: None, is_flushed: true }
    }

    #[test]
    fn what_ends_in_the_middle_is_lost_for_all() {
        let placed = blocks();
        Placing::new(&placed).end();
        assert!(placed.flush().is_ok());
        drop(Placing::new(&placed));
        assert!(placed.flush().is_err() && placed.write(BlockAddr(1), &[&[0; BLOCK_SIZE]]).is_err());

        let sent = blocks();
        Departure::new(&sent, load()).carry_out().unwrap();
        assert!(sent.flush().is_ok() && sent.read(BlockAddr(3)).unwrap() == [7; BLOCK_SIZE]);
        drop(Departure::new(&sent, load()));
        assert!(sent.flush().is_err(), "nobody waits for ever, and nobody goes on");
    }
}
