//! Makes hard links: a further name for an inode. Called by `vfs_impl::names`.

use btrfs_disk::Key;
use btrfs_disk::key::item_type;

use super::entry::{self, NewName};
use super::lookup::Stored;
use super::{Found, Namespace, check_can_add, check_changeable, check_name};
use crate::error::{CallerError, Result};
use crate::inode::{Inode, lock_all};

/// Items that a link changes: two entries, a reference, two inodes, an orphan item.
const LINK_ITEMS: u32 = 6;
/// Most names of an inode (the kernel's `BTRFS_LINK_MAX`).
const LINKS_MAX: u32 = 65_535;

impl Namespace {
    /// Names `inode` `name` in `dir` too. An inode made without a name gets its first one; the
    /// caller has it open then.
    ///
    /// # Errors
    /// `NotPermitted` for a directory, `CrossSubvolume`, `TooManyLinks`, `Exists`, and the others
    /// of [`Namespace::create`].
    pub(crate) fn link(&self, inode: &Inode, dir: &Inode, name: &[u8]) -> Result<()> {
        check_name(name)?;
        if inode.kind().is_dir() {
            return Err(CallerError::NotPermitted.into());
        }
        if inode.tree_id() != dir.tree_id() {
            return Err(CallerError::CrossSubvolume.into());
        }
        let reservation = self.reserve_in(dir.tree_id(), LINK_ITEMS)?;
        let mut locks = lock_all([Some(dir), Some(inode), None, None]);
        check_can_add(dir)?;
        check_changeable(inode)?;
        if self.lookup_locked(dir, name)?.is_some() {
            return Err(CallerError::Exists.into());
        }
        self.check_room(dir, name)?;
        let nlink = inode.state().nlink;
        if nlink >= LINKS_MAX {
            return Err(CallerError::TooManyLinks.into());
        }
        if nlink == 0 && !(inode.is_linkable() && inode.is_open()) {
            return Err(CallerError::NotFound.into());
        }
        let kind = inode.kind();
        let entry = NewName {
            name,
            stored: Stored { location: Key::new(inode.ino().0, item_type::INODE_ITEM, 0), kind },
            found: Found { tree: dir.tree_id(), ino: inode.ino(), kind },
        };
        self.apply(reservation, |txn| {
            let now = self.core.now();
            let index = self.next_index(dir, locks.of(dir))?;
            self.back_refs.add(txn, inode, dir.ino(), name, index)?;
            self.add_name(txn, dir, locks.of(dir), &entry)?;
            if nlink == 0 {
                inode.set_linkable(false);
                self.remove_orphan(txn, inode)?;
            }
            inode.change(txn, |state| {
                state.nlink += 1;
                state.ctime = now;
            });
            entry::grow(txn, dir, name, now);
            Ok(())
        })
    }
}
