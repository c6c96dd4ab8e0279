//! Implements `Place` of `dedupe` for an image, so that `dedupe` reads and shares its files through the library.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;
use spinney::vfs::file_system::{Extent, ExtentKind, are_shared, extent_at};
use spinney::vfs::{Blame, Errno, File, Volume};

use super::{Match, Outcome, Place};
use crate::commands::failures::Failures;
use crate::commands::files::{Files, FilesArgs};
use crate::commands::image::ImageArgs;

pub(super) struct Image {
    volume: Volume,
    files: Files,
}

pub(super) struct ImageFile {
    path: PathBuf,
    file: File,
    extents: Vec<Extent>,
}

impl Image {
    pub(super) fn open(image: &ImageArgs, args: &FilesArgs, failures: &Failures) -> Result<Self> {
        let volume = image.open_writable()?;
        let files = Files::find(&volume, args, failures)?;
        Ok(Self { volume, files })
    }
}

impl Place for Image {
    type File = ImageFile;

    fn files(&self) -> &Files {
        &self.files
    }

    fn open(&self, path: &Path) -> Result<Option<ImageFile>> {
        let file = File::open(&self.volume, path)?;
        let extents = file.extents().map_err(|error| error.at(path))?;
        Ok(Some(ImageFile { path: path.to_owned(), file, extents }))
    }

    fn next_data(&self, file: &ImageFile, offset: u64) -> Result<Option<Range<u64>>> {
        Ok(next_data(&file.extents, offset))
    }

    fn read(&self, file: &ImageFile, buffer: &mut [u8], offset: u64) -> Result<usize> {
        Ok(file.file.read_at(buffer, offset).map_err(|error| error.at(&file.path))?)
    }

    fn share(&self, source: &ImageFile, target: &ImageFile, found: &Match) -> Result<Outcome> {
        let (ours, theirs) = ((&*source.extents, found.source_offset), (&*target.extents, found.offset));
        if are_shared(ours, theirs, found.len) {
            return Ok(Outcome::Nothing);
        }
        match target.file.dedupe(&source.file, found.source_offset, found.offset, found.len) {
            Ok(true) => Ok(Outcome::Shared),
            Ok(false) => Ok(Outcome::Nothing),
            Err(error) if error.blame() == Blame::Caller && error.errno() != Errno::ENOSPC => Ok(Outcome::Refused),
            Err(error) => Err(error.at(&target.path).into()),
        }
    }

    fn close(self) -> Result<()> {
        Ok(self.volume.close()?)
    }
}

/// The first range of data on disk at or behind `offset`.
fn next_data(extents: &[Extent], offset: u64) -> Option<Range<u64>> {
    let is_data = |extent: &&Extent| extent.kind == ExtentKind::Data;
    let from = extents.partition_point(|extent| extent.offset.saturating_add(extent.len) <= offset);
    let first = extents.get(from..)?.iter().find(is_data)?;
    let mut end = first.offset.saturating_add(first.len);
    while let Some(next) = extent_at(extents, end).filter(is_data) {
        end = next.offset.saturating_add(next.len);
    }
    Some(first.offset.max(offset)..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_of_data_end_at_holes_and_at_what_has_no_bytes() {
        let extent = |offset, len, kind| Extent { offset, len, kind, logical: None, disk_len: len, compression: None };
        let extents = [
            extent(4096, 4096, ExtentKind::Data),
            extent(8192, 8192, ExtentKind::Data),
            extent(16_384, 4096, ExtentKind::Preallocated),
            extent(1 << 62, 4096, ExtentKind::Data),
        ];
        assert_eq!(next_data(&extents, 0), Some(4096..16_384));
        assert_eq!(next_data(&extents, 9000), Some(9000..16_384));
        assert_eq!(next_data(&extents, 16_384), Some(1 << 62..(1 << 62) + 4096));
        assert_eq!(next_data(&extents, u64::MAX), None);
    }
}
