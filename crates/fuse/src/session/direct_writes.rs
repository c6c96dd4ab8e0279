//! Tracks nodes with direct writes, past the kernel's page cache, to tell when an opening must begin with an empty
//! cache. Called by `open` and `service`.
//!
//! The kernel drops a range from its cache before it sends a direct write, and when the call returns. An asynchronous
//! call returns before the write is done: pages that a program read into the cache meanwhile stay there, and are stale.
//! An opening of such a node therefore begins with an empty cache, as every opening does by default.
//!
//! The kernel empties the cache some time after the reply to the opening. So when the last writer has closed the node,
//! invalidating with one opening is not enough: another one could read the cache before the first has emptied it. All
//! openings invalidate until one of them has been closed, which shows that it did.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use vfs::file_system::{Handle, NodeId, OpenFlags};

/// A node opened for direct writing.
#[derive(Debug, Clone, Copy, Default)]
struct Written {
    /// Number of openings that still write directly.
    writers: u32,
    /// The first invalidating opening after the last writer had closed the node.
    told: Option<Handle>,
}

/// Nodes with openings for direct writing, and those whose pages may be stale after the last such was closed.
#[derive(Default)]
pub(super) struct DirectWriters {
    nodes: Mutex<HashMap<NodeId, Written>>,
    /// Number of nodes: most mounts have none, and skip the look-up.
    count: AtomicUsize,
}

impl DirectWriters {
    /// Notes an opening. True if the kernel's cached pages may be stale.
    pub(super) fn opened(&self, node: NodeId, handle: Handle, flags: OpenFlags) -> bool {
        let is_writer = writes_directly(flags);
        if !is_writer && self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut nodes = self.nodes.lock();
        let known = nodes.get(&node).copied();
        if is_writer || known.is_some() {
            let mut written = known.unwrap_or_default();
            if is_writer {
                written = Written { writers: written.writers + 1, told: None };
            } else if written.writers == 0 {
                written.told = written.told.or(Some(handle));
            }
            nodes.insert(node, written);
            self.count.store(nodes.len(), Ordering::SeqCst);
        }
        known.is_some()
    }

    /// Notes that `handle`, opened with these flags, is closed.
    pub(super) fn closed(&self, node: NodeId, handle: Handle, flags: OpenFlags) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut nodes = self.nodes.lock();
        let Some(written) = nodes.get_mut(&node) else {
            return;
        };
        if writes_directly(flags) {
            written.writers = written.writers.saturating_sub(1);
        } else if written.told == Some(handle) {
            nodes.remove(&node);
            self.count.store(nodes.len(), Ordering::SeqCst);
        }
    }

    /// Notes that the kernel has forgotten a node, and its pages with it.
    pub(super) fn forgotten(&self, node: NodeId) {
        if self.count.load(Ordering::SeqCst) > 0 {
            let mut nodes = self.nodes.lock();
            // An open node is not forgotten, but may have been looked up again meanwhile.
            if nodes.get(&node).is_some_and(|written| written.writers == 0) {
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

    const READ: OpenFlags = OpenFlags::READ;
    const DIRECT: OpenFlags = OpenFlags::DIRECT.union(OpenFlags::WRITE);
    const NODE: NodeId = NodeId(7);

    #[test]
    fn who_opens_what_is_written_directly_is_told() {
        let writers = DirectWriters::default();
        assert!(!writers.opened(NODE, Handle(1), READ));
        assert!(!writers.opened(NODE, Handle(2), DIRECT));
        assert!(writers.opened(NODE, Handle(3), READ));
        assert!(writers.opened(NODE, Handle(4), DIRECT));
        assert!(!writers.opened(NodeId(8), Handle(5), READ | OpenFlags::DIRECT));
        writers.closed(NODE, Handle(2), DIRECT);
        writers.closed(NODE, Handle(1), READ);
        assert!(writers.opened(NODE, Handle(6), READ));
        writers.closed(NODE, Handle(6), READ);
        assert!(writers.opened(NODE, Handle(7), READ));
        writers.closed(NODE, Handle(4), DIRECT);
        writers.forgotten(NODE);
        assert!(!writers.opened(NODE, Handle(8), READ));
        assert_eq!(writers.count.load(Ordering::SeqCst), 0);
    }

    /// One reader invalidated the cache, and before the kernel had emptied it a second one read stale pages.
    #[test]
    fn openings_invalidate_until_one_of_them_is_closed() {
        let writers = DirectWriters::default();
        writers.opened(NODE, Handle(1), DIRECT);
        // Opened while there was a writer: its cache was emptied too early.
        assert!(writers.opened(NODE, Handle(2), READ));
        writers.closed(NODE, Handle(1), DIRECT);
        assert!(writers.opened(NODE, Handle(3), READ));
        assert!(writers.opened(NODE, Handle(4), READ));
        writers.closed(NODE, Handle(2), READ);
        writers.closed(NODE, Handle(4), READ);
        assert!(writers.opened(NODE, Handle(5), READ));
        writers.closed(NODE, Handle(3), READ);
        assert!(!writers.opened(NODE, Handle(6), READ));
        assert_eq!(writers.count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_new_writer_makes_it_old_again() {
        let writers = DirectWriters::default();
        writers.opened(NODE, Handle(1), DIRECT);
        writers.closed(NODE, Handle(1), DIRECT);
        assert!(writers.opened(NODE, Handle(2), READ));
        assert!(writers.opened(NODE, Handle(3), DIRECT));
        writers.closed(NODE, Handle(2), READ);
        writers.closed(NODE, Handle(3), DIRECT);
        assert!(writers.opened(NODE, Handle(4), READ));
    }
}
