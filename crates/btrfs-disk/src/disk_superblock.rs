//! Defines the on-disk layout of a superblock, and the places of its copies, without verification. `superblock`
//! verifies it; the pool, check and repair read its fields.

use std::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Uuid;
use crate::convert::usize_from;
use crate::flags::{CompatRo, Incompat, SuperFlags};
use crate::items::{DevItem, OnDisk};
use crate::node::CSUM_FIELD_SIZE;

/// `_BHRfS_M`.
pub const MAGIC: u64 = 0x4D5F_5366_5248_425F;

/// Bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 4096;

/// Byte of the first superblock on its device.
pub const SUPERBLOCK_OFFSET: u64 = 64 * 1024;

/// Copies of the superblock on a large enough device.
pub const MIRRORS_MAX: usize = 3;

/// Bytes of [`DiskSuperblock::sys_chunk_array`].
pub const SYSTEM_CHUNK_ARRAY_SIZE: usize = 2048;

/// Bytes of a label, its closing NUL included.
pub const LABEL_SIZE: usize = 256;

/// Byte at which copy `mirror` of the superblock starts: 64 KiB, 64 MiB, 256 GiB. `None` for
/// other copies.
#[must_use]
pub const fn mirror_offset(mirror: usize) -> Option<u64> {
    match mirror {
        0 => Some(SUPERBLOCK_OFFSET),
        1 => Some(64 << 20),
        2 => Some(256 << 30),
        _ => None,
    }
}

/// The copies that a device of this size has.
pub fn mirror_offsets(device_bytes: u64) -> impl DoubleEndedIterator<Item = u64> {
    let fits = move |offset: &u64| offset.checked_add(4096).is_some_and(|end| end <= device_bytes);
    (0..MIRRORS_MAX).filter_map(mirror_offset).filter(fits)
}

/// Roots of an earlier transaction, in case the current ones are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RootBackup {
    /// Address of the root tree's root.
    pub tree_root: U64,
    /// Its generation.
    pub tree_root_gen: U64,
    /// Address of the chunk tree's root.
    pub chunk_root: U64,
    /// Its generation.
    pub chunk_root_gen: U64,
    /// Address of the extent tree's root.
    pub extent_root: U64,
    /// Its generation.
    pub extent_root_gen: U64,
    /// Address of the top-level subvolume's root.
    pub fs_root: U64,
    /// Its generation.
    pub fs_root_gen: U64,
    /// Address of the device tree's root.
    pub dev_root: U64,
    /// Its generation.
    pub dev_root_gen: U64,
    /// Address of the checksum tree's root.
    pub csum_root: U64,
    /// Its generation.
    pub csum_root_gen: U64,
    /// See [`DiskSuperblock::total_bytes`].
    pub total_bytes: U64,
    /// See [`DiskSuperblock::bytes_used`].
    pub bytes_used: U64,
    /// See [`DiskSuperblock::num_devices`].
    pub num_devices: U64,
    /// Zeros.
    pub unused_64: [U64; 4],
    /// Level of the root tree's root.
    pub tree_root_level: u8,
    /// Level of the chunk tree's root.
    pub chunk_root_level: u8,
    /// Level of the extent tree's root.
    pub extent_root_level: u8,
    /// Level of the top-level subvolume's root.
    pub fs_root_level: u8,
    /// Level of the device tree's root.
    pub dev_root_level: u8,
    /// Level of the checksum tree's root.
    pub csum_root_level: u8,
    /// Zeros.
    pub unused_8: [u8; 10],
}
const _: () = assert!(size_of::<RootBackup>() == 168);

impl OnDisk for RootBackup {
    const NAME: &'static str = "backup root size";
}

impl fmt::Display for RootBackup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roots = [
            ("root", self.tree_root, self.tree_root_gen, self.tree_root_level),
            ("chunk", self.chunk_root, self.chunk_root_gen, self.chunk_root_level),
            ("extent", self.extent_root, self.extent_root_gen, self.extent_root_level),
            ("fs", self.fs_root, self.fs_root_gen, self.fs_root_level),
            ("dev", self.dev_root, self.dev_root_gen, self.dev_root_level),
            ("csum", self.csum_root, self.csum_root_gen, self.csum_root_level),
        ];
        f.write_str("backup roots")?;
        for (name, at, generation, level) in roots {
            write!(f, " {name} {at} (generation {generation}, level {level})")?;
        }
        write!(f, " total_bytes {} bytes_used {} num_devices {}", self.total_bytes, self.bytes_used, self.num_devices)
    }
}

