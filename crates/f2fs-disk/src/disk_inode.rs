//! Defines the block of an inode as it lies on disk, and its parts, to be changed; [`crate::inode`] reads it. `f2fs`
//! edits inodes with it (`change`, `vfs_impl/attr`).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::flags::InlineFlags;
use crate::ids::Block;
use crate::kind::NAME_BYTES_MAX;
use crate::node::FOOTER_SIZE;
use crate::{BLOCK_SIZE, OnDisk};

/// Bytes of the fixed fields.
pub(crate) const FIXED_SIZE: usize = 360;
/// Words behind them, for extra attributes, addresses and inline attributes.
pub(crate) const WORDS: usize = 923;
/// Numbers of nodes.
pub(crate) const NIDS: usize = 5;

/// A run of blocks of a file that lie one after the other on disk: a hint, not more.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct DiskExtent {
    /// First block of the file.
    pub fofs: U32,
    /// Its address.
    pub blk: U32,
    /// Blocks.
    pub len: U32,
}

/// The fixed fields, as they lie on disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct DiskInode {
    /// Type and permission bits.
    pub i_mode: U16,
    /// [`Advise`](crate::flags::Advise).
    pub i_advise: u8,
    /// [`InlineFlags`].
    pub i_inline: u8,
    /// Owner.
    pub i_uid: U32,
    /// Group.
    pub i_gid: U32,
    /// Names.
    pub i_links: U32,
    /// Bytes.
    pub i_size: U64,
    /// Blocks that it takes, its own too.
    pub i_blocks: U64,
    /// Last access, in seconds.
    pub i_atime: U64,
    /// Last change of the inode.
    pub i_ctime: U64,
    /// Last change of the contents.
    pub i_mtime: U64,
    /// Nanoseconds of the last access.
    pub i_atime_nsec: U32,
    /// Nanoseconds of the last change of the inode.
    pub i_ctime_nsec: U32,
    /// Nanoseconds of the last change of the contents.
    pub i_mtime_nsec: U32,
    /// Tells apart inodes that had the same number.
    pub i_generation: U32,
    /// Levels of a hashed directory; failures of cleaning for a pinned file.
    pub i_current_depth: U32,
    /// Node with extended attributes; 0 for none.
    pub i_xattr_nid: U32,
    /// [`InodeFlags`](crate::flags::InodeFlags).
    pub i_flags: U32,
    /// Directory that it was made in or moved to last.
    pub i_pino: U32,
    /// Bytes of its name there.
    pub i_namelen: U32,
    /// The name.
    pub i_name: [u8; NAME_BYTES_MAX],
    /// Logarithm of the buckets of a directory's first level.
    pub i_dir_level: u8,
    /// The longest run of blocks.
    pub i_ext: DiskExtent,
}

const _: () = assert!(size_of::<DiskInode>() == FIXED_SIZE);

impl OnDisk for DiskInode {
    const NAME: &'static str = "inode size";
}

/// The extra attributes, as they lie on disk. How many of them there are says the first field.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct DiskExtra {
    /// Bytes of the extra attributes.
    pub i_extra_isize: U16,
    /// Words of inline attributes.
    pub i_inline_xattr_size: U16,
    /// Project.
    pub i_projid: U32,
    /// Checksum of the inode's block.
    pub i_inode_checksum: U32,
    /// Creation, in seconds.
    pub i_crtime: U64,
    /// Nanoseconds of it.
    pub i_crtime_nsec: U32,
    /// Blocks that compression saved.
    pub i_compr_blocks: U64,
    /// Number of the algorithm.
    pub i_compress_algorithm: u8,
    /// Logarithm of the blocks of a cluster.
    pub i_log_cluster_size: u8,
    /// Bit 0: clusters have checksums; from bit 8 on the level.
    pub i_compress_flag: U16,
}

/// Bytes of all extra attributes that are known.
pub(crate) const EXTRA_SIZE: usize = 36;
const _: () = assert!(size_of::<DiskExtra>() == EXTRA_SIZE);

impl OnDisk for DiskExtra {
    const NAME: &'static str = "extra attributes size";
}

/// Permission bits of a mode, with set-user, set-group and sticky.
const PERMISSION_BITS: u16 = 0o7777;

impl DiskInode {
    /// Its permission bits.
    #[must_use]
    pub fn permissions(&self) -> u32 {
        u32::from(self.i_mode.get() & PERMISSION_BITS)
    }

    /// Sets its permission bits; others of the number are left out.
    pub fn set_permissions(&mut self, permissions: u32) {
        let [low, high, ..] = permissions.to_le_bytes();
        let permissions = u16::from_le_bytes([low, high]) & PERMISSION_BITS;
        self.i_mode = ((self.i_mode.get() & !PERMISSION_BITS) | permissions).into();
    }

    /// Sets the last access: seconds since 1970, negative before, and nanoseconds.
    pub fn set_atime(&mut self, sec: i64, nsec: u32) {
        (self.i_atime, self.i_atime_nsec) = (sec.cast_unsigned().into(), nsec.into());
    }

    /// Sets the last change of the contents, as [`DiskInode::set_atime`].
    pub fn set_mtime(&mut self, sec: i64, nsec: u32) {
        (self.i_mtime, self.i_mtime_nsec) = (sec.cast_unsigned().into(), nsec.into());
    }

    /// Sets the last change of the inode, as [`DiskInode::set_atime`].
    pub fn set_ctime(&mut self, sec: i64, nsec: u32) {
        (self.i_ctime, self.i_ctime_nsec) = (sec.cast_unsigned().into(), nsec.into());
    }
}

/// The block of an inode, as it lies on disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct DiskBlock {
    pub(crate) fields: DiskInode,
    pub(crate) words: [U32; WORDS],
    pub(crate) nids: [U32; NIDS],
    footer: [u8; FOOTER_SIZE],
}

const _: () = assert!(size_of::<DiskBlock>() == BLOCK_SIZE);

/// The fixed fields of an inode's block, to be changed.
#[must_use]
pub fn fields_mut(block: &mut Block) -> &mut DiskInode {
    let block: &mut DiskBlock = zerocopy::transmute_mut!(block);
    &mut block.fields
}

/// The extra attributes, to be changed; `None` where the inode has none. Where those behind its `i_extra_isize` would
/// be, addresses lie.
#[must_use]
pub fn extra_mut(block: &mut Block) -> Option<&mut DiskExtra> {
    let block: &mut DiskBlock = zerocopy::transmute_mut!(block);
    if !InlineFlags::from_bits_retain(block.fields.i_inline).contains(InlineFlags::EXTRA_ATTR) {
        return None;
    }
    DiskExtra::mut_from_prefix(block.words.as_mut_bytes()).ok().map(|(extra, _)| extra)
}

/// Numbers of the nodes below, to be changed.
#[must_use]
pub fn nids_mut(block: &mut Block) -> &mut [U32; NIDS] {
    let block: &mut DiskBlock = zerocopy::transmute_mut!(block);
    &mut block.nids
}
