//! Counts blocks, nodes and inodes in use, for the next checkpoint. `write_volume` owns it; `change` counts, and
//! `change/commit` writes the numbers.

use f2fs_disk::checkpoint::DiskCheckpoint;

use crate::error::{Error, Result};

/// Numbers of items in use.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Blocks of files and directories, and nodes.
    pub(crate) blocks: u64,
    pub(crate) nodes: u32,
    pub(crate) inodes: u32,
    /// Blocks that may be in use.
    blocks_max: u64,
}

impl Counters {
    /// The counters of a checkpoint.
    pub(crate) fn of(fields: &DiskCheckpoint) -> Self {
        Self {
            blocks: fields.valid_block_count.get(),
            nodes: fields.valid_node_count.get(),
            inodes: fields.valid_inode_count.get(),
            blocks_max: fields.user_block_count.get(),
        }
    }

    /// Refuses more blocks than are left.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub(crate) fn check(&self, more: u64) -> Result<()> {
        match self.has_room(self.blocks, more) {
            true => Ok(()),
            false => Err(Error::no_space(more, self.blocks_max.saturating_sub(self.blocks))),
        }
    }

    /// True if `more` blocks fit beside `blocks`.
    pub(crate) const fn has_room(&self, blocks: u64, more: u64) -> bool {
        blocks.saturating_add(more) <= self.blocks_max
    }

    pub(crate) const fn add_blocks(&mut self, more: i64) {
        self.blocks = self.blocks.saturating_add_signed(more);
    }

    /// A node counts as a block, too.
    pub(crate) const fn add_node(&mut self) {
        self.nodes = self.nodes.saturating_add(1);
        self.blocks = self.blocks.saturating_add(1);
    }

    pub(crate) const fn remove_node(&mut self) {
        self.nodes = self.nodes.saturating_sub(1);
        self.blocks = self.blocks.saturating_sub(1);
    }

    pub(crate) const fn add_inodes(&mut self, more: i32) {
        self.inodes = self.inodes.saturating_add_signed(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_volume_says_how_many_bytes_are_missing() {
        let counters = Counters { blocks: 8, nodes: 0, inodes: 0, blocks_max: 10 };
        assert!(counters.check(2).is_ok());
        let error = counters.check(5).unwrap_err();
        assert!(matches!(error, Error::NoSpace { needed: 20_480, available: 8192 }), "{error}");
        assert_eq!(error.to_string(), "no space left on the volume: 20480 bytes needed, 8192 available");
    }
}
