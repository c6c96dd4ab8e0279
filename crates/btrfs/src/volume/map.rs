//! Lists the chunks and extents of a volume on its devices, for drawings. Called by the command `map` and by `bench
//! ageing`.

use btrfs_disk::key::item_type::{EXTENT_ITEM, METADATA_ITEM};
use btrfs_disk::{Key, TreeId};
use btrfs_store::Scan;

use super::Volume;
use super::types::ChunkInfo;
use vfs::Result;

impl Volume {
    /// The chunks, in the order of their logical addresses.
    #[must_use]
    pub fn chunks(&self) -> Vec<ChunkInfo> {
        let chunks = self.core().store.chunks();
        let info = chunks.iter().map(|chunk| ChunkInfo {
            logical: chunk.start().0,
            bytes: chunk.len_bytes(),
            flags: chunk.flags(),
            stripes: chunk.stripes().iter().map(|stripe| (stripe.device.0, stripe.offset)).collect(),
        });
        info.collect()
    }

    /// Shows every extent of the last commit, of data and of metadata, in the order of logical addresses: first byte
    /// and length.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn for_each_extent(&self, mut found: impl FnMut(u64, u64)) -> Result<()> {
        let store = &self.core().store;
        let node_bytes = u64::from(store.sizes().node);
        let (from, to) = (Key::new(0, 0, 0), Key::new(u64::MAX, u8::MAX, u64::MAX));
        store
            .tree(TreeId::EXTENT)
            .map_err(crate::Error::from)?
            .scan(&from, &to, |key, _| {
                match key.item_type {
                    EXTENT_ITEM => found(key.objectid, key.offset),
                    METADATA_ITEM => found(key.objectid, node_bytes),
                    _ => {}
                }
                Ok(Scan::Continue)
            })
            .map_err(crate::Error::from)?;
        Ok(())
    }
}
