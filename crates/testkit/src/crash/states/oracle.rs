//! Who knows what a crash may leave: the tree of a workload with the history of all that is in it, and the promises.
//!
//! Each thing has a history of its own: what a file holds, its attributes, the set of its names, and what a name of a
//! directory leads to. A promise says from which value on a history counts:
//!
//! ```text
//! sync              all of all
//! fsync of a file   its contents and attributes, its names, and that the names it lost before are not its any more
//! fdatasync         its contents, under a name that it has or had
//! fsync of a dir    its attributes and names, and all of its entries
//! ```
//!
//! That is what btrfs keeps (generic/335, /336, /341, /342, /343, /498, /502 and others of xfstests look for it), and
//! more than POSIX asks for. Later values, up to what had begun before the crash, are legal too, each thing by itself;
//! except that the names of one inode change together, and contents change byte by byte.

use super::history::{Floors, Ino, Names, Slot, Versions, Xattrs};
use super::tape::Time;
use spinney::FileType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an inode is and was.
#[derive(Debug, Clone)]
pub(super) struct Thing {
    pub(super) kind: FileType,
    pub(super) data: Versions<Arc<Vec<u8>>>,
    pub(super) xattrs: Versions<Xattrs>,
    pub(super) names: Versions<Names>,
    pub(super) target: Option<Vec<u8>>,
    /// All of its names are in directories that are watched.
    pub(super) is_complete: bool,
}

/// Something that was promised.
#[derive(Debug, Clone)]
pub(super) struct Promise {
    /// When the sync returned.
    pub(super) returned: Time,
    pub(super) floors: Floors,
}

/// Histories and promises of a workload.
#[derive(Debug, Clone, Default)]
pub(super) struct Oracle {
    pub(super) top: Ino,
    pub(super) things: BTreeMap<Ino, Thing>,
    pub(super) slots: BTreeMap<Slot, Versions<Option<Ino>>>,
    promises: Vec<Promise>,
}

impl Thing {
    pub(super) fn new(kind: FileType, began: Time) -> Self {
        Self {
            kind,
            data: Versions::new(began, Arc::default()),
            xattrs: Versions::new(began, Xattrs::new()),
            names: Versions::new(0, Names::new()),
            target: None,
            is_complete: true,
        }
    }

    fn bytes(&self) -> Arc<Vec<u8>> {
        self.data.last().cloned().unwrap_or_default()
    }
}

