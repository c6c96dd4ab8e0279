//! Computes the places of inodes at the receiver while a stream is being made. `names`, `clones` and `stream` ask it
//! for paths.
//!
//! ```text
//! old tree -- clear: inodes that lose their place are set aside --> -- place: by number --> new tree
//! ```
//!
//! An inode that loses its place is first set aside: directories, and files that keep none of their names, get a name
//! of their own at the top, `oINO-GENERATION-N`; names that other files lose are removed. Then no place of a new name
//! is taken, no moved directory lies below another that moves, and every inode can be given its new place at any time,
//! however directories were moved into each other.
//!
//! So the place of a directory follows from the two trees and from the progress: its path in one of them, up to the
//! first directory that is set aside. Only directories that were made before their turn are remembered.

use std::cell::RefCell;
use std::collections::BTreeSet;

use btrfs_store::hash::NumberMap;

use super::view::{Facts, Name, PathUp, View, join};
use crate::error::Result;
use crate::inode::ROOT_DIR_INO;

/// Paths of directories that are kept in memory.
const PATHS_MAX: usize = 1024;

/// The two trees; there is no old one where a whole subvolume is sent.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) old: Option<View>,
    pub(super) new: View,
}

/// The names of a file that is in both trees.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) kept: Vec<Name>,
    pub(super) removed: Vec<Name>,
    pub(super) added: Vec<Name>,
}

impl Pair {
    pub(super) fn old_facts(&self, ino: u64) -> Result<Option<Facts>> {
        self.old.as_ref().map_or(Ok(None), |old| old.facts(ino))
    }

    fn old_names(&self, ino: u64) -> Result<Vec<Name>> {
        self.old.as_ref().map_or(Ok(Vec::new()), |old| old.names(ino))
    }

    /// Whether one directory has this number in both trees.
    pub(super) fn has_both(&self, dir: u64) -> Result<bool> {
        let Some(old) = &self.old else { return Ok(false) };
        if dir == ROOT_DIR_INO.0 {
            return Ok(true);
        }
        let both = (old.dir(dir)?, self.new.dir(dir)?);
        Ok(matches!(both, (Some(old), Some(new)) if old.generation == new.generation))
    }

    /// Whether a directory of the old tree has another place in the new one, or none.
    pub(super) fn loses_place(&self, dir: u64) -> Result<bool> {
        if dir == ROOT_DIR_INO.0 {
            return Ok(false);
        }
        let Some(old) = &self.old else { return Ok(false) };
        match (old.dir(dir)?, self.new.dir(dir)?) {
            (Some(old), Some(new)) if old.generation == new.generation && old.name == new.name => {
                Ok(!self.has_both(old.name.as_ref().map_or(0, |name| name.dir))?)
            }
            _ => Ok(true),
        }
    }

    /// The changes of the names of a file that is in both trees.
    pub(super) fn links(&self, ino: u64) -> Result<Links> {
        let mut links = Links { added: self.new.names(ino)?, ..Links::default() };
        for name in self.old_names(ino)? {
            let stays = links.added.iter().position(|other| *other == name);
            match stays {
                Some(index) if self.has_both(name.dir)? => {
                    links.kept.push(links.added.remove(index));
                }
                _ => links.removed.push(name),
            }
        }
        Ok(links)
    }

    /// The name at the top for an inode that is set aside: one that neither tree has there.
    pub(super) fn aside(&self, ino: u64, generation: u64) -> Result<Vec<u8>> {
        let mut count = 0u64;
        loop {
            let name = format!("o{ino}-{generation}-{count}").into_bytes();
            let top = ROOT_DIR_INO.0;
            let in_old = self.old.as_ref().map_or(Ok(false), |old| old.has_entry(top, &name))?;
            if !in_old && !self.new.has_entry(top, &name)? {
                return Ok(name);
            }
            count = count.saturating_add(1);
        }
    }
}

/// The progress of the receiver.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Inodes below this number were set aside where necessary.
    pub(super) cleared: u64,
    /// Inodes below this number are in their places.
    placed: u64,
    /// New directories that were made before their turn.
    early: BTreeSet<u64>,
    paths: RefCell<NumberMap<u64, Vec<u8>>>,
}

impl Places {
    /// The place of a directory of the old tree while others are set aside.
    pub(super) fn while_clearing(&self, pair: &Pair, old: &View, dir: u64) -> Result<Vec<u8>> {
        let mut path = PathUp::default();
        let mut at = dir;
        while at != ROOT_DIR_INO.0 {
            let name = old.name_of_dir(at)?;
            if at < self.cleared && pair.loses_place(at)? {
                let generation = old.dir(at)?.map_or(0, |dir| dir.generation);
                path.push(old, at, &pair.aside(at, generation)?)?;
                break;
            }
            path.push(old, at, &name.name)?;
            at = name.dir;
        }
        Ok(path.finish())
    }

    /// The place of a directory of the new tree while inodes get their places; it was made.
    pub(super) fn of_dir(&self, pair: &Pair, dir: u64) -> Result<Vec<u8>> {
        if let Some(path) = self.paths.borrow().get(&dir) {
            return Ok(path.clone());
        }
        let new = &pair.new;
        let mut path = PathUp::default();
        let mut at = dir;
        while at != ROOT_DIR_INO.0 {
            let name = new.name_of_dir(at)?;
            if !self.is_placed(at) && pair.has_both(at)? && pair.loses_place(at)? {
                let generation = new.dir(at)?.map_or(0, |dir| dir.generation);
                path.push(new, at, &pair.aside(at, generation)?)?;
                break;
            }
            path.push(new, at, &name.name)?;
            at = name.dir;
        }
        let path = path.finish();
        let mut paths = self.paths.borrow_mut();
        if paths.len() >= PATHS_MAX {
            paths.clear();
        }
        paths.insert(dir, path.clone());
        Ok(path)
    }

    /// The place of a name of the new tree.
    pub(super) fn of(&self, pair: &Pair, name: &Name) -> Result<Vec<u8>> {
        Ok(join(&self.of_dir(pair, name.dir)?, &name.name))
    }

    /// New directories on the path to `dir`, and itself, that were not made yet, the topmost first.
    pub(super) fn missing(&self, pair: &Pair, dir: u64) -> Result<Vec<u64>> {
        let mut missing = Vec::new();
        let mut way = PathUp::default();
        let mut at = dir;
        while at != ROOT_DIR_INO.0 && !self.is_placed(at) && !pair.has_both(at)? {
            missing.push(at);
            let name = pair.new.name_of_dir(at)?;
            way.push(&pair.new, at, &name.name)?;
            at = name.dir;
        }
        missing.reverse();
        Ok(missing)
    }

    /// A new directory was made before its turn.
    pub(super) fn note_early(&mut self, dir: u64) {
        self.early.insert(dir);
    }

    /// Whether the directory was made before its turn.
    pub(super) fn is_early(&self, dir: u64) -> bool {
        self.early.contains(&dir)
    }

    /// Notes that all inodes up to this one are in their places; `moved` when a directory has moved.
    pub(super) fn note_placed(&mut self, ino: u64, moved: bool) {
        self.placed = ino.saturating_add(1);
        self.early.remove(&ino);
        if moved {
            self.paths.get_mut().clear();
        }
    }

    fn is_placed(&self, dir: u64) -> bool {
        dir < self.placed || self.early.contains(&dir)
    }
}
