//! Subvolumes that a stream builds on: the parent of a snapshot, and those that data is cloned from.
//!
//! A stream names them by UUID. Several subvolumes can have been received with one UUID, and one that was made writable
//! keeps it whatever becomes of its contents. An unchanged one is taken; where there is none the receipt fails, or goes
//! on with a changed one and a warning where the caller asked for that.

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
    /// Transaction of its last change where it was sent from.
    pub(crate) sent: u64,
    /// What it is needed as.
    pub(crate) role: &'static str,
}

impl Origins {
    /// The root of the subvolume that a stream knows by a UUID: it was received with it, best of all in the state of
    /// this transaction of the sender, or has it itself. `warn` hears of a changed one that is taken all the same;
    /// without it such a one is refused.
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

    /// Forgets what was found: another subvolume is there now.
    pub(crate) fn forget(&mut self) {
        self.known.clear();
    }
}

/// What a volume has for a name.
enum Choice<'a> {
    None,
    Unchanged(&'a SubvolumeInfo),
    Changed(&'a SubvolumeInfo),
}

/// The best of those that can be meant. The reference tool looks at the UUIDs alone, so the sender's transaction only
/// decides between several.
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

/// True where a subvolume is not, or may not be, as it was when the sender had it.
fn is_changed(volume: &Volume, one: &SubvolumeInfo, wanted: Wanted) -> Result<bool, Cause> {
    if one.received_uuid == wanted.uuid {
        return Ok(volume.is_changed_since_receipt(one.id)?);
    }
    if one.read_only {
        return Ok(false);
    }
    // It was sent from here, or by a receiver of it, and both only while it was read-only. The number is this
    // volume's in the first case alone.
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
