//! Finishes inodes after a replay: counts links, and adds orphan items. Called at the end of the replay of a log.

use btrfs_disk::InodeNo;

use super::Replay;
use super::names::Removed;
use crate::error::Result;

/// Items that the end of an inode's replay changes: its own, and an orphan item.
const INODE_ITEMS: usize = 2;

impl Replay<'_> {
    /// Counts the links of every inode that was touched. A directory without any loses its names, which may leave other
    /// inodes without any in turn. An inode without links becomes an orphan, which is removed when the volume has been
    /// opened.
    pub(super) fn fix_links(&mut self) -> Result<()> {
        while let Some(ino) = self.touched.pop_last() {
            self.fix_link(ino)?;
        }
        Ok(())
    }

    fn fix_link(&mut self, ino: InodeNo) -> Result<()> {
        let inode = self.inode_of(ino)?;
        let count = self.count_refs(ino)?;
        if count == 0 && inode.kind().is_dir() {
            self.remove_names(ino, Removed::All)?;
        }
        if count > 0 && inode.state().nlink == count {
            return Ok(());
        }
        self.change(INODE_ITEMS, |txn| {
            inode.change(txn, |state| state.nlink = count);
            if count > 0 {
                return Ok(());
            }
            self.namespace.put_orphan(txn, &inode)
        })
    }
}
