//! Keeps the promises that a writer got, and compares them with the files found later. Called by `writer`, and by the
//! judges of `kill` and `power_cut` through `promises`.

use super::attributes::{Attributes, Change};
use super::event::{Event, Write};
use super::trees::{Found, Tree};
use anyhow::Result;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

/// A file, independent of its names.
#[derive(Debug, Default, Clone)]
pub(in crate::mount) struct File {
    /// Contents promised by an fsync.
    promised: Vec<u8>,
    /// True if its existence was promised.
    is_promised: bool,
    /// Writes since the last fsync.
    open: Vec<Write>,
    /// Its possible names; the last one is the current one.
    names: Vec<String>,
    /// Another file may have taken its last name.
    may_be_replaced: bool,
    /// Its possible attributes: those promised by an fsync, then each later state. A commit stores one of them.
    states: Vec<Attributes>,
}

impl File {
    pub(super) fn new(name: String) -> Self {
        Self { names: vec![name], ..Self::default() }
    }

    /// Its current name.
    pub(super) fn name(&self) -> &str {
        self.names.last().map_or("", String::as_str)
    }

    /// True while no other file has taken its name.
    pub(super) fn is_there(&self) -> bool {
        !self.may_be_replaced
    }

    /// Sets the attributes that it was made with.
    pub(super) fn made_with(&mut self, attributes: Attributes) {
        self.states.push(attributes);
    }

    /// Notes a write that is about to begin.
    pub(super) fn write(&mut self, write: Write) {
        self.open.push(write);
        self.used();
    }

    /// Notes that its times are about to become those of the moment.
    pub(super) fn used(&mut self) {
        if let Some(mut state) = self.states.last().cloned() {
            state.forget_times();
            self.push(state);
        }
    }

    /// Its possible names.
    pub(super) fn names(&self) -> String {
        self.names.join(" or ")
    }

    /// Notes a change of attributes that is about to begin.
    pub(super) fn change(&mut self, change: &Change) {
        if let Some(state) = self.states.last().map(|state| state.changed(change)) {
            self.push(state);
        }
    }

    fn push(&mut self, state: Attributes) {
        if self.states.last() != Some(&state) {
            self.states.push(state);
        }
    }

    /// Notes that its current attributes are durable.
    pub(super) fn attributes_synced(&mut self) {
        let last = self.states.pop();
        self.states.clear();
        self.states.extend(last);
    }

    /// Its current contents.
    pub(super) fn contents(&self) -> Vec<u8> {
        let mut contents = self.promised.clone();
        for write in &self.open {
            apply(&mut contents, write);
        }
        contents
    }

    /// Notes that it is about to be renamed.
    pub(super) fn rename(&mut self, to: String) {
        self.names.push(to);
    }

    /// Notes that an fdatasync has returned, which promises that it has one of its names. Returns the number of newly
    /// promised bytes.
    pub(super) fn data_synced(&mut self) -> usize {
        let mut bytes = 0_usize;
        for write in std::mem::take(&mut self.open) {
            apply(&mut self.promised, &write);
            bytes = bytes.saturating_add(write.len);
        }
        self.is_promised = true;
        bytes
    }

    /// Notes that it or its directory was fsynced: its current name is durable.
    pub(super) fn names_synced(&mut self) {
        let last = self.names.pop();
        self.names.clear();
        self.names.extend(last);
    }

    /// The difference between a file found under one of the names and the possible states.
    fn difference(&self, found: &Found) -> Option<String> {
        self.contents_difference(&found.bytes).or_else(|| {
            let differences: Vec<_> = self.states.iter().map(|state| state.difference(found)).collect();
            match differences.contains(&None) {
                true => None,
                false => differences.into_iter().flatten().next(),
            }
        })
    }

    fn contents_difference(&self, found: &[u8]) -> Option<String> {
        let mut sizes = vec![self.promised.len()];
        sizes.extend(self.open.iter().map(Write::end));
        if found.len() < self.promised.len() || !sizes.contains(&found.len()) {
            return Some(format!("{} bytes long, promised {}", found.len(), self.promised.len()));
        }
        let mut is_fine: Vec<bool> =
            found.iter().enumerate().map(|(at, byte)| self.promised.get(at).copied().unwrap_or(0) == *byte).collect();
        for write in &self.open {
            let range = write.offset..write.end().min(found.len());
            let places = is_fine.get_mut(range.clone()).unwrap_or_default();
            let there = found.get(range).unwrap_or_default();
            for ((fine, byte), written) in places.iter_mut().zip(there).zip(write.bytes()) {
                *fine |= *byte == written;
            }
        }
        let wrong = is_fine.iter().position(|fine| !fine)?;
        let count = is_fine.iter().filter(|fine| !**fine).count();
        Some(format!("{count} wrong bytes, the first at {wrong}"))
    }
}

