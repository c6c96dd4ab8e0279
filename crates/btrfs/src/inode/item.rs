//! [`InodeState`]: reads the fields of an inode item as values, and writes them back to the item. Called when an inode
//! is read or staged.

use btrfs_disk::items::{InodeItem, OnDisk, Timespec, rdev_from_disk, rdev_to_disk};
use btrfs_disk::key::item_type;
use btrfs_disk::{Corrupt, Generation, InodeNo, Key, TreeId};

use super::{FileType, InodeFlags, MODE_TYPE_MASK, Metadata, Timestamp};

/// Bytes in a block of `stat`.
const STAT_BLOCK_BYTES: u64 = 512;
/// The unit to which the kernel rounds allocated bytes up for `stat`: the only sector size supported here.
pub(super) const SECTOR: u32 = 4096;
pub(super) const SECTOR_BYTES: u64 = 4096;

/// The fields of an inode item, as they will be at the next commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InodeState {
    /// Transaction that created the inode.
    pub generation: Generation,
    /// Last transaction that changed the inode.
    pub transid: Generation,
    /// Size in bytes as readers see it; may be ahead of `disk_size` while data is not written.
    pub size: u64,
    /// Size in bytes that the extents in the tree cover, and that the item has.
    pub disk_size: u64,
    /// Bytes in extents, holes not counted.
    pub nbytes: u64,
    /// Count of names; 0 for one that is being removed.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Type and permission bits.
    pub mode: u32,
    /// Device number, as `stat` encodes it.
    pub rdev: u64,
    /// Inode flags.
    pub flags: InodeFlags,
    /// Counts changes, for NFS.
    pub sequence: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Creation.
    pub otime: Timestamp,
    /// Writes do not change the times: the written contents came with times of their own. In memory only.
    pub(crate) keeps_times: bool,
    /// Hint for allocation, kept as read.
    block_group: u64,
    /// Kept as read.
    reserved: [u64; 4],
}

/// Object id of all orphan items (`BTRFS_ORPHAN_OBJECTID`).
const ORPHAN_OBJECTID: u64 = 0u64.wrapping_sub(5);

/// Key of the orphan item of an inode that has lost its last name, or has had none so far.
pub(crate) fn orphan_key(ino: InodeNo) -> Key {
    Key::new(ORPHAN_OBJECTID, item_type::ORPHAN_ITEM, ino.0)
}

impl InodeState {
    /// A new inode with one name and no contents.
    pub(crate) fn new(generation: Generation, kind: FileType, permissions: u32) -> Self {
        Self {
            generation,
            transid: generation,
            size: 0,
            disk_size: 0,
            nbytes: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            mode: kind.mode_bits() | (permissions & super::MODE_PERMISSION_MASK),
            rdev: 0,
            flags: InodeFlags::empty(),
            sequence: 0,
            atime: Timestamp::default(),
            ctime: Timestamp::default(),
            mtime: Timestamp::default(),
            otime: Timestamp::default(),
            keeps_times: false,
            block_group: 0,
            reserved: [0; 4],
        }
    }

    /// The fields of an item.
    pub(crate) fn from_item(bytes: &[u8]) -> Result<Self, Corrupt> {
        let item = InodeItem::parse(bytes)?;
        Ok(Self {
            generation: Generation(item.generation.get()),
            transid: Generation(item.transid.get()),
            size: item.size.get(),
            disk_size: item.size.get(),
            nbytes: item.nbytes.get(),
            nlink: item.nlink.get(),
            uid: item.uid.get(),
            gid: item.gid.get(),
            mode: item.mode.get(),
            rdev: rdev_from_disk(item.rdev.get()),
            flags: InodeFlags::from_bits_retain(item.flags.get()),
            sequence: item.sequence.get(),
            atime: time_from_disk(item.atime),
            ctime: time_from_disk(item.ctime),
            mtime: time_from_disk(item.mtime),
            otime: time_from_disk(item.otime),
            keeps_times: false,
            block_group: item.block_group.get(),
            reserved: item.reserved.map(|word| word.get()),
        })
    }

    /// The item to write.
    pub(crate) fn to_item(&self) -> InodeItem {
        InodeItem {
            generation: self.generation.0.into(),
            transid: self.transid.0.into(),
            size: self.disk_size.into(),
            nbytes: self.nbytes.into(),
            block_group: self.block_group.into(),
            nlink: self.nlink.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            mode: self.mode.into(),
            rdev: rdev_to_disk(self.rdev).into(),
            flags: self.flags.bits().into(),
            sequence: self.sequence.into(),
            reserved: self.reserved.map(Into::into),
            atime: time_to_disk(self.atime),
            ctime: time_to_disk(self.ctime),
            mtime: time_to_disk(self.mtime),
            otime: time_to_disk(self.otime),
        }
    }

    /// Sets all four times.
    pub(crate) fn set_all_times(&mut self, now: Timestamp) {
        (self.atime, self.ctime, self.mtime, self.otime) = (now, now, now, now);
    }

    /// Sets the size of an inode whose size and extents change together: a directory, a symlink.
    pub(crate) fn set_sizes(&mut self, size: u64) {
        (self.size, self.disk_size) = (size, size);
    }

    /// The type bits of the mode.
    #[must_use]
    pub(crate) fn type_bits(&self) -> u32 {
        self.mode & MODE_TYPE_MASK
    }

    /// The attributes that `stat` reports. `unwritten` bytes have no space in the tree yet.
    pub(super) fn metadata(&self, (tree, ino): (TreeId, InodeNo), kind: FileType, unwritten: u64) -> Metadata {
        Metadata {
            ino,
            tree,
            kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            size: self.size,
            blocks: self
                .nbytes
                .div_ceil(SECTOR_BYTES)
                .saturating_add(unwritten.div_ceil(SECTOR_BYTES))
                .saturating_mul(SECTOR_BYTES / STAT_BLOCK_BYTES),
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.otime,
            rdev: self.rdev,
            flags: self.flags,
            generation: self.generation,
        }
    }
}

/// A time as items have it.
pub(crate) fn time_from_disk(disk: Timespec) -> Timestamp {
    Timestamp { sec: disk.sec.get(), nsec: disk.nsec.get() }
}

/// A time for an item.
pub(crate) fn time_to_disk(time: Timestamp) -> Timespec {
    Timespec::new(time.sec, time.nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_survives_the_round_trip() {
        let mut state = InodeState::new(Generation(7), FileType::CharDevice, 0o640);
        state.rdev = rdev_from_disk((4 << 20) | 64);
        state.set_all_times(Timestamp::new(-5, 999_999_999));
        state.reserved = [1, 2, 3, 4];
        state.flags = InodeFlags::from_bits_retain(1 << 40);
        let item = state.to_item();
        assert_eq!(item.rdev.get(), (4 << 20) | 64);
        assert_eq!(InodeState::from_item(item.bytes()).unwrap(), state);
    }
}
