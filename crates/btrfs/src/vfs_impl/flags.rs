//! Reads and changes the flags of an inode under the names that `chattr` has for them. Called by `file_system`; `attr`
//! and `stat` use the names.

use vfs::NodeId;
use vfs::acl;
use vfs::file_system::{Caller, NodeFlags};

use super::BtrfsFs;
use crate::error::{CallerError, Result};
use crate::inode::{COMPRESSION_NAME, FileType, Inode, InodeFlags, InodeState};

/// Flags that have the same meaning here and there.
const SAME: [(NodeFlags, InodeFlags); 7] = [
    (NodeFlags::SYNC, InodeFlags::SYNC),
    (NodeFlags::IMMUTABLE, InodeFlags::IMMUTABLE),
    (NodeFlags::APPEND, InodeFlags::APPEND),
    (NodeFlags::NODUMP, InodeFlags::NODUMP),
    (NodeFlags::NOATIME, InodeFlags::NOATIME),
    (NodeFlags::DIRSYNC, InodeFlags::DIRSYNC),
    (NodeFlags::NOCOW, InodeFlags::NODATACOW),
];
/// Protected by fs-verity (`FS_VERITY_FL`): shown, and kept as it is.
const VERITY: NodeFlags = NodeFlags::from_bits_retain(0x10_0000);
/// The algorithm for `chattr +c`.
const COMPRESSION_DEFAULT: &[u8] = b"zlib";
/// Items that change: the inode, and its compression property.
const SET_ITEMS: u32 = 2;

/// The flags of an inode under the names that all formats have for them, as `lsattr` shows them.
#[must_use]
pub fn node_flags(flags: InodeFlags) -> NodeFlags {
    let mut shown: NodeFlags = SAME.iter().filter(|(_, disk)| flags.contains(*disk)).map(|(node, _)| *node).collect();
    if flags.contains(InodeFlags::NOCOMPRESS) {
        shown |= NodeFlags::NOCOMPRESS;
    } else if flags.contains(InodeFlags::COMPRESS) {
        shown |= NodeFlags::COMPRESS;
    }
    shown.set(VERITY, flags.contains(InodeFlags::RO_VERITY));
    shown
}

/// The inode's flags, with those known to `chattr` set to `wanted`.
fn merged(kind: FileType, state: &InodeState, wanted: NodeFlags) -> InodeFlags {
    let mut flags = state.flags;
    for (node, disk) in SAME {
        if disk != InodeFlags::NODATACOW {
            flags.set(disk, wanted.contains(node));
        }
    }
    // Extents with checksums cannot be overwritten in place, so a file with contents keeps its flag.
    let (nocow, is_empty) = (wanted.contains(NodeFlags::NOCOW), state.size == 0);
    match kind {
        FileType::File if is_empty => {
            flags.set(InodeFlags::NODATACOW | InodeFlags::NODATASUM, nocow);
        }
        FileType::File => {}
        _ => flags.set(InodeFlags::NODATACOW, nocow),
    }
    flags.set(InodeFlags::COMPRESS, wanted.contains(NodeFlags::COMPRESS));
    flags.set(InodeFlags::NOCOMPRESS, wanted.contains(NodeFlags::NOCOMPRESS));
    flags
}

impl BtrfsFs {
    pub(super) fn flags_of(&self, node: NodeId) -> Result<NodeFlags> {
        let inode = self.inode(node)?;
        check_has_flags(&inode)?;
        let flags = inode.state().flags;
        Ok(node_flags(flags))
    }

    pub(super) fn change_flags(&self, caller: &Caller, node: NodeId, wanted: NodeFlags) -> Result<()> {
        let inode = self.live_inode(node)?;
        check_has_flags(&inode)?;
        inode.check_writable()?;
        check_wanted(caller, &inode, wanted)?;
        // As the kernel, which takes it for directories alone and drops it elsewhere.
        let wanted = if inode.kind().is_dir() { wanted } else { wanted - NodeFlags::DIRSYNC };
        let reservation = self.namespace().reserve(SET_ITEMS)?;
        let names = inode.lock_names();
        let now = self.core().now();
        let is_compressed = wanted.contains(NodeFlags::COMPRESS);
        let property = is_compressed.then_some(COMPRESSION_DEFAULT);
        let had = node_flags(inode.state().flags);
        let changes_property = (had ^ wanted).intersects(NodeFlags::COMPRESS | NodeFlags::NOCOMPRESS);
        self.namespace().apply(reservation, |txn| {
            if changes_property {
                self.put(txn, &inode, COMPRESSION_NAME, property)?;
            }
            inode.change(txn, |state| {
                state.flags = merged(inode.kind(), state, wanted);
                state.ctime = now;
            });
            Ok(())
        })?;
        drop(names);
        self.sync_marked(&inode)
    }
}

fn check_has_flags(inode: &Inode) -> Result<()> {
    match inode.kind() {
        FileType::File | FileType::Directory => Ok(()),
        _ => Err(CallerError::NotSupported.into()),
    }
}

fn check_wanted(caller: &Caller, inode: &Inode, wanted: NodeFlags) -> Result<()> {
    let (had, uid) = {
        let state = inode.state();
        (node_flags(state.flags), state.uid)
    };
    let is_root = caller.uid == 0;
    if !caller.is_known() {
        return Err(CallerError::NotPermitted.into());
    }
    let guarded = NodeFlags::IMMUTABLE | NodeFlags::APPEND;
    if !is_root && (caller.uid != uid || (had ^ wanted).intersects(guarded)) {
        return Err(CallerError::NotPermitted.into());
    }
    let compression = NodeFlags::COMPRESS | NodeFlags::NOCOMPRESS;
    let mut known: NodeFlags = SAME.iter().map(|(node, _)| *node).collect();
    known |= compression | (had & VERITY);
    if !known.contains(wanted) {
        return Err(CallerError::NotSupported.into());
    }
    // A file that is not copied on write does not change to being compressed, or the other way, in one step.
    let is_crossing = |from: NodeFlags, to: NodeFlags| had.intersects(from) && wanted.intersects(to);
    if wanted.contains(compression)
        || wanted.contains(NodeFlags::COMPRESS | NodeFlags::NOCOW)
        || is_crossing(NodeFlags::NOCOW, compression)
        || is_crossing(compression, NodeFlags::NOCOW)
    {
        return Err(CallerError::InvalidArgument.into());
    }
    Ok(())
}

/// True for an attribute that holds an access control list.
pub(super) fn is_list(name: &[u8]) -> bool {
    name == acl::ACCESS_NAME || name == acl::DEFAULT_NAME
}
