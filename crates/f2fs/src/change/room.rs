//! Whether there is room for a change.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of blocks of a volume, bounded by the superblock")]

use crate::error::{Error, Result};
use crate::store::Store;

/// Sections that stay free for the cleaner.
pub(super) const CLEANER_SECTIONS: u64 = 3;
/// Changed pages beyond which they are written: 32 MiB.
const PAGES_MAX: u64 = 8192;
/// Changed nodes beyond which a checkpoint is made: 64 MiB.
const NODES_MAX: usize = 16_384;

/// How far a change may go towards the end of the room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// It makes something.
    Normal,
    /// It gives room back: what others leave for the cleaner may be used.
    Removal,
}

impl Store {
    /// What was changed up to here may become part of a checkpoint without what follows.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let writer = self.writer_mut()?;
        writer.settled = writer.changes;
        writer.segments.set_clock(writer.clock());
        Ok(())
    }

    /// Finds room for a change that takes at most `blocks` more blocks, nodes too, and writes at most `dirty` blocks
    /// besides; where there is none, commits and cleans. An operation does this before it changes anything, for all
    /// that it is going to do: its parts, which ask again, get what it found and make no checkpoint.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(crate) fn make_room(&mut self, blocks: u64, dirty: u64, urgency: Urgency) -> Result<()> {
        let writer = self.writer()?;
        writer.check()?;
        let is_settled = writer.is_settled();
        if blocks > 0 && writer.valid_blocks + blocks > writer.user_blocks {
            return Err(Error::NoSpace);
        }
        if writer.page_count > PAGES_MAX {
            self.flush_all()?;
        }
        if !is_settled {
            // A replay found no room for all of it before.
            let more = if self.writer()?.is_replaying { blocks + dirty } else { 0 };
            return if self.has_sections(more, 0)? { Ok(()) } else { Err(Error::NoSpace) };
        }
        if self.writer()?.nodes.len() > NODES_MAX {
            self.commit(false)?;
        }
        let spare = if urgency == Urgency::Normal { CLEANER_SECTIONS } else { 0 };
        let made = self.make_sections(blocks + dirty, spare);
        self.settle()?;
        made
    }

    fn make_sections(&mut self, more: u64, spare: u64) -> Result<()> {
        if self.has_sections(more, spare)? {
            return Ok(());
        }
        self.commit(false)?;
        // What is moved is written too: each section is emptied twice at most.
        let mut rounds = 2 * self.writer()?.segments.section_count();
        while !self.has_sections(more, spare)? {
            if rounds == 0 || !self.clean_section()? {
                return Err(Error::NoSpace);
            }
            rounds -= 1;
            self.commit(false)?;
        }
        Ok(())
    }

    pub(super) fn has_sections(&self, more: u64, spare: u64) -> Result<bool> {
        let writer = self.writer()?;
        Ok(u64::from(writer.segments.free_sections()) >= writer.sections_needed(more) + spare)
    }
}
