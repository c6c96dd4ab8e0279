//! Defines ROOT_ITEM: the root block of a tree, and the properties of a subvolume. Used by the store, by `subvol` of
//! `btrfs`, by check, rescue and repair.
//!
//! Key: (tree, ROOT_ITEM, 0), or the generation that a snapshot was made in as offset. Until
//! 2012 the item ended before [`RootItem::generation_v2`].

use std::fmt;
use std::mem::offset_of;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::OnDisk;
use super::inode::{InodeItem, Timespec};
use crate::error::{Corrupt, Detail};
use crate::flags::RootFlags;
use crate::key::DiskKey;
use crate::{Generation, Logical, Uuid};

/// The root of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RootItem {
    /// Mostly unused; its flags tell whether `byte_limit` and the like were initialised.
    pub inode: InodeItem,
    /// Transaction that wrote the root block.
    pub generation: U64,
    /// Inode of the subvolume's root directory: 256; 0 for other trees.
    pub root_dirid: U64,
    /// Logical address of the root block.
    pub bytenr: U64,
    /// Unused: 0.
    pub byte_limit: U64,
    /// Bytes of tree blocks; not exact.
    pub bytes_used: U64,
    /// Transaction of the last snapshot taken of this subvolume: blocks older than that may be
    /// shared.
    pub last_snapshot: U64,
    /// [`RootFlags`].
    pub flags: U64,
    /// 1 while the subvolume has a name, 0 when it is being deleted.
    pub refs: U32,
    /// First key that a deletion has not passed yet; all zeros when none was begun.
    pub drop_progress: DiskKey,
    /// Level that `drop_progress` belongs to.
    pub drop_level: u8,
    /// Level of the root block.
    pub level: u8,
    /// Equal to `generation`, else the fields from here on were not kept by the last writer.
    pub generation_v2: U64,
    /// UUID of the subvolume.
    pub uuid: Uuid,
    /// UUID of the subvolume that this is a snapshot of.
    pub parent_uuid: Uuid,
    /// UUID of the subvolume that this was received from.
    pub received_uuid: Uuid,
    /// Transaction of the last change to an inode.
    pub ctransid: U64,
    /// Transaction that made it.
    pub otransid: U64,
    /// Transaction of the sender, when received.
    pub stransid: U64,
    /// Transaction of the receipt, when received.
    pub rtransid: U64,
    /// Time of `ctransid`.
    pub ctime: Timespec,
    /// Time of `otransid`.
    pub otime: Timespec,
    /// Time of `stransid`.
    pub stime: Timespec,
    /// Time of `rtransid`.
    pub rtime: Timespec,
    /// Zeros.
    pub reserved: [U64; 8],
}
const _: () = assert!(size_of::<RootItem>() == 439);

impl RootItem {
    /// Bytes of the item before 2012.
    pub const LEGACY_SIZE: usize = offset_of!(Self, generation_v2);

    /// The root item in either of its two sizes. The fields that the old form lacks, and those
    /// that an old kernel left stale, are zeros.
    ///
    /// # Errors
    /// [`Corrupt`] for any other size.
    pub fn read(bytes: &[u8]) -> Result<Self, Corrupt> {
        if bytes.len() != size_of::<Self>() && bytes.len() != Self::LEGACY_SIZE {
            return Err(Corrupt::new(Self::NAME, Detail::size(size_of::<Self>()), Detail::size(bytes.len())));
        }
        let mut item = Self::new_zeroed();
        item.as_mut_bytes().iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        if item.generation_v2 != item.generation {
            item.as_mut_bytes().iter_mut().skip(Self::LEGACY_SIZE).for_each(|byte| *byte = 0);
        }
        Ok(item)
    }

    /// The flags as a set.
    #[must_use]
    pub fn root_flags(&self) -> RootFlags {
        RootFlags::from_bits_retain(self.flags.get())
    }

    /// Address and generation of the root block.
    #[must_use]
    pub fn root_block(&self) -> (Logical, Generation) {
        (Logical(self.bytenr.get()), Generation(self.generation.get()))
    }
}

impl OnDisk for RootItem {
    const NAME: &'static str = "root item size";
}

impl fmt::Display for RootItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "root generation {} root_dirid {} bytenr {} level {} bytes_used {} last_snapshot {} \
             flags {} refs {} drop_progress {} drop_level {} uuid {} parent_uuid {} \
             received_uuid {} ctransid {} otransid {} stransid {} rtransid {} ctime {} otime {}",
            self.generation,
            self.root_dirid,
            self.bytenr,
            self.level,
            self.bytes_used,
            self.last_snapshot,
            self.root_flags(),
            self.refs,
            self.drop_progress,
            self.drop_level,
            self.uuid,
            self.parent_uuid,
            self.received_uuid,
            self.ctransid,
            self.otransid,
            self.stransid,
            self.rtransid,
            self.ctime,
            self.otime
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legacy_form_reads_with_zeros() {
        let mut item = RootItem::new_zeroed();
        item.generation = U64::new(7);
        item.generation_v2 = U64::new(7);
        item.uuid = Uuid([9; 16]);
        assert_eq!(RootItem::LEGACY_SIZE, 239);
        assert_eq!(RootItem::read(item.bytes()).unwrap(), item);
        let old = RootItem::read(&item.bytes()[..239]).unwrap();
        assert_eq!((old.generation.get(), old.uuid), (7, Uuid::NIL));
        assert!(RootItem::read(&item.bytes()[..240]).is_err());
    }

    #[test]
    fn fields_left_stale_by_an_old_kernel_are_dropped() {
        let mut item = RootItem::new_zeroed();
        item.generation = U64::new(8);
        item.generation_v2 = U64::new(7);
        item.uuid = Uuid([9; 16]);
        assert_eq!(RootItem::read(item.bytes()).unwrap().uuid, Uuid::NIL);
    }
}
