//! Finds the origins of a stream: the parent of a snapshot, and the subvolumes from which data is cloned.
//!
//! A stream names them by UUID. Several received subvolumes can share a UUID, and one that was made writable keeps it
//! although its contents change. Unchanged ones are preferred; if there is none, the receipt fails, or uses a changed
//! one with a warning if the caller allowed that. `receiver` resolves origins here.

use crate::error::Cause;
use crate::node_ref::NodeRef;
use btrfs::{SubvolumeInfo, Volume};
use std::collections::HashMap;
use std::sync::Arc;

use portable::OsStrExt as _;

/// Subvolumes already found, by the UUID in the stream.
#[derive(Default)]
pub(crate) struct Origins {
    known: HashMap<[u8; 16], Arc<NodeRef>>,
}

/// An origin as the stream names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) uuid: [u8; 16],
    /// Transaction of its last change on the sending volume.
    pub(crate) sent: u64,
    /// Its role in the stream, for messages: "parent", "source of a clone".
    pub(crate) role: &'static str,
}

impl Origins {
    /// Returns the root of the subvolume with this received or own UUID. If several match, the one with the sender's
    /// transaction is preferred. A subvolume changed since is refused, or used and reported to `warn` if that is given.
    ///
    /// # Errors
    /// [`Cause::Unknown`], [`Cause::ChangedOrigin`], or errors of reading the volume.
    pub(crate) fn find(
        &mut self,
        volume: &Volume,
        wanted: Wanted,
        warn: Option<&mut dyn FnMut(&Cause)>,
    ) -> Result<Arc<NodeRef>, Cause> {
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
        let held = Arc::new(NodeRef::new(fs, extension.root(found.id.0)?));
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

/// Picks the best match for a UUID. btrfs-progs compare only UUIDs, so a different transaction of the sender does not
/// exclude a match; it only orders several.
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
    // The subvolume was sent from this volume while it was read-only. `sent` is a transaction of this volume if this
    // volume was the sender; otherwise the comparison errs towards "changed".
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
