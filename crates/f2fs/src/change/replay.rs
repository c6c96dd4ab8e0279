//! Replays the fsyncs after the checkpoint, when a volume is opened for writing. Called by `open_volume`.
//!
//! Contents are rewritten, as if programs had written them now; the blocks of the log of nodes are not overwritten
//! before the next checkpoint. So a power cut during a replay leaves everything for the next one.

#![expect(clippy::arithmetic_side_effects, reason = "counts of blocks of a file")]

use std::collections::BTreeMap;
use std::sync::Arc;

use f2fs_disk::flags::{Features, InlineFlags};
use f2fs_disk::inode::{self, DiskInode, Inode, Kind};
use f2fs_disk::node::{self, Footer, XATTR_OFFSET};
use f2fs_disk::{Block, BlockAddr, Nid};

use super::room::{self, Urgency};
use super::{addresses, commit, inodes, names, pages, size_and_holes, xattrs};
use crate::dir;
use crate::error::{CallerError, Error, Result};
use crate::overlay::Overlay;
use crate::policy::LOGS;
use crate::write_volume::WriteVolume;

/// Replays the nodes of an overlay.
pub(crate) fn replay(volume: &mut WriteVolume, overlay: &Overlay) -> Result<()> {
    if overlay.file_count() == 0 {
        return Ok(());
    }
    volume.progress.is_replaying = true;
    keep_orphans(volume, overlay)?;
    replay_all(volume, overlay)?;
    volume.progress.is_replaying = false;
    commit::commit(volume, false)
}

