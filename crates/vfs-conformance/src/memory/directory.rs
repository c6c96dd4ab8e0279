//! Holds the names of one directory, found by name and listed in the order in which they came. Called by `names` and
//! `image`.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use vfs::file_system::{NodeId, NodeKind};

use super::to_u64;

/// Where a listing goes on behind `.` and `..`.
pub(super) const BEHIND_DOT: u64 = 1;
pub(super) const BEHIND_DOT_DOT: u64 = 2;

/// The names, and the directory above.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) parent: NodeId,
    names: HashMap<Arc<[u8]>, Slot>,
    /// A name's place never changes and is never given to another.
    places: BTreeMap<u64, Arc<[u8]>>,
    place_last: u64,
    name_bytes: u64,
}

/// Where a name leads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) node: NodeId,
    pub(super) kind: NodeKind,
    place: u64,
}

impl Directory {
    pub(super) fn new(parent: NodeId) -> Self {
        Self { parent, names: HashMap::new(), places: BTreeMap::new(), place_last: BEHIND_DOT_DOT, name_bytes: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The size that `stat` reports.
    pub(super) const fn size(&self) -> u64 {
        2 * self.name_bytes
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<Slot> {
        self.names.get(name).copied()
    }

    /// The last place that was given away.
    pub(super) const fn place_last(&self) -> u64 {
        self.place_last
    }

    pub(super) const fn set_place_last(&mut self, last: u64) {
        self.place_last = last;
    }

    /// Adds a name that is not there.
    pub(super) fn add(&mut self, name: &[u8], node: NodeId, kind: NodeKind) {
        self.place_last += 1;
        self.add_at(self.place_last, name, node, kind);
    }

    /// Adds a name at its place.
    pub(super) fn add_at(&mut self, place: u64, name: &[u8], node: NodeId, kind: NodeKind) {
        let name: Arc<[u8]> = name.into();
        self.name_bytes += to_u64(name.len());
        self.places.insert(place, Arc::clone(&name));
        self.names.insert(name, Slot { node, kind, place });
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some(slot) = self.names.remove(name) {
            self.places.remove(&slot.place);
            self.name_bytes -= to_u64(name.len());
        }
    }

    /// Names behind a place, with their places.
    pub(super) fn behind(&self, place: u64) -> impl Iterator<Item = (u64, &[u8], Slot)> {
        self.places
            .range((Bound::Excluded(place), Bound::Unbounded))
            .filter_map(|(place, name)| Some((*place, &**name, *self.names.get(name)?)))
    }
}
