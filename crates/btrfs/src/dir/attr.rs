//! Updates access times, and reads the targets of symbolic links. Called by `vfs_impl::data`, by path resolution
//! (`open_volume::walk`) and by each sync.

use std::sync::Arc;

use btrfs_disk::Detail;
use btrfs_disk::convert::to_usize;
use btrfs_store::Need;
use vfs::{AtimeMode, should_update_atime};

use super::Namespace;
use crate::error::{CallerError, Result, corrupt_inode};
use crate::file;
use crate::inode::{EMPTY_SUBVOL_INO, Inode, InodeFlags};

/// Items that a change of attributes changes.
const SET_ITEMS: u32 = 1;

/// Longest target, as Linux has it: a page, of which the last byte ends the path.
const TARGET_BYTES_MAX: u64 = 4095;

impl Namespace {
    /// Updates the access time of `inode`, as far as `mode` and the inode's flags ask for it. Never fails, waits or
    /// commits: without room at hand the time stays in memory, and is written with the next change of the inode.
    pub(crate) fn note_access(&self, inode: &Arc<Inode>, mode: AtimeMode) {
        if mode == AtimeMode::No || inode.ino() == EMPTY_SUBVOL_INO {
            return;
        }
        let now = self.core.now();
        let is_due = {
            let state = inode.state();
            !state.flags.contains(InodeFlags::NOATIME)
                && should_update_atime(mode, now, state.atime, state.mtime, state.ctime)
        };
        if !is_due || inode.check_writable().is_err() {
            return;
        }
        let need = Need { items: SET_ITEMS, data: 0 };
        match self.core.store.try_begin(need) {
            Some(txn) => inode.change(&txn, |state| {
                state.atime = now;
                // An access is no change: NFS clients keep their caches.
                state.sequence = state.sequence.wrapping_sub(1);
            }),
            None => {
                inode.change_in_memory(|state| state.atime = now);
                self.core.add_late_access(inode);
            }
        }
    }

    /// Stages access times for which there was no room when the files were read. Without room now either, they stay in
    /// memory.
    pub(crate) fn stage_late_accesses(&self) {
        for inode in self.core.take_late_accesses() {
            if inode.check_writable().is_err() {
                continue;
            }
            let staged = self.reserve(SET_ITEMS).and_then(|reservation| {
                self.apply(reservation, |txn| {
                    inode.change(txn, |_| ());
                    Ok(())
                })
            });
            if let Err(error) = staged {
                tracing::debug!(%error, "a time of access is lost");
                return;
            }
        }
    }

    /// The target of a symlink. As the kernel does, reads it like a file, up to the inode's size and its first zero
    /// byte: other tools store the zero that ends a path, some count it as well.
    ///
    /// # Errors
    /// `InvalidArgument` when the inode is no symlink; `Corrupt` when its target is empty, and those of reading a file.
    pub(crate) fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        if !inode.kind().is_symlink() {
            return Err(CallerError::InvalidArgument.into());
        }
        let mut target = vec![0; to_usize(inode.state().size.min(TARGET_BYTES_MAX))];
        let len = file::read_at(&self.core, inode, 0, &mut target)?;
        target.truncate(len);
        let end = target.iter().position(|byte| *byte == 0).unwrap_or(len);
        target.truncate(end);
        if target.is_empty() {
            return Err(no_target(inode));
        }
        Ok(target)
    }
}

#[cold]
fn no_target(inode: &Inode) -> crate::Error {
    let (expected, found) = (Detail::Text("a path"), Detail::Text("nothing"));
    corrupt_inode(inode.tree_id(), inode.ino(), "symlink target", expected, found)
}
