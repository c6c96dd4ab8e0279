//! Collects the items of fs-verity of one inode, and compares them with each other. Called by `inode`. Contents are not
//! compared with the hashes: each read does that.

use btrfs_disk::Key;
use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::InodeFlags;
use btrfs_disk::items::{FileKind, InodeItem, OnDisk as _, VerityDescriptorItem};
use btrfs_disk::key::item_type;
use codec::verity::{BLOCK_SIZE, DESCRIPTOR_SIZE_MAX, Tree};

use crate::code::Code;
use crate::finding::{Findings, Place};

/// Items of fs-verity, as far as they were read.
#[derive(Default)]
pub(super) struct Verity {
    /// Bytes of the descriptor according to its head.
    size: Option<u64>,
    /// Bytes without a gap before them, at most as many as a descriptor may have.
    descriptor: Vec<u8>,
    /// Bytes of the tree without a gap before them.
    tree_bytes: u64,
}

impl Verity {
    pub(super) fn item(&mut self, key: &Key, data: &[u8]) {
        match (key.item_type, key.offset) {
            (item_type::VERITY_DESC_ITEM, 0) => {
                self.size = VerityDescriptorItem::parse(data).ok().map(|item| item.size.get());
            }
            (item_type::VERITY_DESC_ITEM, offset) if offset == to_u64(self.descriptor.len()).saturating_add(1) => {
                let room = DESCRIPTOR_SIZE_MAX.saturating_sub(self.descriptor.len());
                self.descriptor.extend(data.iter().take(room));
            }
            (item_type::VERITY_MERKLE_ITEM, offset) if offset == self.tree_bytes => {
                self.tree_bytes = self.tree_bytes.saturating_add(to_u64(data.len()));
            }
            _ => {}
        }
    }

    /// Reports items with which a protected file cannot be read.
    pub(super) fn judge(&self, findings: &Findings, item: &InodeItem, place: &Place) {
        if !item.inode_flags().contains(InodeFlags::RO_VERITY) {
            // Linux removes what is left of a tree that was not completed.
            return;
        }
        let add = |what: &str, expected: String, found: String| {
            findings.add_what(Code::FileVerity, what, place.clone(), expected, found);
        };
        if item.kind() != Some(FileKind::File) {
            return add("inode flags", "fs-verity for files alone".to_owned(), "fs-verity".to_owned());
        }
        let found = to_u64(self.descriptor.len());
        if self.size != Some(found) {
            let expected = self.size.map_or_else(|| "a head with its size".to_owned(), |size| size.to_string());
            return add("bytes of the verity descriptor", expected, found.to_string());
        }
        match Tree::new(&self.descriptor, item.size.get()) {
            Err(wrong) => add(wrong.what, wrong.expected.to_string(), wrong.found.to_string()),
            Ok(tree) => {
                let expected = tree.blocks().saturating_mul(to_u64(BLOCK_SIZE));
                if self.tree_bytes != expected {
                    add("bytes of the verity tree", expected.to_string(), self.tree_bytes.to_string());
                }
            }
        }
    }
}
