//! Finds subvolumes by number, and changes their flags, forks and the default, by the methods of `Volume`. Called by
//! the library's users.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use btrfs_disk::items::{RootItem, Timespec};
use btrfs_disk::{Generation, TreeId, Uuid};
use portable::{OsStrExt as _, OsStringExt as _};
use vfs::SnapshotMode;

use super::Volume;
use crate::dir::Hold;
use crate::error::{CallerError, Error};
use crate::open_volume::Follow;
use crate::subvol::{self, NewSnapshot, Received, SubvolumeInfo};
use vfs::Result;

impl Volume {
    /// All subvolumes and snapshots but the top level, in the order of their numbers.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        Ok(subvol::list(self.namespace())?)
    }

    /// As [`Self::subvolumes`], of those beneath a directory; their paths begin there.
    ///
    /// # Errors
    /// `NotFound`; `Io`, `Corrupt`.
    pub fn subvolumes_below(&self, dir: impl AsRef<Path>) -> Result<Vec<SubvolumeInfo>> {
        let dir = dir.as_ref();
        let found = self.open.walker().find(dir, Follow::Last)?;
        let top = subvol::path_of_inode(self.namespace(), found.tree, found.ino)?;
        let top = OsString::from_vec(top.ok_or_else(|| Error::from(CallerError::NotFound).at(dir))?);
        let mut all = subvol::list(self.namespace())?;
        all.retain_mut(|one| match Path::new(&one.path).strip_prefix(&top) {
            Ok(below) if !below.as_os_str().is_empty() => {
                one.path = below.as_os_str().to_owned();
                true
            }
            _ => false,
        });
        Ok(all)
    }

    /// One subvolume, which may be the top level.
    ///
    /// # Errors
    /// `NoSuchSubvolume`; `Io`, `Corrupt`.
    pub fn subvolume_info(&self, id: TreeId) -> Result<SubvolumeInfo> {
        Ok(subvol::info_of(self.namespace(), id)?)
    }

    /// The subvolumes that are deleted in the last commit, with space yet to be freed. They have no paths.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn deleted_subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        Ok(subvol::list_deleted(self.namespace())?)
    }

    /// As [`vfs::Volume::snapshot`], of the subvolume with this number, wherever it is; returns the number of the
    /// snapshot.
    ///
    /// # Errors
    /// `NoSuchSubvolume`; as making a directory.
    pub fn snapshot_of(&self, source: TreeId, dest: impl AsRef<Path>, mode: SnapshotMode) -> Result<TreeId> {
        let dest = dest.as_ref();
        let (dir, name) = self.new_place(dest)?;
        let made = subvol::snapshot(self.namespace(), source, &dir, name.as_bytes(), mode);
        Ok(made.map_err(|error| error.at(dest))?)
    }

    /// Makes two snapshots in one transaction, so that a crash leaves both or none: a read-only one of the subvolume
    /// `source` at `ancestor`, with the UUID `uuid`, and at `dest` one of that. Returns the number of the second.
    ///
    /// # Errors
    /// As [`Self::snapshot_of`].
    pub fn snapshot_with_ancestor(
        &self,
        source: TreeId,
        (ancestor, uuid): (&Path, [u8; 16]),
        dest: &Path,
        mode: SnapshotMode,
    ) -> Result<TreeId> {
        let (first_dir, first_name) = self.new_place(ancestor)?;
        let (dir, name) = self.new_place(dest)?;
        let first = NewSnapshot {
            dir: &first_dir,
            name: first_name.as_bytes(),
            mode: SnapshotMode::ReadOnly,
            uuid: Uuid(uuid),
        };
        let second = NewSnapshot { dir: &dir, name: name.as_bytes(), mode, uuid: Uuid(self.new_uuid()) };
        let made = subvol::snapshot_chain(self.namespace(), source, [first, second]);
        let [_, id] = made.map_err(|error| error.at(dest))?;
        Ok(id)
    }

    /// A new UUID, of the volume's source of random numbers.
    #[must_use]
    pub fn new_uuid(&self) -> [u8; 16] {
        self.core().store.env().uuid()
    }

    /// The directory in which a path would have its name, and the name.
    fn new_place<'a>(&self, path: &'a Path) -> Result<(Hold<'_>, &'a OsStr)> {
        let name = path.file_name().ok_or(CallerError::Exists);
        let name = name.map_err(|error| Error::from(error).at(path))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("/"));
        let found = self.open.walker().find(parent, Follow::Last)?;
        let dir = self.namespace().inode(found)?;
        Ok((self.namespace().hold(&dir)?, name))
    }

    /// Makes a writable snapshot of the subvolume at `source`, and returns it as a volume: a handle whose paths begin
    /// at the root of the fork. The cost of a fork does not depend on the size of the subvolume: its dirty data is
    /// flushed, and a transaction ends, which the next sync or commit makes durable. Both share everything until one of
    /// them changes it. Subvolumes inside `source` are empty directories in the fork.
    ///
    /// The handle shares the volume with the others: whichever is dropped last closes it. The fork is deleted as any
    /// subvolume, by its path from another handle; operations through this handle fail then.
    ///
    /// # Errors
    /// As [`Self::subvolume_at`], and as [`vfs::Volume::snapshot`].
    ///
    /// # Examples
    /// ```
    /// # use btrfs::{ChangeKind, MakeOptions, Volume};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let make = MakeOptions { size: Some(64 << 20), ..MakeOptions::default() };
    /// # let volume = Volume::make(dir.path().join("disk.img"), &make)?;
    /// volume.create_subvolume("main")?;
    /// volume.write("main/settings", "colour=blue")?;
    ///
    /// let fork = volume.fork("main", "trial")?;
    /// fork.write("settings", "colour=red")?;
    /// fork.write("notes", "red it is")?;
    /// assert_eq!(volume.read("trial/settings")?, b"colour=red");
    /// assert_eq!(volume.read("main/settings")?, b"colour=blue");
    ///
    /// let changes = volume.diff("main", "trial")?;
    /// assert!(changes.iter().any(|change| change.what == ChangeKind::Added));
    /// volume.delete_subvolume("trial")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn fork(&self, source: impl AsRef<Path>, target: impl AsRef<Path>) -> Result<Self> {
        let source = self.subvolume_at(source.as_ref())?;
        self.part(self.snapshot_of(source, target, SnapshotMode::ReadWrite)?)
    }

    /// Opens the subvolume at `path` as a volume: a handle whose paths begin at its root. It shares the volume with the
    /// other handles, as that of [`Self::fork`] does.
    ///
    /// # Errors
    /// As [`Self::subvolume_at`].
    pub fn open_subvolume(&self, path: impl AsRef<Path>) -> Result<Self> {
        self.part(self.subvolume_at(path.as_ref())?)
    }

    /// As [`vfs::Volume::delete_subvolume`], of the subvolume with this number, wherever it is.
    ///
    /// # Errors
    /// `NoSuchSubvolume`; `Busy` for the top level, the default subvolume, and that which the volume was opened with;
    /// `NotEmpty` where it contains others.
    pub fn delete_subvolume_of(&self, id: TreeId) -> Result<()> {
        let namespace = self.namespace();
        self.core().root(id)?;
        if id == self.open.top || id == TreeId::FS {
            return Err(CallerError::Busy.into());
        }
        let link = namespace.root_links.of(id)?.ok_or(CallerError::NoSuchSubvolume)?;
        let dir = namespace.hold(&self.core().inode(link.parent, link.dir)?)?;
        subvol::delete(namespace, &dir, &link.name)?;
        drop(dir);
        Ok(subvol::drop_dead_trees(namespace)?)
    }

    /// As [`Self::set_subvolume_read_only`], of the subvolume with this number.
    ///
    /// # Errors
    /// `NoSuchSubvolume`, `ReadOnly` (the volume).
    pub fn set_read_only_of(&self, id: TreeId, read_only: bool) -> Result<()> {
        Ok(subvol::set_read_only(self.namespace(), id, read_only)?)
    }

    /// Forgets what a subvolume was received from: streams with it as their parent cannot be received any more. It has
    /// to be writable.
    ///
    /// # Errors
    /// `NoSuchSubvolume`, `ReadOnly`.
    pub fn forget_received(&self, id: TreeId) -> Result<()> {
        let nothing = Received { uuid: [0; 16], sent: Generation(0) };
        Ok(subvol::note_received(self.namespace(), id, &nothing, Timespec::default()).map(drop)?)
    }

    /// True if a subvolume was changed after it was received: a stream that uses its received UUID as a parent no
    /// longer applies to it. A writable subvolume is synced first.
    ///
    /// # Errors
    /// `NoSuchSubvolume`; damage, I/O.
    pub fn is_changed_since_receipt(&self, id: TreeId) -> Result<bool> {
        let item = self.durable_root_item(id)?;
        Ok(!item.received_uuid.is_nil() && subvol::changed_since_receipt(&self.core().store, id, &item)?)
    }

    /// True if a subvolume was changed after it was made as a read-only snapshot.
    ///
    /// # Errors
    /// As [`Self::is_changed_since_receipt`].
    pub fn is_changed_since_made(&self, id: TreeId) -> Result<bool> {
        let item = self.durable_root_item(id)?;
        Ok(subvol::changed_since_made(&self.core().store, id, &item)?)
    }

    fn durable_root_item(&self, id: TreeId) -> Result<RootItem> {
        if !self.core().root(id)?.is_read_only() && !self.is_read_only() {
            self.open.sync()?;
        }
        Ok(self.core().store.root_item(id).map_err(crate::Error::from)?)
    }

    /// Chooses the subvolume that is opened and mounted by default.
    ///
    /// # Errors
    /// `InvalidArgument` when `path` is no subvolume, `ReadOnly`.
    pub fn set_default_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        let id = self.subvolume_at(path.as_ref())?;
        Ok(subvol::set_default_subvolume(self.namespace(), id).map_err(|error| error.at(path))?)
    }

    /// The number of the subvolume that is opened by default.
    ///
    /// # Errors
    /// `Io`, `Corrupt`.
    pub fn default_subvolume(&self) -> Result<TreeId> {
        Ok(subvol::default_subvolume(self.namespace())?)
    }

    /// Makes a subvolume read-only, or writable again.
    ///
    /// # Errors
    /// `InvalidArgument` when `path` is no subvolume, `ReadOnly` (the volume).
    pub fn set_subvolume_read_only(&self, path: impl AsRef<Path>, read_only: bool) -> Result<()> {
        let id = self.subvolume_at(path.as_ref())?;
        Ok(subvol::set_read_only(self.namespace(), id, read_only).map_err(|error| error.at(path))?)
    }

    /// Finishes a received subvolume: records what it was received from, and makes it read-only, both in one commit and
    /// durable when this returns.
    ///
    /// # Errors
    /// `NoSuchSubvolume`, `ReadOnly`; those of a sync.
    pub fn set_subvolume_received(&self, id: TreeId, received: &Received) -> Result<()> {
        subvol::set_received(self.namespace(), id, received)?;
        Ok(self.open.sync()?)
    }

    /// The number of the subvolume whose root directory is at `path`.
    ///
    /// # Errors
    /// `NotFound`; `InvalidArgument` where another kind of inode is there; damage, I/O.
    pub fn subvolume_at(&self, path: &Path) -> Result<TreeId> {
        let found = self.open.walker().find(path, Follow::AllButLast)?;
        if !found.is_subvolume_root() {
            return Err(Error::from(CallerError::InvalidArgument).at(path).into());
        }
        Ok(found.tree)
    }
}
