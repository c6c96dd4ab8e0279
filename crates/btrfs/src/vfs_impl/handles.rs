//! What an opening has to remember: a few bits in the number that the server keeps for it, and
//! whether it was told of a failure.
//!
//! ```text
//!  open -> untold --- failure --- sync: its reason -> told -> sync: "cannot be written"
//!                        `------- open -------------> told
//! ```

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vfs::NodeId;
use vfs::file_system::{Handle, OpenFlags};

use crate::locks::{Mutex, Rank};

/// Reads leave the time of the last access alone.
const NO_ATIME: u64 = 1;
/// Writing had stopped before it was opened: it has nothing to lose by that.
const IS_LATE: u64 = 2;
/// Above the bits, a number that no two openings share; 0 where the server knows of no opening.
const SERIAL_SHIFT: u32 = 2;

/// Whom a failure is told: an opening, or a node that was opened without the server's knowing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Listener {
    Opening(u64),
    Node(NodeId),
}

/// Numbers of openings, and those that know of the failure that stopped writing.
#[derive(Debug)]
pub(super) struct Handles {
    last: AtomicU64,
    told: Mutex<HashSet<Listener>>,
    /// Until then nobody needs the lock.
    has_told: AtomicBool,
}

impl Default for Handles {
    fn default() -> Self {
        let told = Mutex::new(Rank::Lists, HashSet::new());
        Self { last: AtomicU64::new(0), told, has_told: AtomicBool::new(false) }
    }
}

impl Handles {
    /// The handle of a new opening.
    pub(super) fn open(&self, flags: OpenFlags, is_late: bool) -> Handle {
        let serial = self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut number = serial << SERIAL_SHIFT;
        if flags.contains(OpenFlags::NO_ATIME) {
            number |= NO_ATIME;
        }
        if is_late {
            number |= IS_LATE;
        }
        Handle(number)
    }

    /// Notes that an opening is told of the failure; false when it knows already.
    pub(super) fn tell(&self, node: NodeId, handle: Handle) -> bool {
        let listener = match handle.0 >> SERIAL_SHIFT {
            _ if handle.0 & IS_LATE != 0 => return false,
            0 => Listener::Node(node),
            serial => Listener::Opening(serial),
        };
        self.has_told.store(true, Ordering::Relaxed);
        self.told.lock().insert(listener)
    }

    /// The opening is no more.
    pub(super) fn close(&self, handle: Handle) {
        self.drop_listener(Listener::Opening(handle.0 >> SERIAL_SHIFT));
    }

    /// The node is no more known to the server.
    pub(super) fn forget(&self, node: NodeId) {
        self.drop_listener(Listener::Node(node));
    }

    fn drop_listener(&self, listener: Listener) {
        // Who was told said so before; others are not in the table.
        if self.has_told.load(Ordering::Relaxed) {
            self.told.lock().remove(&listener);
        }
    }
}

/// True where reads leave the time of the last access alone.
pub(super) const fn leaves_atime(handle: Handle) -> bool {
    handle.0 & NO_ATIME != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opening_is_told_once_and_leaves_nothing_behind() {
        let handles = Handles::default();
        let node = NodeId(300);
        let flags = OpenFlags::READ | OpenFlags::NO_ATIME;
        let (first, second) = (handles.open(flags, false), handles.open(OpenFlags::READ, false));
        let late = handles.open(OpenFlags::READ, true);
        assert!(leaves_atime(first) && !leaves_atime(second) && !leaves_atime(late));
        for handle in [first, second, Handle::default()] {
            assert!(handles.tell(node, handle), "{handle:?}");
            assert!(!handles.tell(node, handle), "{handle:?}");
        }
        assert!(!handles.tell(node, late));
        assert!(handles.tell(NodeId(301), Handle::default()));
        for handle in [first, second, late, Handle::default()] {
            handles.close(handle);
        }
        assert_eq!(handles.told.lock().len(), 2);
        handles.forget(node);
        handles.forget(NodeId(301));
        assert!(handles.told.lock().is_empty());
    }
}
