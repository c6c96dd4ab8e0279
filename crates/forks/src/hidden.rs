//! The hidden directories of forks, below `.spinney/forks` in the root of the volume: one a fork, with its record, its
//! ancestor, and what a running merge needs. `fork` calls it.
//!
//! Only their owner may search them: what they contain can be trusted. A directory that another user could have made is
//! refused.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use btrfs::{SubvolumeInfo, Volume};
use portable::OsStrExt as _;
use vfs::Errno;
use vfs::file_system::{NodeKind, XattrMode};

use crate::error::{Error, Result};
use crate::place::{rooted, seen_path};
use crate::record::{self, Record, Uuid};

/// The directory of all forks, and the one above it.
const ALL: &str = ".spinney/forks";
const ABOVE: &str = ".spinney";
/// Names in the directory of a fork.
const ANCESTOR: &str = "ancestor";
const THEIRS: &str = "theirs";
const OURS: &str = "ours";
/// The extended attribute with the UUID of the target of a running merge.
const MERGE_XATTR: &str = "user.spinney.merge";
/// The name beside a target under which its successor is made; its UUID follows.
const STAGING: &str = ".spinney-merge-";
const PERMISSIONS: u32 = 0o700;
/// Directories of forks that are tried in one transaction.
const IDS_MAX: u32 = 1 << 20;

/// The directory of one fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hidden {
    path: PathBuf,
}

impl Hidden {
    /// Makes the directory for a new fork.
    pub(crate) fn create(volume: &Volume, owner: u32) -> Result<Self> {
        for dir in [ABOVE, ALL] {
            match new_dir(volume, Path::new(dir)) {
                Err(error) if error.errno() == Errno::EEXIST => check_dir(volume, Path::new(dir), owner)?,
                made => made?,
            }
        }
        // Each fork ends a transaction, so few begin in the same one.
        let generation = volume.info()?.generation.0;
        for number in 0..IDS_MAX {
            let path = Path::new(ALL).join(format!("{generation}-{number}"));
            match new_dir(volume, &path) {
                Err(error) if error.errno() == Errno::EEXIST => {}
                made => return Ok(made.map(|()| Self { path })?),
            }
        }
        Err(vfs::Error::from(Errno::EEXIST).at(ALL).into())
    }

    /// All directories of forks, also of those that are incomplete.
    ///
    /// # Errors
    /// `Untrusted`; `Volume`.
    pub(crate) fn all(volume: &Volume, owner: u32) -> Result<Vec<Self>> {
        for dir in [ABOVE, ALL] {
            match volume.symlink_metadata(dir) {
                Err(error) if error.is_not_found() => return Ok(Vec::new()),
                _ => check_dir(volume, Path::new(dir), owner)?,
            }
        }
        let entries = volume.read_dir(ALL)?;
        let mut all = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_type() == NodeKind::Directory {
                all.push(Self { path: Path::new(ALL).join(entry.file_name()) });
            }
        }
        all.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(all)
    }

    pub(crate) fn ancestor(&self) -> PathBuf {
        self.path.join(ANCESTOR)
    }

    /// The state of the fork that is merged.
    pub(crate) fn theirs(&self) -> PathBuf {
        self.path.join(THEIRS)
    }

    /// The state of the target before a merge.
    pub(crate) fn ours(&self) -> PathBuf {
        self.path.join(OURS)
    }

    /// The record; `None` where a fork was not finished.
    pub(crate) fn record(&self, volume: &Volume) -> Result<Option<Record>> {
        let text = volume.get_xattr(&self.path, record::XATTR)?;
        text.map(|text| Record::decode(&text, &self.path)).transpose()
    }

    pub(crate) fn write_record(&self, volume: &Volume, record: &Record) -> Result<()> {
        Ok(volume.set_xattr(&self.path, record::XATTR, record.encode(), XattrMode::Either)?)
    }

    /// Notes the target of a merge, for a crash.
    pub(crate) fn note_merge(&self, volume: &Volume, target: &Uuid) -> Result<()> {
        Ok(volume.set_xattr(&self.path, MERGE_XATTR, record::hex(target), XattrMode::Either)?)
    }

    /// The target of a merge that was not finished.
    fn noted_merge(&self, volume: &Volume) -> Result<Option<Uuid>> {
        let text = volume.get_xattr(&self.path, MERGE_XATTR)?;
        Ok(text.and_then(|text| record::from_hex(std::str::from_utf8(&text).ok()?)))
    }

    /// Removes what a merge left, finished or not: the snapshots, and the target or its successor, whichever has the
    /// name for that. A target that the merge made read-only is writable again.
    pub(crate) fn clean(&self, volume: &Volume) -> Result<()> {
        for left in [self.theirs(), self.ours()] {
            delete(volume, &left)?;
        }
        let Some(target) = self.noted_merge(volume)? else { return Ok(()) };
        for info in volume.subvolumes()? {
            if is_staging(&info, &target) {
                // By its path, if it has one here: then its space is freed in the background.
                match seen_path(volume, &info)? {
                    Some(path) => volume.delete_subvolume(rooted(&path))?,
                    None => volume.delete_subvolume_of(info.id)?,
                }
            } else if info.uuid == target && info.read_only {
                volume.set_read_only_of(info.id, false)?;
            }
        }
        Ok(volume.remove_xattr(&self.path, MERGE_XATTR)?)
    }

    /// Removes the directory with its ancestor.
    pub(crate) fn remove(&self, volume: &Volume) -> Result<()> {
        self.clean(volume)?;
        delete(volume, &self.ancestor())?;
        Ok(volume.remove_dir(&self.path)?)
    }
}

