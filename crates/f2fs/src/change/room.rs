//! Whether there is room for a change.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of blocks of a volume, bounded by the superblock")]

use super::{clean, commit, flush};
use crate::error::Result;
use crate::write_volume::WriteVolume;

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

/// Finds room for a change that takes at most `blocks` more blocks, nodes too, and writes at most `dirty` blocks
/// besides; where there is none, commits and cleans. An operation does this before it changes anything, for all
/// that it is going to do: its parts, which ask again, get what it found and make no checkpoint.
///
/// # Errors
/// [`NoSpace`](crate::Error::NoSpace).
pub(crate) fn make(volume: &mut WriteVolume, blocks: u64, dirty: u64, urgency: Urgency) -> Result<()> {
    volume.progress.check()?;
    let is_settled = volume.progress.is_settled();
    if blocks > 0 {
        volume.counters.check(blocks)?;
    }
    if volume.read.dirty.pages.count() > PAGES_MAX {
        flush::all(volume)?;
    }
    if !is_settled {
        // A replay found no room for all of it before.
        let more = if volume.progress.is_replaying { blocks + dirty } else { 0 };
        return volume.check_sections(more, 0);
    }
    if volume.read.dirty.nodes.len() > NODES_MAX {
        commit::commit(volume, false)?;
    }
    let spare = if urgency == Urgency::Normal { CLEANER_SECTIONS } else { 0 };
    let made = make_sections(volume, blocks + dirty, spare);
    volume.settle();
    made
}

fn make_sections(volume: &mut WriteVolume, more: u64, spare: u64) -> Result<()> {
    if volume.has_sections(more, spare) {
        return Ok(());
    }
    commit::commit(volume, false)?;
    // Blocks that are moved are written too: each section is emptied twice at most.
    let mut rounds = 2 * volume.space.segments.section_count();
    while !volume.has_sections(more, spare) {
        if rounds == 0 || !clean::section(volume)? {
            return volume.check_sections(more, spare);
        }
        rounds -= 1;
        commit::commit(volume, false)?;
    }
    Ok(())
}
