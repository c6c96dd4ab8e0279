//! Checks the fields of an inode, and then its contents. Called by `dir` for each name, and by the walk (`mod.rs`) for
//! the root directory, orphans and quota files.

use std::collections::BTreeMap;

use f2fs_disk::flags::{Features, InlineFlags};
use f2fs_disk::inode::{self, Inode, Kind, NAME_BYTES_MAX};
use f2fs_disk::{Block, BlockAddr, Nid};

use super::claims::Entered;
use super::contents::File;
use super::{Directory, LedBy, Links, Walk};
use crate::code::Code;
use crate::finding::Place;

/// Bytes of extra attributes up to the end of the checksum.
const END_OF_CHECKSUM: u16 = 12;
/// The value that a verification names where the checksum of an inode is wrong.
const CHECKSUM: &str = "inode i_inode_checksum";

impl Walk<'_, '_> {
    /// Enters an inode; the names of a directory are queued.
    pub(super) fn enter(&mut self, ino: Nid, from: LedBy) {
        if self.entered.has(ino.0) {
            self.meet_again(ino, from);
            return;
        }
        if let LedBy::Name { dir, .. } = from
            && !self.tables.nodes.has(ino.0)
        {
            self.findings.add(Code::DirTarget, Place::inode(dir).with_node(ino), "an inode", "none with its number");
            return;
        }
        let Some(entered) = self.node(ino, ino, 0) else { return };
        self.found.inodes = self.found.inodes.saturating_add(1);
        self.volume.media.add_inodes(1);
        let Some(inode) = self.verified(&entered.block, ino) else { return };
        self.check_extra_size(&entered.block, ino);
        self.check_fields(&inode, from);
        self.count_use(&inode, from);
        if inode.kind() == Kind::Directory {
            let parent = match from {
                LedBy::Name { dir, .. } => Some(dir),
                LedBy::Root | LedBy::Quota(_) => Some(ino),
                LedBy::Orphan => None,
            };
            self.waiting.push(Directory { ino, parent });
            return;
        }
        self.count_first(&inode, from);
        let is_sealed = self.compares(&inode);
        let (blocks, xattrs) = self.file(&inode, &entered, is_sealed || matches!(from, LedBy::Quota(_)));
        if is_sealed {
            self.compare_sealed(&inode, &xattrs, &blocks);
        }
        if let LedBy::Quota(kind) = from {
            self.keep_quota_file(kind, &inode, blocks);
        }
    }

    /// An inode as far as it can be used: one with a wrong checksum is still read.
    fn verified(&mut self, block: &Block, ino: Nid) -> Option<Inode> {
        let features = self.volume.superblock.features();
        let seed = self.volume.superblock.inode_checksum_seed();
        let mut result = Inode::verify(block, ino, features, seed);
        if let Err(error) = &result
            && error.what == CHECKSUM
        {
            self.findings.add_corrupt(Code::InodeChecksum, Place::inode(ino), error);
            result = Inode::verify(block, ino, features.difference(Features::INODE_CHKSUM), seed);
        }
        match result {
            Ok(inode) => Some(inode),
            Err(error) => {
                self.findings.add_corrupt(Code::InodeInvalid, Place::inode(ino), &error);
                None
            }
        }
    }

    /// Reads the inode of a queued directory again.
    pub(super) fn directory(&mut self, ino: Nid) -> Option<(Inode, Entered)> {
        let entry = self.volume.nat_entry(ino);
        let block = self.volume.media.read(entry.at()).ok()?;
        let features = self.volume.superblock.features().difference(Features::INODE_CHKSUM);
        let inode = Inode::verify(&block, ino, features, 0).ok()?;
        Some((inode, Entered { nid: ino, version: entry.version, block }))
    }

    /// If inodes have checksums, each has room for one.
    fn check_extra_size(&mut self, block: &Block, ino: Nid) {
        let mut copy = *block;
        let has_checksums = self.volume.superblock.features().contains(Features::INODE_CHKSUM);
        let size = inode::extra_mut(&mut copy).map(|extra| extra.i_extra_isize.get());
        if let Some(size) = size.filter(|size| has_checksums && *size < END_OF_CHECKSUM) {
            let expected = format!("{END_OF_CHECKSUM} or more, as inodes have checksums");
            self.findings.add_what(Code::InodeInvalid, "i_extra_isize", Place::inode(ino), expected, size);
        }
    }

