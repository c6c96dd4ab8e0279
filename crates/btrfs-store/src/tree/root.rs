//! The first block of a new tree.

use std::sync::Arc;

use btrfs_disk::{Logical, TreeId};

use crate::Result;

use super::forest::{Forest, RootPtr, Tree, TreeKind};
use super::host::Host;
use super::raw;
use super::write_path::create;

impl Tree {
    /// A root block for a new tree `id`: an empty leaf, or a copy of `contents`.
    ///
    /// # Errors
    /// When there is no room.
    pub(crate) fn create_root(
        host: &dyn Host,
        forest: &Arc<Forest>,
        id: TreeId,
        contents: Option<&[u8]>,
    ) -> Result<RootPtr> {
        let level = contents.map_or(0, raw::level);
        let nowhere = RootPtr { at: Logical(0), level, generation: host.generation() };
        let tree = Self::new(Arc::clone(forest), id, TreeKind::Single, nowhere);
        let mut block = create(host, &tree, level)?;
        let at = block.at;
        if let Some(contents) = contents {
            block.data.copy_from_slice(contents);
            raw::readdress(&mut block.data, at.0, host.generation().0, id.0);
        }
        Ok(RootPtr { at, ..nowhere })
    }
}
