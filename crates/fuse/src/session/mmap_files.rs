//! Tracks files that may have dirty mmap pages which this server has not seen. `open` and `data` fill it; `seek` asks
//! it.
//!
//! A store into a shared mapping reaches the server only when the kernel writes the page back, and the kernel does not
//! do so before it asks for data and holes (`lseek`). A writable mapping keeps its file open for reading and writing:
//! a file without such an opening has no such pages. A page enters a mapping by a read: a file that was empty when it
//! was opened, and was not read since, has none either.
//!
//! (A notification that invalidates a file's pages makes the kernel write them back, but the sender waits
//! uninterruptibly: if the server were killed meanwhile, it and all users of the mount would hang.)

use parking_lot::Mutex;
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use vfs::file_system::NodeId;

/// Number of locks over which nodes are spread.
const SHARD_COUNT: u64 = 16;

/// Nodes that are open for reading and writing. Other openings cost nothing, and reads almost nothing.
pub(super) struct Mappable {
    shards: Vec<Mutex<HashMap<NodeId, Openings>>>,
    /// Number of such nodes that were not read yet: while it is 0, reads take no lock.
    unread: AtomicUsize,
}

/// Openings of one node for reading and writing.
struct Openings {
    count: u32,
    /// It was empty at the first of them, and was not read since.
    is_unread: bool,
}

impl Mappable {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(), unread: AtomicUsize::new(0) }
    }

    /// Notes an opening with these flags of `open(2)`.
    pub(super) fn opened(&self, node: NodeId, flags: u32, is_empty: impl FnOnce() -> bool) {
        let Some(shard) = self.shard(node).filter(|_| may_map_for_writing(flags)) else {
            return;
        };
        let mut nodes = shard.lock();
        if let Some(openings) = nodes.get_mut(&node) {
            openings.count += 1;
            return;
        }
        // Before the size is read: a reader of later data then sees the count, and waits here.
        self.unread.fetch_add(1, Ordering::SeqCst);
        let is_unread = is_empty();
        if !is_unread {
            self.unread.fetch_sub(1, Ordering::SeqCst);
        }
        nodes.insert(node, Openings { count: 1, is_unread });
    }

    /// Notes that an opening with these flags is closed, and has no mapping left.
    pub(super) fn closed(&self, node: NodeId, flags: u32) {
        let Some(shard) = self.shard(node).filter(|_| may_map_for_writing(flags)) else {
            return;
        };
        let mut nodes = shard.lock();
        let Some(openings) = nodes.get_mut(&node) else {
            return;
        };
        openings.count -= 1;
        if openings.count > 0 {
            return;
        }
        if openings.is_unread {
            self.unread.fetch_sub(1, Ordering::SeqCst);
        }
        nodes.remove(&node);
    }

    /// Notes that the kernel is about to get contents of a node.
    pub(super) fn read(&self, node: NodeId) {
        if self.unread.load(Ordering::SeqCst) == 0 {
            return;
        }
        let Some(shard) = self.shard(node) else {
            return;
        };
        if let Some(openings) = shard.lock().get_mut(&node).filter(|openings| openings.is_unread) {
            openings.is_unread = false;
            self.unread.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// True if the kernel may have unwritten data of any node.
    pub(super) fn is_any(&self) -> bool {
        self.shards.iter().any(|shard| !shard.lock().is_empty())
    }

    /// True if the kernel may have unwritten data of a node.
    pub(super) fn may_hide_data(&self, node: NodeId) -> bool {
        let hides = |shard: &Mutex<HashMap<NodeId, Openings>>| {
            let nodes = shard.lock();
            nodes.get(&node).is_some_and(|openings| !openings.is_unread)
        };
        self.shard(node).is_some_and(hides)
    }

    fn shard(&self, node: NodeId) -> Option<&Mutex<HashMap<NodeId, Openings>>> {
        self.shards.get(usize::try_from(node.0 % SHARD_COUNT).ok()?)
    }
}

fn may_map_for_writing(flags: u32) -> bool {
    OFlags::from_bits_retain(flags) & OFlags::RWMODE == OFlags::RDWR
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(7);

    #[test]
    fn data_may_hide_until_the_last_opening_for_both_is_closed() {
        let mappable = Mappable::new();
        let both = OFlags::RDWR.bits();
        for flags in [OFlags::RDONLY.bits(), OFlags::WRONLY.bits()] {
            mappable.opened(NODE, flags, || false);
            assert!(!mappable.may_hide_data(NODE));
        }
        mappable.opened(NODE, both, || false);
        mappable.opened(NODE, both | OFlags::APPEND.bits(), || true);
        mappable.closed(NODE, OFlags::RDONLY.bits());
        mappable.closed(NODE, both);
        assert!(mappable.may_hide_data(NODE) && !mappable.may_hide_data(NodeId(7 + SHARD_COUNT)));
        mappable.closed(NODE, both);
        mappable.closed(NODE, both);
        assert!(!mappable.may_hide_data(NODE));
    }

    #[test]
    fn what_was_empty_hides_nothing_until_it_is_read() {
        let mappable = Mappable::new();
        let both = OFlags::RDWR.bits();
        mappable.opened(NODE, both, || true);
        mappable.read(NodeId(7 + SHARD_COUNT));
        assert!(!mappable.may_hide_data(NODE));
        mappable.read(NODE);
        mappable.read(NODE);
        assert!(mappable.may_hide_data(NODE));
        mappable.closed(NODE, both);
        mappable.opened(NODE, both, || true);
        assert!(!mappable.may_hide_data(NODE));
        mappable.closed(NODE, both);
        assert_eq!(mappable.unread.load(Ordering::SeqCst), 0);
    }
}