impl Oracle {
    /// What is at a path now; none where nothing is that is known.
    pub(super) fn at(&self, path: &str) -> Option<Ino> {
        let mut ino = self.top;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            ino = self.entry(&(ino, name.as_bytes().to_vec()))?;
        }
        Some(ino)
    }

    pub(super) fn entry(&self, slot: &Slot) -> Option<Ino> {
        self.slots.get(slot)?.last().copied().flatten()
    }

    /// The directory of a path, and the name in it.
    pub(super) fn slot(&self, path: &str) -> Option<Slot> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Some((self.at(parent)?, name.as_bytes().to_vec()))
    }

    /// Something new.
    pub(super) fn add(&mut self, ino: Ino, thing: Thing) {
        self.things.insert(ino, thing);
    }

    /// A name leads to something from now on, or to nothing.
    pub(super) fn bind(&mut self, slot: &Slot, ino: Option<Ino>, began: Time) {
        let before = self.entry(slot);
        if before == ino {
            return;
        }
        let versions = self.slots.entry(slot.clone()).or_insert_with(|| Versions::new(0, None));
        versions.push(began, ino);
        self.change_names(before, began, |names| names.remove(slot));
        self.change_names(ino, began, |names| names.insert(slot.clone()));
    }

    /// A rename: the names of what moves change once.
    pub(super) fn rename(&mut self, from: &Slot, to: &Slot, began: Time) {
        let Some(ino) = self.entry(from) else { return };
        let over = self.entry(to);
        if over == Some(ino) {
            // Two names of one file: a rename does nothing then.
            return;
        }
        for (slot, value) in [(from, None), (to, Some(ino))] {
            let versions = self.slots.entry(slot.clone()).or_insert_with(|| Versions::new(0, None));
            versions.push(began, value);
        }
        self.change_names(over, began, |names| names.remove(to));
        self.change_names(Some(ino), began, |names| {
            names.remove(from);
            names.insert(to.clone())
        });
    }

    fn change_names(&mut self, ino: Option<Ino>, began: Time, change: impl FnOnce(&mut Names) -> bool) {
        if let Some(thing) = ino.and_then(|ino| self.things.get_mut(&ino)) {
            let mut names = thing.names.last().cloned().unwrap_or_default();
            change(&mut names);
            thing.names.push(began, names);
        }
    }

    /// Changes the contents of a file.
    pub(super) fn change_data(&mut self, path: &str, began: Time, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(thing) = self.at(path).and_then(|ino| self.things.get_mut(&ino)) {
            let mut bytes = Vec::clone(&thing.bytes());
            change(&mut bytes);
            thing.data.push(began, Arc::new(bytes));
        }
    }

    /// Changes the attributes of something.
    pub(super) fn change_xattrs(&mut self, path: &str, began: Time, change: impl FnOnce(&mut Xattrs)) {
        if let Some(thing) = self.at(path).and_then(|ino| self.things.get_mut(&ino)) {
            let mut xattrs = thing.xattrs.last().cloned().unwrap_or_default();
            change(&mut xattrs);
            thing.xattrs.push(began, xattrs);
        }
    }

    /// Everything is as it is now at least.
    pub(super) fn floors_of_all(&self) -> Floors {
        let mut floors = Floors::default();
        for (ino, thing) in &self.things {
            floors.data.insert(*ino, thing.data.last_index());
            floors.xattrs.insert(*ino, thing.xattrs.last_index());
            floors.names.insert(*ino, thing.names.last_index());
        }
        floors.slots = self.slots.iter().map(|(slot, versions)| (slot.clone(), versions.last_index())).collect();
        floors
    }

    /// What an fdatasync of a file promises, if it is called now.
    pub(super) fn floors_of_data(&self, ino: Ino) -> Floors {
        let mut floors = Floors::default();
        let Some(thing) = self.things.get(&ino) else { return floors };
        floors.data.insert(ino, thing.data.last_index());
        let first_named = thing.names.last_change(|before, after| before.is_empty() && !after.is_empty());
        floors.names.insert(ino, first_named);
        floors
    }

    /// What an fsync of something promises, if it is called now.
    pub(super) fn floors_of(&self, ino: Ino) -> Floors {
        let mut floors = Floors::default();
        let Some(thing) = self.things.get(&ino) else { return floors };
        floors.data.insert(ino, thing.data.last_index());
        floors.xattrs.insert(ino, thing.xattrs.last_index());
        floors.names.insert(ino, thing.names.last_index());
        for (slot, versions) in &self.slots {
            // Of a name that it lost nothing is promised but that it is not its any more, as its set of names says:
            // what had the name before may be there again.
            if slot.0 == ino || versions.last() == Some(&Some(ino)) {
                floors.slots.insert(slot.clone(), versions.last_index());
            }
        }
        floors
    }

    /// A sync returned.
    pub(super) fn promise(&mut self, returned: Time, floors: Floors) {
        self.promises.push(Promise { returned, floors });
    }

    /// How many syncs had returned.
    pub(super) fn promise_count(&self, now: Time) -> usize {
        self.promises.iter().filter(|promise| promise.returned <= now).count()
    }

    /// All that was promised by syncs that had returned.
    pub(super) fn promised(&self, now: Time) -> Floors {
        let mut all = Floors::default();
        for promise in self.promises.iter().filter(|promise| promise.returned <= now) {
            all.raise(&promise.floors);
        }
        all
    }

    /// A path that leads to a slot, for people.
    pub(super) fn path_of(&self, slot: &Slot) -> String {
        let name = slot.1.escape_ascii().to_string();
        self.folder_of(slot.0, 0) + &name
    }

    /// A path that leads to something, for people.
    pub(super) fn name_of(&self, ino: Ino) -> String {
        let names = self.things.get(&ino).and_then(|thing| thing.names.last());
        match names.and_then(|names| names.iter().next()) {
            _ if ino == self.top => "/".to_owned(),
            Some(slot) => self.path_of(slot),
            None => format!("inode {}", ino.1),
        }
    }

    fn folder_of(&self, ino: Ino, depth: usize) -> String {
        const DEPTH_MAX: usize = 64;
        let names = self.things.get(&ino).and_then(|thing| thing.names.last());
        match names.and_then(|names| names.iter().next()) {
            _ if ino == self.top => String::new(),
            Some((parent, name)) if depth < DEPTH_MAX => {
                format!("{}{}/", self.folder_of(*parent, depth + 1), name.escape_ascii())
            }
            _ => format!("inode {}/", ino.1),
        }
    }
}
