//! Finds the states of a subvolume in a directory: read-only snapshots whose names say the backup and the time. Used by
//! `backup`, `image` and `restore`.

use std::collections::BTreeSet;
use std::iter;
use std::path::Path;

use btrfs::{SubvolumeInfo, TreeId, Volume};
use portable::OsStrExt as _;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::name::Name;
use crate::stamp::Stamp;

/// The nil UUID, of a subvolume that has no such UUID.
const NO_UUID: [u8; 16] = [0; 16];

/// The name and the time in the name of a state.
pub(crate) fn parse(name: &str) -> Option<(Name, Stamp)> {
    let (name, stamp) = name.rsplit_once('.')?;
    Some((Name::new(name).ok()?, Stamp::parse(stamp)?))
}

/// A subvolume in a directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Found {
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
pub struct State {
    pub(crate) stamp: Stamp,
    /// Its name in its directory.
    pub(crate) name: String,
    uuid: [u8; 16],
    parent_uuid: [u8; 16],
    received_uuid: [u8; 16],
}

impl State {
    /// Whether it is a snapshot of a subvolume with this lineage.
    pub(crate) fn is_of(&self, lineage: &[[u8; 16]]) -> bool {
        lineage.contains(&self.parent_uuid)
    }

    /// The UUID by which a receiver knows the state.
    pub(crate) fn sent_uuid(&self) -> [u8; 16] {
        if self.is_received() { self.received_uuid } else { self.uuid }
    }

    pub(crate) fn is_received(&self) -> bool {
        self.received_uuid != [0; 16]
    }
}

/// The states of `name` among the subvolumes of a directory, the oldest first.
pub(crate) fn states(found: Vec<Found>, name: &Name) -> Vec<State> {
    all_states(found).into_iter().filter(|(of, _)| of == name).map(|(_, state)| state).collect()
}

/// The names of changed states of `name`. They are no parents of a stream: the other side has the unchanged states.
pub(crate) fn changed(found: &[Found], name: &Name) -> Vec<String> {
    all_changed(found).into_iter().filter(|one| parse(one).is_some_and(|(of, _)| of == *name)).collect()
}

/// As [`changed`], for all names.
pub(crate) fn all_changed(found: &[Found]) -> Vec<String> {
    let is_one = |one: &&Found| one.is_read_only && one.is_changed && parse(&one.name).is_some();
    found.iter().filter(is_one).map(|one| one.name.clone()).collect()
}

/// The latest time in the names of states of `name`, changed ones included.
pub(crate) fn newest(found: &[Found], name: &Name) -> Option<Stamp> {
    let parsed = found.iter().filter_map(|one| parse(&one.name));
    parsed.filter(|(of, _)| of == name).map(|(_, stamp)| stamp).max()
}

/// The states of everything among the subvolumes of a directory, the oldest first.
pub(crate) fn all_states(found: Vec<Found>) -> Vec<(Name, State)> {
    let mut states = Vec::new();
    for Found { name, is_read_only, uuid, parent_uuid, received_uuid, is_changed } in found {
        let Some((of, stamp)) = parse(&name).filter(|_| is_read_only && !is_changed) else { continue };
        states.push((of, State { stamp, name, uuid, parent_uuid, received_uuid }));
    }
    states.sort_by_key(|(_, state)| state.stamp);
    states
}

/// Names of what receipts that were cut short have left in a directory, of states of `name`.
pub(crate) fn leftovers(found: Vec<Found>, name: &Name) -> Vec<String> {
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
pub(crate) fn lineage(volume: &Volume, id: TreeId) -> Result<Vec<[u8; 16]>> {
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
pub(crate) fn subvolumes_in(volume: &Volume, dir: &Path) -> Result<Vec<Found>> {
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
pub(crate) fn whole(volume: &Volume) -> Result<BTreeSet<[u8; 16]>> {
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
pub(crate) fn copy_of(volume: &Volume, uuid: [u8; 16]) -> Result<Option<TreeId>> {
    for info in volume.subvolumes()?.iter().filter(|info| info.read_only && uuid != NO_UUID) {
        if (info.uuid == uuid || info.received_uuid == uuid) && !is_changed(volume, info)? {
            return Ok(Some(info.id));
        }
    }
    Ok(None)
}

/// The newest state of the source that the destination has too.
pub(crate) fn common(source: &[State], has: impl Fn(&State) -> bool) -> Option<&State> {
    source.iter().rev().find(|state| has(state))
}
