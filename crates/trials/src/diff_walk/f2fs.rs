//! Walks f2fs images, without the fields that two readers cannot agree on. Called by `diff_walk` and `guest`.
//!
//! The kernel's walk is always read from a file beside the image: it was made of a copy, in which the kernel may have
//! recovered files fsynced after the checkpoint. Our walk is of the image itself, which is not written. So access
//! times, positions and block counts of recovered images, and times and sizes of their directories are left out.

use super::library::walk_volume;
use super::record::{Extent, Record, Walk};
use ::f2fs::OpenOptions;
use anyhow::Result;
use blockdev::backends::{FileDevice, FileOptions};
use f2fs_disk::superblock::{COPIES, MAGIC, copy_offset};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use vfs::file_system::{FileSystem, NodeId};

const BLOCK: u64 = 4096;
/// The smallest cluster.
const CLUSTER: u64 = 4 * BLOCK;

/// Whether an image has f2fs's magic number.
pub(crate) fn is_f2fs(image: &Path) -> Result<bool> {
    let mut file = std::fs::File::open(image)?;
    let mut found = false;
    for copy in 0..COPIES {
        let mut bytes = [0; 4];
        file.seek(SeekFrom::Start(copy_offset(copy)))?;
        found |= file.read_exact(&mut bytes).is_ok() && bytes == MAGIC.to_le_bytes();
    }
    Ok(found)
}

/// Every path of an f2fs image.
pub(crate) fn walk(image: &Path) -> Result<Walk> {
    let opened = Arc::new(open(image)?);
    let mut walk = walk_volume(&vfs::Volume::new(Arc::<::f2fs::F2fs>::clone(&opened)))?;
    // `lsattr` also shows storage flags, which are not part of `stat`.
    for (path, record) in walk.iter_mut().filter(|(_, record)| record.flags.is_some()) {
        let node = if path.is_empty() { NodeId::ROOT } else { NodeId(record.ino) };
        record.flags = Some(FileSystem::flags(&*opened, node)?.bits());
    }
    Ok(walk)
}

fn open(image: &Path) -> Result<::f2fs::F2fs> {
    let device = FileDevice::open(image, &FileOptions { read_only: true, ..FileOptions::default() })?;
    Ok(OpenOptions::new().open(Arc::new(device))?)
}

/// Changes that the kernel may have made to an image before it walked it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    Nothing,
    /// It recovered fsynced files, or deleted orphans.
    Recovered,
}

impl Leave {
    /// By the image itself.
    pub(crate) fn of(image: &Path) -> Result<Self> {
        let info = open(image)?.info()?;
        Ok(if info.recovered_files > 0 || info.orphans > 0 { Self::Recovered } else { Self::Nothing })
    }

    /// By the image's name in the table of `images`.
    pub(crate) fn named(image: &Path) -> Self {
        let name = image.file_stem().unwrap_or_default().to_string_lossy();
        let is_recovered = ["cut-", "orphans"].iter().any(|prefix| name.starts_with(prefix));
        if is_recovered { Self::Recovered } else { Self::Nothing }
    }
}

/// Removes fields that cannot be compared from both walks.
pub(crate) fn leave_comparable(what: Leave, kernel: &mut Walk, ours: &mut Walk) {
    let is_recovered = what == Leave::Recovered;
    for (path, kernel) in kernel {
        let Some(ours) = ours.get_mut(path) else { continue };
        let are_places_known = !is_recovered && !has_cut_clusters(&kernel.extents);
        leave(kernel, is_recovered, are_places_known);
        leave(ours, is_recovered, are_places_known);
        // Fields that the kernel does not report are not compared.
        ours.flags = ours.flags.filter(|_| kernel.flags.is_some());
    }
}

fn leave(record: &mut Record, is_recovered: bool, are_places_known: bool) {
    // The walk itself reads directories and links.
    record.atime = (0, 0);
    if is_recovered {
        record.blocks = 0;
        if record.mode & 0o170_000 == 0o040_000 {
            (record.mtime, record.ctime, record.size) = Default::default();
        }
    }
    let end = record.size.next_multiple_of(BLOCK);
    match are_places_known {
        true => record.extents = record.extents.iter().filter_map(|extent| clipped(extent, end)).collect(),
        false => record.extents.clear(),
    }
}

/// An extent cut at the end of the file: we do not list blocks behind it. `FIEMAP` reports the position of an inode
/// with inline data, and of blocks that were never written.
fn clipped(extent: &Extent, end: u64) -> Option<Extent> {
    let left = end.checked_sub(extent.offset).filter(|left| *left > 0)?;
    let len = if extent.is_compressed { extent.len } else { extent.len.min(left) };
    let place = if extent.is_inline || extent.is_unwritten { 0 } else { extent.place };
    Some(Extent { len, place, ..*extent })
}

/// `FIEMAP` may report a compressed cluster in two parts if another one follows.
fn has_cut_clusters(extents: &[Extent]) -> bool {
    extents.iter().any(|extent| extent.is_compressed && !extent.len.is_multiple_of(CLUSTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(mtime: i64, len: u64) -> Walk {
        let extent =
            Extent { offset: 0, len, place: 8192, is_inline: false, is_unwritten: false, is_compressed: false };
        let record =
            Record { mode: 0o040_755, size: 5000, mtime: (mtime, 0), extents: vec![extent], ..Record::default() };
        Walk::from([(b"a".to_vec(), record)])
    }

    #[test]
    fn times_and_places_count_but_for_recovered_images() {
        let equal = |image: &str| {
            let (mut kernel, mut ours) = (walk(1, 8192), walk(2, 4096));
            leave_comparable(Leave::named(Path::new(image)), &mut kernel, &mut ours);
            kernel == ours
        };
        assert!(!equal("aged.img"));
        assert!(equal("cut-1.img"));
        let (mut kernel, mut ours) = (walk(1, 65_536), walk(1, 8192));
        leave_comparable(Leave::Nothing, &mut kernel, &mut ours);
        assert!(kernel == ours, "blocks behind the end of the file are left out");
        let mut ours = walk(1, 4096);
        leave_comparable(Leave::Nothing, &mut kernel, &mut ours);
        assert!(kernel != ours);
    }
}