/// A superblock as it lies on disk.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiskSuperblock {
    /// Checksum of everything after this field.
    pub csum: [u8; CSUM_FIELD_SIZE],
    /// UUID that the user sees.
    pub fsid: Uuid,
    /// Byte of the device at which this copy lies.
    pub bytenr: U64,
    /// [`SuperFlags`].
    pub flags: U64,
    /// [`MAGIC`].
    pub magic: U64,
    /// Transaction that wrote this superblock.
    pub generation: U64,
    /// Address of the root tree's root.
    pub root: U64,
    /// Address of the chunk tree's root.
    pub chunk_root: U64,
    /// Address of the log root tree's root; 0 when there is nothing to replay.
    pub log_root: U64,
    /// Unused: 0.
    pub log_root_transid: U64,
    /// Bytes of all devices.
    pub total_bytes: U64,
    /// Bytes that extents take, copies not counted.
    pub bytes_used: U64,
    /// Object id of the directory in the root tree: 6.
    pub root_dir_objectid: U64,
    /// Number of devices.
    pub num_devices: U64,
    /// Smallest unit of data, bytes.
    pub sectorsize: U32,
    /// Bytes of a tree block.
    pub nodesize: U32,
    /// Equal to `nodesize`.
    pub leafsize: U32,
    /// Equal to `sectorsize`.
    pub stripesize: U32,
    /// Bytes of `sys_chunk_array` in use.
    pub sys_chunk_array_size: U32,
    /// Generation of the chunk tree's root.
    pub chunk_root_generation: U64,
    /// Features that need not be known; none exists.
    pub compat_flags: U64,
    /// [`CompatRo`].
    pub compat_ro_flags: U64,
    /// [`Incompat`].
    pub incompat_flags: U64,
    /// Number of the checksum type.
    pub csum_type: U16,
    /// Level of the root tree's root.
    pub root_level: u8,
    /// Level of the chunk tree's root.
    pub chunk_root_level: u8,
    /// Level of the log root tree's root.
    pub log_root_level: u8,
    /// The device that this superblock lies on.
    pub dev_item: DevItem,
    /// Label, closed by a NUL.
    pub label: [u8; LABEL_SIZE],
    /// Generation of the first free space cache; all ones where it is off, 0 with a
    /// free-space tree.
    pub cache_generation: U64,
    /// Generation up to which the UUID tree is right.
    pub uuid_tree_generation: U64,
    /// UUID in tree blocks, where the feature METADATA_UUID is on; else zeros.
    pub metadata_uuid: Uuid,
    /// Number of global roots (extent tree v2); else 0.
    pub nr_global_roots: U64,
    /// Address of the remap tree's root (remap tree); else 0.
    pub remap_root: U64,
    /// Its generation.
    pub remap_root_generation: U64,
    /// Its level.
    pub remap_root_level: u8,
    /// Zeros.
    pub reserved: [u8; 199],
    /// The system chunks, each behind its key.
    pub sys_chunk_array: [u8; SYSTEM_CHUNK_ARRAY_SIZE],
    /// Roots of the last four transactions, a ring.
    pub super_roots: [RootBackup; 4],
    /// Zeros.
    pub padding: [u8; 565],
}
const _: () = assert!(size_of::<DiskSuperblock>() == SUPERBLOCK_SIZE);

impl OnDisk for DiskSuperblock {
    const NAME: &'static str = "superblock size";
}

impl DiskSuperblock {
    /// State of the file system.
    #[must_use]
    pub fn super_flags(&self) -> SuperFlags {
        SuperFlags::from_bits_retain(self.flags.get())
    }

    /// Features that a reader may ignore.
    #[must_use]
    pub fn compat_ro(&self) -> CompatRo {
        CompatRo::from_bits_retain(self.compat_ro_flags.get())
    }

    /// Features that every reader must know.
    #[must_use]
    pub fn incompat(&self) -> Incompat {
        Incompat::from_bits_retain(self.incompat_flags.get())
    }

    /// The UUID that tree blocks and devices carry.
    #[must_use]
    pub fn tree_fsid(&self) -> Uuid {
        if self.incompat().contains(Incompat::METADATA_UUID) { self.metadata_uuid } else { self.fsid }
    }

    /// The part of the label before its NUL.
    #[must_use]
    pub fn label_bytes(&self) -> &[u8] {
        self.label.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// The used part of the system chunk array.
    #[must_use]
    pub fn system_chunk_bytes(&self) -> &[u8] {
        self.sys_chunk_array.get(..usize_from(self.sys_chunk_array_size.get())).unwrap_or_default()
    }
}

impl fmt::Debug for DiskSuperblock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DiskSuperblock").field(&format_args!("{self}")).finish()
    }
}

impl fmt::Display for DiskSuperblock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "superblock {} fsid {} metadata_uuid {} label {:?} generation {} flags {} root {} \
             (level {}) chunk_root {} (generation {}, level {}) log_root {} (level {}) \
             total_bytes {} bytes_used {} num_devices {} sectorsize {} nodesize {} csum_type {} \
             compat {:#x} compat_ro {} incompat {} cache_generation {} uuid_tree_generation {} \
             sys_chunk_array_size {}; {}",
            self.bytenr,
            self.fsid,
            self.metadata_uuid,
            String::from_utf8_lossy(self.label_bytes()),
            self.generation,
            self.super_flags(),
            self.root,
            self.root_level,
            self.chunk_root,
            self.chunk_root_generation,
            self.chunk_root_level,
            self.log_root,
            self.log_root_level,
            self.total_bytes,
            self.bytes_used,
            self.num_devices,
            self.sectorsize,
            self.nodesize,
            self.csum_type,
            self.compat_flags.get(),
            self.compat_ro(),
            self.incompat(),
            self.cache_generation,
            self.uuid_tree_generation,
            self.sys_chunk_array_size,
            self.dev_item
        )
    }
}
