//! Reports the differences between two subvolumes, for people. Called by `volume::send` for the command `diff`.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use btrfs_disk::items::FileKind;
use btrfs_disk::{InodeNo, TreeId};
use portable::OsStringExt as _;

use super::changes::{Changed, Changes};
use super::places::{Links, Pair};
use super::view::{Facts, Name, View};
use crate::error::Result;
use crate::inode::{Core, FileType, ROOT_DIR_INO, kind_of};

/// An inode that differs between two subvolumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its inode number.
    pub ino: InodeNo,
    /// Its kind: in the second subvolume, or in the first one where only that has it.
    pub kind: FileType,
    /// The change of the inode.
    pub what: ChangeKind,
    /// The changes of its names.
    pub names: Vec<Named>,
}

/// The change of an inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// Only the second subvolume has it.
    Added,
    /// Only the first subvolume has it.
    Removed,
    /// Both have it.
    Changed {
        /// A path that it has in the second subvolume.
        path: PathBuf,
        /// Bytes of a file that are in other extents, or are zeros now; their values may be the same.
        data: Vec<Range<u64>>,
        /// Its size before and after, where that differs. None for a directory.
        size: Option<(u64, u64)>,
        /// Owner, permissions or attributes differ; for an inode other than a directory, or the times.
        metadata: bool,
    },
}

/// The change of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// Only the second subvolume has it.
    Added(PathBuf),
    /// Only the first subvolume has it.
    Removed(PathBuf),
    /// The inode has another name, or its directory is another one.
    Renamed(PathBuf, PathBuf),
}

/// Shows the differences between two subvolumes, in the order of inode numbers. `core` is of a state that does not
/// change.
///
/// # Errors
/// `NoSuchSubvolume`, damage, I/O, and those of `show`.
pub(crate) fn report<E: From<vfs::Error>>(
    core: &Core,
    (old, new): (TreeId, TreeId),
    mut show: impl FnMut(Change) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let pair = pair_of(core, Some(old), new).map_err(vfs::Error::from)?;
    let mut changes = Changes::new(&pair, core.store.sizes().sector).map_err(vfs::Error::from)?;
    while let Some(changed) = changes.step().map_err(vfs::Error::from)? {
        for change in changes_of(&pair, &changed).map_err(vfs::Error::from)? {
            show(change)?;
        }
    }
    Ok(())
}

/// Bytes of file contents that differ: about as many as a stream has.
///
/// # Errors
/// `NoSuchSubvolume`, damage, I/O.
pub(crate) fn data_bytes(core: &Core, old: Option<TreeId>, new: TreeId) -> Result<u64> {
    let pair = pair_of(core, old, new)?;
    let mut changes = Changes::new(&pair, core.store.sizes().sector)?;
    let mut sum = 0u64;
    while let Some(changed) = changes.step()? {
        let Some(new) = pair.new.facts(changed.ino)?.filter(|new| new.kind == FileKind::File) else { continue };
        let bytes = match pair.old_facts(changed.ino)? {
            Some(old) if old.is_same_as(&new) => changed.ranges.iter().map(|range| range.end - range.start).sum(),
            _ => new.size,
        };
        sum = sum.saturating_add(bytes);
    }
    Ok(sum)
}

fn pair_of(core: &Core, old: Option<TreeId>, new: TreeId) -> Result<Pair> {
    let view = |id: TreeId| Ok::<_, crate::Error>(View::new(Arc::clone(&core.root(id)?.tree)));
    Ok(Pair { old: old.map(view).transpose()?, new: view(new)? })
}

fn changes_of(pair: &Pair, changed: &Changed) -> Result<Vec<Change>> {
    let ino = changed.ino;
    let (old, new) = (pair.old_facts(ino)?, pair.new.facts(ino)?);
    let mut found = Vec::new();
    let change = |facts: &Facts, what, names| Change { ino: InodeNo(ino), kind: kind_of(facts.kind), what, names };
    // The root directory of unrelated subvolumes is still the same place.
    if let (Some(old), Some(new)) = (&old, &new)
        && (ino == ROOT_DIR_INO.0 || old.is_same_as(new))
    {
        found.extend(both(pair, changed, old, new)?.map(|(what, names)| change(new, what, names)));
        return Ok(found);
    }
    if let (Some(old), Some(view)) = (&old, &pair.old) {
        let names = view.names(ino)?;
        let removed = names.iter().map(|name| Ok(Named::Removed(path(view, name)?)));
        found.push(change(old, ChangeKind::Removed, removed.collect::<Result<_>>()?));
    }
    if let Some(new) = &new {
        let names = pair.new.names(ino)?;
        let added = names.iter().map(|name| Ok(Named::Added(path(&pair.new, name)?)));
        found.push(change(new, ChangeKind::Added, added.collect::<Result<_>>()?));
    }
    Ok(found)
}

/// The differences of an inode that both have.
fn both(pair: &Pair, changed: &Changed, old: &Facts, new: &Facts) -> Result<Option<(ChangeKind, Vec<Named>)>> {
    let is_root = changed.ino == ROOT_DIR_INO.0;
    let names = if is_root { Vec::new() } else { renamed(pair, changed.ino)? };
    let is_dir = new.is_dir();
    let size = (!is_dir && old.size != new.size).then_some((old.size, new.size));
    let data: Vec<Range<u64>> = match new.kind {
        FileKind::File => {
            let end = old.size.max(new.size);
            let ranges = changed.ranges.iter().map(|range| range.start..range.end.min(end));
            ranges.filter(|range| !range.is_empty()).collect()
        }
        _ => Vec::new(),
    };
    let owned = |facts: &Facts| (facts.mode, facts.uid, facts.gid);
    let times = |facts: &Facts| (facts.mtime, facts.ctime);
    let has_times = !is_dir && names.is_empty() && times(old) != times(new);
    let metadata = owned(old) != owned(new) || changed.xattrs || has_times;
    if names.is_empty() && data.is_empty() && size.is_none() && !metadata {
        return Ok(None);
    }
    let path = match pair.new.names(changed.ino)?.first() {
        Some(name) if !is_root => path(&pair.new, name)?,
        _ => PathBuf::new(),
    };
    Ok(Some((ChangeKind::Changed { path, data, size, metadata }, names)))
}

fn renamed(pair: &Pair, ino: u64) -> Result<Vec<Named>> {
    let Some(view) = &pair.old else { return Ok(Vec::new()) };
    let Links { removed, added, .. } = pair.links(ino)?;
    let (mut removed, mut added) = (removed.iter(), added.iter());
    let mut names = Vec::new();
    loop {
        names.push(match (removed.next(), added.next()) {
            (Some(from), Some(to)) => Named::Renamed(path(view, from)?, path(&pair.new, to)?),
            (Some(from), None) => Named::Removed(path(view, from)?),
            (None, Some(to)) => Named::Added(path(&pair.new, to)?),
            (None, None) => return Ok(names),
        });
    }
}

fn path(view: &View, name: &Name) -> Result<PathBuf> {
    Ok(PathBuf::from(OsString::from_vec(view.path(name)?)))
}
