//! What a volume says about itself.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use btrfs_disk::Generation;

use crate::error::Result;

use super::Volume;
use super::types::{DeviceInfo, VolumeInfo};

impl Volume {
    /// Label, sizes, features, devices and use of space.
    ///
    /// # Errors
    /// None so far: what is told was read when the volume was opened.
    pub fn info(&self) -> Result<VolumeInfo> {
        let store = &self.core().store;
        let superblock = store.superblock();
        let superblock = superblock.fields();
        let sizes = store.sizes();
        let device = DeviceInfo {
            id: superblock.dev_item.devid.get(),
            name: self
                .inner
                .devices
                .first()
                .map_or_else(String::new, |d| d.name().to_owned()),
            total_bytes: superblock.dev_item.total_bytes.get(),
            allocated_bytes: superblock.dev_item.bytes_used.get(),
        };
        let features = [
            superblock.incompat().to_string(),
            superblock.compat_ro().to_string(),
        ];
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
            devices: vec![device],
            space: store.space(),
        })
    }
}
