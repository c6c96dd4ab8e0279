//! What was fsynced after the checkpoint becomes part of the volume.
//!
//! Contents are written anew, as if programs had written them now; the blocks that the log of nodes leads to stay
//! untouched until the checkpoint behind it. So a power cut during a replay leaves everything for the next one.

#![expect(clippy::arithmetic_side_effects, reason = "counts of blocks of a file")]

use std::collections::BTreeMap;
use std::sync::Arc;

use f2fs_disk::flags::{Features, InlineFlags};
use f2fs_disk::inode::{self, DiskInode, Inode, Kind};
use f2fs_disk::node::{self, Footer, XATTR_OFFSET};
use f2fs_disk::{Block, BlockAddr, Nid};

use super::Urgency;
use crate::dir;
use crate::error::{CallerError, Error, Result};
use crate::overlay::Overlay;
use crate::policy::LOGS;
use crate::store::Store;

impl Store {
    /// Replays what an overlay says.
    pub(crate) fn replay(&mut self, overlay: &Overlay) -> Result<()> {
        if overlay.file_count() == 0 {
            return Ok(());
        }
        self.writer_mut()?.is_replaying = true;
        self.keep_orphans(overlay)?;
        self.replay_all(overlay)?;
        self.writer_mut()?.is_replaying = false;
        self.commit(false)
    }

