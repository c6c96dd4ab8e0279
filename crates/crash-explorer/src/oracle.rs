//! Holds the oracle, which knows the possible states after a crash: the tree of a workload, with the history of every
//! property, and the promises. `drive` tells it each step, `compare` asks it about each state.
//!
//! Each property has a history of its own: the contents of a file, its attributes, the set of its names, and the node
//! of each name of a directory. A promise is the first value of a history that still counts:
//!
//! ```text
//! sync              all of all
//! fsync of a file   its contents and attributes (mode, owner, times, flags, and the extended ones), its names, and
//!                   that the names it lost before are not its any more
//! fdatasync         its contents, under a name that it has or had
//! fsync of a dir    its attributes and names, and all of its entries; the same of new directories behind these, and
//!                   so on below
//! ```
//!
//! That is the behaviour of btrfs (generic/335, /336, /341, /342, /343, /498, /502 and others of xfstests test it), and
//! more than POSIX requires. Later values, up to those of operations begun before the crash, are legal too,
//! independently of each other; except that the names of one inode change together, and contents change byte by byte.

use super::history::{Attrs, Floors, Ino, Names, Slot, Versions, Xattrs};
use super::tape::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use vfs::file_system::NodeKind;

/// An inode with its histories.
#[derive(Debug, Clone)]
pub(super) struct Thing {
    pub(super) kind: NodeKind,
    pub(super) data: Versions<Arc<Vec<u8>>>,
    pub(super) xattrs: Versions<Xattrs>,
    pub(super) attrs: Versions<Attrs>,
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
    /// The inodes that were there when the workload began: the last commit has them.
    pub(super) at_begin: BTreeSet<Ino>,
    promises: Vec<Promise>,
    /// The time after which there was no commit: no sync returned, and no snapshot began.
    uncommitted_from: Time,
}

impl Thing {
    pub(super) fn new(kind: NodeKind, began: Time, attrs: Attrs) -> Self {
        Self {
            kind,
            attrs: Versions::new(began, attrs),
            data: Versions::new(began, Arc::default()),
            xattrs: Versions::new(began, Xattrs::new()),
            names: Versions::new(0, Names::new()),
            target: None,
            is_complete: true,
        }
    }

    pub(super) fn bytes(&self) -> Arc<Vec<u8>> {
        self.data.last().cloned().unwrap_or_default()
    }
}

impl Oracle {
    /// The present inode of a path; `None` if there is none.
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

    /// A rename: the names of the moved inode change once.
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

    /// An exchange of two names: the names of both inodes change once.
    pub(super) fn exchange(&mut self, from: &Slot, to: &Slot, began: Time) {
        let (first, second) = (self.entry(from), self.entry(to));
        if first == second {
            return;
        }
        for (slot, value) in [(from, second), (to, first)] {
            let versions = self.slots.entry(slot.clone()).or_insert_with(|| Versions::new(0, None));
            versions.push(began, value);
        }
        for (ino, old, new) in [(first, from, to), (second, to, from)] {
            self.change_names(ino, began, |names| {
                names.remove(old);
                names.insert(new.clone())
            });
        }
    }

    /// A snapshot: the contents of the subvolume of `source` are in the subvolume `tree` too, all or none.
    pub(super) fn copy_subvolume(&mut self, source: Ino, tree: u64, began: Time) {
        // Its commit writes something, and later changes begin behind that.
        self.uncommitted_from = began + 1;
        let in_copy = |ino: Ino| (tree, ino.1);
        let slot_in_copy = |slot: &Slot| (in_copy(slot.0), slot.1.clone());
        let things: Vec<(Ino, Thing)> =
            self.things.range((source.0, 0)..=(source.0, u64::MAX)).map(|(ino, thing)| (*ino, thing.clone())).collect();
        for (ino, old) in things {
            let names: Names = old.names.last().into_iter().flatten().map(slot_in_copy).collect();
            let (Some(xattrs), Some(attrs)) = (old.xattrs.last(), old.attrs.last()) else { continue };
            let mut copy = Thing {
                data: Versions::new(began, old.bytes()),
                xattrs: Versions::new(began, xattrs.clone()),
                attrs: Versions::new(began, attrs.clone()),
                names: Versions::new(0, Names::new()),
                ..old
            };
            // The name of the copied subvolume itself comes later.
            if ino != source {
                copy.names.push(began, names);
            }
            self.things.insert(in_copy(ino), copy);
        }
        let slots: Vec<(Slot, Option<Ino>)> = self
            .slots
            .iter()
            .filter(|(slot, _)| slot.0.0 == source.0)
            .map(|(slot, versions)| (slot_in_copy(slot), versions.last().copied().flatten().map(in_copy)))
            .collect();
        for (slot, ino) in slots {
            self.slots.insert(slot, Versions::new(began, ino));
        }
    }

