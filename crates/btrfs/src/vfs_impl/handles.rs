//! Keeps the state of an opening: a few bits in its handle, and whether a failure was reported to it.
//!
//! ```text
//!  open -> unreported --- failure --- sync: its reason -> reported -> sync: "cannot be written"
//!                            `-------- open -------------> reported
//! ```
//!
//! Used by `data`.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vfs::NodeId;
use vfs::file_system::{Handle, OpenFlags};

use crate::locks::{Mutex, Rank};

/// Reads do not change the access time.
const NO_ATIME: u64 = 1;
/// Writing had stopped before it was opened: it has no data to lose.
const IS_LATE: u64 = 2;
/// Above the bits, a number that no two openings share; 0 where the server knows of no opening.
const SERIAL_SHIFT: u32 = 2;

/// The receiver of a report: an opening, or a node for servers without openings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Listener {
    Opening(u64),
    Node(NodeId),
}

/// Numbers of openings, and those to which the failure that stopped writing was reported.
#[derive(Debug)]
pub(super) struct Handles {
    last: AtomicU64,
    reported: Mutex<HashSet<Listener>>,
    /// False as long as there is no report, and the lock is not needed.
    has_reported: AtomicBool,
}

impl Default for Handles {
    fn default() -> Self {
        let reported = Mutex::new(Rank::Lists, HashSet::new());
        Self { last: AtomicU64::new(0), reported, has_reported: AtomicBool::new(false) }
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

    /// Notes that the failure is reported to an opening; false when it was before.
    pub(super) fn mark_reported(&self, node: NodeId, handle: Handle) -> bool {
        let listener = match handle.0 >> SERIAL_SHIFT {
            _ if handle.0 & IS_LATE != 0 => return false,
            0 => Listener::Node(node),
            serial => Listener::Opening(serial),
        };
        self.has_reported.store(true, Ordering::Relaxed);
        self.reported.lock().insert(listener)
    }

    /// Forgets an opening.
    pub(super) fn close(&self, handle: Handle) {
        self.drop_listener(Listener::Opening(handle.0 >> SERIAL_SHIFT));
    }

    /// Forgets a node that the server no longer knows.
    pub(super) fn forget(&self, node: NodeId) {
        self.drop_listener(Listener::Node(node));
    }

    fn drop_listener(&self, listener: Listener) {
        // Openings with a report set this before; others are not in the table.
        if self.has_reported.load(Ordering::Relaxed) {
            self.reported.lock().remove(&listener);
        }
    }
}

/// True where reads do not change the access time.
pub(super) const fn leaves_atime(handle: Handle) -> bool {
    handle.0 & NO_ATIME != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opening_gets_one_report_and_leaves_no_entry() {
        let handles = Handles::default();
        let node = NodeId(300);
        let flags = OpenFlags::READ | OpenFlags::NO_ATIME;
        let (first, second) = (handles.open(flags, false), handles.open(OpenFlags::READ, false));
        let late = handles.open(OpenFlags::READ, true);
        assert!(leaves_atime(first) && !leaves_atime(second) && !leaves_atime(late));
        for handle in [first, second, Handle::default()] {
            assert!(handles.mark_reported(node, handle), "{handle:?}");
            assert!(!handles.mark_reported(node, handle), "{handle:?}");
        }
        assert!(!handles.mark_reported(node, late));
        assert!(handles.mark_reported(NodeId(301), Handle::default()));
        for handle in [first, second, late, Handle::default()] {
            handles.close(handle);
        }
        assert_eq!(handles.reported.lock().len(), 2);
        handles.forget(node);
        handles.forget(NodeId(301));
        assert!(handles.reported.lock().is_empty());
    }
}