fn apply(contents: &mut Vec<u8>, write: &Write) {
    if contents.len() < write.end() {
        contents.resize(write.end(), 0);
    }
    if let Some(place) = contents.get_mut(write.offset..write.end()) {
        place.copy_from_slice(&write.bytes());
    }
}

/// The state that a writer expects.
#[derive(Debug, Default)]
pub(in crate::mount) struct Ledger {
    pub(in crate::mount) files: Vec<File>,
    pub(in crate::mount) syncs: u64,
    pub(in crate::mount) synced_bytes: u64,
    /// Snapshots of its directory, by their paths below the top, with their files.
    pub(in crate::mount) snapshots: Vec<(String, Vec<File>)>,
    /// The writer's operations, one line each.
    pub(in crate::mount) history: Vec<String>,
}

impl Ledger {
    /// Applies an operation that is about to begin, or a promise.
    pub(super) fn apply(&mut self, event: &Event) {
        match event {
            Event::New(name) => self.files.push(File::new(name.clone())),
            Event::Made(index, attributes) => self.with(*index, |file| file.made_with(attributes.clone())),
            Event::Write(index, write) => self.with(*index, |file| file.write(write.clone())),
            Event::Used(index) => self.with(*index, File::used),
            Event::Change(index, change) => self.with(*index, |file| file.change(change)),
            Event::Rename(index, to) => self.with(*index, |file| file.rename(to.clone())),
            Event::Exchange(one, other) => self.exchange(*one, *other),
            Event::Replace { index, old } => self.replace(*index, *old),
            Event::DataSynced(index) => self.synced(*index, false),
            Event::Synced(index) => self.synced(*index, true),
            Event::FolderSynced => {
                self.syncs = self.syncs.saturating_add(1);
                self.files.iter_mut().for_each(File::names_synced);
            }
            Event::AllSynced => self.all_synced(),
            Event::Snapshot(path) => self.snapshot(path.clone()),
        }
        self.note(event);
    }

    fn with(&mut self, index: usize, change: impl FnOnce(&mut File)) {
        if let Some(file) = self.files.get_mut(index) {
            change(file);
        }
    }

    /// Adds an event to the history, which is printed after a loss.
    fn note(&mut self, event: &Event) {
        let names = |index: usize| self.files.get(index).map(File::names).unwrap_or_default();
        self.history.push(event.line(names));
    }

    fn synced(&mut self, index: usize, with_attributes: bool) {
        let mut bytes = 0;
        self.with(index, |file| {
            bytes = file.data_synced();
            if with_attributes {
                file.names_synced();
                file.attributes_synced();
            }
        });
        self.syncs = self.syncs.saturating_add(1);
        self.synced_bytes = self.synced_bytes.saturating_add(u64::try_from(bytes).unwrap_or_default());
    }

    /// Notes a snapshot of the directory with its current files.
    fn snapshot(&mut self, path: String) {
        let mut files = self.files.clone();
        for file in &mut files {
            file.data_synced();
            file.names_synced();
            file.attributes_synced();
        }
        self.snapshots.push((path, files));
    }

    /// Notes that a sync of everything has returned.
    fn all_synced(&mut self) {
        for file in &mut self.files {
            let bytes = u64::try_from(file.data_synced()).unwrap_or_default();
            self.synced_bytes = self.synced_bytes.saturating_add(bytes);
            file.names_synced();
            file.attributes_synced();
        }
        self.syncs = self.syncs.saturating_add(1);
    }

    /// Notes that two files are about to exchange names.
    fn exchange(&mut self, one: usize, other: usize) {
        let name = |files: &[File], index: usize| files.get(index).map_or(String::new(), |file| file.name().to_owned());
        let (first, second) = (name(&self.files, one), name(&self.files, other));
        for (index, to) in [(one, second), (other, first)] {
            self.with(index, |file| file.rename(to));
        }
    }

    /// Notes that a rename is about to put the file at `index` in place of the one at `old`.
    fn replace(&mut self, index: usize, old: usize) {
        let Some(name) = self.files.get_mut(old).map(|file| {
            file.may_be_replaced = true;
            file.name().to_owned()
        }) else {
            return;
        };
        self.with(index, |file| file.rename(name));
    }