/// Removes the directories of all forks, if there are none.
pub(crate) fn remove_dirs(volume: &Volume) {
    // They are not empty while there are forks.
    let _ = volume.remove_dir(ALL).and_then(|()| volume.remove_dir(ABOVE));
}

/// True for a path among the hidden directories.
pub(crate) fn is_below(path: &Path) -> bool {
    path.starts_with(ABOVE)
}

/// The path beside the target at which its successor is made.
pub(crate) fn staging(target: &Path, uuid: &Uuid) -> PathBuf {
    target.with_file_name(format!("{STAGING}{}", record::hex(uuid)))
}

fn is_staging(info: &SubvolumeInfo, target: &Uuid) -> bool {
    let name = Path::new(&info.path).file_name();
    name == Some(OsStr::new(&format!("{STAGING}{}", record::hex(target))))
}

/// True for a subvolume that belongs to a fork or a merge and is not meant to be used.
pub(crate) fn is_internal(info: &SubvolumeInfo) -> bool {
    let path = Path::new(&info.path);
    let is_in_dir = path.parent().and_then(Path::parent).is_some_and(|dir| dir.ends_with(ALL));
    is_in_dir || path.file_name().is_some_and(|name| name.as_bytes().starts_with(STAGING.as_bytes()))
}

/// Deletes a subvolume, if there is one of that name. Its space is freed in the background.
pub(crate) fn delete(volume: &Volume, path: &Path) -> Result<()> {
    match volume.delete_subvolume(path) {
        Err(error) if error.is_not_found() => Ok(()),
        deleted => Ok(deleted?),
    }
}

/// Refuses a symbolic link, which would lead elsewhere, and a directory that somebody else made or may write to.
fn check_dir(volume: &Volume, path: &Path, owner: u32) -> Result<()> {
    let found = volume.symlink_metadata(path)?;
    if !found.is_dir() {
        return Err(vfs::Error::from(Errno::ENOTDIR).at(path).into());
    }
    let owners = [0, owner, volume.metadata("/")?.uid];
    if owners.contains(&found.uid) && found.permissions & 0o022 == 0 {
        return Ok(());
    }
    Err(Error::Untrusted { at: path.to_owned(), uid: found.uid, permissions: found.permissions })
}

/// Makes a directory that only its owner may search.
fn new_dir(volume: &Volume, path: &Path) -> vfs::Result<()> {
    volume.mknod(path, NodeKind::Directory, PERMISSIONS, 0)
}
