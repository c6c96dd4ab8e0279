//! Creates inodes with all attributes and contents, for imports. Called by `file_system`.

use std::sync::Arc;

use vfs::NodeId;
use vfs::file_system::{Attr, WholeNode};

use super::BtrfsFs;
use super::attr::checked;
use super::nodes::Place;
use super::stat::attr_of;
use crate::dir::NewInode;
use crate::error::{CallerError, Result};
use crate::file;
use crate::inode::{Inode, NewTimes};

impl BtrfsFs {
    pub(super) fn create_whole_node(&self, parent: NodeId, name: &[u8], node: &WholeNode<'_>) -> Result<Attr> {
        let dir = self.inode(parent)?;
        let made = self.create_whole_in(&dir, name, node)?;
        let place = Place::Inode(made.tree_id(), made.ino());
        Ok(attr_of(&made.metadata(), self.nodes.shown_place(&place)))
    }

    /// Makes an inode in one step, as imports do. It inherits only storage flags from the directory.
    fn create_whole_in(&self, dir: &Arc<Inode>, name: &[u8], node: &WholeNode<'_>) -> Result<Arc<Inode>> {
        if !node.data.is_empty() && !node.kind.is_file() {
            return Err(CallerError::InvalidArgument.into());
        }
        let is_inline = self.namespace().fits_inline(node.data.len());
        let new = NewInode {
            kind: node.kind,
            permissions: node.permissions,
            uid: node.uid,
            gid: node.gid,
            times: NewTimes {
                atime: node.atime.map(checked).transpose()?,
                mtime: node.mtime.map(checked).transpose()?,
                ctime: node.ctime.map(checked).transpose()?,
                btime: node.btime.map(checked).transpose()?,
            },
            rdev: u64::from(node.rdev),
            target: node.target,
            xattrs: node.xattrs,
            inline: if is_inline { node.data } else { &[] },
            ..NewInode::default()
        };
        let inode = self.namespace().create(dir, name, &new)?;
        if !is_inline {
            // Another thread may flush the data, and with it the times, before this one returns.
            inode.change_in_memory(|state| state.keeps_times = true);
            let written = file::write_back(self.core(), &inode, 0, node.data);
            inode.change_in_memory(|state| state.keeps_times = false);
            written?;
        }
        self.sync_marked(dir)?;
        self.sync_marked(&inode)?;
        Ok(inode)
    }
}
