//! Subvolumes that a stream builds on: the parent of a snapshot, and those that data is cloned from.

use crate::error::Cause;
use crate::held::Held;
use btrfs::{SubvolumeInfo, Volume};
use std::collections::HashMap;
use std::sync::Arc;

/// The subvolumes of a volume as streams name them, each looked for once.
#[derive(Default)]
pub(crate) struct Origins {
    known: HashMap<[u8; 16], Arc<Held>>,
}

impl Origins {
    /// The root of the subvolume that a stream knows by a UUID: it was received with it, best of all in the state of
    /// this transaction of the sender, or has it itself.
    ///
    /// # Errors
    /// [`Cause::Unknown`] where there is none; what reading the volume can fail with.
    pub(crate) fn find(
        &mut self,
        volume: &Volume,
        uuid: [u8; 16],
        sent: u64,
        role: &'static str,
    ) -> Result<Arc<Held>, Cause> {
        if let Some(held) = self.known.get(&uuid) {
            return Ok(Arc::clone(held));
        }
        let subvolumes = volume.subvolumes()?;
        let found = choose(&subvolumes, uuid, sent).ok_or(Cause::Unknown { uuid, role })?;
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

/// The reference tool looks at the UUIDs alone, so the transaction only decides between several.
fn choose(subvolumes: &[SubvolumeInfo], uuid: [u8; 16], sent: u64) -> Option<&SubvolumeInfo> {
    if uuid == [0; 16] {
        return None;
    }
    let received = || subvolumes.iter().filter(|subvolume| subvolume.received_uuid == uuid);
    let exact = received().find(|subvolume| subvolume.sent.0 == sent);
    exact.or_else(|| received().next()).or_else(|| subvolumes.iter().find(|subvolume| subvolume.uuid == uuid))
}