    /// A subvolume is deleted: its inodes have no names any more.
    pub(super) fn forget_subvolume(&mut self, root: Ino, began: Time) {
        for (_, thing) in self.things.range_mut((root.0, 0)..=(root.0, u64::MAX)) {
            thing.names.push(began, Names::new());
        }
    }

    /// A path that leads to something now.
    pub(super) fn path_to(&self, ino: Ino) -> Option<PathBuf> {
        const DEPTH_MAX: usize = 64;
        let (mut names, mut at) = (Vec::new(), ino);
        while at != self.top {
            let (parent, name) = self.things.get(&at)?.names.last()?.iter().next()?;
            names.push(name.clone());
            at = *parent;
            if names.len() > DEPTH_MAX {
                return None;
            }
        }
        let path = names.iter().rev().fold(PathBuf::from("/"), |path, name| path.join(OsStr::from_bytes(name)));
        Some(path)
    }

    /// Records the present attributes.
    pub(super) fn change_attrs(&mut self, ino: Ino, began: Time, attrs: Attrs) {
        if let Some(thing) = self.things.get_mut(&ino) {
            thing.attrs.push(began, attrs);
        }
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
            floors.attrs.insert(*ino, thing.attrs.last_index());
            floors.names.insert(*ino, thing.names.last_index());
        }
        floors.slots = self.slots.iter().map(|(slot, versions)| (slot.clone(), versions.last_index())).collect();
        floors
    }

    /// The promises of an fdatasync of a file now.
    pub(super) fn floors_of_data(&self, ino: Ino) -> Floors {
        let mut floors = Floors::default();
        let Some(thing) = self.things.get(&ino) else { return floors };
        floors.data.insert(ino, thing.data.last_index());
        let first_named = thing.names.last_change(|before, after| before.is_empty() && !after.is_empty());
        floors.names.insert(ino, first_named);
        floors
    }

    /// The promises of an fsync of an inode now.
    pub(super) fn floors_of(&self, ino: Ino) -> Floors {
        let mut floors = Floors::default();
        let Some(thing) = self.things.get(&ino) else { return floors };
        floors.data.insert(ino, thing.data.last_index());
        floors.xattrs.insert(ino, thing.xattrs.last_index());
        floors.attrs.insert(ino, thing.attrs.last_index());
        floors.names.insert(ino, thing.names.last_index());
        for (slot, versions) in &self.slots {
            // Of a lost name only its loss is promised, by the set of names: its former inode may have it again.
            if slot.0 == ino || versions.last() == Some(&Some(ino)) {
                floors.slots.insert(slot.clone(), versions.last_index());
            }
        }
        for dir in self.new_directories_below(ino) {
            let Some(thing) = self.things.get(&dir) else { continue };
            floors.xattrs.insert(dir, thing.xattrs.last_index());
            floors.attrs.insert(dir, thing.attrs.last_index());
            floors.names.insert(dir, thing.names.last_index());
            let entries = self.slots.iter().filter(|(slot, _)| slot.0 == dir);
            floors.slots.extend(entries.map(|(slot, versions)| (slot.clone(), versions.last_index())));
        }
        floors
    }

    /// Directories below `top` that neither a commit nor a log contains. A directory that was synced before is left
    /// out: this fsync does not write it again.
    fn new_directories_below(&self, top: Ino) -> Vec<Ino> {
        let mut found: Vec<Ino> = Vec::new();
        let mut todo = vec![top];
        while let Some(dir) = todo.pop() {
            let below =
                self.slots.iter().filter(|(slot, _)| slot.0 == dir).filter_map(|(_, versions)| *versions.last()?);
            for ino in below.filter(|ino| !found.contains(ino)).collect::<Vec<_>>() {
                let thing = self.things.get(&ino);
                let is_late = thing.is_some_and(|thing| thing.attrs.first_began() >= self.uncommitted_from);
                let is_new = is_late && !self.at_begin.contains(&ino);
                if is_new && thing.is_some_and(|thing| thing.kind.is_dir()) {
                    found.push(ino);
                    todo.push(ino);
                }
            }
        }
        found
    }

    /// A sync returned.
    pub(super) fn promise(&mut self, returned: Time, floors: Floors) {
        self.uncommitted_from = self.uncommitted_from.max(returned);
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
