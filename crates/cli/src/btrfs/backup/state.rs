//! States of a subvolume that were kept: read-only snapshots whose names say what they are of and when they were made.

use std::collections::BTreeSet;
use std::iter;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use spinney::btrfs::{SubvolumeInfo, TreeId, Volume};

use super::stamp::Stamp;
use crate::commands::failure::Failure;

/// Longest name of what is backed up, in bytes: what is added to it must fit into the name of a file.
const NAME_BYTES_MAX: usize = 100;

/// The nil UUID, of a subvolume that has no such UUID.
const NO_UUID: [u8; 16] = [0; 16];

/// What is backed up, as a part of names of snapshots and files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(String);

impl Name {
    /// # Errors
    /// For a text that could be anything but a name.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+@".contains(&byte);
        let is_name = !text.is_empty() && !text.starts_with('.') && text.len() <= NAME_BYTES_MAX;
        if is_name && text.bytes().all(is_allowed) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("{text:?}: a name of backups has 1 to {NAME_BYTES_MAX} letters, digits and any of - _ . + @"))
    }

    /// The name for a subvolume that has none given.
    pub(super) fn of_path(path: &Path) -> Result<Self> {
        let name = path.file_name().map_or("root".into(), |name| name.to_string_lossy());
        Ok(Self::new(&name).map_err(|text| Failure::usage(format!("{text}; give one with --name")))?)
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// The name of a state.
    pub(super) fn at(&self, stamp: Stamp) -> String {
        format!("{}.{stamp}", self.0)
    }
}

/// What a name of a state says.
pub(super) fn parse(name: &str) -> Option<(Name, Stamp)> {
    let (name, stamp) = name.rsplit_once('.')?;
    Some((Name::new(name).ok()?, Stamp::parse(stamp)?))
}

/// A subvolume in a directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Found {
    /// Its name there.
    name: String,
    is_read_only: bool,
    uuid: [u8; 16],
    /// Of what it is a snapshot.
    parent_uuid: [u8; 16],
    /// Zeros where it was not received.
    received_uuid: [u8; 16],
    /// True if it was changed since it was received, or since the snapshot was taken.
    #[serde(default)]
    is_changed: bool,
}

/// A state in a volume.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) stamp: Stamp,
    /// Its name in its directory.
    pub(super) name: String,
    uuid: [u8; 16],
    parent_uuid: [u8; 16],
    received_uuid: [u8; 16],
}

impl State {
    /// Whether it is a snapshot of a subvolume with this lineage.
    pub(super) fn is_of(&self, lineage: &[[u8; 16]]) -> bool {
        lineage.contains(&self.parent_uuid)
    }

    /// What a receiver knows it by.
    pub(super) fn sent_uuid(&self) -> [u8; 16] {
        if self.is_received() { self.received_uuid } else { self.uuid }
    }

    pub(super) fn is_received(&self) -> bool {
        self.received_uuid != [0; 16]
    }
}

/// The states of `name` among the subvolumes of a directory, the oldest first.
pub(super) fn states(found: Vec<Found>, name: &Name) -> Vec<State> {
    all_states(found).into_iter().filter(|(of, _)| of == name).map(|(_, state)| state).collect()
}

/// The names of changed states of `name`. They are no parents of a stream: the other side has the unchanged states.
pub(super) fn changed(found: &[Found], name: &Name) -> Vec<String> {
    all_changed(found).into_iter().filter(|one| parse(one).is_some_and(|(of, _)| of == *name)).collect()
}

/// As [`changed`], for all names.
pub(super) fn all_changed(found: &[Found]) -> Vec<String> {
    let is_one = |one: &&Found| one.is_read_only && one.is_changed && parse(&one.name).is_some();
    found.iter().filter(is_one).map(|one| one.name.clone()).collect()
}

/// The latest time in the names of states of `name`, changed ones included.
pub(super) fn newest(found: &[Found], name: &Name) -> Option<Stamp> {
    let parsed = found.iter().filter_map(|one| parse(&one.name));
    parsed.filter(|(of, _)| of == name).map(|(_, stamp)| stamp).max()
}

/// The states of everything among the subvolumes of a directory, the oldest first.
pub(super) fn all_states(found: Vec<Found>) -> Vec<(Name, State)> {
    let mut states = Vec::new();
    for Found { name, is_read_only, uuid, parent_uuid, received_uuid, is_changed } in found {
        let Some((of, stamp)) = parse(&name).filter(|_| is_read_only && !is_changed) else { continue };
        states.push((of, State { stamp, name, uuid, parent_uuid, received_uuid }));
    }
    states.sort_by_key(|(_, state)| state.stamp);
    states
}

