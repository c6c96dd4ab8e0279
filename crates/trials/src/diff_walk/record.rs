//! Defines the compared properties of a path, and lists the differences between two walks. Called by `diff_walk` and
//! all trials that compare walks.

use std::collections::BTreeMap;
use std::fmt::Debug;

/// Files up to this length are hashed byte by byte, holes as zeros; larger ones by their blocks that are not zeros.
pub(crate) const LINEAR_BYTES_MAX: u64 = 64 << 20;

/// Path from the top-level subvolume, and its record.
pub(crate) type Walk = BTreeMap<Vec<u8>, Record>;

/// Seconds and nanoseconds.
pub(crate) type Time = (i64, u32);

/// The part of a walk that a send stream carries: without positions of bytes, holes (an incremental stream has zeros
/// for those), inode numbers and flags, and times that only a file system sets.
pub(crate) fn as_sent(walk: Walk) -> Walk {
    const DIRECTORY: u32 = 0o040_000;
    const TYPE: u32 = 0o170_000;
    let keep = |mut record: Record| {
        (record.ino, record.blocks, record.flags) = (0, 0, None);
        (record.ctime, record.btime) = Default::default();
        record.extents.clear();
        if record.mode & TYPE == DIRECTORY {
            record.size = 0;
        }
        record
    };
    walk.into_iter().map(|(path, record)| (path, keep(record))).collect()
}

/// All compared properties.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Type and permission bits.
    pub(crate) mode: u32,
    pub(crate) ino: u64,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    /// In units of 512 bytes.
    pub(crate) blocks: u64,
    pub(crate) rdev: u64,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) btime: Time,
    pub(crate) target: Option<Vec<u8>>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) sha256: Option<[u8; 32]>,
    pub(crate) extents: Vec<Extent>,
    /// As `lsattr` shows them; directories and regular files only.
    pub(crate) flags: Option<u32>,
}

/// A range of a file, as in FIEMAP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Address in the volume; 0 for inline data.
    pub(crate) place: u64,
    pub(crate) is_inline: bool,
    pub(crate) is_unwritten: bool,
    pub(crate) is_compressed: bool,
}

impl Record {
    /// The empty directory in place of a nested subvolume is not on disk: the kernel invents its times.
    pub(crate) fn without_invented_times(mut self) -> Self {
        const STUB_INO: u64 = 2;
        if self.ino == STUB_INO {
            (self.atime, self.mtime, self.ctime, self.btime) = Default::default();
        }
        self
    }
}

/// Joins adjacent ranges: the kernel merges them within a call, but not across calls.
pub(crate) fn merge(extents: impl IntoIterator<Item = Extent>) -> Vec<Extent> {
    let mut merged: Vec<Extent> = Vec::new();
    for mut extent in extents {
        if extent.is_inline {
            extent.len = extent.len.next_multiple_of(4096);
        }
        if let Some(last) = merged.last_mut() {
            let follows = last.offset.checked_add(last.len) == Some(extent.offset)
                && last.place.checked_add(last.len) == Some(extent.place)
                && (last.is_inline, last.is_unwritten, last.is_compressed)
                    == (extent.is_inline, extent.is_unwritten, extent.is_compressed);
            if follows {
                last.len = last.len.saturating_add(extent.len);
                continue;
            }
        }
        merged.push(extent);
    }
    merged
}

/// One line for each path and field that differs.
pub(crate) fn differences(kernel: &Walk, ours: &Walk) -> Vec<String> {
    let mut lines = Vec::new();
    let shown = |path: &[u8]| format!("/{}", path.escape_ascii());
    for (path, kernel) in kernel {
        match ours.get(path) {
            Some(ours) => lines.extend(fields(kernel, ours).into_iter().map(|line| format!("{}: {line}", shown(path)))),
            None => lines.push(format!("{}: only the kernel has it", shown(path))),
        }
    }
    let extra = ours.keys().filter(|path| !kernel.contains_key(*path));
    lines.extend(extra.map(|path| format!("{}: only Spinney has it", shown(path))));
    lines
}

fn fields(kernel: &Record, ours: &Record) -> Vec<String> {
    let mut lines = Vec::new();
    let mut compare = |name: &str, kernel: &dyn Debug, ours: &dyn Debug| {
        let (kernel, ours) = (format!("{kernel:?}"), format!("{ours:?}"));
        if kernel != ours {
            lines.push(format!("{name}: kernel {kernel:.300}, Spinney {ours:.300}"));
        }
    };
    compare("mode", &format_args!("{:o}", kernel.mode), &format_args!("{:o}", ours.mode));
    compare("inode", &kernel.ino, &ours.ino);
    compare("links", &kernel.links, &ours.links);
    compare("owner", &(kernel.uid, kernel.gid), &(ours.uid, ours.gid));
    compare("size", &kernel.size, &ours.size);
    compare("blocks", &kernel.blocks, &ours.blocks);
    compare("device", &kernel.rdev, &ours.rdev);
    compare("atime", &kernel.atime, &ours.atime);
    compare("mtime", &kernel.mtime, &ours.mtime);
    compare("ctime", &kernel.ctime, &ours.ctime);
    compare("btime", &kernel.btime, &ours.btime);
    compare("target", &kernel.target, &ours.target);
    compare("xattrs", &kernel.xattrs, &ours.xattrs);
    compare("sha256", &kernel.sha256, &ours.sha256);
    compare("extents", &kernel.extents, &ours.extents);
    compare("flags", &kernel.flags, &ours.flags);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, len: u64, place: u64) -> Extent {
        Extent { offset, len, place, is_inline: false, is_unwritten: false, is_compressed: false }
    }

    #[test]
    fn pieces_that_continue_each_other_merge() {
        let merged = merge([extent(0, 4096, 1 << 20), extent(4096, 4096, (1 << 20) + 4096), extent(8192, 4096, 0)]);
        assert_eq!(merged, [extent(0, 8192, 1 << 20), extent(8192, 4096, 0)]);
    }

    #[test]
    fn every_kind_of_difference_is_told() {
        let record = |size| Record { size, ..Record::default() };
        let kernel = Walk::from([(b"a".to_vec(), record(1)), (b"b".to_vec(), record(1))]);
        let ours = Walk::from([(b"a".to_vec(), record(2)), (b"c".to_vec(), record(1))]);
        assert_eq!(
            differences(&kernel, &ours),
            ["/a: size: kernel 1, Spinney 2", "/b: only the kernel has it", "/c: only Spinney has it"]
        );
        assert!(differences(&kernel, &kernel).is_empty());
    }
}
