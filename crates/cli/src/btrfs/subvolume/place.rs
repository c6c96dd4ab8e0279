//! Defines `Place`, the operations on subvolumes, and implements it for an image by the library; `mount` implements it
//! for a directory of a mount. `subvolume` calls it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use anyhow::Result;
use spinney::Errno;
use spinney::btrfs::disk::TreeId;
use spinney::btrfs::{QgroupReport, SubvolumeInfo, Volume};
use spinney::vfs::SnapshotMode;

use crate::commands::failure::Failure;

/// Operations on subvolumes. Paths begin at the root of the opened volume, or at the directory of the mount; so do
/// those in a [`SubvolumeInfo`], where the root is the top level.
pub(super) trait Place {
    /// All subvolumes in the order of their numbers, without the top level or that of the directory.
    fn list(&self) -> Result<Vec<SubvolumeInfo>>;
    /// Subvolumes that were deleted and still take space.
    fn deleted(&self) -> Result<Vec<SubvolumeInfo>>;
    /// The subvolume whose root is at a path.
    fn at(&self, path: &Path) -> Result<SubvolumeInfo>;
    /// The subvolume with a number; of a mount, if it is beneath the directory.
    fn of(&self, id: TreeId) -> Result<SubvolumeInfo>;
    fn create(&self, path: &Path) -> Result<()>;
    fn snapshot(&self, source: &SubvolumeInfo, dest: &Path, mode: SnapshotMode) -> Result<()>;
    /// Removes the empty directory that a snapshot has in place of a nested subvolume.
    fn remove_stand_in(&self, path: &Path) -> Result<()>;
    fn delete(&self, subvolume: &SubvolumeInfo) -> Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    fn set_read_only(&self, subvolume: &SubvolumeInfo, read_only: bool) -> Result<()>;
    fn forget_received(&self, subvolume: &SubvolumeInfo) -> Result<()>;
    fn default(&self) -> Result<TreeId>;
    fn set_default(&self, path: &Path) -> Result<()>;
    /// Its quota group, if quotas are on.
    fn quota(&self, id: TreeId) -> Result<Option<QgroupReport>>;
    /// Makes all changes durable.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// The subvolumes nested in another, each after its container.
pub(super) fn below(all: &[SubvolumeInfo], id: TreeId) -> Vec<SubvolumeInfo> {
    let mut inside: HashMap<TreeId, Vec<&SubvolumeInfo>> = HashMap::new();
    for one in all {
        inside.entry(one.parent.unwrap_or_default()).or_default().push(one);
    }
    let (mut found, mut todo) = (Vec::new(), vec![id]);
    let mut known = HashSet::from([id]);
    while let Some(parent) = todo.pop() {
        for child in inside.get(&parent).into_iter().flatten() {
            // In a damaged image a subvolume may contain itself.
            if known.insert(child.id) {
                todo.push(child.id);
                found.push((*child).clone());
            }
        }
    }
    found
}

/// The failure of an operation on a path that is not a subvolume.
pub(super) fn no_subvolume(path: &Path) -> anyhow::Error {
    Failure::refused(format!("{}: no subvolume; `rm -r` removes directories", path.display())).into()
}

fn at_path(path: &Path, error: spinney::Error) -> anyhow::Error {
    match error.errno() {
        Errno::EINVAL => no_subvolume(path),
        _ => error.into(),
    }
}

impl Place for Volume {
    fn list(&self) -> Result<Vec<SubvolumeInfo>> {
        Ok(self.subvolumes()?)
    }

    fn deleted(&self) -> Result<Vec<SubvolumeInfo>> {
        Ok(self.deleted_subvolumes()?)
    }

    fn at(&self, path: &Path) -> Result<SubvolumeInfo> {
        let id = self.subvolume_at(path).map_err(|error| at_path(path, error))?;
        Ok(self.subvolume_info(id)?)
    }

    fn of(&self, id: TreeId) -> Result<SubvolumeInfo> {
        let found = self.subvolume_info(id);
        found.map_err(|error| anyhow::Error::from(error).context(format!("subvolume {}", id.0)))
    }

    fn create(&self, path: &Path) -> Result<()> {
        Ok(self.create_subvolume(path)?)
    }

    fn snapshot(&self, source: &SubvolumeInfo, dest: &Path, mode: SnapshotMode) -> Result<()> {
        self.snapshot_of(source.id, dest, mode)?;
        Ok(())
    }

    fn remove_stand_in(&self, path: &Path) -> Result<()> {
        Ok(self.remove_dir(path)?)
    }

    fn delete(&self, subvolume: &SubvolumeInfo) -> Result<()> {
        let deleted = self.delete_subvolume_of(subvolume.id);
        deleted.map_err(|error| {
            let shown = Path::new(&subvolume.path).display().to_string();
            anyhow::Error::from(error).context(format!("/{shown}"))
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        Ok(self.by_paths().rename(from, to)?)
    }

    fn set_read_only(&self, subvolume: &SubvolumeInfo, read_only: bool) -> Result<()> {
        Ok(self.set_read_only_of(subvolume.id, read_only)?)
    }

    fn forget_received(&self, subvolume: &SubvolumeInfo) -> Result<()> {
        Ok(self.forget_received(subvolume.id)?)
    }

    fn default(&self) -> Result<TreeId> {
        Ok(self.default_subvolume()?)
    }

    fn set_default(&self, path: &Path) -> Result<()> {
        Ok(self.set_default_subvolume(path)?)
    }

    fn quota(&self, id: TreeId) -> Result<Option<QgroupReport>> {
        let quotas = self.quotas()?;
        Ok(quotas.and_then(|quotas| group_of(quotas.groups, id)))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(self.close()?)
    }
}

/// The level-0 group of a subvolume.
pub(super) fn group_of(groups: Vec<QgroupReport>, id: TreeId) -> Option<QgroupReport> {
    groups.into_iter().find(|group| group.id.to_string() == format!("0/{}", id.0))
}

/// The host's failure at a path.
pub(super) fn of_host(path: &Path, error: io::Error) -> anyhow::Error {
    anyhow::Error::from(error).context(path.display().to_string())
}
