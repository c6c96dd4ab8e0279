//! Messages to the kernel that no request asked for.

use crate::channel::Channel;
use crate::protocol::replies::{InvalEntryOut, InvalInodeOut, OutHeader, PruneOut, notify};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use vfs::NodeId;
use zerocopy::{Immutable, IntoBytes};

/// How long a reply waits until the kernel has forgotten names.
const FORGETTING_MAX: Duration = Duration::from_millis(100);

/// What the kernel must not believe any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stale {
    /// The node whose attributes changed.
    pub(crate) node: NodeId,
    /// Names that now lead, or no longer lead, to something; each with its directory.
    pub(crate) names: Vec<(NodeId, Vec<u8>)>,
    /// The kernel can forget all names without waiting for anybody.
    pub(crate) has_epochs: bool,
}

impl Stale {
    /// Attributes alone.
    pub(crate) const fn attributes(node: NodeId) -> Self {
        Self { node, names: Vec::new(), has_epochs: true }
    }
}

/// Tells the kernel what it must not believe any more.
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
    // To forget a name, the kernel waits for the lock of its directory. The thread that holds it may
    // wait for this very thread; so another one tells, and this one does not wait for ever.
    let (told, is_told) = mpsc::sync_channel(1);
    let channel = Arc::clone(channel);
    let tell = move || {
        for (parent, name) in stale.names {
            send_stale_name(&*channel, parent, &name);
        }
        // Nobody listens any more when it took too long.
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

/// Tells the kernel, on a thread of its own, not to believe the attributes of these nodes.
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

/// Tells the kernel of changes that it did not ask for. Not to be used by a thread that answers requests, nor by one
/// that holds a lock of the file system: the kernel may wait for a request to end before it believes a thing.
#[derive(Debug, Clone)]
pub struct Notifier {
    channel: Arc<dyn Channel>,
    keeps_sizes: bool,
    has_epochs: bool,
}

impl Notifier {
    /// `keeps_sizes` where the kernel decides about the sizes of files that it knows, `has_epochs` where it can forget
    /// all names at once.
    pub(crate) const fn new(channel: Arc<dyn Channel>, keeps_sizes: bool, has_epochs: bool) -> Self {
        Self { channel, keeps_sizes, has_epochs }
    }

    /// A name leads to another node now, or to none. Where the kernel can, it looks all names up anew, which makes
    /// nobody wait; to forget one alone, it waits for the lock of the directory.
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
            // It takes a size from nobody for a file that it knows; one that nobody uses it can forget (Linux 6.18).
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
    // The kernel need not know the node or the name (any more).
    if let Err(error) = channel.send(&message) {
        tracing::trace!(%error, code, "the kernel did not take a message");
    }
}
