//! Handles names that exist already in the target: directories are merged, other files replaced if that is asked for.
//! Called by `sink/volume`.
//!
//! With [`Existing::Exchange`] a copy gets another name first, and is renamed over the existing file when it is
//! complete. Failure: the existing file stays as it was.

use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use vfs::Metadata;
use vfs::file_system::{SetAttr, XattrMode};

use super::flags::is_refusal;
use super::{Item, Made, Origin, VolumeSink};
use crate::error::{Cause, Error, Result};
use crate::observer::Loss;
use crate::rules::file_id;
use crate::sink::Existing;

impl VolumeSink<'_> {
    /// Makes a directory whose name exists: merges it, or replaces a file on request.
    pub(super) fn replace_by_dir(&self, target: &Path, item: &Item<'_>, error: Error) -> Result<()> {
        let there = self.volume.symlink_metadata(target)?;
        if there.is_dir() && !self.is_source() {
            return self.merge(target, item);
        }
        if there.is_dir() || self.options.existing != Existing::Replace {
            return Err(self.refusal(target, &there, item, error));
        }
        self.volume.remove_file(target)?;
        self.create(target, item).map(drop)
    }

    /// Gives an existing directory the metadata of `item`, unless it belongs to another user.
    pub(super) fn merge(&self, target: &Path, item: &Item<'_>) -> Result<()> {
        let found = &item.node.attr;
        if let Some(user) = self.options.user
            && self.volume.metadata(target)?.uid != user
        {
            self.left.lock().unwrap_or_else(PoisonError::into_inner).insert(target.to_owned());
            return Ok(());
        }
        let changes = SetAttr {
            permissions: Some(found.permissions),
            uid: Some(found.uid),
            gid: Some(found.gid),
            ..SetAttr::from(self.times(found))
        };
        self.volume.set_attributes(target, &changes)?;
        self.set_xattrs(target, item)
    }

    /// True for an existing directory of another user, which keeps its attributes.
    pub(super) fn is_left(&self, target: &Path) -> bool {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).contains(target)
    }

    /// Makes a file whose name exists, if it may be replaced.
    pub(super) fn replace(&self, target: &Path, item: &Item<'_>, error: Error, buffer: &mut [u8]) -> Result<Made> {
        let there = self.volume.symlink_metadata(target)?;
        if !self.may_replace(&there, item) {
            return Err(self.refusal(target, &there, item, error));
        }
        if self.options.existing == Existing::Replace {
            self.volume.remove_file(target)?;
            return self.create(target, item);
        }
        self.exchange(target, |beside| match self.create(beside, item)? {
            Made::Begun => self.fill_at(beside, item, buffer),
            _ => Ok(()),
        })
    }

    /// Links the file at `first` to a name that exists, if that may be replaced.
    pub(super) fn link_over(&self, first: &Path, target: &Path, item: &Item<'_>, error: Error) -> Result<Made> {
        let there = self.volume.symlink_metadata(target)?;
        if first == target || file_id(&there) == file_id(&self.volume.symlink_metadata(first)?) {
            return Ok(Made::Found);
        }
        if !self.may_replace(&there, item) {
            return Err(self.refusal(target, &there, item, error));
        }
        if self.options.existing == Existing::Replace {
            self.volume.remove_file(target)?;
            self.volume.hard_link(first, target)?;
            return Ok(Made::Whole);
        }
        self.exchange(target, |beside| Ok(self.volume.hard_link(first, beside)?))
    }

    fn is_same(&self, there: &Metadata, item: &Item<'_>) -> bool {
        self.is_source() && file_id(there) == file_id(&item.node.attr)
    }

    fn may_replace(&self, there: &Metadata, item: &Item<'_>) -> bool {
        self.options.existing != Existing::Fail && !there.is_dir() && !self.is_same(there, item)
    }

    /// The failure for a name that stays.
    fn refusal(&self, target: &Path, there: &Metadata, item: &Item<'_>, error: Error) -> Error {
        if self.is_same(there, item) {
            Cause::SameFile(item.from.to_owned(), target.to_owned()).into()
        } else if self.keeps_flags() {
            Error::from(Cause::Exists).about(target)
        } else {
            error
        }
    }

    /// Makes a file under an unused name, and renames it over `target`.
    fn exchange(&self, target: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<Made> {
        let exchanged = || {
            let beside = self.free_name(target)?;
            let made = make(&beside).and_then(|()| Ok(self.volume.rename(&beside, target)?));
            if made.is_err() {
                // The caller gets the first failure. If this removal fails too, the part stays.
                let _ = self.volume.remove_file(&beside);
            }
            made
        };
        exchanged().map(|()| Made::Whole).map_err(|error| error.instead_of(target))
    }

    /// An unused name in the directory of `path`, which no other thread gets.
    fn free_name(&self, path: &Path) -> Result<PathBuf> {
        loop {
            let number = self.exchanged_count.fetch_add(1, Ordering::Relaxed);
            let beside = path.with_file_name(format!(".spinney-cp-{number}"));
            match self.volume.symlink_metadata(&beside) {
                Err(error) if error.is_not_found() => return Ok(beside),
                there => there.map(drop)?,
            }
        }
    }

    /// Sets the attributes of a node one by one.
    pub(super) fn set_xattrs(&self, target: &Path, item: &Item<'_>) -> Result<()> {
        for (name, value) in item.node.xattrs.iter().flatten() {
            match self.volume.set_xattr(target, name, value, XattrMode::Either) {
                Err(error) if self.is_loss(&error) => item.watch.lost(Loss::Attribute),
                set => set?,
            }
        }
        Ok(())
    }

    /// True for properties that the volume does not accept, if that is reported and not a failure.
    pub(super) fn is_loss(&self, error: &vfs::Error) -> bool {
        self.options.origin == Origin::OtherVolume && is_refusal(error)
    }
}
