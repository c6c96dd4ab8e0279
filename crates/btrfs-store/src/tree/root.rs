//! Makes the first block of a new tree, and the level above a root that is copied or split. Called by make, snapshots,
//! logs and `split`.

use std::sync::Arc;

use btrfs_disk::{Key, Logical, TreeId};

use crate::Result;

use super::block::WriteLocked;
use super::forest::{Forest, RootPtr, Tree, TreeKind};
use super::host::Host;
use super::node::Ptr;
use super::write_path::create;
use super::{layout, node};

/// Children that a root may have when its tree is copied.
const CHILDREN_MAX: usize = 16;
/// Trees are not made higher than this by copying; trees that grow by splitting stay lower.
const RAISED_LEVEL_MAX: u8 = 5;

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
        let level = contents.map_or(0, layout::level);
        let nowhere = RootPtr { at: Logical(0), level, generation: host.generation() };
        let tree = Self::new(Arc::clone(forest), id, TreeKind::Single, nowhere);
        let mut block = create(host, &tree, level)?;
        let at = block.at;
        if let Some(contents) = contents {
            block.data.copy_from_slice(contents);
            layout::readdress(&mut block.data, at.0, host.generation().0, id.0);
            layout::set_fsid(&mut block.data, &forest.fsid);
        }
        Ok(RootPtr { at, ..nowhere })
    }

    /// Gives a root of many children a root above it, of which it is the only child: a copy of that refers to one block
    /// instead of many, however large the tree is. The many get their references when the block is copied, by the first
    /// change of either tree.
    ///
    /// # Errors
    /// When the root cannot be read, or there is no room.
    pub(crate) fn raise(&self, host: &dyn Host) -> Result<()> {
        let mut root = self.root.write();
        if root.level == 0 || root.level >= RAISED_LEVEL_MAX {
            return Ok(());
        }
        let first = {
            let block = self.forest().read(&self.expect(&root))?;
            if layout::nritems(&block.data) <= CHILDREN_MAX {
                return Ok(());
            }
            layout::key_at(&block.data, 0)
        };
        put_root_above(host, self, &mut root, first).map(drop)
    }
}

/// A new root, with the present one, whose first key is `first`, as its only child.
///
/// # Errors
/// When there is no room.
pub(super) fn put_root_above(host: &dyn Host, tree: &Tree, root: &mut RootPtr, first: Key) -> Result<WriteLocked> {
    let level = root.level.saturating_add(1);
    let mut top = create(host, tree, level)?;
    node::insert(&mut top.data, 0, &Ptr { key: first, at: root.at, generation: root.generation });
    *root = RootPtr { at: top.at, level, generation: host.generation() };
    tree.note_changed();
    Ok(top)
}