    fn check_fields(&mut self, inode: &Inode, from: LedBy) {
        let (ino, fields) = (inode.ino(), inode.fields());
        let name_len = fields.i_namelen.get();
        if usize::try_from(name_len).map_or(true, |len| len > NAME_BYTES_MAX) {
            self.findings.add(Code::InodeName, Place::inode(ino), format!("at most {NAME_BYTES_MAX} bytes"), name_len);
        }
        let has_extra = self.volume.superblock.features().contains(Features::EXTRA_ATTR);
        if inode.inline().contains(InlineFlags::EXTRA_ATTR) && !has_extra {
            let found = "extra attributes, which the volume does not have";
            self.findings.add_what(Code::InodeInvalid, "i_inline", Place::inode(ino), "none", found);
        }
        match from {
            LedBy::Root if inode.kind() != Kind::Directory => {
                self.findings.add_what(Code::InodeInvalid, "root", Place::inode(ino), "a directory", name_of(inode));
            }
            LedBy::Name { dir, kind } if kind != Some(inode.kind()) => {
                let found = kind.map_or("no type".to_owned(), |kind| format!("{kind:?}"));
                self.findings.add(Code::DirType, Place::inode(dir).with_node(ino), name_of(inode), found);
            }
            LedBy::Orphan if fields.i_links.get() != 0 => {
                self.findings.add(Code::OrphanLinks, Place::inode(ino), 0, fields.i_links);
            }
            _ => {}
        }
        if inode.kind() == Kind::Symlink && inode.size() == 0 {
            self.findings.add(Code::InodeSymlink, Place::inode(ino), "a size above 0", 0);
        }
    }

    /// Counts the first name of a file, which for most files is the only one, and is not remembered.
    fn count_first(&mut self, inode: &Inode, from: LedBy) {
        let counted = inode.fields().i_links.get();
        if matches!(from, LedBy::Name { .. }) && counted != 1 {
            self.links.insert(inode.ino(), Links { counted, names: 1 });
        }
    }

    /// Counts a further name of an inode.
    fn meet_again(&mut self, ino: Nid, from: LedBy) {
        let LedBy::Name { dir, kind } = from else {
            self.findings.add(Code::NodeTwice, Place::inode(ino), "an inode that was not met before", "one that was");
            return;
        };
        if let Some(links) = self.links.get_mut(&ino) {
            links.names = links.names.saturating_add(1);
            return;
        }
        let entry = self.volume.nat_entry(ino);
        let footer = self.volume.media.read(entry.at()).map(|block| (f2fs_disk::node::Footer::of(&block), block));
        let features = self.volume.superblock.features().difference(Features::INODE_CHKSUM);
        let inode = match footer {
            Ok((footer, block)) if footer.is_inode() => Inode::verify(&block, ino, features, 0).ok(),
            _ => None,
        };
        let Some(inode) = inode else {
            // A name of a node that is no inode, or of an inode that was reported already.
            if entry.ino() != ino {
                self.findings.add(Code::DirTarget, Place::inode(dir).with_node(ino), "an inode", "another node");
            }
            return;
        };
        if inode.kind() == Kind::Directory {
            self.findings.add(Code::DirTwice, Place::inode(ino), "one name", format!("another in inode {dir}"));
            return;
        }
        if kind != Some(inode.kind()) {
            let found = kind.map_or("no type".to_owned(), |kind| format!("{kind:?}"));
            self.findings.add(Code::DirType, Place::inode(dir).with_node(ino), name_of(&inode), found);
        }
        self.links.insert(ino, Links { counted: inode.fields().i_links.get(), names: 2 });
    }

    /// Walks an inode that is no directory; returns the addresses of its blocks, if wanted, and its attributes.
    fn file(&mut self, inode: &Inode, entered: &Entered, shows_blocks: bool) -> (BTreeMap<u64, BlockAddr>, Vec<u8>) {
        let (mut file, mut blocks) = (File::new(inode), BTreeMap::new());
        file.shows_blocks = shows_blocks;
        let xattrs = self.attributes(&mut file, entered);
        if matches!(inode.kind(), Kind::File | Kind::Symlink) {
            self.contents(&mut file, entered, &mut |_, index, at| {
                blocks.insert(index, at);
            });
        }
        self.check_file(&file);
        (blocks, xattrs)
    }

    /// Compares the counts with the inode's fields.
    pub(super) fn check_file(&mut self, file: &File) {
        let (ino, fields) = (file.inode.ino(), file.inode.fields());
        if fields.i_blocks.get() != file.blocks {
            self.findings.add(Code::InodeBlocks, Place::inode(ino), file.blocks, fields.i_blocks);
        }
        let extent = fields.i_ext;
        if extent.len.get() != 0 && file.inode.compressed().is_none() && file.in_extent != extent.len.get() {
            let expected = format!("{} blocks from its block {} on, at {}", extent.len, extent.fofs, extent.blk);
            self.findings.add(Code::InodeExtent, Place::inode(ino), expected, format!("{} of them", file.in_extent));
        }
        let (saved, counted) = (file.saved, file.inode.compressed_blocks());
        if file.inode.compressed().is_some() && saved != counted {
            self.findings.add_what(Code::InodeCompressed, "blocks saved", Place::inode(ino), saved, counted);
        }
    }
}

fn name_of(inode: &Inode) -> String {
    format!("{:?}", inode.kind())
}
