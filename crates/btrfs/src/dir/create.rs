//! Creates inodes: one handle, the inode's items as one batch. Called by `vfs_impl` and for new subvolumes.

use std::borrow::Cow;
use std::sync::Arc;

use btrfs_disk::convert::{to_u64, usize_from};
use btrfs_disk::hash::name_hash;
use btrfs_disk::items::{
    DirEntry as DiskEntry, FILE_EXTENT_INLINE_START, FileExtent as DiskExtent, InodeRefEntry, OnDisk,
};
use btrfs_disk::key::item_type;
use btrfs_disk::{Generation, InodeNo, Key};
use btrfs_store::{Reservation, Txn};

use super::entry::{self, NewName, item_bytes_max, symlink_bytes_max};
use super::lookup::Stored;
use super::{Found, NAME_BYTES_MAX, Namespace, check_can_add, check_name};
use crate::error::{CallerError, Error, Result};
use crate::inode::{
    Absent, DirState, FileType, Inode, InodeFlags, InodeState, MODE_SET_GROUP, NewTimes, inherited_flags,
};

/// Items that a new inode changes: two entries, three of its own, its directory's.
pub(super) const CREATE_ITEMS: u32 = 6;

/// A new inode, as the directory operations want it.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewInode<'a> {
    pub(crate) kind: FileType,
    pub(crate) permissions: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Take over the group of a directory with the set-group-ID bit.
    pub(crate) inherit_group: bool,
    pub(crate) times: NewTimes,
    pub(crate) rdev: u64,
    pub(crate) flags: InodeFlags,
    pub(crate) target: &'a [u8],
    pub(crate) xattrs: &'a [(&'a [u8], &'a [u8])],
    /// Contents to store inline; the caller has checked that they may be.
    pub(crate) inline: &'a [u8],
}

impl NewInode<'_> {
    /// The character device 0:0 that a rename on an overlay leaves behind; it cannot be opened.
    pub(crate) fn whiteout(uid: u32, gid: u32) -> Self {
        Self { kind: FileType::CharDevice, uid, gid, inherit_group: true, ..Self::default() }
    }
}

/// Attribute items, ascending by hash: names with one hash share an item.
pub(crate) struct XattrItems(Vec<(u64, Vec<u8>)>);

impl Namespace {
    /// Makes an inode named `name` in `dir`.
    ///
    /// # Errors
    /// Callers' mistakes: `Exists`, `NameTooLong`, `InvalidArgument`, `ReadOnly`, `NotFound` (the
    /// directory was removed), `AttributeTooLarge`.
    pub(crate) fn create(&self, dir: &Inode, name: &[u8], new: &NewInode<'_>) -> Result<Arc<Inode>> {
        self.create_then(dir, name, new, |inode| Ok(Arc::clone(inode)))
    }

    /// As [`Namespace::create`]; `then` gets the inode before another thread can remove its name.
    ///
    /// # Errors
    /// As [`Namespace::create`], and those of `then`.
    pub(crate) fn create_then<R>(
        &self,
        dir: &Inode,
        name: &[u8],
        new: &NewInode<'_>,
        then: impl FnOnce(&Arc<Inode>) -> Result<R>,
    ) -> Result<R> {
        check_name(name)?;
        check_is_valid(new, self.core.store.sizes().node)?;
        if self.dentries.get(dir.tree_id(), dir.ino(), name).is_some() {
            return Err(CallerError::Exists.into());
        }
        let reservation = self.reserve_in(dir.tree_id(), CREATE_ITEMS + self.xattr_items(new))?;
        let mut names = dir.lock_names();
        then(&self.create_locked(dir, &mut names, name, new, reservation)?)
    }

    /// As [`Namespace::create`], with the directory's `names` lock and a reservation.
    fn create_locked(
        &self,
        dir: &Inode,
        names: &mut DirState,
        name: &[u8],
        new: &NewInode<'_>,
        reservation: Reservation,
    ) -> Result<Arc<Inode>> {
        check_can_add(dir)?;
        self.apply(reservation, |txn| self.insert_named(txn, dir, names, name, new))
    }

