//! Lists the subvolumes, their paths, and the default one. Called by `volume/subvolumes` and ioctls.

use std::ffi::OsString;

use btrfs_disk::flags::{Incompat, RootFlags};
use btrfs_disk::hash::name_hash;
use btrfs_disk::items::{DirEntry as DiskEntry, FileKind, InodeExtrefEntry, RootItem, splice};
use btrfs_disk::key::item_type;
use btrfs_disk::{At, Detail, Generation, InodeNo, Key, TreeId};
use btrfs_store::{EditItem, Scan};
use portable::OsStringExt;

use super::SubvolumeInfo;
use crate::dir::{Namespace, RootLink};
use crate::error::{CallerError, Result, corrupt_inode};
use crate::inode::{ROOT_DIR_INO, Root, time_from_disk};

/// Name of the entry that names the default subvolume.
pub(super) const DEFAULT_NAME: &[u8] = b"default";
/// Names on the path from a subvolume to the top: more can only be a loop in a damaged image.
const DEPTH_MAX: u32 = 1 << 16;

/// All subvolumes but the top level, in the order of their numbers.
///
/// # Errors
/// When a tree cannot be read.
pub(crate) fn list(namespace: &Namespace) -> Result<Vec<SubvolumeInfo>> {
    // A root item enters the tree of roots only with a commit; a name is there at once.
    let from = Key::new(TreeId::FIRST_FREE.0, item_type::ROOT_BACKREF, 0);
    let to = Key::new(TreeId::LAST_FREE.0, item_type::ROOT_BACKREF, u64::MAX);
    let mut ids = Vec::new();
    namespace.core.store.tree(TreeId::ROOT)?.scan(&from, &to, |key, _| {
        if key.item_type == item_type::ROOT_BACKREF {
            ids.push(TreeId(key.objectid));
        }
        Ok(Scan::Continue)
    })?;
    ids.dedup();
    ids.into_iter().map(|id| info(namespace, id, &namespace.core.store.root_item(id)?)).collect()
}

/// Calls `f` with the number and the item of every subvolume's root that was committed, deleted
/// ones included.
pub(crate) fn for_each_root(namespace: &Namespace, mut f: impl FnMut(TreeId, &RootItem)) -> Result<()> {
    let from = Key::new(TreeId::FS.0, item_type::ROOT_ITEM, 0);
    let to = Key::new(TreeId::LAST_FREE.0, item_type::ROOT_ITEM, u64::MAX);
    namespace.core.store.tree(TreeId::ROOT)?.scan(&from, &to, |key, bytes| {
        let id = TreeId(key.objectid);
        if key.item_type == item_type::ROOT_ITEM && id.is_subvolume() {
            f(id, &RootItem::read(bytes)?);
        }
        Ok(Scan::Continue)
    })?;
    Ok(())
}

/// The subvolumes that are deleted in the last commit.
///
/// # Errors
/// When a tree cannot be read.
pub(crate) fn list_deleted(namespace: &Namespace) -> Result<Vec<SubvolumeInfo>> {
    let mut deleted = Vec::new();
    for_each_root(namespace, |id, item| {
        if item.refs.get() == 0 {
            deleted.push((id, *item));
        }
    })?;
    deleted.iter().map(|(id, item)| info(namespace, *id, item)).collect()
}

/// Information on one subvolume.
///
/// # Errors
/// `NoSuchSubvolume`; when a tree cannot be read.
pub(crate) fn info_of(namespace: &Namespace, id: TreeId) -> Result<SubvolumeInfo> {
    namespace.core.root(id)?;
    info(namespace, id, &namespace.core.store.root_item(id)?)
}

fn info(namespace: &Namespace, id: TreeId, item: &RootItem) -> Result<SubvolumeInfo> {
    let link = namespace.root_links.of(id)?;
    Ok(SubvolumeInfo {
        id,
        parent: link.as_ref().map(|link| link.parent),
        dir: link.as_ref().map(|link| link.dir),
        path: OsString::from_vec(path_of(namespace, id)?),
        uuid: item.uuid.0,
        parent_uuid: item.parent_uuid.0,
        received_uuid: item.received_uuid.0,
        generation: Generation(item.generation.get()),
        created: Generation(item.otransid.get()),
        changed: Generation(item.ctransid.get()),
        sent: Generation(item.stransid.get()),
        received: Generation(item.rtransid.get()),
        otime: time_from_disk(item.otime),
        stime: time_from_disk(item.stime),
        rtime: time_from_disk(item.rtime),
        read_only: item.root_flags().contains(RootFlags::SUBVOL_RDONLY),
    })
}

/// The path of a subvolume from the top level, without a slash in front.
///
/// # Errors
/// When a tree cannot be read, or when the path is a loop.
pub(crate) fn path_of(namespace: &Namespace, id: TreeId) -> Result<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut link = namespace.root_links.of(id)?;
    while let Some(RootLink { parent, dir, name, .. }) = link {
        names.push(name.into_vec());
        let root = namespace.core.root(parent)?;
        climb(id, &root, dir, &mut names)?;
        check_depth(id, &names)?;
        link = namespace.root_links.of(parent)?;
    }
    names.reverse();
    Ok(names.join(&b'/'))
}

