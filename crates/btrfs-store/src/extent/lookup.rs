//! Finds the current number of references to an extent: the extent tree plus queued changes. Called when blocks are
//! copied (`txn/host`), by relocation and by scrub.

use btrfs_disk::error::{At, Detail};
use btrfs_disk::flags::ExtentFlags;
use btrfs_disk::items::ExtentView;
use btrfs_disk::{Corrupt, Generation, Key, Logical, TreeId};

use super::item::ExtentSizes;
use super::ref_change::ExtentKind;
use super::ref_queue::{Delta, RefQueue};
use crate::Result;
use crate::tree::Tree;

/// The reference count and flags of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentInfo {
    /// References, queued changes included.
    pub refs: u64,
    /// Flags of the extent item, with `FULL_BACKREF` where that is queued.
    pub flags: ExtentFlags,
    /// Transaction that allocated the extent; `None` for the running one.
    pub generation: Option<Generation>,
}

/// Looks an extent up in the extent tree and in the queue.
///
/// # Errors
/// [`Corrupt`] when the extent has no item, or fewer references than were dropped; a
/// failure to read the tree.
pub fn lookup(
    extent_tree: &Tree,
    queue: &RefQueue,
    at: Logical,
    kind: ExtentKind,
    sizes: &ExtentSizes,
) -> Result<ExtentInfo> {
    let delta = queue.peek(at);
    if let Some(delta) = delta.filter(|delta| delta.is_new) {
        let flags = match kind {
            ExtentKind::Tree { .. } => ExtentFlags::TREE_BLOCK,
            ExtentKind::Data { .. } => ExtentFlags::DATA,
        };
        return with_delta(at, ExtentInfo { refs: 0, flags, generation: None }, &delta);
    }
    let info = committed(extent_tree, at, kind, sizes)?;
    match delta {
        Some(delta) => with_delta(at, info, &delta),
        None => Ok(info),
    }
}

fn committed(tree: &Tree, at: Logical, kind: ExtentKind, sizes: &ExtentSizes) -> Result<ExtentInfo> {
    let key = sizes.key(at, kind);
    if let Some(info) = read(tree, &key)? {
        return Ok(info);
    }
    let fat_key = sizes.fat_key(at, kind);
    if fat_key != key
        && let Some(info) = read(tree, &fat_key)?
    {
        return Ok(info);
    }
    Err(no_item(&key).into())
}

fn read(tree: &Tree, key: &Key) -> Result<Option<ExtentInfo>> {
    let parsed = tree.get_with(key, |bytes| {
        ExtentView::parse(key, bytes).map(|view| ExtentInfo {
            refs: view.item.refs.get(),
            flags: view.item.extent_flags(),
            generation: Some(Generation(view.item.generation.get())),
        })
    })?;
    Ok(parsed.transpose().map_err(|error| error.at(At::Key(tree.id(), *key)))?)
}

fn with_delta(at: Logical, info: ExtentInfo, delta: &Delta) -> Result<ExtentInfo> {
    let refs = info.refs.checked_add_signed(delta.net).ok_or_else(|| {
        let dropped = Detail::AtLeast(delta.net.unsigned_abs());
        Corrupt::new("number of references", dropped, Detail::Number(info.refs)).at(At::Data(at))
    })?;
    let mut flags = info.flags;
    if delta.full_backref {
        flags |= ExtentFlags::FULL_BACKREF;
    }
    Ok(ExtentInfo { refs, flags, ..info })
}

/// The error for an extent that something refers to and that has no item.
#[cold]
pub(super) fn no_item(key: &Key) -> Corrupt {
    Corrupt::new("extent item", Detail::from(*key), Detail::Text("none")).at(At::Key(TreeId::EXTENT, *key))
}
