//! What a writer was promised, and what it finds afterwards.

use anyhow::Result;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use testkit::Random;

/// A write: `len` bytes at `offset`, which follow from `seed`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    pub(super) offset: usize,
    pub(super) len: usize,
    pub(super) seed: u64,
}

impl Write {
    /// What was written.
    pub(super) fn bytes(&self) -> Vec<u8> {
        Random::new(self.seed).noise(self.len)
    }

    fn end(&self) -> usize {
        self.offset.saturating_add(self.len)
    }
}

/// A file, whatever its names.
#[derive(Debug, Default)]
pub(super) struct File {
    /// What an fsync promised.
    promised: Vec<u8>,
    /// True when its existence was promised.
    is_promised: bool,
    /// Writes that no fsync came after.
    open: Vec<Write>,
    /// The names that it may have now; the last one is what its writer believes.
    names: Vec<String>,
    /// Another file may have taken its last name.
    may_be_replaced: bool,
}

impl File {
    pub(super) fn new(name: String) -> Self {
        Self {
            names: vec![name],
            ..Self::default()
        }
    }

    /// Its name, as its writer believes.
    pub(super) fn name(&self) -> &str {
        self.names.last().map_or("", String::as_str)
    }

    /// True while its name is its own.
    pub(super) fn is_there(&self) -> bool {
        !self.may_be_replaced
    }

    /// Something is about to be written.
    pub(super) fn write(&mut self, write: Write) {
        self.open.push(write);
    }

    /// It is about to be renamed.
    pub(super) fn rename(&mut self, to: String) {
        self.names.push(to);
    }

    /// An fdatasync of it has returned, which promises a name but not which. Returns the bytes that
    /// are promised now and were not before.
    pub(super) fn data_synced(&mut self) -> usize {
        let mut bytes = 0_usize;
        for write in std::mem::take(&mut self.open) {
            apply(&mut self.promised, &write);
            bytes = bytes.saturating_add(write.len);
        }
        self.is_promised = true;
        bytes
    }

    /// It or its folder was fsynced: the names are as the writer believes.
    pub(super) fn names_synced(&mut self) {
        let last = self.names.pop();
        self.names.clear();
        self.names.extend(last);
    }

    /// How `found`, under one of the names, differs from what may be there.
    fn difference(&self, found: &[u8]) -> Option<String> {
        let mut sizes = vec![self.promised.len()];
        sizes.extend(self.open.iter().map(Write::end));
        if found.len() < self.promised.len() || !sizes.contains(&found.len()) {
            return Some(format!(
                "{} bytes long, promised {}",
                found.len(),
                self.promised.len()
            ));
        }
        let mut is_fine: Vec<bool> = found
            .iter()
            .enumerate()
            .map(|(at, byte)| self.promised.get(at).copied().unwrap_or(0) == *byte)
            .collect();
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

/// All that a writer knows.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) files: Vec<File>,
    pub(super) syncs: u64,
    pub(super) synced_bytes: u64,
}

impl Ledger {
    /// A rename is about to put the file at `index` in place of the one at `old`.
    pub(super) fn replace(&mut self, index: usize, old: usize) {
        let Some(name) = self.files.get_mut(old).map(|file| {
            file.may_be_replaced = true;
            file.name().to_owned()
        }) else {
            return;
        };
        if let Some(file) = self.files.get_mut(index) {
            file.rename(name);
        }
    }

    /// What is missing in `folder`.
    pub(super) fn misses(&self, folder: &Path) -> Result<Vec<String>> {
        let mut contents: BTreeMap<&str, Option<Vec<u8>>> = BTreeMap::new();
        for name in self.files.iter().flat_map(|file| &file.names) {
            let read = match std::fs::read(folder.join(name)) {
                Ok(bytes) => Some(bytes),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Ok(vec![format!("{name}: {error}")]),
            };
            contents.insert(name, read);
        }
        let all = self
            .files
            .iter()
            .filter(|file| file.is_promised && !file.may_be_replaced);
        let mut misses = Vec::new();
        for file in all {
            let there: Vec<&[u8]> = file
                .names
                .iter()
                .filter_map(|name| contents.get(name.as_str())?.as_deref())
                .collect();
            let differences: Vec<_> = there.iter().map(|bytes| file.difference(bytes)).collect();
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_promised_is_missed_and_what_was_not_may_be_there() {
        let mut file = File::new("a".to_owned());
        let first = Write {
            offset: 0,
            len: 100,
            seed: 1,
        };
        file.write(first);
        assert_eq!(file.data_synced(), 100);
        let second = Write {
            offset: 50,
            len: 100,
            seed: 2,
        };
        file.write(second);
        let old = first.bytes();
        let mut new = old.clone();
        apply(&mut new, &second);
        assert_eq!(file.difference(&old), None);
        assert_eq!(file.difference(&new), None);
        assert_eq!(file.difference(&new[..100]), None);
        assert!(file.difference(&old[..99]).is_some());
        let mut torn = new.clone();
        torn[10] ^= 1;
        assert!(file.difference(&torn).unwrap().contains("at 10"));
        file.data_synced();
        assert!(file.difference(&old).is_some());
    }

    #[test]
    fn a_renamed_file_has_one_of_its_names() {
        let folder = tempfile_folder("renamed");
        let mut file = File::new("a".to_owned());
        file.data_synced();
        file.rename("b".to_owned());
        let mut ledger = Ledger {
            files: vec![file],
            ..Ledger::default()
        };
        assert_eq!(ledger.misses(&folder).unwrap(), ["a or b: gone"]);
        std::fs::write(folder.join("a"), "").unwrap();
        assert!(ledger.misses(&folder).unwrap().is_empty());
        ledger.files[0].names_synced();
        assert_eq!(ledger.misses(&folder).unwrap(), ["b: gone"]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    fn tempfile_folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("spinney-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }
}
