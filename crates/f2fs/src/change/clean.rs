//! Cleans sections: moves the blocks in use out of a section, so that the section becomes free.
//!
//! If space is short an operation waits for it (`room`): the section with the fewest blocks in use is emptied at once.
//! `background` empties others while the volume is idle.

#![expect(clippy::arithmetic_side_effects, reason = "numbers of segments and blocks")]

use f2fs_disk::node::Footer;
use f2fs_disk::summary::{Summary, SummaryBlock};
use f2fs_disk::{At, BlockAddr, Corrupt, Detail, Nid, SEGMENT_BLOCKS};

use super::addresses::{self, Slot};
use super::flush;
use super::in_place_updates::Rewrite;
use crate::error::Result;
use crate::policy::COLD_DATA;
use crate::read_volume::{Node, ReadVolume};
use crate::write_volume::WriteVolume;

/// The owner of a data block.
struct Owner {
    node: Node,
    slot: Slot,
    /// Index of the block in its file.
    index: u64,
}

/// Moves the blocks in use out of the section with the fewest of them, which the next checkpoint frees. False if no
/// section would gain.
pub(super) fn section(volume: &mut WriteVolume) -> Result<bool> {
    let Some(section) = volume.space.segments.fewest_used() else { return Ok(false) };
    volume.space.segments.clean(section);
    let moved = move_blocks(volume, section, 0, u32::MAX);
    volume.poison_on_error(moved)?;
    Ok(true)
}

/// Moves blocks in use out of a section, at most `count_max` from its block `from` on. Returns the next block, `None`
/// at the end of the section.
pub(super) fn move_blocks(volume: &mut WriteVolume, section: u32, from: u32, count_max: u32) -> Result<Option<u32>> {
    let per_section = volume.space.segments.per_section();
    let mut moved = 0;
    for block in from..per_section * SEGMENT_BLOCKS {
        let (segment, index) = (section * per_section + block / SEGMENT_BLOCKS, block % SEGMENT_BLOCKS);
        // Checked each time: moving one block may have moved others.
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

/// Makes a node dirty, so that the next checkpoint writes it elsewhere.
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
    // Its age does not change.
    let mtime = volume.space.segments.segment(segment).map(crate::segments::Segment::mtime);
    let summary = Summary::new(slot.nid, version, entry.ofs_in_node.get());
    let new = volume.allocate(COLD_DATA, summary, mtime)?;
    volume.blocks.write(new, &[&contents])?;
    addresses::set(volume, &node.inode, &slot, new)?;
    // A replay of an fsync finds another address than the checkpoint's.
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