    /// Makes an inode named `name` in `dir`, whose `names` lock the caller holds. Fails with a caller's mistake before
    /// anything has changed.
    pub(super) fn insert_named(
        &self,
        txn: &Txn,
        dir: &Inode,
        names: &mut DirState,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<Arc<Inode>> {
        let xattrs = XattrItems::build(txn.generation(), new.xattrs, self.xattr_bytes_max())?;
        let ino = dir.root.new_ino()?;
        let entry = NewName {
            name,
            stored: Stored { location: Key::new(ino.0, item_type::INODE_ITEM, 0), kind: new.kind },
            found: Found { tree: dir.tree_id(), ino, kind: new.kind },
        };
        let inode = self.new_inode(txn.generation(), dir, ino, new);
        // Before its name, by which other threads find it.
        self.core.inodes.insert(&inode, txn.generation());
        let added = self.add_name(txn, dir, names, &entry);
        let index = added.inspect_err(|_| self.core.inodes.remove(inode.tree_id(), ino))?;
        let reference = InodeRefEntry { index, name }.build();
        let reference = (Key::new(ino.0, item_type::INODE_REF, dir.ino().0), &*reference);
        insert_items(txn, &inode, Some(reference), new, &xattrs)?;
        entry::grow(txn, dir, name, self.core.now());
        Ok(inode)
    }

    /// Makes a regular file without a name in the subvolume of `dir`. It counts as open.
    ///
    /// # Errors
    /// As [`Namespace::create`].
    pub(crate) fn create_unnamed(&self, dir: &Inode, new: &NewInode<'_>) -> Result<Arc<Inode>> {
        check_is_valid(new, self.core.store.sizes().node)?;
        check_can_add(dir)?;
        let reservation = self.reserve_in(dir.tree_id(), CREATE_ITEMS + self.xattr_items(new))?;
        self.apply(reservation, |txn| {
            let xattrs = XattrItems::build(txn.generation(), new.xattrs, self.xattr_bytes_max())?;
            let ino = dir.root.new_ino()?;
            let inode = self.new_inode(txn.generation(), dir, ino, new);
            inode.change_in_memory(|state| state.nlink = 0);
            inode.set_linkable(true);
            insert_items(txn, &inode, None, new, &xattrs)?;
            self.insert_orphan(txn, &inode);
            inode.open_again();
            self.core.inodes.insert(&inode, txn.generation());
            Ok(inode)
        })
    }

    fn new_inode(&self, generation: Generation, dir: &Inode, ino: InodeNo, new: &NewInode<'_>) -> Arc<Inode> {
        let now = self.core.now();
        let mut state = InodeState::new(generation, new.kind, new.permissions);
        (state.uid, state.gid) = (new.uid, new.gid);
        if matches!(new.kind, FileType::CharDevice | FileType::BlockDevice) {
            state.rdev = new.rdev;
        }
        {
            let parent = dir.state();
            state.flags = inherited_flags(parent.flags, new.kind) | new.flags;
            if self.core.settings.inherits_data_flags && (new.kind.is_file() || new.kind.is_dir()) {
                state.flags |= parent.flags & InodeFlags::NODATASUM;
            }
            if new.kind.is_file() {
                state.flags |= self.core.settings.file_flags;
            }
            if new.inherit_group && parent.mode & MODE_SET_GROUP != 0 {
                state.gid = parent.gid;
                if new.kind.is_dir() {
                    state.mode |= MODE_SET_GROUP;
                }
            }
        }
        state.atime = new.times.atime.unwrap_or(now);
        state.mtime = new.times.mtime.unwrap_or(now);
        state.ctime = new.times.ctime.unwrap_or(now);
        state.otime = new.times.btime.unwrap_or(now);
        let inline = inline_data(new);
        state.set_sizes(to_u64(inline.len()));
        state.nbytes = to_u64(inline.len());
        let inode = Inode::new(Arc::clone(&dir.root), ino, new.kind, state);
        if new.xattrs.is_empty() {
            // No other thread has the inode yet.
            for what in [Absent::Capability, Absent::AccessAcl, Absent::DefaultAcl] {
                inode.absent.insert(what);
            }
        }
        Arc::new(inode)
    }

    /// True when a file of `len` bytes can be stored inside its leaf.
    pub(crate) fn fits_inline(&self, len: usize) -> bool {
        let sizes = self.core.store.sizes();
        let sector_max = usize_from(sizes.sector).saturating_sub(1);
        let leaf_max = item_bytes_max(sizes.node).saturating_sub(FILE_EXTENT_INLINE_START);
        len <= usize_from(self.core.settings.max_inline).min(sector_max).min(leaf_max)
    }

    /// Items to reserve for the attributes of a new inode: they enter side by side, and an item
    /// pays for the three blocks that a leaf full of them may split into.
    pub(super) fn xattr_items(&self, new: &NewInode<'_>) -> u32 {
        const HEADERS_BYTES: usize = size_of::<btrfs_disk::items::DirItem>() + 25;
        let bytes: usize = new.xattrs.iter().map(|(name, value)| name.len() + value.len() + HEADERS_BYTES).sum();
        let leaves = bytes.div_ceil(usize_from(self.core.store.sizes().node));
        u32::try_from(leaves).unwrap_or(u32::MAX / 2)
    }

    /// Largest attribute, name and value together.
    pub(crate) fn xattr_bytes_max(&self) -> usize {
        item_bytes_max(self.core.store.sizes().node).saturating_sub(size_of::<btrfs_disk::items::DirItem>())
    }
}

fn insert_items(
    txn: &Txn,
    inode: &Inode,
    reference: Option<(Key, &[u8])>,
    new: &NewInode<'_>,
    xattrs: &XattrItems,
) -> Result<()> {
    let item = inode.state().to_item();
    let mut batch: Vec<(Key, &[u8])> = Vec::with_capacity(3 + xattrs.0.len());
    batch.push((inode.key(), item.bytes()));
    batch.extend(reference);
    batch.extend(xattrs.of(inode.ino()));
    let data = inline_data(new);
    let extent = if data.is_empty() {
        Cow::Borrowed(&[][..])
    } else {
        Cow::Owned(DiskExtent::build_inline(txn.generation(), 0, to_u64(data.len()), data))
    };
    if !extent.is_empty() {
        batch.push((Key::new(inode.ino().0, item_type::EXTENT_DATA, 0), &extent));
    }
    Ok(txn.insert_batch(&inode.root.tree, &batch)?)
}

fn inline_data<'a>(new: &NewInode<'a>) -> &'a [u8] {
    if new.kind.is_symlink() { new.target } else { new.inline }
}