/// The next checkpoint lists the orphans of this one, until they are removed. Orphans whose numbers were reused for new
/// inodes had been removed before: they are removed now.
fn keep_orphans(volume: &mut WriteVolume, overlay: &Overlay) -> Result<()> {
    for ino in volume.orphans()? {
        match volume.inode(ino) {
            Ok(_) if overlay.has(ino) => inodes::free(volume, ino)?,
            Ok(_) => drop(volume.orphans.all.insert(ino)),
            Err(Error::Caller(CallerError::Stale)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn replay_all(volume: &mut WriteVolume, overlay: &Overlay) -> Result<()> {
    let files = overlay.files();
    let mut blocks: BTreeMap<BlockAddr, Arc<Block>> = BTreeMap::new();
    for at in files.values().flat_map(BTreeMap::values) {
        blocks.insert(*at, Arc::new(volume.blocks.read(*at)?));
    }
    let geometry = *volume.geometry();
    // If a node of the chain were overwritten, a power cut would make those behind it unreachable.
    let segments = &mut volume.space.segments;
    overlay.log().iter().for_each(|at| segments.keep(&geometry, *at));
    keep_found(volume, &blocks)?;
    for log in 0..LOGS {
        volume.change_segment(log)?;
    }
    // Inodes first: new nodes must not get the number of one.
    for (ino, nodes) in &files {
        if let Some(block) = nodes.get(&0).and_then(|at| blocks.get(at)) {
            replay_inode(volume, *ino, &Arc::clone(block))?;
        }
    }
    for (ino, nodes) in &files {
        for (offset, at) in nodes.iter().filter(|(offset, _)| **offset != 0) {
            if let Some(block) = blocks.get(at) {
                replay_node(volume, *ino, *offset, &Arc::clone(block))?;
            }
        }
        if let Some(block) = nodes.get(&0).and_then(|at| blocks.get(at)) {
            replay_size(volume, *ino, &Arc::clone(block))?;
        }
    }
    for (dir, names) in overlay.all_names() {
        for (name, (ino, kind)) in names {
            replay_name(volume, *dir, name, *ino, kind.unwrap_or(Kind::File))?;
        }
    }
    Ok(())
}

/// Protects the blocks of fsynced nodes and data from being written.
fn keep_found(volume: &mut WriteVolume, nodes: &BTreeMap<BlockAddr, Arc<Block>>) -> Result<()> {
    let geometry = *volume.geometry();
    let features = volume.features();
    let seed = volume.inode_seed();
    for (at, block) in nodes {
        volume.space.keep(*at);
        let footer = Footer::of(block);
        if !footer.is_direct() {
            continue;
        }
        let addresses = if footer.is_inode() {
            let inode = Inode::verify(block, footer.ino(), features, seed)?;
            let is_inline = inode.inline().intersects(InlineFlags::DATA.union(InlineFlags::DENTRY));
            if is_inline || inode.kind() != Kind::File {
                continue;
            }
            inode.addresses(block).to_vec()
        } else {
            node::entries(block).to_vec()
        };
        for at in addresses.iter().map(|at| BlockAddr(at.get())).filter(|at| at.is_block() && geometry.is_main(*at)) {
            volume.space.keep(at);
        }
    }
    Ok(())
}

/// Replays the inode itself, without the nodes below.
fn replay_inode(volume: &mut WriteVolume, ino: Nid, block: &Block) -> Result<()> {
    let found = Inode::verify(block, ino, volume.features(), volume.inode_seed())?;
    room::make(volume, 4, 16, Urgency::Normal)?;
    let exists = match volume.inode(ino) {
        Ok(_) => true,
        Err(Error::Caller(CallerError::Stale)) => false,
        Err(error) => return Err(error),
    };
    if !exists {
        let mut new = *block;
        let fields = inode::fields_mut(&mut new);
        fields.i_blocks = 1.into();
        fields.i_xattr_nid = 0.into();
        fields.i_ext.len = 0.into();
        *inode::nids_mut(&mut new) = [0.into(); 5];
        if !found.inline().contains(InlineFlags::DATA) && found.kind() == Kind::File {
            found.addresses_mut(&mut new).fill(0.into());
        }
        volume.add_node(ino, ino, new)?;
        volume.counters.add_inodes(1);
        volume.numbers.remove(ino);
    } else {
        take_over_fields(volume, ino, &found, block)?;
    }
    if found.kind() == Kind::File && !found.inline().contains(InlineFlags::DATA) {
        replay_addresses(volume, ino, 0, found.addresses(block))?;
    }
    Ok(())
}

/// Gives an existing inode the fields, and inline contents, of the fsynced one.
fn take_over_fields(volume: &mut WriteVolume, ino: Nid, found: &Inode, block: &Block) -> Result<()> {
    let was = volume.inode(ino)?;
    let is_inline = found.inline().contains(InlineFlags::DATA);
    let was_inline = was.inode.inline().contains(InlineFlags::DATA);
    if is_inline && !was_inline {
        size_and_holes::free_from(volume, ino, 0)?;
    }
    let kept = *volume.inode(ino)?.inode.fields();
    let nids = *Inode::nids(&volume.inode(ino)?.block);
    let own: Vec<_> = was.inode.addresses(&volume.inode(ino)?.block).to_vec();
    let target = volume.edit_inode(ino)?;
    *target = *block;
    let fields: &mut DiskInode = inode::fields_mut(target);
    fields.i_blocks = kept.i_blocks;
    fields.i_xattr_nid = kept.i_xattr_nid;
    fields.i_ext.len = 0.into();
    *inode::nids_mut(target) = nids;
    if !is_inline && found.kind() == Kind::File {
        let addresses = found.addresses_mut(target);
        addresses.fill(0.into());
        if !was_inline {
            addresses.iter_mut().zip(&own).for_each(|(to, from)| *to = *from);
        }
    }
    Ok(())
}

fn replay_node(volume: &mut WriteVolume, ino: Nid, offset: u32, block: &Block) -> Result<()> {
    if offset == XATTR_OFFSET {
        return replay_xattrs(volume, ino, block);
    }
    replay_addresses(volume, ino, offset, node::entries(block))
}

/// Replaces the attribute node by the fsynced one.
fn replay_xattrs(volume: &mut WriteVolume, ino: Nid, block: &Block) -> Result<()> {
    room::make(volume, 2, 4, Urgency::Normal)?;
    xattrs::fill_node(volume, ino, node::contents(block))
}

/// Replays the addresses in one node.
fn replay_addresses(
    volume: &mut WriteVolume,
    ino: Nid,
    offset: u32,
    addresses: &[zerocopy::little_endian::U32],
) -> Result<()> {
    let layout = volume.inode(ino)?.inode;
    let first = layout.fanout().first_of(offset);
    let fanout = layout.fanout();
    let count = if offset == 0 { fanout.inode } else { fanout.direct };
    for (index, wanted) in (first..).zip(addresses.iter().take(f2fs_disk::convert::usize_from(count))) {
        let wanted = BlockAddr(wanted.get());
        let node = volume.inode(ino)?;
        let had = match addresses::find(volume, &node, index)? {
            Some(slot) => addresses::get(volume, &layout, &slot)?,
            None => BlockAddr::NULL,
        };
        if had == wanted {
            continue;
        }
        if wanted == BlockAddr::NULL {
            size_and_holes::free_range(volume, ino, index..index + 1)?;
            continue;
        }
        room::make(volume, pages::cost(1), pages::cost(1), Urgency::Normal)?;
        let slot = addresses::make(volume, &layout, index)?;
        let (page, is_new) = if wanted.is_block() {
            crate::map::check_is_data(volume, ino, index, wanted)?;
            let (_, is_new) = pages::take(volume, &layout, &slot, index, true)?;
            (Some(Arc::new(volume.blocks.read(wanted)?)), is_new)
        } else {
            addresses::set(volume, &layout, &slot, BlockAddr::NEW)?;
            (None, had == BlockAddr::NULL)
        };
        if let Some(page) = page {
            volume.put_page(ino, index, page);
        }
        volume.count_blocks(ino, i64::from(is_new))?;
    }
    Ok(())
}

/// Frees blocks behind the fsynced size.
fn replay_size(volume: &mut WriteVolume, ino: Nid, block: &Block) -> Result<()> {
    let found = Inode::verify(block, ino, volume.features().difference(Features::INODE_CHKSUM), volume.inode_seed())?;
    volume.edit_fields(ino)?.i_size = found.fields().i_size;
    Ok(())
}

fn replay_name(volume: &mut WriteVolume, dir: Nid, name: &[u8], ino: Nid, kind: Kind) -> Result<()> {
    let parent = match volume.inode(dir) {
        Ok(parent) => parent,
        // The kernel skips names whose directory is gone.
        Err(Error::Caller(CallerError::Stale)) => return Ok(()),
        Err(error) => return Err(error),
    };
    match dir::find(volume, &parent, name)? {
        Some(found) if found.ino == ino => Ok(()),
        Some(found) => {
            if names::unlink(volume, dir, &found, name)? {
                inodes::free(volume, found.ino)?;
            }
            names::add(volume, dir, name, ino, kind)
        }
        None => names::add(volume, dir, name, ino, kind),
    }
}
