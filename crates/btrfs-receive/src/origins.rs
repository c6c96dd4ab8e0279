//! Subvolumes that a stream builds on: the parent of a snapshot, and those that data is cloned from.
//!
//! A stream names them by UUID. Several subvolumes can have been received with one UUID, and one that was made writable
//! keeps it although its contents change. An unchanged one is preferred. If there is none, the receipt fails, or uses a
//! changed one with a warning if the caller asked for that.

use crate::error::Cause;
use crate::held::Held;
use btrfs::{SubvolumeInfo, Volume};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

/// The subvolumes of a volume as streams name them, each looked for once.
#[derive(Default)]
pub(crate) struct Origins {
    known: HashMap<[u8; 16], Arc<Held>>,
}

/// How a stream names a subvolume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) uuid: [u8; 16],
    /// Transaction of its last change on the sending volume.
    pub(crate) sent: u64,
    /// The part it plays in the stream, for messages: "parent", "source of a clone".
    pub(crate) role: &'static str,
}

impl Origins {
    /// The root of the subvolume that a stream names by a UUID: its received UUID or its own. Of several the one with
    /// the sender's transaction is preferred. A subvolume that was changed since is refused, or with `warn` reported
    /// there and used.
    ///
    /// # Errors
    /// [`Cause::Unknown`] where there is none, [`Cause::ChangedOrigin`]; what reading the volume can fail with.
    pub(crate) fn find(
        &mut self,
        volume: &Volume,
        wanted: Wanted,
        warn: Option<&mut dyn FnMut(&Cause)>,
    ) -> Result<Arc<Held>, Cause> {
        let Wanted { uuid, role, .. } = wanted;
        if let Some(held) = self.known.get(&uuid) {
            return Ok(Arc::clone(held));
        }
        let subvolumes = volume.subvolumes()?;
        let found = match choose(volume, &subvolumes, wanted)? {
            Choice::None => return Err(Cause::Unknown { uuid, role }),
            Choice::Unchanged(found) => found,
            Choice::Changed(found) => {
                let cause = changed(found, wanted);
                match warn {
                    None => return Err(cause),
                    Some(warn) => warn(&cause),
                }
                found
            }
        };
        let fs = volume.by_paths().file_system();
        let extension = fs.subvolumes().ok_or(Cause::Unknown { uuid, role })?;
        let held = Arc::new(Held::new(fs, extension.root(found.id.0)?));
        self.known.insert(uuid, Arc::clone(&held));
        Ok(held)
    }

    /// Drops the subvolumes found so far: a new subvolume may be a better match.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }
}

/// The result of a search for a UUID.
enum Choice<'a> {
    None,
    Unchanged(&'a SubvolumeInfo),
    Changed(&'a SubvolumeInfo),
}

/// The best match for a UUID. btrfs-progs compare the UUIDs only, so a different transaction of the sender is no reason
/// to refuse: it only orders several matches.
fn choose<'a>(volume: &Volume, subvolumes: &'a [SubvolumeInfo], wanted: Wanted) -> Result<Choice<'a>, Cause> {
    if wanted.uuid == [0; 16] {
        return Ok(Choice::None);
    }
    let mut candidates: Vec<&SubvolumeInfo> =
        subvolumes.iter().filter(|one| one.received_uuid == wanted.uuid || one.uuid == wanted.uuid).collect();
    candidates.sort_by_key(|one| {
        let is_received = one.received_uuid == wanted.uuid;
        (!is_received, one.sent.0 != wanted.sent, !one.read_only)
    });
    for one in &candidates {
        if !is_changed(volume, one, wanted)? {
            return Ok(Choice::Unchanged(one));
        }
    }
    Ok(candidates.first().map_or(Choice::None, |one| Choice::Changed(one)))
}

/// True if a subvolume differs, or may differ, from the sender's.
fn is_changed(volume: &Volume, one: &SubvolumeInfo, wanted: Wanted) -> Result<bool, Cause> {
    if one.received_uuid == wanted.uuid {
        return Ok(volume.is_changed_since_receipt(one.id)?);
    }
    if one.read_only {
        return Ok(false);
    }
    // The subvolume was sent from this volume while it was read-only. `sent` is a transaction of this volume if
    // it was the sender; of another sender the comparison errs towards "changed".
    volume.by_paths().sync()?;
    Ok(volume.subvolume_info(one.id)?.changed.0 != wanted.sent)
}

fn changed(one: &SubvolumeInfo, wanted: Wanted) -> Cause {
    let is_received = one.received_uuid == wanted.uuid;
    let expected = if is_received { one.received.0 } else { wanted.sent };
    let path = String::from_utf8_lossy(one.path.as_bytes());
    let path = format!("/{}", path.escape_debug()).into_boxed_str();
    Cause::ChangedOrigin { path, role: wanted.role, is_received, expected, changed: one.changed.0 }
}
