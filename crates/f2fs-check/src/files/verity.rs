//! Verifies contents protected by fs-verity against their Merkle tree. Called by `inode`, if data is checked.

use std::collections::BTreeMap;

use codec::verity::{BLOCK_SIZE, Tree, Verifier};
use f2fs_disk::convert::{to_usize, usize_from};
use f2fs_disk::flags::{Advise, InlineFlags};
use f2fs_disk::inode::{Inode, Kind};
use f2fs_disk::{BlockAddr, Corrupt, Detail, verity};

use super::Walk;
use crate::code::Code;
use crate::finding::Place;

const BLOCK_BYTES: u64 = 4096;

/// Addresses of the blocks of a file; missing ones are holes.
type Blocks = BTreeMap<u64, BlockAddr>;

impl Walk<'_, '_> {
    /// True for a file whose contents are to be verified.
    pub(super) fn compares(&mut self, inode: &Inode) -> bool {
        let is_sealed = inode.kind() == Kind::File && inode.advise().contains(Advise::VERITY);
        if !self.reads_data || !is_sealed {
            return false;
        }
        let cannot_be_read = inode.compressed().is_some() || inode.advise().contains(Advise::ENCRYPT);
        self.not_compared = self.not_compared.saturating_add(u64::from(cannot_be_read));
        !cannot_be_read
    }

    /// Verifies all blocks of a file.
    pub(super) fn compare_sealed(&mut self, inode: &Inode, xattrs: &[u8], blocks: &Blocks) {
        let place = || Place::inode(inode.ino());
        let tree = match self.tree(inode, xattrs, blocks) {
            Ok(tree) => tree,
            Err(error) => {
                self.findings.add_corrupt(Code::InodeVerity, place(), &error);
                return;
            }
        };
        let (mut verifier, tree_at) = (Verifier::new(&tree), verity::tree_offset(inode.size()) / BLOCK_BYTES);
        let count = inode.size().div_ceil(BLOCK_BYTES);
        let mut index = 0;
        while index < count {
            // Holes are protected as well.
            let block = self.contents_at(blocks, index);
            let len = to_usize(inode.size().saturating_sub(index.saturating_mul(BLOCK_BYTES))).min(BLOCK_SIZE);
            let data = block.map(|block| block.get(..len).unwrap_or_default().to_vec());
            let mut read = |number: u64| self.contents_at(blocks, tree_at.saturating_add(number));
            let is_right = data.and_then(|data| verifier.is_right(index, &data, &mut read));
            match is_right {
                Ok(true) => {}
                Ok(false) => {
                    let expected = "contents with the hash in the tree";
                    self.findings.add(Code::DataVerity, place().file_block(index), expected, "other contents");
                    if !blocks.contains_key(&index) {
                        // The rest of a hole has the same fault as its first block.
                        index = blocks.range(index..).next().map_or(count, |(next, _)| *next);
                        continue;
                    }
                }
                Err(error) => {
                    self.findings.add(Code::DataVerity, place().file_block(index), "data that can be read", error);
                }
            }
            index = index.saturating_add(1);
        }
    }

    fn tree(&mut self, inode: &Inode, xattrs: &[u8], blocks: &Blocks) -> Result<Tree, Corrupt> {
        if inode.inline().contains(InlineFlags::DATA) {
            let (expected, found) = (Detail::Text("blocks"), Detail::Text("inline"));
            return Err(Corrupt::new("contents of a file with verity", expected, found));
        }
        let location = verity::descriptor(xattrs, inode.size())?;
        let (start, len) = (location.pos.get(), usize_from(location.size.get()));
        let mut bytes = Vec::new();
        // At most five blocks.
        let mut index = start / BLOCK_BYTES;
        let skipped = to_usize(start % BLOCK_BYTES);
        while bytes.len() < skipped.saturating_add(len) {
            let block = self.contents_at(blocks, index).map_err(|_| {
                Corrupt::new("verity descriptor", Detail::Text("blocks that can be read"), Detail::Number(index))
            })?;
            bytes.extend(block);
            index = index.saturating_add(1);
        }
        let descriptor = bytes.get(skipped..skipped.saturating_add(len)).unwrap_or_default();
        Tree::new(descriptor, inode.size())
            .map_err(|wrong| Corrupt::new(wrong.what, Detail::Number(wrong.expected), Detail::Number(wrong.found)))
    }

    fn contents_at(&mut self, blocks: &Blocks, index: u64) -> Result<Vec<u8>, blockdev::Error> {
        match blocks.get(&index) {
            Some(at) => self.volume.media.read(*at).map(|block| block.to_vec()),
            None => Ok(vec![0; BLOCK_SIZE]),
        }
    }

    /// Notes the files that could not be verified.
    pub(super) fn note_not_compared(&mut self) {
        if self.not_compared > 0 {
            let count = self.not_compared;
            self.findings
                .note(format!("{count} files that fs-verity protects are compressed or encrypted: not compared"));
        }
    }
}
