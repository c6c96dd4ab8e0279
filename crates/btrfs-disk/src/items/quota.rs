//! Defines the items of quotas: QGROUP_STATUS, QGROUP_INFO, QGROUP_LIMIT and QGROUP_RELATION. `btrfs-store` reads and
//! writes them (`quota`); check and repair compare them with the trees.
//!
//! Keys: (0, QGROUP_STATUS, 0), (0, QGROUP_INFO, group), (0, QGROUP_LIMIT, group), and
//! (group, QGROUP_RELATION, group) in both directions without data.

use std::fmt;

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::OnDisk;
use crate::Generation;
use crate::flags::{QgroupLimitFlags, QgroupStatusFlags};

/// State of the quotas. Before Linux 6.7 the item ended here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QgroupStatusItem {
    /// Version: 1.
    pub version: U64,
    /// Transaction of the last writer that kept the quotas.
    pub generation: U64,
    /// [`QgroupStatusFlags`].
    pub flags: U64,
    /// Address that a rescan has come to.
    pub rescan: U64,
}
const _: () = assert!(size_of::<QgroupStatusItem>() == 32);

impl QgroupStatusItem {
    /// Bytes of the item since Linux 6.7: the generation in which simple quotas were turned on
    /// follows.
    pub const SIZE_WITH_ENABLE_GEN: usize = 40;

    /// The generation in which simple quotas were turned on, of an item that has it.
    #[must_use]
    pub fn enable_generation(bytes: &[u8]) -> Option<Generation> {
        let rest = bytes.get(size_of::<Self>()..Self::SIZE_WITH_ENABLE_GEN)?;
        Some(Generation(u64::from_le_bytes(*rest.first_chunk()?)))
    }

    /// The flags as a set.
    #[must_use]
    pub fn status_flags(&self) -> QgroupStatusFlags {
        QgroupStatusFlags::from_bits_retain(self.flags.get())
    }
}

impl OnDisk for QgroupStatusItem {
    const NAME: &'static str = "quota status item size";
}

impl fmt::Display for QgroupStatusItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "quota status version {} generation {} flags {} rescan {}",
            self.version,
            self.generation,
            self.status_flags(),
            self.rescan
        )
    }
}

/// Use of a quota group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QgroupInfoItem {
    /// Transaction of the last change.
    pub generation: U64,
    /// Bytes that the group refers to.
    pub rfer: U64,
    /// The same, compressed.
    pub rfer_cmpr: U64,
    /// Bytes that only this group refers to.
    pub excl: U64,
    /// The same, compressed.
    pub excl_cmpr: U64,
}
const _: () = assert!(size_of::<QgroupInfoItem>() == 40);

impl OnDisk for QgroupInfoItem {
    const NAME: &'static str = "quota info item size";
}

impl fmt::Display for QgroupInfoItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "quota info generation {} rfer {} rfer_cmpr {} excl {} excl_cmpr {}",
            self.generation, self.rfer, self.rfer_cmpr, self.excl, self.excl_cmpr
        )
    }
}

/// Limits of a quota group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct QgroupLimitItem {
    /// [`QgroupLimitFlags`]: which of the limits are set.
    pub flags: U64,
    /// Most bytes referred to.
    pub max_rfer: U64,
    /// Most bytes held alone.
    pub max_excl: U64,
    /// Reserved bytes, referred to.
    pub rsv_rfer: U64,
    /// Reserved bytes, held alone.
    pub rsv_excl: U64,
}
const _: () = assert!(size_of::<QgroupLimitItem>() == 40);

impl QgroupLimitItem {
    /// The flags as a set.
    #[must_use]
    pub fn limit_flags(&self) -> QgroupLimitFlags {
        QgroupLimitFlags::from_bits_retain(self.flags.get())
    }
}

impl OnDisk for QgroupLimitItem {
    const NAME: &'static str = "quota limit item size";
}

impl fmt::Display for QgroupLimitItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "quota limit flags {:#x} max_rfer {} max_excl {} rsv_rfer {} rsv_excl {}",
            self.flags.get(),
            self.max_rfer,
            self.max_excl,
            self.rsv_rfer,
            self.rsv_excl
        )
    }
}
