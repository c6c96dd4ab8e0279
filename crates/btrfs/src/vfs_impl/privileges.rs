//! Drops the privileges that a file loses when it is written to. Called by `attr` and `data`.

use std::sync::Arc;

use vfs::privileges::{BareSetGroup, CAPABILITY_NAME, cleared};

use super::BtrfsFs;
use crate::error::Result;
use crate::inode::{Absent, Inode, MODE_PERMISSION_MASK};

/// Items that change: the inode, and its capabilities.
const CLEAR_ITEMS: u32 = 2;

/// True when the inode has capabilities, which the next change removes.
///
/// # Errors
/// When the tree cannot be read.
pub(super) fn has_capability(fs: &BtrfsFs, inode: &Inode) -> Result<bool> {
    if inode.absent.contains(Absent::Capability) {
        return Ok(false);
    }
    let _names = inode.read_names();
    let has = fs.namespace().get_xattr(inode, CAPABILITY_NAME)?.is_some();
    if !has {
        inode.absent.insert(Absent::Capability);
    }
    Ok(has)
}

/// Removes the capabilities, and unless `bits` is `None` the set-user and set-group bits, before a write. True where
/// there were any.
///
/// # Errors
/// `NoSpace`; when a tree cannot be read or changed.
pub(super) fn drop_for_write(fs: &BtrfsFs, inode: &Arc<Inode>, bits: Option<BareSetGroup>) -> Result<bool> {
    let kind = inode.kind();
    let left = |mode: u32| bits.map(|bare| cleared(kind, mode & MODE_PERMISSION_MASK, bare));
    let mode = inode.state().mode;
    let loses_bits = left(mode).is_some_and(|left| left != mode & MODE_PERMISSION_MASK);
    let has_capability = has_capability(fs, inode)?;
    if !loses_bits && !has_capability {
        return Ok(false);
    }
    let reservation = fs.namespace().reserve(CLEAR_ITEMS)?;
    let _names = inode.lock_names();
    let now = fs.core().now();
    fs.namespace().apply(reservation, |txn| {
        if has_capability {
            fs.put(txn, inode, CAPABILITY_NAME, None)?;
        }
        inode.change(txn, |state| {
            if let Some(left) = left(state.mode) {
                state.mode = state.type_bits() | left;
            }
            state.ctime = now;
        });
        Ok(true)
    })
}
