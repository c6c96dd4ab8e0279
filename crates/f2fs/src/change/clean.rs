//! The cleaner: what is in use in a section moves elsewhere, so that the section comes free.
//!
//! Where there is no other room an operation waits for it: the section with the fewest blocks in use is emptied at
//! once. `background` empties others while nobody changes anything.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of segments and blocks")]

use f2fs_disk::node::Footer;
use f2fs_disk::summary::{Summary, SummaryBlock};
use f2fs_disk::{At, BlockAddr, Corrupt, Detail, Nid, SEGMENT_BLOCKS};

use super::addresses::{self, Slot};
use super::flush;
use super::in_place::Rewrite;
use crate::error::Result;
use crate::policy::COLD_DATA;
use crate::read_volume::{Node, ReadVolume};
use crate::write_volume::WriteVolume;

/// What leads to a block with data.
struct Owner {
    node: Node,
    slot: Slot,
    /// Index of the block in its file.
    index: u64,
}

/// Moves what is in use in the section with the fewest such blocks; it comes free with the next checkpoint. False
/// where no section would.
pub(super) fn section(volume: &mut WriteVolume) -> Result<bool> {
    let Some(section) = volume.space.segments.fewest_used() else { return Ok(false) };
    volume.space.segments.clean(section);
    let moved = move_blocks(volume, section, 0, u32::MAX);
    volume.poison_on_error(moved)?;
    Ok(true)
}

/// Moves what is in use in a section from its block `from` on, at most `count_max` blocks. Returns where that goes
/// on, `None` at the end of the section.
pub(super) fn move_blocks(volume: &mut WriteVolume, section: u32, from: u32, count_max: u32) -> Result<Option<u32>> {
    let per_section = volume.space.segments.per_section();
    let mut moved = 0;
    for block in from..per_section * SEGMENT_BLOCKS {
        let (segment, index) = (section * per_section + block / SEGMENT_BLOCKS, block % SEGMENT_BLOCKS);
        // Looked at anew each time: what one block takes along with it has left already.
        if !volume.space.segments.segment(segment).is_some_and(|segment| segment.is_in_use(index)) {
            continue;
        }
        if moved == count_max {
            return Ok(Some(block));
        }
        move_block(volume, segment, index)?;
        moved += 1;
    }
    Ok(None)
}

fn move_block(volume: &mut WriteVolume, segment: u32, index: u32) -> Result<()> {
    let geometry = *volume.geometry();
    let summary_at = geometry.summary_block(segment);
    let block = volume.blocks.get(summary_at)?;
    let summary = SummaryBlock::verify(&block).map_err(|error| error.at(At::Block(summary_at)))?;
    let entry = summary.entries.get(f2fs_disk::convert::usize_from(index)).copied().unwrap_or_default();
    let at = geometry.segment_block(segment, index);
    match summary.footer.entry_type {
        1 => move_node(volume, at, &entry),
        _ => move_data(volume, at, &entry, segment),
    }
}

/// A node that is written with the next checkpoint anyway, and elsewhere.
fn move_node(volume: &mut WriteVolume, at: BlockAddr, entry: &Summary) -> Result<()> {
    let nid = Nid(entry.nid.get());
    if volume.address(nid)? != Some(at) {
        return Err(wrong(at, "the node of the summary").into());
    }
    let block = match volume.changed_node(nid) {
        Some(_) => return Ok(()),
        None => volume.blocks.get(at)?,
    };
    let footer = Footer::of(&block);
    volume.edit(nid, footer.ino(), footer.offset())?;
    Ok(())
}

fn move_data(volume: &mut WriteVolume, at: BlockAddr, entry: &Summary, segment: u32) -> Result<()> {
    let Owner { node, slot, index } = owner(volume, at, entry)?;
    let ino = node.ino();
    if volume.page(ino, index).is_some() {
        return flush::files(volume, &[(ino, Rewrite::Elsewhere)]);
    }
    let version = volume.nat_entry(slot.nid)?.version;
    let contents = volume.blocks.read(at)?;
    // It is as old as it was.
    let mtime = volume.space.segments.segment(segment).map(crate::segments::Segment::mtime);
    let summary = Summary::new(slot.nid, version, entry.ofs_in_node.get());
    let new = volume.allocate(COLD_DATA, summary, mtime)?;
    volume.blocks.write(new, &[&contents])?;
    addresses::set(volume, &node.inode, &slot, new)?;
    // Who replays an fsync finds another address than the checkpoint's.
    volume.chain.wrote_pages(ino, 1, node.inode.fields().i_blocks.get());
    volume.forget_extent(&node.inode)
}

fn owner(volume: &ReadVolume, at: BlockAddr, entry: &Summary) -> Result<Owner> {
    let nid = Nid(entry.nid.get());
    let block = match (volume.changed_node(nid).cloned(), volume.address(nid)?) {
        (Some(block), _) => block,
        (None, Some(at)) => volume.blocks.get(at)?,
        (None, None) => return Err(wrong(at, "a node that leads here").into()),
    };
    let footer = Footer::of(&block);
    let slot = Slot { nid, offset: footer.offset(), index: u32::from(entry.ofs_in_node.get()) };
    let node = volume.inode(footer.ino())?;
    if addresses::get(volume, &node.inode, &slot)? != at {
        return Err(wrong(at, "a node that leads here").into());
    }
    let index = node.inode.fanout().first_of(slot.offset) + u64::from(slot.index);
    Ok(Owner { node, slot, index })
}

fn wrong(at: BlockAddr, expected: &'static str) -> Corrupt {
    Corrupt::new("summary nid", Detail::Text(expected), Detail::Text("another")).at(At::Block(at))
}
