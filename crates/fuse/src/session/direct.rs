//! Nodes that are, or were, written around the kernel's page cache.
//!
//! The kernel drops a range from its cache before it sends a direct write, and when the call returns. An asynchronous
//! call returns before the write is done: what somebody read into the cache meanwhile stays there, and is old. The next
//! opening of such a node therefore begins with an empty cache, as every opening does by default.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use vfs::file_system::{NodeId, OpenFlags};

/// Nodes with openings for direct writing, by how many there are; 0 where the last was closed and nobody opened the
/// node since.
#[derive(Default)]
pub(super) struct DirectWriters {
    nodes: Mutex<HashMap<NodeId, u32>>,
    /// How many nodes there are: most mounts have none, and need not look.
    count: AtomicUsize,
}

impl DirectWriters {
    /// A node is opened. True where its pages in the kernel's cache may be old.
    pub(super) fn opened(&self, node: NodeId, flags: OpenFlags) -> bool {
        let is_writer = writes_directly(flags);
        if !is_writer && self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut nodes = self.nodes.lock();
        let writers = nodes.remove(&node);
        let count = writers.unwrap_or(0) + u32::from(is_writer);
        if count > 0 {
            nodes.insert(node, count);
        }
        self.count.store(nodes.len(), Ordering::SeqCst);
        writers.is_some()
    }

    /// What was opened with these flags is closed.
    pub(super) fn closed(&self, node: NodeId, flags: OpenFlags) {
        if writes_directly(flags)
            && let Some(count) = self.nodes.lock().get_mut(&node)
        {
            *count = count.saturating_sub(1);
        }
    }

    /// The kernel has forgotten a node, and its pages with it.
    pub(super) fn forgotten(&self, node: NodeId) {
        if self.count.load(Ordering::SeqCst) > 0 {
            let mut nodes = self.nodes.lock();
            // One that is open is not forgotten; but then it may have been looked up anew.
            if nodes.get(&node) == Some(&0) {
                nodes.remove(&node);
            }
            self.count.store(nodes.len(), Ordering::SeqCst);
        }
    }
}

fn writes_directly(flags: OpenFlags) -> bool {
    flags.contains(OpenFlags::DIRECT | OpenFlags::WRITE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_opening_after_the_last_direct_writer_is_told() {
        let direct = OpenFlags::DIRECT | OpenFlags::WRITE;
        let (node, writers) = (NodeId(7), DirectWriters::default());
        assert!(!writers.opened(node, OpenFlags::READ));
        assert!(!writers.opened(node, direct));
        assert!(writers.opened(node, OpenFlags::READ));
        assert!(writers.opened(node, direct));
        assert!(!writers.opened(NodeId(8), OpenFlags::READ | OpenFlags::DIRECT));
        writers.closed(node, direct);
        writers.closed(node, OpenFlags::READ);
        assert!(writers.opened(node, OpenFlags::READ));
        writers.closed(node, direct);
        assert!(writers.opened(node, OpenFlags::READ));
        assert!(!writers.opened(node, OpenFlags::READ));
        assert!(!writers.opened(node, direct));
        writers.closed(node, direct);
        writers.forgotten(node);
        assert!(!writers.opened(node, OpenFlags::READ));
        assert_eq!(writers.count.load(Ordering::SeqCst), 0);
    }
}