/// Names of what receipts that were cut short have left in a directory, of states of `name`.
pub(super) fn leftovers(found: Vec<Found>, name: &Name) -> Vec<String> {
    let is_left = |text: &str| {
        let ends = |text: &str| parse(text).is_some_and(|(of, _)| of == *name);
        match text.rsplit_once('.') {
            Some((state, "receiving")) => ends(state),
            Some((state, rest)) => rest.starts_with("resume-") && ends(state),
            None => false,
        }
    };
    let found = found.into_iter();
    let found = found.filter(|one| is_left(&one.name) && one.received_uuid == [0; 16] && !one.is_read_only);
    found.map(|one| one.name).collect()
}

/// The UUID of a subvolume, and of those that were there before it: of what it is a snapshot, and so on, where that is
/// gone. One that was rolled back is a snapshot of a snapshot of the one that it replaced.
pub(super) fn lineage(volume: &Volume, id: TreeId) -> Result<Vec<[u8; 16]>> {
    let all = volume.subvolumes()?;
    let there = |uuid: &[u8; 16]| all.iter().find(|one| one.uuid == *uuid);
    let first = volume.subvolume_info(id)?;
    // Each step leads to an older one; what loops is cut.
    let ancestors =
        iter::successors(Some(first.parent_uuid), |uuid| Some(there(uuid)?.parent_uuid)).take(all.len() + 1);
    let gone = ancestors.filter(|uuid| *uuid != [0; 16] && there(uuid).is_none());
    Ok(iter::once(first.uuid).chain(gone).collect())
}

/// The subvolumes in a directory of a volume. Without the directory there are none.
pub(super) fn subvolumes_in(volume: &Volume, dir: &Path) -> Result<Vec<Found>> {
    if !volume.exists(dir)? {
        return Ok(Vec::new());
    }
    let home = volume.metadata(dir)?.home;
    let mut found = Vec::new();
    for info in volume.subvolumes()? {
        let is_here = info.parent.is_some_and(|parent| parent.0 == home.subvolume)
            && info.dir.is_some_and(|dir| dir.0 == home.ino);
        let name = info.path.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if let (true, Ok(name)) = (is_here, std::str::from_utf8(name)) {
            let (name, is_read_only) = (name.to_owned(), info.read_only);
            let (uuid, parent_uuid, received_uuid) = (info.uuid, info.parent_uuid, info.received_uuid);
            // Only states need the answer, not subvolumes in use.
            let is_changed = is_read_only && parse(&name).is_some() && is_changed(volume, &info)?;
            found.push(Found { name, is_read_only, uuid, parent_uuid, received_uuid, is_changed });
        }
    }
    Ok(found)
}

/// True if a read-only subvolume was changed since it was received, or since the snapshot was taken.
fn is_changed(volume: &Volume, info: &SubvolumeInfo) -> Result<bool> {
    Ok(match (info.received_uuid, info.parent_uuid) {
        (NO_UUID, NO_UUID) => false,
        (NO_UUID, _) => volume.is_changed_since_made(info.id)?,
        _ => volume.is_changed_since_receipt(info.id)?,
    })
}

/// The UUIDs that a stream may name as its parent on a volume: the own and received UUIDs of unchanged read-only
/// subvolumes, in any directory.
pub(super) fn whole(volume: &Volume) -> Result<BTreeSet<[u8; 16]>> {
    let mut found = BTreeSet::new();
    for info in volume.subvolumes()?.iter().filter(|info| info.read_only) {
        found.insert(info.uuid);
        if info.received_uuid != NO_UUID && !volume.is_changed_since_receipt(info.id)? {
            found.insert(info.received_uuid);
        }
    }
    Ok(found)
}

/// The unchanged read-only subvolume, in any directory, whose own or received UUID is `uuid`.
pub(super) fn copy_of(volume: &Volume, uuid: [u8; 16]) -> Result<Option<TreeId>> {
    for info in volume.subvolumes()?.iter().filter(|info| info.read_only && uuid != NO_UUID) {
        if (info.uuid == uuid || info.received_uuid == uuid) && !is_changed(volume, info)? {
            return Ok(Some(info.id));
        }
    }
    Ok(None)
}

/// The newest state of the source that the destination has too.
pub(super) fn common(source: &[State], has: impl Fn(&State) -> bool) -> Option<&State> {
    source.iter().rev().find(|state| has(state))
}

/// Stamps that a rule would let go of, without those that are needed.
pub(super) fn to_prune(all: &[Stamp], rule: Option<&super::rule::Rule>, needed: &BTreeSet<Stamp>) -> Vec<Stamp> {
    let Some(rule) = rule else { return Vec::new() };
    let kept = rule.kept(all);
    all.iter().copied().filter(|stamp| !kept.contains(stamp) && !needed.contains(stamp)).collect()
}
