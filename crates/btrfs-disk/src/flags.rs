//! Defines the bit sets of the format: features, block group types, inode and root flags. Used by `verify` and by all
//! crates that read or write the items.
//!
//! A set keeps every bit read from disk, including unnamed ones, and writes them back. `Display` lists the names as the
//! kernel's sysfs spells them, and `bit N` for unnamed bits.

use std::fmt;

macro_rules! flag_set {
    ($(#[$($doc:tt)*])* $name:ident { $($(#[$($bit_doc:tt)*])* $bit:ident = $shift:expr;)* }) => {
        bitflags::bitflags! {
            $(#[$($doc)*])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct $name: u64 {
                $($(#[$($bit_doc)*])* const $bit = 1 << $shift;)*
                // Every bit is valid, so that set operations keep those without a name.
                const _ = !0;
            }
        }

        impl $name {
            /// Every bit that has a name here.
            pub const NAMED: Self = Self::from_bits_retain($(Self::$bit.bits() |)* 0);

            /// The bits of this set that `supported` lacks; `None` if there are none.
            #[must_use]
            pub const fn beyond(self, supported: Self) -> Option<Self> {
                match self.bits() & !supported.bits() {
                    0 => None,
                    bits => Some(Self::from_bits_retain(bits)),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                const NAMES: &[(u64, &str)] = &[$(($name::$bit.bits(), stringify!($bit))),*];
                write_names(f, self.bits(), NAMES)
            }
        }
    };
}

/// Writes the names of the bits, in lower case and separated by commas; `none` for an empty set.
fn write_names(f: &mut fmt::Formatter<'_>, bits: u64, names: &[(u64, &str)]) -> fmt::Result {
    if bits == 0 {
        return f.write_str("none");
    }
    let mut separator = "";
    for shift in 0..u64::BITS {
        let bit = 1u64 << shift;
        if bits & bit == 0 {
            continue;
        }
        f.write_str(separator)?;
        separator = ", ";
        match names.iter().find(|(named, _)| *named == bit) {
            Some((_, name)) => name.chars().try_for_each(|c| write!(f, "{}", c.to_ascii_lowercase()))?,
            None => write!(f, "bit {shift}")?,
        }
    }
    Ok(())
}

flag_set! {
    /// Features that a reader may ignore but a writer must know (`compat_ro_flags`).
    CompatRo {
        /// There is a free-space tree.
        FREE_SPACE_TREE = 0;
        /// The last writer kept the free-space tree up to date; without this bit the tree is stale.
        FREE_SPACE_TREE_VALID = 1;
        /// Some inodes have fs-verity descriptors.
        VERITY = 2;
        /// Block group items live in a tree of their own.
        BLOCK_GROUP_TREE = 3;
    }
}

flag_set! {
    /// Features that every reader must know (`incompat_flags`).
    Incompat {
        /// Extent items have typed backrefs; set on every file system since 2009.
        MIXED_BACKREF = 0;
        /// The default subvolume is not the top level.
        DEFAULT_SUBVOL = 1;
        /// Data and metadata share block groups.
        MIXED_GROUPS = 2;
        /// Some file extents are LZO.
        COMPRESS_LZO = 3;
        /// Some file extents are zstd.
        COMPRESS_ZSTD = 4;
        /// Nodes are larger than a page.
        BIG_METADATA = 5;
        /// Inodes may have INODE_EXTREF items.
        EXTENDED_IREF = 6;
        /// There are or were RAID5/6 chunks.
        RAID56 = 7;
        /// Tree blocks have METADATA_ITEMs.
        SKINNY_METADATA = 8;
        /// Files need no hole extents.
        NO_HOLES = 9;
        /// Tree blocks carry `metadata_uuid` in place of `fsid`.
        METADATA_UUID = 10;
        /// There are RAID1C3 or RAID1C4 chunks.
        RAID1C34 = 11;
        /// Zoned block devices.
        ZONED = 12;
        /// Extent tree v2, experimental.
        EXTENT_TREE_V2 = 13;
        /// There is a RAID stripe tree.
        RAID_STRIPE_TREE = 14;
        /// Extent items have owner refs for simple quotas.
        SIMPLE_QUOTA = 16;
        /// There is a remap tree.
        REMAP_TREE = 17;
    }
}

flag_set! {
    /// Block groups of a balance, and how it was started.
    BalanceFlags {
        /// Data block groups.
        DATA = 0;
        /// Block groups of the chunk tree.
        SYSTEM = 1;
        /// Metadata block groups.
        METADATA = 2;
        /// Allows a reduction of metadata redundancy.
        FORCE = 3;
        /// The balance resumes after a pause.
        RESUME = 4;
    }
}

flag_set! {
    /// The fields of a balance's arguments that apply.
    BalanceFilters {
        /// Groups with one of several profiles.
        PROFILES = 0;
        /// Groups below a usage.
        USAGE = 1;
        /// Groups on a device.
        DEVID = 2;
        /// Groups in a range of the device.
        DRANGE = 3;
        /// Groups in a range of logical addresses.
        VRANGE = 4;
        /// A number of groups.
        LIMIT = 5;
        /// A minimum and maximum number of groups.
        LIMIT_RANGE = 6;
        /// Groups with a range of stripe counts.
        STRIPES_RANGE = 7;
        /// Convert to another profile.
        CONVERT = 8;
        /// Skip groups that already have the profile.
        SOFT = 9;
        /// Groups within a range of usage.
        USAGE_RANGE = 10;
    }
}

flag_set! {
    /// State of the whole file system (`flags` of the superblock).
    SuperFlags {
        /// The kernel sets this bit whenever it writes a superblock, as it does in tree blocks.
        WRITTEN = 0;
        /// RELOC, of tree blocks; never set in a superblock.
        RELOC = 1;
        /// An error was met.
        ERROR = 2;
        /// A seed device.
        SEEDING = 32;
        /// Restored from a metadata dump: there is no data.
        METADUMP = 33;
        /// Restored from a metadata dump in the newer form: there is no data.
        METADUMP_V2 = 34;
        /// The file system's UUID is being changed, older form.
        CHANGING_FSID = 35;
        /// The file system's UUID is being changed.
        CHANGING_FSID_V2 = 36;
        /// Conversion to or from the block-group tree was interrupted.
        CHANGING_BG_TREE = 38;
        /// Conversion of the data checksums was interrupted.
        CHANGING_DATA_CSUM = 39;
        /// Conversion of the metadata checksums was interrupted.
        CHANGING_META_CSUM = 40;
    }
}

flag_set! {
    /// Flags of a tree block.
    HeaderFlags {
        /// The block was written once; set in every block on disk.
        WRITTEN = 0;
        /// The block belongs to a relocation tree: its pointers are counted as full backrefs.
        RELOC = 1;
        /// Backref revision 1 (the top byte is a number; this is its only used value).
        MIXED_BACKREF_REV = 56;
    }
}

flag_set! {
    /// Use and profile of a chunk and its block group.
    BlockGroupFlags {
        /// File data.
        DATA = 0;
        /// The chunk tree.
        SYSTEM = 1;
        /// All other trees.
        METADATA = 2;
        /// Striped.
        RAID0 = 3;
        /// Two copies on two devices.
        RAID1 = 4;
        /// Two copies on one device.
        DUP = 5;
        /// Striped pairs.
        RAID10 = 6;
        /// One parity stripe.
        RAID5 = 7;
        /// Two parity stripes.
        RAID6 = 8;
        /// Three copies.
        RAID1C3 = 9;
        /// Four copies.
        RAID1C4 = 10;
        /// Its addresses were moved elsewhere (remap tree).
        REMAPPED = 11;
        /// The remap tree.
        METADATA_REMAP = 12;
    }
}

impl BlockGroupFlags {
    /// The bits of the type: data, system, metadata, and the metadata of the remap tree.
    pub const TYPE_MASK: Self = Self::from_bits_retain(0b111 | 1 << 12);
    /// The bits of the profile, the way of spreading data over devices; with none set it is "single".
    pub const PROFILE_MASK: Self = Self::from_bits_retain(0xff << 3);
    /// Data and metadata in one group.
    pub const MIXED: Self = Self::from_bits_retain(0b101);
}

flag_set! {
    /// Flags of an inode; the upper 32 bits may be ignored by a reader.
    InodeFlags {
        /// Data has no checksums.
        NODATASUM = 0;
        /// Data is written in place.
        NODATACOW = 1;
        /// Read-only for every user, including root (`EACCES`); btrfs-convert sets it on the image of the old file
        /// system.
        READONLY = 2;
        /// Never compress.
        NOCOMPRESS = 3;
        /// There are or were preallocated extents.
        PREALLOC = 4;
        /// chattr S.
        SYNC = 5;
        /// chattr i.
        IMMUTABLE = 6;
        /// chattr a.
        APPEND = 7;
        /// chattr d.
        NODUMP = 8;
        /// chattr A.
        NOATIME = 9;
        /// chattr D.
        DIRSYNC = 10;
        /// chattr c.
        COMPRESS = 11;
        /// The inode of a root item holds meaningful values.
        ROOT_ITEM_INIT = 31;
        /// fs-verity is on; the file must not be written.
        RO_VERITY = 32;
    }
}

flag_set! {
    /// Flags of an extent item.
    ExtentFlags {
        /// File data.
        DATA = 0;
        /// A tree block.
        TREE_BLOCK = 1;
        /// The extents that the block points to name the address of the block as the holder of the reference, not the
        /// tree that owns it.
        FULL_BACKREF = 8;
    }
}

flag_set! {
    /// Flags of a root item.
    RootFlags {
        /// A read-only subvolume.
        SUBVOL_RDONLY = 0;
        /// Being deleted; its directory entry is gone or about to go.
        SUBVOL_DEAD = 48;
    }
}

flag_set! {
    /// Flags of a free-space info item; on disk they have 32 bits.
    FreeSpaceFlags {
        /// The block group's free space is kept in bitmaps.
        USING_BITMAPS = 0;
    }
}

flag_set! {
    /// Flags of the quota status item.
    QgroupStatusFlags {
        /// Quotas are on.
        ON = 0;
        /// A rescan is under way.
        RESCAN = 1;
        /// The counters are inconsistent.
        INCONSISTENT = 2;
        /// Simple quotas.
        SIMPLE_MODE = 3;
    }
}

flag_set! {
    /// Limits that a quota group has.
    QgroupLimitFlags {
        /// Bytes referred to.
        MAX_RFER = 0;
        /// Bytes held alone.
        MAX_EXCL = 1;
        /// Reserved bytes, referred to. Not enforced.
        RSV_RFER = 2;
        /// Reserved bytes, held alone. Not enforced.
        RSV_EXCL = 3;
        /// Bytes referred to, compressed. Not enforced.
        RFER_CMPR = 4;
        /// Bytes held alone, compressed. Not enforced.
        EXCL_CMPR = 5;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_known_and_unknown_bits() {
        let set = Incompat::from_bits_retain(1 << 9 | 1 << 40);
        assert_eq!(set.to_string(), "no_holes, bit 40");
        assert_eq!(set.beyond(Incompat::NO_HOLES).map(|set| set.bits()), Some(1 << 40));
        assert_eq!(Incompat::NO_HOLES.beyond(Incompat::NAMED), None);
        assert_eq!(CompatRo::empty().to_string(), "none");
    }

    #[test]
    fn unknown_bits_survive_set_operations() {
        let mut set = Incompat::from_bits_retain(1 << 40);
        set.insert(Incompat::NO_HOLES);
        set.remove(Incompat::NO_HOLES);
        assert_eq!(set.bits(), 1 << 40);
        assert_eq!((!Incompat::NO_HOLES & set).bits(), 1 << 40);
    }
}
