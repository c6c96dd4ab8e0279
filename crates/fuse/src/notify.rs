//! Messages to the kernel that no request asked for.

use crate::protocol::replies::{InvalInodeOut, OutHeader, notify};
use crate::session::Stale;
use std::os::fd::AsFd;
use vfs::NodeId;
use zerocopy::{Immutable, IntoBytes};

/// Tells the kernel what it must not believe any more. Neither message waits for a lock that a
/// process may hold while it waits for this server.
pub(crate) fn send_stale(channel: impl AsFd, stale: Stale) {
    let (Stale::Attributes(node) | Stale::Names(node)) = stale;
    send(&channel, notify::INVAL_INODE, &attributes_of(node));
    if matches!(stale, Stale::Names(_)) {
        send(&channel, notify::INC_EPOCH, &[0; 0]);
    }
}

fn attributes_of(node: NodeId) -> InvalInodeOut {
    InvalInodeOut {
        ino: node.0,
        off: -1,
        len: 0,
    }
}

fn send<T: IntoBytes + Immutable>(channel: impl AsFd, code: i32, body: &T) {
    let mut bytes = [0; 64];
    let len = size_of::<OutHeader>() + size_of::<T>();
    let header = OutHeader {
        len: u32::try_from(len).unwrap_or(0),
        error: code,
        unique: 0,
    };
    let Some(message) = bytes.get_mut(..len) else {
        return;
    };
    if header.write_to_prefix(message).is_err() || body.write_to_suffix(message).is_err() {
        return;
    }
    // The kernel need not know the node (any more), or the message.
    if let Err(error) = rustix::io::write(channel, message) {
        tracing::trace!(%error, code, "the kernel did not take a message");
    }
}
