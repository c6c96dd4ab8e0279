//! Finds the nodes that fsyncs wrote after the checkpoint: roll-forward recovery.
//!
//! An fsync writes the nodes of a file to the log of warm nodes, and no checkpoint. Each node has the address of the
//! next one of the log. The kernel follows them from the log's position in the checkpoint, as long as they carry the
//! checkpoint's version ([`Checkpoint::is_of_next`]), and repeats the changes:
//!
//! * of every inode with a node that ends an fsync, all nodes up to the last such one count;
//! * an inode with the dentry mark was made since the checkpoint: its name is added to its directory.
//!
//! This module writes nothing: lookups of nodes and names go to the [`Overlay`] first. Callers: `open_volume`.
//!
//! [`Checkpoint::is_of_next`]: f2fs_disk::checkpoint::Checkpoint::is_of_next

use std::collections::{HashMap, HashSet};

use f2fs_disk::checkpoint::WARM_NODE;
use f2fs_disk::node::{Footer, XATTR_OFFSET};
use f2fs_disk::{At, BlockAddr, Corrupt, Detail, Nid};

use crate::error::{CallerError, Error, Result};
use crate::overlay::Overlay;
use crate::read_volume::ReadVolume;

/// A node of the log.
struct Logged {
    at: BlockAddr,
    footer: Footer,
}

/// Position in the log up to which an inode is recovered, and the node with its name.
#[derive(Default)]
struct Wanted {
    last: usize,
    name: Option<usize>,
}

/// Follows the log behind the checkpoint.
///
/// # Errors
/// [`Error::Corrupt`] for a log that leads back into itself, [`Error::Io`].
pub(crate) fn read(volume: &ReadVolume) -> Result<Overlay> {
    let log = read_log(volume)?;
    let wanted = find_wanted(volume, &log)?;
    let mut overlay = Overlay::default();
    overlay.set_log(log.iter().map(|node| node.at).collect());
    for (index, node) in log.iter().enumerate() {
        let (ino, offset) = (node.footer.ino(), node.footer.offset());
        let Some(wanted) = wanted.get(&ino).filter(|wanted| index <= wanted.last) else { continue };
        if node.footer.is_direct() || offset == XATTR_OFFSET {
            overlay.add_node(ino, offset, node.at);
        }
        if wanted.name == Some(index) {
            add_name(&mut overlay, volume, ino, node.at)?;
        }
    }
    Ok(overlay)
}

/// Adds the name and directory recorded in the inode's own block.
fn add_name(overlay: &mut Overlay, volume: &ReadVolume, ino: Nid, at: BlockAddr) -> Result<()> {
    let inode = volume.inode_in(&volume.blocks.read(at)?, ino)?;
    let name = inode.name()?;
    if name.iter().any(|byte| matches!(byte, 0 | b'/')) || matches!(name, b"." | b"..") {
        let expected = Detail::Text("a name that a file can have");
        return Err(Corrupt::new("inode i_name", expected, Detail::Text("another")).at(At::Inode(ino)).into());
    }
    let dir = Nid(inode.fields().i_pino.get());
    // The kernel skips names whose directory is gone.
    if !matches!(volume.inode(dir), Err(Error::Caller(CallerError::Stale))) {
        overlay.add_name(dir, name, ino, inode.kind());
    }
    Ok(())
}

/// The nodes of the log since the checkpoint: at most one for each block of the volume.
fn read_log(volume: &ReadVolume) -> Result<Vec<Logged>> {
    let fields = volume.checkpoint().fields();
    let segment = fields.cur_node_segno.get(WARM_NODE).map_or(0, |segment| segment.get());
    let offset = fields.cur_node_blkoff.get(WARM_NODE).map_or(0, |offset| u32::from(offset.get()));
    let mut at = volume.geometry().segment_block(segment, offset);
    let (mut log, mut seen) = (Vec::new(), HashSet::new());
    while volume.geometry().is_main(at) {
        let footer = Footer::of(&volume.blocks.read(at)?);
        if !volume.checkpoint().is_of_next(footer.cp_ver.get()) {
            break;
        }
        if !seen.insert(at) {
            let expected = Detail::Text("a block that was not passed yet");
            let found = Detail::Block(at);
            return Err(Corrupt::new("node footer next_blkaddr", expected, found).at(At::Block(at)).into());
        }
        log.push(Logged { at, footer });
        at = BlockAddr(footer.next_blkaddr.get());
    }
    Ok(log)
}

/// The inodes with an fsync, except unknown ones: neither the checkpoint nor the log has the inode, or the checkpoint
/// lists it as an orphan, which is removed first.
fn find_wanted(volume: &ReadVolume, log: &[Logged]) -> Result<HashMap<Nid, Wanted>> {
    let mut wanted: HashMap<Nid, Wanted> = HashMap::new();
    if log.is_empty() {
        return Ok(wanted);
    }
    let orphans: HashSet<Nid> = volume.orphans()?.into_iter().collect();
    for (index, node) in log.iter().enumerate().filter(|(_, node)| node.footer.is_fsync()) {
        let (ino, footer) = (node.footer.ino(), &node.footer);
        let makes_name = footer.is_inode() && footer.is_dent();
        let is_known = |ino| Ok::<_, Error>(!orphans.contains(&ino) && volume.address(ino)?.is_some());
        if !wanted.contains_key(&ino) && !makes_name && !is_known(ino)? {
            continue;
        }
        let entry = wanted.entry(ino).or_default();
        entry.last = index;
        if makes_name {
            entry.name = Some(index);
        }
    }
    Ok(wanted)
}
