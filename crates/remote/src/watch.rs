//! The kernel, as who has to hear of changes that did not come through it.

use vfs::NodeId;

/// Who is told what changed: the kernel, which believes what it was told before.
pub trait Watch: Send + Sync {
    /// What a name leads to is another thing now, or nothing.
    fn name(&self, parent: NodeId, name: &[u8]);

    /// Attributes of a node changed.
    fn attributes(&self, node: NodeId);

    /// Contents and attributes of a node changed.
    fn contents(&self, node: NodeId);
}
