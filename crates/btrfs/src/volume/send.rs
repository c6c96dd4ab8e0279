//! Reports differences between subvolumes, and writes send streams, by the methods of `Volume`. Called by the commands
//! `diff` and `send`, and by backups.

use std::io::Write;
use std::path::Path;

use portable::OsStrExt as _;

use super::Volume;
use crate::send::{self, Change, SendError, SendOptions, Source};

impl Volume {
    /// The differences between the subvolumes at `old` and `new`, in the order of inode numbers. Only blocks that the
    /// two do not share are read, so the cost depends on the size of the difference. Syncs first.
    ///
    /// # Errors
    /// As [`Self::subvolume_at`]; damage, I/O.
    ///
    /// # Examples
    /// ```
    /// # use btrfs::{ChangeKind, MakeOptions, Named, Volume};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let make = MakeOptions { size: Some(64 << 20), ..MakeOptions::default() };
    /// # let volume = Volume::make(dir.path().join("disk.img"), &make)?;
    /// volume.create_subvolume("home")?;
    /// volume.write("home/letter", "Dear Ada,")?;
    /// volume.snapshot("home", "monday", vfs::SnapshotMode::ReadOnly)?;
    /// volume.rename("home/letter", "home/sent")?;
    ///
    /// let changes = volume.diff("monday", "home")?;
    /// let [change] = &changes[..] else { panic!("{changes:?}") };
    /// assert!(matches!(&change.what, ChangeKind::Changed { data, .. } if data.is_empty()));
    /// assert_eq!(change.names, [Named::Renamed("letter".into(), "sent".into())]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn diff(&self, old: impl AsRef<Path>, new: impl AsRef<Path>) -> vfs::Result<Vec<Change>> {
        let mut changes = Vec::new();
        let done: vfs::Result<()> = self.for_each_change(old, new, |change| {
            changes.push(change);
            Ok(())
        });
        done.map(|()| changes)
    }

    /// As [`Self::diff`], for differences that may be too many for memory: shows one after the other.
    ///
    /// # Errors
    /// As [`Self::diff`]; those of `show`.
    pub fn for_each_change<E: From<vfs::Error>>(
        &self,
        old: impl AsRef<Path>,
        new: impl AsRef<Path>,
        show: impl FnMut(Change) -> Result<(), E>,
    ) -> Result<(), E> {
        self.in_one_state(|volume| {
            let trees = (volume.subvolume_at(old.as_ref())?, volume.subvolume_at(new.as_ref())?);
            send::report(volume.core(), trees, show)
        })
    }

    /// Writes the send stream of the subvolume at `path`: it creates the subvolume at a receiver, or turns a snapshot
    /// of `parent` into it. Data shared with `parent`, within the subvolume, or with one of `clones` is cloned there.
    /// The receiver has to have `parent` and `clones`. All must be read-only. Syncs first; concurrent writes continue.
    /// `output` should be buffered.
    ///
    /// # Errors
    /// As [`Self::subvolume_at`]; [`SendError::Writable`], [`SendError::Changed`], [`SendError::Output`].
    pub fn send(
        &self,
        path: impl AsRef<Path>,
        parent: Option<&Path>,
        clones: &[&Path],
        options: &SendOptions,
        output: &mut dyn Write,
    ) -> Result<(), SendError> {
        let path = path.as_ref();
        self.in_one_state(|volume| {
            let source = |path: &Path| {
                let id = volume.subvolume_at(path)?;
                Source::of(&volume.core().store, id, &path.display().to_string(), options.takes_changed)
            };
            let parent = parent.map(source).transpose()?;
            let clones = clones.iter().map(|path| source(path)).collect::<Result<Vec<_>, _>>()?;
            let name = path.file_name().map_or(&b"root"[..], |name| name.as_bytes());
            send::send(volume.core(), parent.as_ref(), (&source(path)?, name), &clones, options, output)
        })
    }

    /// The best parent for the subvolume at `path` among several that a receiver has: the one that it is a snapshot of;
    /// else, of other snapshots of that, the one that was made in the transaction nearest to its own. `None` where none
    /// of them is related to it.
    ///
    /// # Errors
    /// As [`Self::subvolume_at`].
    pub fn closest_parent<'p>(&self, path: impl AsRef<Path>, candidates: &[&'p Path]) -> vfs::Result<Option<&'p Path>> {
        let item = |path: &Path| {
            Ok::<_, vfs::Error>(self.core().store.root_item(self.subvolume_at(path)?).map_err(crate::Error::from)?)
        };
        let own = item(path.as_ref())?;
        if own.parent_uuid.is_nil() {
            return Ok(None);
        }
        let mut best: Option<(u64, &Path)> = None;
        for candidate in candidates {
            let other = item(candidate)?;
            if other.uuid == own.parent_uuid {
                return Ok(Some(candidate));
            }
            let distance = own.otransid.get().abs_diff(other.otransid.get());
            let is_related = other.parent_uuid == own.parent_uuid && other.uuid != own.uuid;
            if is_related && best.is_none_or(|(nearest, _)| distance < nearest) {
                best = Some((distance, candidate));
            }
        }
        Ok(best.map(|(_, path)| path))
    }

    /// Calls `act` with a state of the volume that does not change: the volume itself if it is read-only, else a view
    /// after a sync.
    fn in_one_state<R, E: From<vfs::Error>>(&self, act: impl FnOnce(&Self) -> Result<R, E>) -> Result<R, E> {
        if self.is_read_only() {
            return act(self);
        }
        self.open.sync().map_err(vfs::Error::from)?;
        act(&self.committed_view()?)
    }

    /// About as many bytes as the stream of [`Self::send`] has, if nothing is cloned.
    ///
    /// # Errors
    /// As [`Self::subvolume_at`]; damage, I/O.
    pub fn send_bytes(&self, path: impl AsRef<Path>, parent: Option<&Path>) -> vfs::Result<u64> {
        let parent = parent.map(|parent| self.subvolume_at(parent)).transpose()?;
        Ok(send::data_bytes(self.core(), parent, self.subvolume_at(path.as_ref())?)?)
    }
}