fn check_is_valid(new: &NewInode<'_>, node_bytes: u32) -> Result<()> {
    if new.kind.is_symlink() {
        if new.target.is_empty() || new.target.contains(&0) {
            return Err(CallerError::InvalidArgument.into());
        }
        if new.target.len() > symlink_bytes_max(node_bytes) {
            return Err(CallerError::NameTooLong.into());
        }
    }
    Ok(())
}

impl XattrItems {
    /// The items of the inode `ino`, in their order.
    pub(crate) fn of(&self, ino: InodeNo) -> impl Iterator<Item = (Key, &[u8])> {
        let items = self.0.iter();
        items.map(move |(hash, bytes)| (Key::new(ino.0, item_type::XATTR_ITEM, *hash), bytes.as_slice()))
    }

    /// # Errors
    /// `InvalidArgument`, `NameTooLong`, `AttributeTooLarge`.
    pub(crate) fn build(generation: Generation, xattrs: &[(&[u8], &[u8])], bytes_max: usize) -> Result<Self> {
        let mut items: Vec<(u64, Vec<u8>)> = Vec::with_capacity(xattrs.len());
        for (name, value) in xattrs {
            check_xattr(name, value, bytes_max)?;
            items.push((name_hash(name), DiskEntry::build_xattr(generation, name, value)));
        }
        items.sort_by_key(|(hash, _)| *hash);
        items.dedup_by(|next, item| {
            let joins = next.0 == item.0;
            if joins {
                item.1.append(&mut next.1);
            }
            joins
        });
        let item_bytes_max = bytes_max + size_of::<btrfs_disk::items::DirItem>();
        if items.iter().any(|(_, bytes)| bytes.len() > item_bytes_max) {
            return Err(CallerError::AttributeTooLarge.into());
        }
        Ok(Self(items))
    }
}

/// Refuses an attribute that no leaf can hold.
pub(crate) fn check_xattr(name: &[u8], value: &[u8], bytes_max: usize) -> Result<()> {
    if name.is_empty() || name.contains(&0) {
        return Err(CallerError::InvalidArgument.into());
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(CallerError::NameTooLong.into());
    }
    if name.len() + value.len() > bytes_max {
        return Err(Error::caller(CallerError::AttributeTooLarge));
    }
    Ok(())
}
