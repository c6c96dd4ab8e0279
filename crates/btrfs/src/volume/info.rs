//! Changes the label of a volume, and reports its sizes and its state, by the methods of `Volume`. Called by the
//! command line.

use std::ffi::{OsStr, OsString};

use btrfs_disk::items::RootItem;
use btrfs_disk::key::item_type;
use btrfs_disk::{Generation, Key, TreeId};
use btrfs_store::Scan;
use portable::{OsStrExt, OsStringExt};

use crate::error::CallerError;
use vfs::Result;

use super::Volume;
use super::types::{DeviceInfo, VolumeInfo};
use crate::open_volume::SpaceUsage;

/// Bytes that a label may have.
const LABEL_BYTES_MAX: usize = 255;

impl Volume {
    /// Changes the label, an empty one for none, and makes it durable, with everything that was changed before.
    ///
    /// # Errors
    /// `NameTooLong` for more than 255 bytes, `InvalidArgument` for a NUL among them, `ReadOnly`; as
    /// [`vfs::Volume::sync`].
    pub fn set_label(&self, label: impl AsRef<OsStr>) -> Result<()> {
        let label = label.as_ref().as_bytes();
        if label.contains(&0) {
            return Err(CallerError::InvalidArgument.into());
        }
        if label.len() > LABEL_BYTES_MAX {
            return Err(CallerError::NameTooLong.into());
        }
        if self.is_read_only() {
            return Err(CallerError::ReadOnly.into());
        }
        let reservation = self.namespace().reserve(1)?;
        self.namespace().apply(reservation, |txn| Ok(txn.set_label(label)?))?;
        Ok(self.open.sync()?)
    }

    /// The transactions whose states [`crate::VolumeOptions::generation`] can open, the newest first. Blocks of earlier
    /// ones may have been overwritten since.
    #[must_use]
    pub fn generations(&self) -> Vec<Generation> {
        self.core().store.generations()
    }

    /// Reads and verifies every tree block of the state in which the volume was opened.
    ///
    /// # Errors
    /// `Corrupt`, `Io`: of the first block that is missing or damaged.
    pub fn verify_trees(&self) -> Result<()> {
        let store = &self.core().store;
        let mut ids = vec![TreeId::ROOT, TreeId::CHUNK];
        store
            .tree(TreeId::ROOT)
            .map_err(crate::Error::from)?
            .scan(&Key::MIN, &Key::MAX, |key, bytes| {
                let id = TreeId(key.objectid);
                // A tree that is being deleted or relocated has gaps.
                let is_root = key.item_type == item_type::ROOT_ITEM && id != TreeId::TREE_RELOC;
                if is_root && RootItem::read(bytes)?.refs.get() > 0 {
                    ids.push(id);
                }
                Ok(Scan::Continue)
            })
            .map_err(crate::Error::from)?;
        for id in ids {
            store.tree(id).map_err(crate::Error::from)?.for_each_block(|_, _| Ok(())).map_err(crate::Error::from)?;
        }
        Ok(())
    }

    /// The least size in bytes that [`vfs::Volume::resize`] can give the volume in its present form. Empty block groups
    /// are removed for that; those in use stay.
    ///
    /// # Errors
    /// `ReadOnly`; as [`vfs::Volume::sync`].
    pub fn least_bytes(&self) -> Result<u64> {
        Ok(self.open.least_bytes()?)
    }

    /// The use of the volume's space.
    #[must_use]
    pub fn usage(&self) -> SpaceUsage {
        self.open.usage()
    }

    /// Bytes of the image files or disks: the largest size of the volume.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.open.device_bytes()
    }

    /// Label, sizes, features, devices and use of space.
    ///
    /// # Errors
    /// None so far: the values were read when the volume was opened.
    pub fn info(&self) -> Result<VolumeInfo> {
        let store = &self.core().store;
        let superblock = store.superblock();
        let superblock = superblock.fields();
        let sizes = store.sizes();
        let devices = store.devices().into_iter().map(|device| DeviceInfo {
            id: device.id.0,
            name: device.name,
            total_bytes: device.total_bytes,
            allocated_bytes: device.used_bytes,
            is_missing: device.is_missing,
        });
        let features = [superblock.incompat().to_string(), superblock.compat_ro().to_string()];
        Ok(VolumeInfo {
            label: OsString::from_vec(superblock.label_bytes().to_vec()),
            uuid: superblock.fsid.0,
            generation: Generation(superblock.generation.get()),
            node_bytes: sizes.node,
            sector_bytes: sizes.sector,
            csum: store.csum_type().name(),
            total_bytes: superblock.total_bytes.get(),
            used_bytes: superblock.bytes_used.get(),
            features: features
                .iter()
                .flat_map(|names| names.split(", "))
                .filter(|name| *name != "none")
                .map(str::to_owned)
                .collect(),
            devices: devices.collect(),
            space: store.space(),
        })
    }
}
