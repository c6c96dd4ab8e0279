//! Finds the trees (`TREE_RELOC`) that an interrupted relocation of the kernel left, one for each subvolume, and what
//! goes with them. Called by `store/relocation`, which deletes them.
//!
//! Each has the contents of its subvolume: moved blocks, blocks not moved yet, and blocks that both trees have.
//! Deleting it loses nothing, whether or not its blocks were exchanged with those of the subvolume: the kernel
//! exchanges a pointer for one with the same contents. So the tree is deleted as a whole, without edits.

use std::collections::BTreeSet;

use btrfs_disk::error::{At, Detail};
use btrfs_disk::flags::ExtentFlags;
use btrfs_disk::items::RootItem;
use btrfs_disk::key::item_type::ROOT_ITEM;
use btrfs_disk::{Corrupt, Key, Logical, TreeId};

use crate::Result;
use crate::extent::{Counting, ExtentKind, RefChange, RefKey, Sign, backrefs, child_changes, lookup};
use crate::tree::{Scan, children, layout};
use crate::txn::Engine;

/// Trees that are looked at together.
const TREES_TOGETHER: usize = 256;

/// The changes that delete a tree.
#[derive(Debug, Default)]
pub(crate) struct Goes {
    pub(crate) changes: Vec<RefChange>,
    /// Blocks without references afterwards.
    pub(crate) freed: BTreeSet<Logical>,
}

/// The first trees that are left, by the keys of their root items.
///
/// # Errors
/// `Corrupt` for an item that cannot be read; those of reading.
pub(crate) fn leftovers(engine: &Engine) -> Result<Vec<(Key, RootItem)>> {
    let id = TreeId::TREE_RELOC.0;
    let mut found = Vec::new();
    engine.trees.root_tree.scan(&Key::new(id, ROOT_ITEM, 0), &Key::new(id, ROOT_ITEM, u64::MAX), |key, bytes| {
        found.push((*key, RootItem::read(bytes).map_err(|error| error.at(At::Key(TreeId::ROOT, *key)))?));
        Ok(if found.len() < TREES_TOGETHER { Scan::Continue } else { Scan::Stop })
    })?;
    Ok(found)
}

/// The changes that delete a tree, by the current references. Called by the only handle of a transaction.
///
/// # Errors
/// `Corrupt` where a reference is missing; those of reading.
pub(crate) fn goes_with(engine: &Engine, item: &RootItem) -> Result<Goes> {
    let mut goes = Goes::default();
    let root = Logical(item.bytenr.get());
    // The kernel counts the root by its own address, older ones by the tree's name.
    let holders = holders(engine, root)?;
    let own = [RefKey::SharedTree { parent: root }, RefKey::TreeRef { owner: TreeId::TREE_RELOC }];
    let Some(holder) = own.into_iter().find(|own| holders.contains(own)) else {
        return Err(missing(root, own[0]));
    };
    let mut todo = vec![(root, item.level, holder)];
    while let Some((at, level, holder)) = todo.pop() {
        visit(engine, (at, level), holder, &mut goes, &mut todo)?;
    }
    Ok(goes)
}

fn visit(
    engine: &Engine,
    (at, level): (Logical, u8),
    holder: RefKey,
    goes: &mut Goes,
    todo: &mut Vec<(Logical, u8, RefKey)>,
) -> Result<()> {
    let holders = holders(engine, at)?;
    if !holders.contains(&holder) {
        return Err(missing(at, holder));
    }
    let kind = ExtentKind::Tree { level };
    goes.changes.push(RefChange::lose(at, kind, holder).ok_or_else(|| missing(at, holder))?);
    if holders.len() > 1 {
        return Ok(());
    }
    if !goes.freed.insert(at) {
        // It has one holder, which leads to it twice.
        return Err(missing(at, holder));
    }
    let bytes = engine.trees.forest().copy_of(at, || engine.reader.read_any(at, level))?;
    let info = lookup(&engine.core.extent, &engine.pending.refs, at, kind, &engine.extent_sizes())?;
    let owner = TreeId(layout::owner(&bytes));
    let counting = match info.flags.contains(ExtentFlags::FULL_BACKREF) {
        true => Counting::Shared,
        false => Counting::Normal,
    };
    if level == 0 {
        return child_changes(&bytes, at, owner, (counting, Sign::Drop), &mut |change| {
            goes.changes.push(change);
            Ok(())
        });
    }
    let holder = match counting {
        Counting::Shared => RefKey::SharedTree { parent: at },
        Counting::Normal => RefKey::TreeRef { owner },
    };
    todo.extend(children(&bytes).map(|(_, child, _)| (child, level - 1, holder)));
    Ok(())
}

fn holders(engine: &Engine, at: Logical) -> Result<Vec<RefKey>> {
    let known = backrefs(&engine.core.extent, &engine.pending.refs, at)?;
    Ok(known.into_iter().map(|known| known.holder).collect())
}

#[cold]
fn missing(at: Logical, holder: RefKey) -> crate::Error {
    let expected = match holder {
        RefKey::SharedTree { parent } => Detail::Number(parent.0),
        _ => Detail::Text("one of a relocation"),
    };
    Corrupt::new("reference to the tree block", expected, Detail::Text("none")).at(At::Block(at)).into()
}
