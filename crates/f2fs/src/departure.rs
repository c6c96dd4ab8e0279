//! What is made durable while others change the volume.
//!
//! ```text
//!    who has the volume: places blocks, which readers find (`outgoing`) from then on -> lets the volume go
//!      -> sends them -> flush -> sends the one block again that makes them count -> flush -> arrived
//! ```
//!
//! One departure is under way at a time, and whoever writes or flushes otherwise waits for its end
//! (`Outgoing::wait`). So the device sees all writes and flushes in the order in which the volume was changed, as if
//! the volume had been kept all the while: what others change meanwhile they change in memory.
//!
//! Failure: who sent it hears of it, and whoever writes later.

use std::sync::Arc;

use f2fs_disk::{At, Block, BlockAddr, Corrupt, Detail};

use crate::blocks::{Blocks, Run};
use crate::error::{Error, Result};

/// What is to be sent, in this order.
#[derive(Debug, Default)]
pub(crate) struct Load {
    pub(crate) runs: Vec<Run>,
    /// What is written over one of these blocks once all are on the disk, and makes them count.
    pub(crate) key: Option<(BlockAddr, Arc<Block>)>,
    /// Whether the device is flushed: behind all, and behind the key.
    pub(crate) is_flushed: bool,
}

/// From where blocks get their places, and are no longer kept as changed, until they have arrived. Dropped before its
/// end, by a panic, they count as lost: nothing is written any more, or a checkpoint would lead to what was never sent.
#[derive(Debug)]
#[must_use = "it guards what follows"]
pub(crate) struct Underway(Option<Arc<Blocks>>);

impl Underway {
    pub(crate) fn new(blocks: &Arc<Blocks>) -> Self {
        Self(Some(Arc::clone(blocks)))
    }

    /// The blocks have their places. The caller has the volume, and keeps it until this returns; nothing else is under
    /// way.
    pub(crate) fn depart(self, load: Load) -> Departure {
        if let Some(blocks) = &self.0 {
            blocks.outgoing().depart();
        }
        Departure { underway: self, load }
    }

    /// They have arrived, or whoever had them knows why not.
    pub(crate) fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if let Some(blocks) = &self.0 {
            let (expected, found) = (Detail::Text("an end of what was begun"), Detail::Text("none"));
            let lost = Corrupt::new("fsync", expected, found).at(At::Unknown);
            blocks.outgoing().end(&Err(Error::Bug(Box::new(lost))));
        }
    }
}

/// What is under way.
#[derive(Debug)]
#[must_use = "others wait for it"]
pub(crate) struct Departure {
    underway: Underway,
    load: Load,
}

impl Departure {
    /// Sends all of it.
    ///
    /// # Errors
    /// What the device says.
    pub(crate) fn carry_out(self) -> Result<()> {
        let Self { underway, load } = self;
        let Some(blocks) = &underway.0 else { return Ok(()) };
        let sent = load.send(blocks);
        blocks.outgoing().end(&sent);
        underway.end();
        sent
    }
}

impl Load {
    fn send(&self, blocks: &Blocks) -> Result<()> {
        blocks.send(&self.runs)?;
        if let Some((at, block)) = &self.key {
            self.flush(blocks)?;
            blocks.send(&[Run { at: *at, blocks: vec![Arc::clone(block)] }])?;
        }
        self.flush(blocks)
    }

    fn flush(&self, blocks: &Blocks) -> Result<()> {
        if self.is_flushed { blocks.flush_sent() } else { Ok(()) }
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
        Underway::new(&placed).end();
        assert!(placed.flush().is_ok());
        drop(Underway::new(&placed));
        assert!(placed.flush().is_err() && placed.write(BlockAddr(1), &[&[0; BLOCK_SIZE]]).is_err());

        let sent = blocks();
        Underway::new(&sent).depart(load()).carry_out().unwrap();
        assert!(sent.flush().is_ok() && sent.read(BlockAddr(3)).unwrap() == [7; BLOCK_SIZE]);
        drop(Underway::new(&sent).depart(load()));
        assert!(sent.flush().is_err(), "nobody waits for ever, and nobody goes on");
    }
}
