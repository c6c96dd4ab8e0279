//! Fills files with their contents: shared with the source, or streamed around the holes. Called by `sink/volume` and
//! `existing`.
//!
//! A file that is shorter than when it was examined, or that has a wrong size (files of sysfs), is copied as far as it
//! can be read, without zeros for the rest. Failure: an incomplete file is removed, unless it is to stay. Writing
//! changes the times and the privileges of a file, so these are set last.

use std::path::Path;

use vfs::file_system::{SetAttr, WholeNode};
use vfs::{Errno, File, FileOptions, Metadata};

use super::equal::{Known, Wanted};
use super::{Item, Made, Origin, Sharing, VolumeSink, bytes};
use crate::contents::{Contents, copy_data, data_bytes};
use crate::error::Result;
use crate::rules::SET_ID;

/// Bytes of small files that are compared at a time.
const COMPARED_BYTES: usize = 128 << 10;

impl VolumeSink<'_> {
    /// Copies the contents of a file to `target`, which was begun, and finishes it.
    pub(super) fn fill_at(&self, target: &Path, item: &Item<'_>, buffer: &mut [u8]) -> Result<()> {
        let file = FileOptions::new().read(true).write(true).open(self.volume, target)?;
        let mut wanted = Wanted::default();
        let shared = match self.share(target, item, &file) {
            Ok(false) => self.share_equal((item, &file), (item.contents, item.node.attr.size), &mut wanted, buffer),
            shared => shared,
        };
        let filled = match shared {
            Ok(false) => self.stream(item, &file, buffer).map(|()| self.add_equal(target, item, wanted)),
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

    /// Makes a file whose contents are known, sharing the extents of an equal one.
    pub(super) fn create_shared(&self, target: &Path, item: &Item<'_>, node: &WholeNode<'_>) -> Result<Made> {
        let (mut wanted, mut buffer) = (Wanted::default(), vec![0; COMPARED_BYTES]);
        let contents = Known(node.data);
        let found = self.equal.find(self.volume, (&contents, bytes(node.data)), &mut wanted, &mut buffer)?;
        if let Some(earlier) = found {
            self.volume.create_node(target, &WholeNode { data: &[], ..*node })?;
            let file = FileOptions::new().read(true).write(true).open(self.volume, target)?;
            match file.reflink(&earlier, 0, 0, 0) {
                Ok(()) => item.watch.shared(bytes(node.data)),
                Err(_) => {
                    file.write_at(node.data, 0)?;
                    item.watch.copied(bytes(node.data));
                }
            }
            drop(file);
            self.finish_file(target, &item.node.attr)?;
        } else {
            self.volume.create_node(target, node)?;
            self.add_equal(target, item, wanted);
            item.watch.copied(bytes(node.data));
        }
        Ok(Made::Whole)
    }

    /// Shares the extents of an earlier file with the same contents; false where there is none.
    fn share_equal(
        &self,
        (item, file): (&Item<'_>, &File),
        contents: (&dyn Contents, u64),
        wanted: &mut Wanted,
        buffer: &mut [u8],
    ) -> Result<bool> {
        if !self.options.shares_equal {
            return Ok(false);
        }
        let Some(earlier) = self.equal.find(self.volume, contents, wanted, buffer)? else { return Ok(false) };
        if file.reflink(&earlier, 0, 0, 0).is_err() {
            // The volume cannot share, or not these two: the contents are copied, over a part that may be shared.
            file.set_len(0)?;
            return Ok(false);
        }
        item.watch.shared(data_bytes(item.contents, item.node.attr.size)?);
        Ok(true)
    }

    fn add_equal(&self, target: &Path, item: &Item<'_>, wanted: Wanted) {
        if self.options.shares_equal {
            self.equal.add(target, item.node.attr.size, wanted);
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
