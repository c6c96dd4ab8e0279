//! Fills files with their contents: shared with the source, or streamed around the holes. Called by `sink/volume` and
//! `existing`.
//!
//! A file that is shorter than when it was examined, or that has a wrong size (files of sysfs), is copied as far as it
//! can be read, without zeros for the rest. Failure: an incomplete file is removed, unless it is to stay. Writing
//! changes the times and the privileges of a file, so these are set last.

use std::path::Path;

use vfs::file_system::SetAttr;
use vfs::{Errno, File, FileOptions, Metadata};

use super::{Item, Origin, Sharing, VolumeSink, bytes};
use crate::contents::{copy_data, data_bytes};
use crate::error::Result;
use crate::rules::SET_ID;

impl VolumeSink<'_> {
    /// Copies the contents of a file to `target`, which was begun, and finishes it.
    pub(super) fn fill_at(&self, target: &Path, item: &Item<'_>, buffer: &mut [u8]) -> Result<()> {
        let file = FileOptions::new().read(true).write(true).open(self.volume, target)?;
        let filled = match self.share(target, item, &file) {
            Ok(false) => self.stream(item, &file, buffer),
            shared => shared.map(drop),
        };
        drop(file);
        if filled.is_err() && !self.options.keeps_partial {
            // The caller gets the first failure. If this removal fails too, the part stays.
            let _ = self.volume.remove_file(target);
        }
        filled?;
        self.finish_file(target, &item.node.attr)?;
        if self.keeps_flags() {
            self.flags(item.watch).set(target, &self.volume.symlink_metadata(target)?, item.node.attr.flags)?;
        }
        Ok(())
    }

    /// Sets metadata changed by writing: the times, and set-user and set-group bits, which a mount clears when another
    /// user than root writes.
    fn finish_file(&self, target: &Path, attr: &Metadata) -> Result<()> {
        let has_bits = attr.permissions & SET_ID != 0;
        let changes = SetAttr { permissions: has_bits.then_some(attr.permissions), ..SetAttr::from(self.times(attr)) };
        Ok(self.volume.set_attributes(target, &changes)?)
    }

    /// Shares the extents of the source; false where they have to be copied.
    fn share(&self, target: &Path, item: &Item<'_>, file: &File) -> Result<bool> {
        let sharing = match self.options.origin {
            Origin::ThisVolume(sharing) if sharing != Sharing::Never => sharing,
            _ => return Ok(false),
        };
        let Some(source) = item.contents.in_volume()? else { return Ok(false) };
        match file.reflink(source, 0, 0, 0) {
            Ok(()) => {
                let shared = data_bytes(item.contents, item.node.attr.size)?;
                item.watch.shared(shared);
                Ok(true)
            }
            Err(error) if sharing == Sharing::Auto && [Errno::EINVAL, Errno::EOPNOTSUPP].contains(&error.errno()) => {
                Ok(false)
            }
            Err(error) => Err(error.at(target).into()),
        }
    }

    /// Copies the contents, up to the size that the file had.
    fn stream(&self, item: &Item<'_>, file: &File, buffer: &mut [u8]) -> Result<()> {
        let size = item.node.attr.size;
        let end = copy_data(item.contents, size, buffer, |at, part| -> Result<()> {
            file.write_at(part, at)?;
            item.watch.copied(bytes(part));
            Ok(())
        })?;
        let len = item.copied_len(end)?;
        if file.metadata()?.size < len {
            file.set_len(len)?;
        }
        Ok(())
    }
}
