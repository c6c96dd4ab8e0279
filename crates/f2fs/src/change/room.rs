//! Finds space for a change: refuses it, commits or cleans. Callers: all changes, before they begin.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of blocks of a volume, bounded by the superblock")]

use super::{clean, commit, flush};
use crate::error::Result;
use crate::write_volume::WriteVolume;

/// Sections that stay free for the cleaner.
pub(super) const CLEANER_SECTIONS: u64 = 3;
/// Most dirty pages before they are written: 32 MiB.
const PAGES_MAX: u64 = 8192;
/// Most dirty nodes before a checkpoint: 64 MiB.
const NODES_MAX: usize = 16_384;

/// How much of the reserve a change may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// The change adds data: none.
    Normal,
    /// The change frees space: it may use the reserve of the cleaner.
    Removal,
}

/// Finds space for a change that takes at most `blocks` more blocks, nodes included, and writes at most `dirty` further
/// blocks; commits and cleans if necessary. An operation calls this once before it changes anything, for all of its
/// parts, which call it again without causing a checkpoint.
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
        // A replay has reserved nothing for all of it before.
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
    // Moved blocks are written too: each section is emptied at most twice.
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
