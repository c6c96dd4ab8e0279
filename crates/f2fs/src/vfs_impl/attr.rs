//! Attributes of nodes.

use f2fs_disk::Nid;
use f2fs_disk::flags::{Advise, InlineFlags};
use f2fs_disk::inode::{Inode, Kind, Timestamp};
use vfs::file_system::{Attr, Entry, Home, NodeFlags, NodeId, NodeKind, Time};

use super::F2fs;
use crate::store::Node;

/// Flags of `FS_IOC_GETFLAGS` that come from other fields of an inode (linux/fs.h).
const FS_ENCRYPT_FL: u32 = 0x800;
const FS_VERITY_FL: u32 = 0x10_0000;
const FS_NOCOW_FL: u32 = 0x80_0000;
const FS_INLINE_DATA_FL: u32 = 0x1000_0000;
/// Blocks of 4 KiB in units of 512 bytes.
const SECTORS_PER_BLOCK: u64 = 8;
const SECTOR_BYTES: u64 = 512;
const PERMISSION_BITS: u16 = 0o7777;
/// Preferred size of I/O.
const BLOCK_BYTES: u32 = 4096;

impl F2fs {
    /// The server's number for an inode: its own, except that the root's is fixed.
    pub(super) fn node_id(&self, ino: Nid) -> NodeId {
        if ino == self.store.root() { NodeId::ROOT } else { NodeId(u64::from(ino.0)) }
    }

    /// What `stat` reports.
    pub(super) fn attr_of(&self, node: &Node) -> Attr {
        let (inode, features) = (&node.inode, self.store.features());
        let fields = inode.fields();
        Attr {
            ino: u64::from(inode.ino().0),
            kind: kind(inode.kind()),
            permissions: u32::from(fields.i_mode.get() & PERMISSION_BITS),
            nlink: fields.i_links.get(),
            uid: fields.i_uid.get(),
            gid: fields.i_gid.get(),
            rdev: inode.device(&node.block),
            size: inode.size(),
            blocks: sectors(inode),
            block_bytes: BLOCK_BYTES,
            atime: time(inode.atime()),
            mtime: time(inode.mtime()),
            ctime: time(inode.ctime()),
            btime: inode.crtime(features).map(time).unwrap_or_default(),
            flags: flags(inode),
            home: Home {
                subvolume: 0,
                ino: u64::from(inode.ino().0),
                generation: u64::from(fields.i_generation.get()),
            },
        }
    }

    pub(super) fn entry_of(&self, node: &Node) -> Entry {
        let id = self.node_id(node.ino());
        let generation = if id == NodeId::ROOT { 0 } else { u64::from(node.inode.fields().i_generation.get()) };
        Entry { node: id, generation, attr: self.attr_of(node) }
    }
}

/// The block of the inode does not count; contents within it do, as in the kernel's answer to `stat`.
fn sectors(inode: &Inode) -> u64 {
    let stored = inode.fields().i_blocks.get().saturating_sub(1).saturating_mul(SECTORS_PER_BLOCK);
    let is_inline = inode.inline().intersects(InlineFlags::DATA.union(InlineFlags::DENTRY))
        && matches!(inode.kind(), Kind::File | Kind::Directory);
    let inline = if is_inline { inode.size().div_ceil(SECTOR_BYTES) } else { 0 };
    stored.saturating_add(inline)
}

fn flags(inode: &Inode) -> NodeFlags {
    let mut bits = inode.flags().bits();
    let derived = [
        (inode.advise().contains(Advise::ENCRYPT), FS_ENCRYPT_FL),
        (inode.advise().contains(Advise::VERITY), FS_VERITY_FL),
        (inode.inline().contains(InlineFlags::PIN_FILE), FS_NOCOW_FL),
        (inode.inline().intersects(InlineFlags::DATA.union(InlineFlags::DENTRY)), FS_INLINE_DATA_FL),
    ];
    for (_, flag) in derived.into_iter().filter(|(is_set, _)| *is_set) {
        bits |= flag;
    }
    NodeFlags::from_bits_retain(bits)
}

fn time(time: Timestamp) -> Time {
    Time { sec: time.sec, nsec: time.nsec }
}

pub(super) const fn kind(kind: Kind) -> NodeKind {
    match kind {
        Kind::Fifo => NodeKind::Fifo,
        Kind::CharDevice => NodeKind::CharDevice,
        Kind::Directory => NodeKind::Directory,
        Kind::BlockDevice => NodeKind::BlockDevice,
        Kind::File => NodeKind::File,
        Kind::Symlink => NodeKind::Symlink,
        Kind::Socket => NodeKind::Socket,
    }
}
