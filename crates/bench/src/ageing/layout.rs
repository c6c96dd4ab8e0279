//! Measures the layout of an image after a round of `bench ageing`, with the same code for every system: the contiguous
//! runs of its files, and the sizes of its free space.
//!
//! Files are read through a mount of the kernel's (FIEMAP), free space through the library. Called by `ageing`;
//! `ageing/chart` draws the figures.

use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, Result};
use btrfs::Volume;
use btrfs_disk::flags::BlockGroupFlags;
use fiemap::{Fiemap, FiemapExtentFlags};
use serde::Serialize;

use crate::row::{as_float, as_u64};

/// Free runs are counted by the power of two of their bytes, from 4 KiB (and less) to 1 GiB (and more).
const CLASS_FIRST: u32 = 12;
const CLASS_LAST: u32 = 30;
/// Free runs that are large.
const LARGE_BYTES: u64 = 1 << 20;
/// Parts of the space for data in a picture of it.
const PARTS: u64 = 320;

/// One state of one image.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Layout {
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Contiguous runs of all files together: the number of requests of a sequential reader, if their size were not
    /// limited.
    pub(super) runs: u64,
    /// Extents of data, which the trees know of.
    pub(super) extents: u64,
    /// Runs of free space within block groups of data: their number, all bytes, those in large ones, the longest.
    pub(super) free_runs: u64,
    pub(super) free_bytes: u64,
    pub(super) free_bytes_in_large: u64,
    pub(super) free_longest: u64,
    /// Bytes that are free by the power of two of the run's bytes: 2^12 first.
    pub(super) free_classes: Vec<u64>,
    /// The same numbers of runs and bytes within block groups of metadata.
    pub(super) metadata_free_runs: u64,
    pub(super) metadata_free_bytes: u64,
    pub(super) metadata_groups: u64,
    /// How much of each part of the space for data is in use, in percent.
    pub(super) parts: Vec<u64>,
}

impl Layout {
    pub(super) fn runs_per_file(&self) -> f64 {
        as_float(self.runs) / as_float(self.files.max(1))
    }

    /// Bytes of files, by runs.
    pub(super) fn request_kib(&self) -> f64 {
        as_float(self.bytes) / as_float(self.runs.max(1)) / 1024.0
    }

    pub(super) fn large_share(&self) -> f64 {
        as_float(self.free_bytes_in_large) / as_float(self.free_bytes.max(1))
    }

    /// Adds the extents of a file, from the kernel.
    pub(super) fn add_file(&mut self, path: &Path) -> Result<()> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let mut before = None;
        self.files += 1;
        for extent in Fiemap::new(&file) {
            let extent = extent.with_context(|| path.display().to_string())?;
            // Such data lies in the tree.
            if extent.fe_flags.contains(FiemapExtentFlags::DATA_INLINE) {
                continue;
            }
            self.bytes += extent.fe_length;
            self.runs += u64::from(before != Some(extent.fe_physical));
            before = Some(extent.fe_physical + extent.fe_length);
        }
        Ok(())
    }

    /// Adds the positions of extents on an image, and the free space between them.
    pub(super) fn add_space(&mut self, image: &Path) -> Result<()> {
        let volume = Volume::options().read_only(true).open(image)?;
        let mut extents = Vec::new();
        volume.for_each_extent(|at, bytes| extents.push((at, bytes)))?;
        self.free_classes = vec![0; usize::try_from(CLASS_LAST - CLASS_FIRST + 1)?];
        let chunks = volume.chunks();
        let is_data = |flags: BlockGroupFlags| flags.contains(BlockGroupFlags::DATA);
        let all: u64 = chunks.iter().filter(|chunk| is_data(chunk.flags)).map(|chunk| chunk.bytes).sum();
        let mut parts = Parts::new(all);
        for chunk in &chunks {
            let end = chunk.logical + chunk.bytes;
            let from = extents.partition_point(|(at, _)| *at < chunk.logical);
            let here = extents.iter().skip(from).take_while(|(at, _)| *at < end);
            self.metadata_groups += u64::from(chunk.flags.contains(BlockGroupFlags::METADATA));
            let mut at = chunk.logical;
            for (start, bytes) in here.copied().chain([(end, 0)]) {
                self.add_free(chunk.flags, start - at);
                if is_data(chunk.flags) {
                    self.extents += u64::from(bytes > 0);
                    parts.add(start - at, 0);
                    parts.add(bytes, 1);
                }
                at = start + bytes;
            }
        }
        self.parts = parts.percent();
        Ok(())
    }

    fn add_free(&mut self, flags: BlockGroupFlags, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if flags.contains(BlockGroupFlags::METADATA) {
            self.metadata_free_runs += 1;
            self.metadata_free_bytes += bytes;
        } else if flags.contains(BlockGroupFlags::DATA) {
            self.free_runs += 1;
            self.free_bytes += bytes;
            self.free_longest = self.free_longest.max(bytes);
            self.free_bytes_in_large += if bytes >= LARGE_BYTES { bytes } else { 0 };
            let class = bytes.ilog2().clamp(CLASS_FIRST, CLASS_LAST) - CLASS_FIRST;
            if let Some(sum) = usize::try_from(class).ok().and_then(|class| self.free_classes.get_mut(class)) {
                *sum += bytes;
            }
        }
    }
}

/// The space for data, in parts of one size.
struct Parts {
    bytes: u64,
    at: u64,
    used: Vec<u64>,
}

impl Parts {
    fn new(all: u64) -> Self {
        Self { bytes: all.div_ceil(PARTS).max(1), at: 0, used: vec![0; usize::try_from(PARTS).unwrap_or(0)] }
    }

    /// The next bytes are in use, or not.
    fn add(&mut self, bytes: u64, use_of_each: u64) {
        let end = self.at + bytes;
        while self.at < end {
            let part = self.at / self.bytes;
            let until = ((part + 1) * self.bytes).min(end);
            if let Some(used) = usize::try_from(part).ok().and_then(|part| self.used.get_mut(part)) {
                *used += (until - self.at) * use_of_each;
            }
            self.at = until;
        }
    }

    fn percent(self) -> Vec<u64> {
        self.used.iter().map(|used| used * 100 / self.bytes).collect()
    }
}

/// Where a class of free runs begins, in KiB.
pub(super) fn class_kib(class: usize) -> u64 {
    1 << (as_u64(class) + u64::from(CLASS_FIRST) - 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_runs_are_counted_by_their_size() {
        let mut layout = Layout { free_classes: vec![0; 19], ..Layout::default() };
        for bytes in [4096, 8191, 0, 1 << 20, 3 << 30] {
            layout.add_free(BlockGroupFlags::DATA, bytes);
        }
        layout.add_free(BlockGroupFlags::METADATA, 16384);
        assert_eq!((layout.free_runs, layout.free_longest), (4, 3 << 30));
        assert_eq!(
            (layout.free_classes[0], layout.free_classes[8], layout.free_classes[18]),
            (12287, 1 << 20, 3 << 30)
        );
        assert_eq!((layout.metadata_free_runs, layout.metadata_free_bytes), (1, 16384));
        assert!(layout.large_share() > 0.99 && class_kib(0) == 4 && class_kib(8) == 1024);
    }

    #[test]
    fn parts_know_how_full_they_are() {
        let mut parts = Parts::new(320 * 4096);
        parts.add(4096 + 1024, 1);
        parts.add(1024, 0);
        parts.add(2048 + 4096, 1);
        let percent = parts.percent();
        assert_eq!(percent.get(..4), Some(&[100, 75, 100, 0][..]));
    }
}
