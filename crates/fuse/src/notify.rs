//! Messages to the kernel that no request asked for.

use crate::protocol::replies::{InvalInodeOut, OutHeader, notify};
use std::os::fd::AsFd;
use vfs::NodeId;
use zerocopy::IntoBytes;

const LEN: usize = size_of::<OutHeader>() + size_of::<InvalInodeOut>();

/// Tells the kernel that it must ask again for the attributes of a node.
pub(crate) fn send_stale(channel: impl AsFd, node: NodeId) {
    let body = InvalInodeOut {
        ino: node.0,
        off: -1,
        len: 0,
    };
    let header = OutHeader {
        len: u32::try_from(LEN).unwrap_or(0),
        error: notify::INVAL_INODE,
        unique: 0,
    };
    let mut bytes = [0; LEN];
    if header.write_to_prefix(&mut bytes).is_err() || body.write_to_suffix(&mut bytes).is_err() {
        return;
    }
    // A node that the kernel does not know (any more) needs no telling.
    if let Err(error) = rustix::io::write(channel, &bytes) {
        tracing::trace!(%error, node = node.0, "nobody knows the node");
    }
}
