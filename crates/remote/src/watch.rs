//! Defines notifications to the kernel about changes that clients make without it. The server of a mount implements
//! `Watch` (`client_socket`); `serve` calls it.

use vfs::NodeId;

/// Receives the changes: the kernel, which has cached names, attributes and contents.
pub trait Watch: Send + Sync {
    /// A name was removed, or leads to another node.
    fn name(&self, parent: NodeId, name: &[u8]);

    /// Attributes of a node changed.
    fn attributes(&self, node: NodeId);

    /// Contents and attributes of a node changed.
    fn contents(&self, node: NodeId);
}