    /// The next checkpoint lists the orphans of this one, until they are removed. Those whose numbers were given to new
    /// inodes went before that: they go now.
    fn keep_orphans(&mut self, overlay: &Overlay) -> Result<()> {
        for ino in self.orphans()? {
            match self.inode(ino) {
                Ok(_) if overlay.has(ino) => self.free_inode(ino)?,
                Ok(_) => drop(self.writer_mut()?.orphans.insert(ino)),
                Err(Error::Caller(CallerError::Stale)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn replay_all(&mut self, overlay: &Overlay) -> Result<()> {
        let files = overlay.files();
        let mut blocks: BTreeMap<BlockAddr, Arc<Block>> = BTreeMap::new();
        for at in files.values().flat_map(BTreeMap::values) {
            blocks.insert(*at, Arc::new(self.blocks.read(*at)?));
        }
        let geometry = *self.geometry();
        // Without a node in between, a power cut would leave those behind it unfound.
        let segments = &mut self.writer_mut()?.segments;
        overlay.log().iter().for_each(|at| segments.keep(&geometry, *at));
        self.keep_found(&blocks)?;
        for log in 0..LOGS {
            self.change_segment(log)?;
        }
        // Inodes first: new nodes must not get the number of one.
        for (ino, nodes) in &files {
            if let Some(block) = nodes.get(&0).and_then(|at| blocks.get(at)) {
                self.replay_inode(*ino, &Arc::clone(block))?;
            }
        }
        for (ino, nodes) in &files {
            for (offset, at) in nodes.iter().filter(|(offset, _)| **offset != 0) {
                if let Some(block) = blocks.get(at) {
                    self.replay_node(*ino, *offset, &Arc::clone(block))?;
                }
            }
            if let Some(block) = nodes.get(&0).and_then(|at| blocks.get(at)) {
                self.replay_size(*ino, &Arc::clone(block))?;
            }
        }
        for (dir, names) in overlay.all_names() {
            for (name, (ino, kind)) in names {
                self.replay_name(*dir, name, *ino, kind.unwrap_or(Kind::File))?;
            }
        }
        Ok(())
    }

    /// Nothing is written where fsynced nodes and data are.
    fn keep_found(&mut self, nodes: &BTreeMap<BlockAddr, Arc<Block>>) -> Result<()> {
        let geometry = *self.geometry();
        let features = self.features();
        let seed = self.inode_seed();
        for (at, block) in nodes {
            self.writer_mut()?.segments.keep(&geometry, *at);
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
            for at in addresses.iter().map(|at| BlockAddr(at.get())).filter(|at| at.is_block() && geometry.is_main(*at))
            {
                self.writer_mut()?.segments.keep(&geometry, at);
            }
        }
        Ok(())
    }

    /// The inode itself, without what is in the nodes below.
    fn replay_inode(&mut self, ino: Nid, block: &Block) -> Result<()> {
        let found = Inode::verify(block, ino, self.features(), self.inode_seed())?;
        self.make_room(4, 16, Urgency::Normal)?;
        let exists = match self.inode(ino) {
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
            self.add_node(ino, ino, new)?;
            let writer = self.writer_mut()?;
            writer.valid_inodes += 1;
            writer.free_nids.retain(|nid| *nid != ino);
        } else {
            self.take_over_fields(ino, &found, block)?;
        }
        if found.kind() == Kind::File && !found.inline().contains(InlineFlags::DATA) {
            self.replay_addresses(ino, 0, found.addresses(block))?;
        }
        Ok(())
    }

    /// An inode that was there gets the fields, and inline contents, of the one that was fsynced.
    fn take_over_fields(&mut self, ino: Nid, found: &Inode, block: &Block) -> Result<()> {
        let was = self.inode(ino)?;
        let is_inline = found.inline().contains(InlineFlags::DATA);
        let was_inline = was.inode.inline().contains(InlineFlags::DATA);
        if is_inline && !was_inline {
            self.free_from(ino, 0)?;
        }
        let kept = *self.inode(ino)?.inode.fields();
        let nids = *Inode::nids(&self.inode(ino)?.block);
        let own: Vec<_> = was.inode.addresses(&self.inode(ino)?.block).to_vec();
        let target = self.edit_inode(ino)?;
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

    fn replay_node(&mut self, ino: Nid, offset: u32, block: &Block) -> Result<()> {
        if offset == XATTR_OFFSET {
            return self.replay_xattrs(ino, block);
        }
        self.replay_addresses(ino, offset, node::entries(block))
    }

    /// The node with attributes is the one that was fsynced, whatever there was.
    fn replay_xattrs(&mut self, ino: Nid, block: &Block) -> Result<()> {
        self.make_room(2, 4, Urgency::Normal)?;
        self.fill_xattr_node(ino, node::contents(block))
    }

    /// The blocks of a file whose addresses stood in one node.
    fn replay_addresses(&mut self, ino: Nid, offset: u32, addresses: &[zerocopy::little_endian::U32]) -> Result<()> {
        let layout = self.inode(ino)?.inode;
        let first = layout.fanout().first_of(offset);
        let fanout = layout.fanout();
        let count = if offset == 0 { fanout.inode } else { fanout.direct };
        for (index, wanted) in (first..).zip(addresses.iter().take(f2fs_disk::convert::usize_from(count))) {
            let wanted = BlockAddr(wanted.get());
            let node = self.inode(ino)?;
            let had = match self.slot(&node, index)? {
                Some(slot) => self.address_in(&layout, &slot)?,
                None => BlockAddr::NULL,
            };
            if had == wanted {
                continue;
            }
            if wanted == BlockAddr::NULL {
                self.free_range(ino, index..index + 1)?;
                continue;
            }
            self.make_room(Self::cost(1), Self::cost(1), Urgency::Normal)?;
            let slot = self.slot_made(&layout, index)?;
            let (page, is_new) = if wanted.is_block() {
                crate::map::check_is_data(self, ino, index, wanted)?;
                let (_, is_new) = self.page_to_change(&layout, &slot, index, true)?;
                (Some(Arc::new(self.blocks.read(wanted)?)), is_new)
            } else {
                self.set_address(&layout, &slot, BlockAddr::NEW)?;
                (None, had == BlockAddr::NULL)
            };
            if let Some(page) = page {
                self.writer_mut()?.put_page(ino, index, page);
            }
            self.count_blocks(ino, i64::from(is_new))?;
        }
        Ok(())
    }

    /// Blocks behind the end went with the fsynced size.
    fn replay_size(&mut self, ino: Nid, block: &Block) -> Result<()> {
        let found = Inode::verify(block, ino, self.features().difference(Features::INODE_CHKSUM), self.inode_seed())?;
        self.edit_fields(ino)?.i_size = found.fields().i_size;
        Ok(())
    }

    fn replay_name(&mut self, dir: Nid, name: &[u8], ino: Nid, kind: Kind) -> Result<()> {
        let parent = match self.inode(dir) {
            Ok(parent) => parent,
            // The kernel leaves names out whose directory is gone.
            Err(Error::Caller(CallerError::Stale)) => return Ok(()),
            Err(error) => return Err(error),
        };
        match dir::find(self, &parent, name)? {
            Some(found) if found.ino == ino => Ok(()),
            Some(found) => {
                if self.unlink(dir, &found, name)? {
                    self.free_inode(found.ino)?;
                }
                self.add_name(dir, name, ino, kind)
            }
            None => self.add_name(dir, name, ino, kind),
        }
    }
}