    /// Broken promises in `folder`, and in the snapshots; both are paths in `tree`.
    pub(in crate::mount) fn misses(&self, tree: &dyn Tree, folder: &Path) -> Result<Vec<String>> {
        let mut misses = misses(&self.files, tree, folder)?;
        for (path, files) in &self.snapshots {
            let found = match tree.is_dir(Path::new(path)) {
                true => self::misses(files, tree, Path::new(path))?,
                false => vec!["gone".to_owned()],
            };
            misses.extend(found.into_iter().map(|miss| format!("{path}: {miss}")));
        }
        Ok(misses)
    }
}

fn misses(files: &[File], tree: &dyn Tree, folder: &Path) -> Result<Vec<String>> {
    let mut contents: BTreeMap<&str, Option<Found>> = BTreeMap::new();
    for name in files.iter().flat_map(|file| &file.names) {
        let read = match tree.read(&folder.join(name)) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Ok(vec![format!("{name}: {error}")]),
        };
        contents.insert(name, read);
    }
    let all = files.iter().filter(|file| file.is_promised && !file.may_be_replaced);
    let mut misses = Vec::new();
    for file in all {
        let there = file.names.iter().filter_map(|name| contents.get(name.as_str())?.as_ref());
        let differences: Vec<_> = there.map(|found| file.difference(found)).collect();
        if differences.contains(&None) {
            continue;
        }
        let names = file.names.join(" or ");
        misses.push(match differences.into_iter().flatten().next() {
            Some(difference) => format!("{names}: {difference}"),
            None => format!("{names}: gone"),
        });
    }
    Ok(misses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::promises::event::Source;
    use crate::mount::promises::trees::Mounted;

    #[test]
    fn what_was_promised_is_missed_and_what_was_not_may_be_there() {
        let mut file = File::new("a".to_owned());
        let first = Write { offset: 0, len: 100, source: Source::Seed(1) };
        file.write(first.clone());
        assert_eq!(file.data_synced(), 100);
        let second = Write { offset: 50, len: 100, source: Source::Seed(2) };
        file.write(second.clone());
        let old = first.bytes();
        let mut new = old.clone();
        apply(&mut new, &second);
        assert_eq!(file.contents_difference(&old), None);
        assert_eq!(file.contents_difference(&new), None);
        assert_eq!(file.contents_difference(&new[..100]), None);
        assert!(file.contents_difference(&old[..99]).is_some());
        let mut torn = new.clone();
        torn[10] ^= 1;
        assert!(file.contents_difference(&torn).unwrap().contains("at 10"));
        file.data_synced();
        assert!(file.contents_difference(&old).is_some());
    }

    #[test]
    fn a_renamed_file_has_one_of_its_names() {
        let folder = tempfile_folder("renamed");
        let mut file = File::new("a".to_owned());
        file.data_synced();
        file.rename("b".to_owned());
        let mut ledger = Ledger { files: vec![file], ..Ledger::default() };
        let misses = |ledger: &Ledger| ledger.misses(&Mounted(&folder), Path::new("")).unwrap();
        assert_eq!(misses(&ledger), ["a or b: gone"]);
        std::fs::write(folder.join("a"), "").unwrap();
        assert!(misses(&ledger).is_empty());
        ledger.files[0].names_synced();
        assert_eq!(misses(&ledger), ["b: gone"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn attributes_are_those_of_the_last_sync_or_later_ones() {
        let folder = tempfile_folder("attributes");
        let path = folder.join("a");
        let open = std::fs::File::create(&path).unwrap();
        let mut file = File::new("a".to_owned());
        file.made_with(Attributes::of_new(&open).unwrap());
        for bits in [0o600, 0o640, 0o604] {
            file.change(&Change::Permissions(bits));
        }
        file.data_synced();
        let at = |file: &File, bits: u32| {
            Change::Permissions(bits).make(&open).unwrap();
            file.difference(&Mounted(&folder).read(Path::new("a")).unwrap()).is_none()
        };
        assert!(at(&file, 0o640) && at(&file, 0o604) && !at(&file, 0o777));
        file.attributes_synced();
        assert!(at(&file, 0o604) && !at(&file, 0o640));
        file.change(&Change::Times(5, 7));
        assert!(at(&file, 0o604));
        file.attributes_synced();
        assert!(!at(&file, 0o604));
        Change::Times(5, 7).make(&open).unwrap();
        assert!(at(&file, 0o604));
        std::fs::remove_dir_all(folder).unwrap();
    }

    fn tempfile_folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("spinney-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}
