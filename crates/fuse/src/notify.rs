//! Sends notifications: messages to the kernel that answer no request, such as stale attributes and names. Front ends
//! report changes through `Notifier`; transports send those that a request caused.

use crate::channel::Channel;
use crate::protocol::replies::{InvalEntryOut, InvalInodeOut, OutHeader, PruneOut, notify};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use vfs::NodeId;
use zerocopy::{Immutable, IntoBytes};

/// Longest delay of a reply until the kernel has invalidated names.
const FORGETTING_MAX: Duration = Duration::from_millis(100);

/// Cached entries that the kernel has to invalidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stale {
    /// The node whose attributes changed.
    pub(crate) node: NodeId,
    /// Names that were added or removed, each with its directory.
    pub(crate) names: Vec<(NodeId, Vec<u8>)>,
    /// The kernel can invalidate all names without waiting for a lock.
    pub(crate) has_epochs: bool,
}

impl Stale {
    /// Attributes alone.
    pub(crate) const fn attributes(node: NodeId) -> Self {
        Self { node, names: Vec::new(), has_epochs: true }
    }
}

/// Sends the notifications for stale entries.
pub(crate) fn send_stale<C: Channel + ?Sized + 'static>(channel: &Arc<C>, stale: Stale) {
    let body = InvalInodeOut { ino: stale.node.0, off: -1, len: 0 };
    send(&**channel, notify::INVAL_INODE, &body, &[]);
    if stale.names.is_empty() {
        return;
    }
    if stale.has_epochs {
        send(&**channel, notify::INC_EPOCH, &[0u8; 0], &[]);
        return;
    }
    // To invalidate a name, the kernel waits for the lock of its directory. The thread that holds it may wait for this
    // one; so another thread sends the notification, and this one waits for a limited time.
    let (told, is_told) = mpsc::sync_channel(1);
    let channel = Arc::clone(channel);
    let tell = move || {
        for (parent, name) in stale.names {
            send_stale_name(&*channel, parent, &name);
        }
        // The receiver is gone if it took too long.
        told.send(()).unwrap_or_default();
    };
    match thread::Builder::new().name("fuse-tell".to_owned()).spawn(tell) {
        Ok(_) => {
            if is_told.recv_timeout(FORGETTING_MAX).is_err() {
                tracing::debug!("the kernel takes its time to forget a name");
            }
        }
        Err(error) => tracing::warn!(%error, "the kernel does not hear of changed names"),
    }
}

/// Invalidates the attributes of these nodes, on a thread of its own.
pub(crate) fn send_stale_attributes<C: Channel + ?Sized + 'static>(channel: &Arc<C>, nodes: Vec<NodeId>) {
    let channel = Arc::clone(channel);
    let tell = move || {
        for node in nodes {
            send(&*channel, notify::INVAL_INODE, &InvalInodeOut { ino: node.0, off: -1, len: 0 }, &[]);
        }
    };
    if let Err(error) = thread::Builder::new().name("fuse-tell".to_owned()).spawn(tell) {
        tracing::warn!(%error, "the kernel does not hear that room is short");
    }
}

/// Tells the kernel of changes that it did not request. Must not be used by a thread that answers requests, nor by one
/// that holds a lock of the file system: the kernel may wait for a request before it processes a notification.
#[derive(Debug, Clone)]
pub struct Notifier {
    channel: Arc<dyn Channel>,
    keeps_sizes: bool,
    has_epochs: bool,
}

impl Notifier {
    /// `keeps_sizes` is true if the kernel decides about the sizes of files that it knows, `has_epochs` if it can
    /// invalidate all names at once.
    pub(crate) const fn new(channel: Arc<dyn Channel>, keeps_sizes: bool, has_epochs: bool) -> Self {
        Self { channel, keeps_sizes, has_epochs }
    }

    /// A name was added, removed or replaced. If the kernel can, it looks all names up again, which waits for no lock;
    /// to invalidate one alone, it waits for the lock of the directory.
    pub fn name(&self, parent: NodeId, name: &[u8]) {
        if self.has_epochs {
            send(&*self.channel, notify::INC_EPOCH, &[0u8; 0], &[]);
            self.attributes(parent);
        } else {
            send_stale_name(&*self.channel, parent, name);
        }
    }

    /// Attributes of a node changed.
    pub fn attributes(&self, node: NodeId) {
        send(&*self.channel, notify::INVAL_INODE, &InvalInodeOut { ino: node.0, off: -1, len: 0 }, &[]);
    }

    /// Contents of a node changed, and with them its attributes.
    pub fn contents(&self, node: NodeId) {
        send(&*self.channel, notify::INVAL_INODE, &InvalInodeOut { ino: node.0, off: 0, len: 0 }, &[]);
        if self.keeps_sizes {
            // With a writeback cache the kernel ignores sizes of files that it knows; it can drop an unused one (Linux
            // 6.18).
            let body = PruneOut { count: 1, padding: 0, spare: 0, node: node.0 };
            send(&*self.channel, notify::PRUNE, &body, &[]);
        }
    }
}

fn send_stale_name(channel: &(impl Channel + ?Sized), parent: NodeId, name: &[u8]) {
    let body = InvalEntryOut { parent: parent.0, namelen: u32::try_from(name.len()).unwrap_or(0), flags: 0 };
    send(channel, notify::INVAL_ENTRY, &body, &[name, &[0]].concat());
}

fn send<T: IntoBytes + Immutable>(channel: &(impl Channel + ?Sized), code: i32, body: &T, rest: &[u8]) {
    let len = size_of::<OutHeader>() + size_of::<T>() + rest.len();
    let header = OutHeader { len: u32::try_from(len).unwrap_or(0), error: code, unique: 0 };
    let message = [header.as_bytes(), body.as_bytes(), rest].concat();
    // The kernel may not, or no longer, know the node or the name.
    if let Err(error) = channel.send(&message) {
        tracing::trace!(%error, code, "the kernel did not take a message");
    }
}
