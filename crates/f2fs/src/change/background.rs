//! Cleans sections in the background while the volume is idle, so that free sections exist before they are needed.
//!
//! ```text
//!    idle, and more unused blocks in holes than in free sections
//!      -> the section with most to gain, old ones first -> some blocks of it at a time -> next section -> checkpoint
//! ```
//!
//! Failure: a section whose blocks cannot be moved is skipped. A device error ends all writing, as everywhere. Caller:
//! `vfs_impl`, step by step.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of segments and blocks")]

use super::room::CLEANER_SECTIONS;
use super::{clean, commit};
use crate::error::{Error, Result};
use crate::policy::BackgroundGc;
use crate::write_volume::{Background, WriteVolume};

/// Blocks that are moved at a time: the longest delay of an operation, except by a checkpoint.
const BLOCKS_AT_ONCE: u32 = 32;
/// Sections that are emptied before a checkpoint makes them free.
const SECTIONS_AT_ONCE: u32 = 8;
/// Cleaning pays from this percentage of all blocks in holes on.
const HOLES_MIN_PERCENT: u64 = 5;

/// Moves some blocks of a section with much to gain. False if no section is worth it until something changes.
///
/// # Errors
/// The device's error; then all later writes are refused.
pub(crate) fn step(volume: &mut WriteVolume) -> Result<bool> {
    volume.progress.check()?;
    if volume.policy.background_gc == BackgroundGc::Off || volume.progress.is_replaying {
        return Ok(false);
    }
    volume.settle();
    let cleaned = clean_more(volume);
    let goes_on = volume.poison_on_error(cleaned)?;
    volume.settle();
    Ok(goes_on)
}

fn clean_more(volume: &mut WriteVolume) -> Result<bool> {
    let has_room = volume.has_sections(u64::from(BLOCKS_AT_ONCE) * 2, CLEANER_SECTIONS);
    let Background { at, emptied, .. } = volume.background;
    let Some((section, from)) = at.filter(|(section, _)| has_room && !volume.space.segments.is_open(*section)) else {
        volume.background.at = None;
        let limit = if volume.policy.background_gc == BackgroundGc::Sync { 1 } else { SECTIONS_AT_ONCE };
        let next = if has_room { next_section(volume)? } else { None };
        if emptied >= limit || (emptied > 0 && next.is_none()) {
            return free_emptied(volume);
        }
        if emptied == 0 {
            volume.background.free_before = volume.space.segments.free_sections();
        }
        volume.background.at = next.map(|section| (section, 0));
        return Ok(next.is_some());
    };
    volume.space.segments.clean(section);
    let next = empty_some(volume, section, from)?;
    let background = &mut volume.background;
    background.at = next.map(|next| (section, next));
    background.emptied += u32::from(next.is_none());
    Ok(true)
}

/// The next section to empty; `None` if most unused blocks are in free sections already.
fn next_section(volume: &WriteVolume) -> Result<Option<u32>> {
    let segments = &volume.space.segments;
    let all = u64::from(segments.block_count());
    let free = u64::from(segments.free_sections()) * segments.blocks_per_section();
    // Emptied sections already count as free.
    let free = free + u64::from(volume.background.emptied) * segments.blocks_per_section();
    let in_holes = all.saturating_sub(free + volume.counters.blocks);
    let is_worthwhile = in_holes > free && in_holes * 100 >= all * HOLES_MIN_PERCENT;
    Ok(if is_worthwhile { segments.most_to_gain() } else { None })
}

/// Makes a checkpoint, which frees the emptied sections. False if it gained nothing: nodes with addresses of moved
/// blocks take space, too.
fn free_emptied(volume: &mut WriteVolume) -> Result<bool> {
    commit::commit(volume, false)?;
    volume.background.emptied = 0;
    Ok(volume.space.segments.free_sections() > volume.background.free_before)
}

/// Moves some blocks of a section. If the owner of one differs from the summary, the section is skipped from now on.
fn empty_some(volume: &mut WriteVolume, section: u32, from: u32) -> Result<Option<u32>> {
    let mut next = from;
    for _ in 0..BLOCKS_AT_ONCE {
        let before = volume.progress.changes();
        match clean::move_blocks(volume, section, next, 1) {
            Ok(Some(goes_on)) => next = goes_on,
            Ok(None) => return Ok(None),
            Err(Error::Corrupt(_) | Error::Caller(_)) if volume.progress.changes() == before => {
                volume.space.segments.leave_alone(section);
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Some(next))
}
