//! Counts the references that servers hold to nodes, and remembers openings that were told why writing ended. Called by
//! `data` and `names`.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

use f2fs_disk::Nid;
use vfs::file_system::{Handle, NodeId, OpenFlags};

use crate::locks::{Mutex, Rank};

/// Reads do not change the access time.
const NO_ATIME: u64 = 1;
/// Writing had ended before it was opened.
const IS_LATE: u64 = 2;
/// Above the bits, a number that no two openings share.
const SERIAL_SHIFT: u32 = 2;

/// References, and openings that were told.
#[derive(Debug)]
pub(super) struct Held {
    counts: Mutex<HashMap<Nid, u64>>,
    told: Mutex<HashSet<(u64, NodeId)>>,
    last: AtomicU64,
}

impl Default for Held {
    fn default() -> Self {
        Self {
            counts: Mutex::new(Rank::Refs, HashMap::new()),
            told: Mutex::new(Rank::Logged, HashSet::new()),
            last: AtomicU64::new(0),
        }
    }
}

impl Held {
    /// Adds a reference; an opening is one too.
    pub(super) fn refer(&self, ino: Nid) {
        let mut counts = self.counts.lock();
        let count = counts.entry(ino).or_default();
        *count = count.saturating_add(1);
    }

    /// Removes references; true if none is left.
    pub(super) fn give_back(&self, ino: Nid, by: u64) -> bool {
        let mut counts = self.counts.lock();
        let Some(count) = counts.get_mut(&ino) else { return true };
        *count = count.saturating_sub(by);
        let is_last = *count == 0;
        if is_last {
            counts.remove(&ino);
        }
        is_last
    }

    /// True for a node without references.
    pub(super) fn is_free(&self, ino: Nid) -> bool {
        !self.counts.lock().contains_key(&ino)
    }

    /// Forgets all references.
    pub(super) fn let_go(&self) {
        self.counts.lock().clear();
    }

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

    /// Notes that an opening is told of a failure; false if it was told before. Without an opening the node counts.
    pub(super) fn tell(&self, node: NodeId, handle: Handle) -> bool {
        let serial = handle.0 >> SERIAL_SHIFT;
        let node = if serial == 0 { node } else { NodeId(0) };
        handle.0 & IS_LATE == 0 && self.told.lock().insert((serial, node))
    }
}

/// True if reads do not change the access time.
pub(super) const fn leaves_atime(handle: Handle) -> bool {
    handle.0 & NO_ATIME != 0
}