/// The path of an inode from the top level, without a slash in front; `None` where it has no name.
///
/// # Errors
/// As [`path_of`], and where a directory on the way has no name.
pub(crate) fn path_of_inode(namespace: &Namespace, id: TreeId, ino: InodeNo) -> Result<Option<Vec<u8>>> {
    let root = namespace.core.root(id)?;
    let mut names: Vec<Vec<u8>> = Vec::new();
    if ino != ROOT_DIR_INO {
        let Some((name, dir)) = name_of(&root, ino)? else { return Ok(None) };
        names.push(name);
        climb(id, &root, dir, &mut names)?;
    }
    names.extend(Some(path_of(namespace, id)?).filter(|top| !top.is_empty()));
    names.reverse();
    Ok(Some(names.join(&b'/')))
}

/// Adds the names of the directories from one up to the root of its subvolume, on the path of `id` to the top.
fn climb(id: TreeId, root: &Root, mut dir: InodeNo, names: &mut Vec<Vec<u8>>) -> Result<()> {
    while dir != ROOT_DIR_INO {
        let (name, above) = name_of_dir(root, dir)?.ok_or_else(|| nameless(root.id, dir))?;
        names.push(name);
        dir = above;
        check_depth(id, names)?;
    }
    Ok(())
}

fn check_depth(id: TreeId, names: &[Vec<u8>]) -> Result<()> {
    if names.len() <= btrfs_disk::convert::usize_from(DEPTH_MAX) {
        return Ok(());
    }
    let (expected, found) = (Detail::Text("a way to the top"), Detail::Text("a loop"));
    Err(corrupt_inode(id, ROOT_DIR_INO, "path of a subvolume", expected, found))
}

/// A name of an inode and the directory it is in: of several the one that the kernel reports, in the directory with the
/// greatest number. `None` where there is none.
///
/// # Errors
/// When the tree cannot be read.
pub(crate) fn name_of(root: &Root, ino: InodeNo) -> Result<Option<(Vec<u8>, InodeNo)>> {
    let last = Key::new(ino.0, item_type::INODE_REF, u64::MAX);
    let Some((key, bytes)) = root.tree.at_or_before(&last)? else { return Ok(None) };
    if (key.objectid, key.item_type) != (ino.0, item_type::INODE_REF) {
        return Ok(None);
    }
    let first = InodeExtrefEntry::iter_either(&key, &bytes).next().transpose();
    let first = first.map_err(|corrupt| corrupt.at(At::Key(root.id, key)))?;
    Ok(first.map(|entry| (entry.name.to_vec(), entry.parent)))
}

/// The name of a directory and the directory it is in; `None` where it has none.
fn name_of_dir(root: &Root, ino: InodeNo) -> Result<Option<(Vec<u8>, InodeNo)>> {
    let from = Key::new(ino.0, item_type::INODE_REF, 0);
    let to = Key::new(ino.0, item_type::INODE_EXTREF, u64::MAX);
    let mut answer = None;
    root.tree.scan(&from, &to, |key, bytes| {
        let first = InodeExtrefEntry::iter_either(key, bytes).next().transpose()?;
        answer = first.map(|entry| (entry.name.to_vec(), entry.parent));
        Ok(Scan::Stop)
    })?;
    Ok(answer)
}

#[cold]
fn nameless(tree: TreeId, dir: InodeNo) -> crate::Error {
    let (expected, found) = (Detail::Text("a name"), Detail::Text("none"));
    corrupt_inode(tree, dir, "directory", expected, found)
}

fn default_key() -> Key {
    Key::new(TreeId::ROOT_DIR.0, item_type::DIR_ITEM, name_hash(DEFAULT_NAME))
}

/// The subvolume that is opened when none is named.
///
/// # Errors
/// When the tree of roots cannot be read.
pub(crate) fn default_subvolume(namespace: &Namespace) -> Result<TreeId> {
    let location = namespace.core.store.tree(TreeId::ROOT)?.get_with(&default_key(), |bytes| {
        Ok::<_, btrfs_disk::Corrupt>(DiskEntry::find(bytes, DEFAULT_NAME)?.map(|(entry, _)| entry.location()))
    })?;
    Ok(location.transpose()?.flatten().map_or(TreeId::FS, |key| TreeId(key.objectid)))
}

/// Chooses the subvolume that is opened when none is named.
///
/// # Errors
/// `NoSuchSubvolume`, `ReadOnly`.
pub(crate) fn set_default_subvolume(namespace: &Namespace, id: TreeId) -> Result<()> {
    let core = &namespace.core;
    if core.store.is_read_only() {
        return Err(CallerError::ReadOnly.into());
    }
    core.root(id)?;
    let reservation = namespace.reserve(1)?;
    namespace.apply(reservation, |txn| {
        let location = Key::new(id.0, item_type::ROOT_ITEM, u64::MAX);
        let new = DiskEntry::build(location, txn.generation(), FileKind::Directory, DEFAULT_NAME);
        txn.edit(&*core.store.tree(TreeId::ROOT)?, &default_key(), |old| {
            let old = old.unwrap_or_default();
            let range = DiskEntry::find(old, DEFAULT_NAME)?.map_or(old.len()..old.len(), |(_, range)| range);
            Ok(EditItem::Put(splice(old, &range, &new)))
        })?;
        txn.add_incompat(Incompat::DEFAULT_SUBVOL.bits());
        Ok(())
    })
}
