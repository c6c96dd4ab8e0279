//! Reads and checks extended attributes: in the inode, in a node of their own, or both. Called by `inode` and `dir`.

use f2fs_disk::node::{self, XATTR_OFFSET};
use f2fs_disk::xattr;

use super::Walk;
use super::claims::Entered;
use super::contents::File;
use crate::code::Code;
use crate::finding::Place;

impl Walk<'_, '_> {
    /// Checks the attributes of an inode, counts the block of their node, and returns their bytes.
    pub(super) fn attributes(&mut self, file: &mut File, entered: &Entered) -> Vec<u8> {
        let ino = file.inode.ino();
        let mut bytes = file.inode.inline_xattrs(&entered.block).to_vec();
        if let Some(nid) = file.inode.xattr_nid()
            && let Some(own) = self.node(nid, ino, XATTR_OFFSET)
        {
            file.blocks = file.blocks.saturating_add(1);
            bytes.extend_from_slice(node::contents(&own.block));
        }
        if let Some(Err(error)) = xattr::entries(&bytes).find(Result::is_err) {
            self.findings.add_corrupt(Code::InodeXattr, Place::inode(ino), &error);
        }
        bytes
    }
}
