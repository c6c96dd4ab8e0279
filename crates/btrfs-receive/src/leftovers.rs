//! Lists the leftovers of resumable receipts in the target directory, and chooses the one to resume.
//!
//! ```text
//! NAME.receiving    the subvolume being built; never resumed after a break
//! NAME.resume-N     its snapshot after N commands, with a note of them: a receipt resumes here
//! NAME              the complete subvolume
//! ```
//!
//! A commit can happen at any time, so the subvolume being built may have more content than its note records. A
//! snapshot and its note belong to one transaction, so they always agree.
//!
//! A snapshot whose tree was written after its creation is refused: it was changed, or its blocks were relocated.
//! Called by `receiver/resume`.

use portable::OsStrExt as _;

use crate::error::Cause;
use crate::node_ref::NodeRef;
use crate::note::Note;
use btrfs::{SubvolumeInfo, Volume};
use btrfs_stream::ResumePoint;

/// Suffix of a subvolume being built.
const WORK_SUFFIX: &[u8] = b".receiving";
/// Suffix of its snapshots; the number of commands follows.
const KEPT_SUFFIX: &[u8] = b".resume-";

/// The name of a subvolume being built.
pub(crate) fn work_name(name: &[u8]) -> Vec<u8> {
    [name, WORK_SUFFIX].concat()
}

/// The name of the snapshot after this number of commands.
pub(crate) fn kept_name(name: &[u8], commands: u64) -> Vec<u8> {
    [name, KEPT_SUFFIX, commands.to_string().as_bytes()].concat()
}

/// The final name of the subvolume behind a snapshot name.
fn name_of_kept(kept: &[u8]) -> Option<&[u8]> {
    let at = kept.windows(KEPT_SUFFIX.len()).rposition(|window| window == KEPT_SUFFIX)?;
    let (name, rest) = kept.split_at_checked(at)?;
    let digits = rest.get(KEPT_SUFFIX.len()..)?;
    (!name.is_empty() && !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)).then_some(name)
}

/// A subvolume in the directory of a receipt.
pub(crate) struct Found {
    /// Its name there.
    pub(crate) name: Vec<u8>,
    pub(crate) info: SubvolumeInfo,
    pub(crate) note: Option<Note>,
}

impl Found {
    /// True if it is unchanged since its creation.
    pub(crate) fn is_as_made(&self) -> bool {
        self.info.generation.0 <= self.info.created.0
    }

    /// True if it was received from this stream.
    pub(crate) fn is_received(&self, uuid: [u8; 16], sent: u64) -> bool {
        self.info.read_only && self.info.received_uuid == uuid && self.info.sent.0 == sent
    }

    fn is_of(&self, uuid: [u8; 16], sent: u64) -> bool {
        self.note.is_some_and(|note| note.point.uuid == uuid && note.point.ctransid == sent)
    }
}

/// A snapshot to resume from.
pub(crate) struct Kept {
    /// The final name of the subvolume.
    pub(crate) name: Vec<u8>,
    /// The name of the snapshot.
    pub(crate) kept: Vec<u8>,
    pub(crate) id: u64,
    pub(crate) note: Note,
}

/// The subvolumes of a directory that may belong to unfinished receipts.
pub(crate) struct Leftovers {
    pub(crate) found: Vec<Found>,
}

impl Leftovers {
    /// Lists the subvolumes in a directory, with their notes.
    pub(crate) fn list(volume: &Volume, dir: &NodeRef) -> Result<Self, Cause> {
        let home = dir.attr().home;
        let fs = volume.by_paths().file_system();
        let mut found = Vec::new();
        for info in volume.subvolumes()? {
            let is_here = info.parent.is_some_and(|parent| parent.0 == home.subvolume)
                && info.dir.is_some_and(|dir| dir.0 == home.ino);
            if !is_here {
                continue;
            }
            let path = info.path.as_bytes();
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
            let held = NodeRef::new(fs, fs.lookup(dir.node(), &name)?);
            let note = Note::read(fs, held.node())?;
            found.push(Found { name, info, note });
        }
        Ok(Self { found })
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&Found> {
        self.found.iter().find(|found| found.name == name)
    }

    /// The snapshot from which the receipt of this subvolume resumes, if any.
    ///
    /// # Errors
    /// [`Cause::Changed`].
    pub(crate) fn last(&self, name: &[u8], uuid: [u8; 16], sent: u64) -> Result<Option<Kept>, Cause> {
        let here = |found: &&Found| {
            let of = name_of_kept(&found.name);
            of == Some(name) && found.is_of(uuid, sent)
        };
        let commands = |found: &Found| found.note.map_or(0, |note| note.point.prefix.commands);
        let Some(found) = self.found.iter().filter(here).max_by_key(|found| commands(found)) else {
            return Ok(None);
        };
        self.kept(found).map(Some)
    }

    /// The snapshot made at this point.
    ///
    /// # Errors
    /// [`Cause::NoPoint`], [`Cause::Changed`].
    pub(crate) fn at(&self, point: ResumePoint) -> Result<Kept, Cause> {
        let is_it = |found: &&Found| found.note.is_some_and(|note| note.point == point);
        let found = self.found.iter().filter(|found| name_of_kept(&found.name).is_some()).find(is_it);
        self.kept(found.ok_or(Cause::NoPoint { point })?)
    }

    fn kept(&self, found: &Found) -> Result<Kept, Cause> {
        let name = name_of_kept(&found.name).unwrap_or_default().to_vec();
        let Some(note) = found.note.filter(|_| found.is_as_made() && found.info.received_uuid == [0; 16]) else {
            let name = String::from_utf8_lossy(&found.name).escape_debug().to_string();
            let (expected, found) = (found.info.created.0, found.info.generation.0);
            return Err(Cause::Changed { name, expected, found });
        };
        Ok(Kept { name, kept: found.name.clone(), id: found.info.id.0, note })
    }

    /// Names of all snapshots of this subvolume that belong to this stream.
    pub(crate) fn kept_names(&self, name: &[u8], (uuid, sent): ([u8; 16], u64)) -> Vec<&[u8]> {
        let is_one = |found: &&Found| name_of_kept(&found.name) == Some(name) && found.is_of(uuid, sent);
        self.found.iter().filter(is_one).map(|found| &found.name[..]).collect()
    }

    /// True if this stream was building the subvolume, or it is still unchanged. If its note is gone, a snapshot proves
    /// that it had one.
    pub(crate) fn is_ours(&self, found: &Found, uuid: [u8; 16], sent: u64, kept: Option<&Kept>) -> bool {
        let is_unfinished = found.info.received_uuid == [0; 16] && !found.info.read_only;
        is_unfinished && (kept.is_some() || found.is_of(uuid, sent) || found.is_as_made())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_snapshots_are_told_from_others() {
        assert_eq!(name_of_kept(&kept_name(b"home", 12)), Some(&b"home"[..]));
        assert_eq!(name_of_kept(&kept_name(b"a.resume-3", 12)), Some(&b"a.resume-3"[..]));
        for name in [&b"home"[..], b".resume-1", b"home.resume-", b"home.resume-1a", b"home.receiving"] {
            assert_eq!(name_of_kept(name), None);
        }
    }
}
