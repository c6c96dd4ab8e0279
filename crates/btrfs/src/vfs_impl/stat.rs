//! Converts the attributes that `stat` shows to the types of the trait. Called by `attr`, `whole_node` and
//! `file_system`.

use vfs::file_system::{Attr, Home};

use super::flags;
use crate::inode::Metadata;

/// Preferred size of I/O, as in the kernel.
const BLOCK_BYTES: u32 = 4096;
/// Bits of a device number in `stat`'s 32-bit encoding.
const RDEV_MASK: u64 = 0xffff_ffff;

/// The attributes of an inode, under the number `ino`.
pub(super) fn attr_of(metadata: &Metadata, ino: u64) -> Attr {
    Attr {
        ino,
        kind: metadata.kind,
        permissions: metadata.permissions(),
        nlink: metadata.nlink,
        uid: metadata.uid,
        gid: metadata.gid,
        rdev: u32::try_from(metadata.rdev & RDEV_MASK).unwrap_or(u32::MAX),
        size: metadata.size,
        blocks: metadata.blocks,
        block_bytes: BLOCK_BYTES,
        atime: metadata.atime,
        mtime: metadata.mtime,
        ctime: metadata.ctime,
        btime: metadata.btime,
        flags: flags::node_flags(metadata.flags),
        home: Home { subvolume: metadata.tree.0, ino: metadata.ino.0, generation: metadata.generation.0 },
    }
}
