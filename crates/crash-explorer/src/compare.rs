//! Compares a state found after a crash with the states that an oracle allows, and gives the broken promise. Called by
//! `explore` for each state.

use super::history::{Floors, Ino, Names, Slot, Window, Xattrs};
use super::oracle::{Oracle, Thing};
use super::state::{Found, FoundThing};
use super::tape::Time;
use std::collections::BTreeMap;
use std::sync::Arc;
use vfs::file_system::NodeKind;

/// Compares a state that a crash at `now` left; the promise that was broken, if one was.
pub(super) fn broken(oracle: &Oracle, found: &Found, floors: &Floors, now: Time) -> Option<String> {
    let comparison = Comparison { oracle, found, floors, now };
    comparison.unknown_name().or_else(|| comparison.wrong_name()).or_else(|| comparison.wrong_thing())
}

struct Comparison<'a> {
    oracle: &'a Oracle,
    found: &'a Found,
    floors: &'a Floors,
    now: Time,
}

impl Comparison<'_> {
    /// A name that was never made.
    fn unknown_name(&self) -> Option<String> {
        let is_known = |slot: &Slot| self.oracle.slots.contains_key(slot);
        let slot = self.found.slots.keys().find(|slot| !is_known(slot))?;
        Some(format!("{}: this name was never made", self.oracle.path_of(slot)))
    }

    /// A name that leads to something that it may not lead to.
    fn wrong_name(&self) -> Option<String> {
        for (slot, versions) in &self.oracle.slots {
            // Without its directory a name can be neither there nor missing.
            if !self.found.things.contains_key(&slot.0) {
                continue;
            }
            let floor = self.floors.slots.get(slot).copied().unwrap_or(0);
            let window = versions.window(floor, self.now);
            let found = self.found.slots.get(slot).copied();
            if !window.has(&found) {
                let shown = |ino: &Option<Ino>| ino.map_or("nothing".to_owned(), |ino| format!("inode {}", ino.1));
                let legal: Vec<String> = window.values().map(shown).collect();
                return Some(format!(
                    "{}: leads to {}, not to {}",
                    self.oracle.path_of(slot),
                    shown(&found),
                    legal.join(" or ")
                ));
            }
        }
        None
    }

    fn wrong_thing(&self) -> Option<String> {
        let mut names: BTreeMap<Ino, Names> = BTreeMap::new();
        for (slot, ino) in &self.found.slots {
            names.entry(*ino).or_default().insert(slot.clone());
        }
        for (ino, thing) in &self.oracle.things {
            let own = names.remove(ino).unwrap_or_default();
            let reason = self.wrong_names(*ino, thing, &own).or_else(|| {
                let found = self.found.things.get(ino)?;
                let links = own.len();
                let has_links = thing.is_complete && thing.kind != NodeKind::Directory;
                if has_links && u32::try_from(links) != Ok(found.links) {
                    return Some(format!("counts {} links, but has {links} names", found.links));
                }
                self.wrong_content(*ino, thing, found)
            });
            if let Some(reason) = reason {
                return Some(format!("{}: {reason}", self.oracle.name_of(*ino)));
            }
        }
        None
    }

    /// The names of one inode are those of one moment: a rename is whole or has not happened.
    fn wrong_names(&self, ino: Ino, thing: &Thing, own: &Names) -> Option<String> {
        let floor = self.floors.names.get(&ino).copied().unwrap_or(0);
        let window = thing.names.window(floor, self.now);
        if ino == self.oracle.top || window.has(own) {
            return None;
        }
        let legal: Vec<String> = window.values().map(|names| self.shown(names)).collect();
        Some(format!("inode {} has the names {}, not {}", ino.1, self.shown(own), legal.join(" or ")))
    }

    fn shown(&self, names: &Names) -> String {
        let names: Vec<String> = names.iter().map(|slot| self.oracle.path_of(slot)).collect();
        if names.is_empty() { "(none)".to_owned() } else { format!("{{{}}}", names.join(", ")) }
    }

    fn wrong_content(&self, ino: Ino, thing: &Thing, found: &FoundThing) -> Option<String> {
        if thing.kind != found.kind {
            return Some(format!("is {:?}, not {:?}", found.kind, thing.kind));
        }
        if thing.target != found.target {
            return Some(format!("points to {:?}, not to {:?}", found.target, thing.target));
        }
        let floor = self.floors.xattrs.get(&ino).copied().unwrap_or(0);
        let window = thing.xattrs.window(floor, self.now);
        if !window.has(&found.xattrs) {
            let legal: Vec<_> = window.values().map(shown_all).collect();
            let names = shown_all(&found.xattrs);
            return Some(format!("has attributes {names:?} (or other values), not one of {legal:?}"));
        }
        let floor = self.floors.attrs.get(&ino).copied().unwrap_or(0);
        let window = thing.attrs.window(floor, self.now);
        if !window.has(&found.attrs) {
            let legal: Vec<String> = window.values().map(ToString::to_string).collect();
            return Some(format!("has {}, not {}", found.attrs, legal.join(" or ")));
        }
        let floor = self.floors.data.get(&ino).copied().unwrap_or(0);
        wrong_bytes(&thing.data.window(floor, self.now), &found.data)
    }
}

fn shown_all(xattrs: &Xattrs) -> Vec<String> {
    xattrs.keys().map(|name| shown(name)).collect()
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// Contents between two promises change byte by byte; its size is one that it had.
fn wrong_bytes(window: &Window<'_, Arc<Vec<u8>>>, found: &Vec<u8>) -> Option<String> {
    if window.values().any(|legal| **legal == *found) {
        return None;
    }
    let sizes: Vec<usize> = window.values().map(|legal| legal.len()).collect();
    if !sizes.contains(&found.len()) {
        return Some(format!("has {} bytes, not one of {sizes:?}", found.len()));
    }
    if window.len() == 1 {
        let at = window.values().next().map_or(0, |legal| first_difference(legal, found));
        return Some(format!("differs at byte {at} from the promised contents"));
    }
    let is_legal =
        |(at, byte): (usize, &u8)| window.values().rev().any(|legal| legal.get(at).copied().unwrap_or(0) == *byte);
    let at = found.iter().enumerate().position(|(at, byte)| !is_legal((at, byte)))?;
    Some(format!("has at byte {at} a value that it never had since it was synced ({} contents)", window.len()))
}

fn first_difference(legal: &[u8], found: &[u8]) -> usize {
    legal.iter().zip(found).position(|(a, b)| a != b).unwrap_or(legal.len().min(found.len()))
}
