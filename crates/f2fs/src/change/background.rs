//! Cleaning while nobody changes anything: free sections are there before they are needed.
//!
//! ```text
//!    idle, and more unused blocks in holes than in free sections
//!      -> the section with most to gain, old ones first -> some blocks of it at a time -> next section -> checkpoint
//! ```
//!
//! Failure: a section whose blocks cannot be told apart is left alone. What the device says ends all writing, as
//! everywhere.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of segments and blocks")]

use super::room::CLEANER_SECTIONS;
use crate::error::{Error, Result};
use crate::policy::BackgroundGc;
use crate::store::Store;
use crate::writer::Background;

/// Blocks that are moved at a time: an operation waits that long at most, but for a checkpoint.
const BLOCKS_AT_ONCE: u32 = 32;
/// Sections that are emptied before a checkpoint makes them free.
const SECTIONS_AT_ONCE: u32 = 8;
/// Cleaning is worthwhile from so many unused blocks in holes on, in percent of all blocks.
const HOLES_MIN_PERCENT: u64 = 5;

impl Store {
    /// Moves some blocks of a section that has much to gain. False where there is nothing to do, or no use in it,
    /// until something changes.
    ///
    /// # Errors
    /// What the device says; nothing is written any more then.
    pub(crate) fn clean_some(&mut self) -> Result<bool> {
        let writer = self.writer()?;
        writer.check()?;
        if writer.policy.background_gc == BackgroundGc::Off || writer.is_replaying {
            return Ok(false);
        }
        self.settle()?;
        let cleaned = self.clean_more();
        let goes_on = self.noted(cleaned)?;
        self.settle()?;
        Ok(goes_on)
    }

    fn clean_more(&mut self) -> Result<bool> {
        let has_room = self.has_sections(u64::from(BLOCKS_AT_ONCE) * 2, CLEANER_SECTIONS)?;
        let writer = self.writer()?;
        let Background { at, emptied, .. } = writer.background;
        let Some((section, from)) = at.filter(|(section, _)| has_room && !writer.segments.is_open(*section)) else {
            self.writer_mut()?.background.at = None;
            let limit = if writer_is_sync(self)? { 1 } else { SECTIONS_AT_ONCE };
            let next = if has_room { self.next_section()? } else { None };
            if emptied >= limit || (emptied > 0 && next.is_none()) {
                return self.free_emptied();
            }
            let writer = self.writer_mut()?;
            if emptied == 0 {
                writer.background.free_before = writer.segments.free_sections();
            }
            writer.background.at = next.map(|section| (section, 0));
            return Ok(next.is_some());
        };
        self.writer_mut()?.segments.clean(section);
        let next = self.empty_some(section, from)?;
        let background = &mut self.writer_mut()?.background;
        background.at = next.map(|next| (section, next));
        background.emptied += u32::from(next.is_none());
        Ok(true)
    }

    /// The section to be emptied next; none where most unused blocks are in free sections already.
    fn next_section(&self) -> Result<Option<u32>> {
        let writer = self.writer()?;
        let segments = &writer.segments;
        let all = u64::from(segments.block_count());
        let free = u64::from(segments.free_sections()) * segments.blocks_per_section();
        // What was emptied already counts as free.
        let free = free + u64::from(writer.background.emptied) * segments.blocks_per_section();
        let in_holes = all.saturating_sub(free + writer.valid_blocks);
        let is_worthwhile = in_holes > free && in_holes * 100 >= all * HOLES_MIN_PERCENT;
        Ok(if is_worthwhile { segments.most_to_gain() } else { None })
    }

    /// A checkpoint makes free what was emptied. False where it came to nothing: nodes that lead to what moved take
    /// room, too.
    fn free_emptied(&mut self) -> Result<bool> {
        self.commit(false)?;
        let writer = self.writer_mut()?;
        writer.background.emptied = 0;
        Ok(writer.segments.free_sections() > writer.background.free_before)
    }

    /// Moves some blocks of a section. Where one of them is led to by something else than its summary says, the
    /// section is left alone from now on.
    fn empty_some(&mut self, section: u32, from: u32) -> Result<Option<u32>> {
        let mut next = from;
        for _ in 0..BLOCKS_AT_ONCE {
            let before = self.writer()?.changes;
            match self.move_blocks(section, next, 1) {
                Ok(Some(goes_on)) => next = goes_on,
                Ok(None) => return Ok(None),
                Err(Error::Corrupt(_) | Error::Caller(_)) if self.writer()?.changes == before => {
                    self.writer_mut()?.segments.leave_alone(section);
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(next))
    }
}

fn writer_is_sync(store: &Store) -> Result<bool> {
    Ok(store.writer()?.policy.background_gc == BackgroundGc::Sync)
}
