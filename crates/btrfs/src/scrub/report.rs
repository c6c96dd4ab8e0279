//! Defines the options and the results of a scrub. Returned by `volume/scrub` to the command `scrub`.

use std::path::PathBuf;

use btrfs_store::Fate;

/// The options of a scrub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Bad copies are counted, and not repaired.
    pub read_only: bool,
    /// Logical address at which it begins: [`ScrubProgress::place`] of one that was stopped.
    pub from: u64,
}

/// The progress and counters of a scrub. Bytes and errors are of all copies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubProgress {
    /// Bytes read.
    pub bytes: u64,
    /// Bytes to read, as counted when it began.
    pub bytes_total: u64,
    /// Bytes of tree blocks among them.
    pub tree_bytes: u64,
    /// Bytes of data among them.
    pub data_bytes: u64,
    /// Bytes of data that have no checksum.
    pub unchecked_bytes: u64,
    /// Logical address at which it continues.
    pub place: u64,
    /// Units that could not be read.
    pub read_errors: u64,
    /// Sectors of data with a wrong checksum.
    pub data_errors: u64,
    /// Tree blocks that failed their check.
    pub tree_errors: u64,
    /// Those of them with another generation.
    pub generation_errors: u64,
    /// Superblock copies that differ from the last one.
    pub superblock_errors: u64,
    /// Units that were repaired from a good copy.
    pub mended: u64,
    /// Units with another good copy that were not repaired.
    pub left: u64,
    /// Units of which no copy is good, each copy counted.
    pub lost: u64,
}

impl ScrubProgress {
    /// The sum of all errors.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.mended.saturating_add(self.left).saturating_add(self.lost)
    }
}

/// The kind of a checked unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubbedKind {
    /// A copy of the superblock.
    Superblock,
    /// A tree block.
    TreeBlock,
    /// A sector of data.
    Data,
}

/// A bad copy of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubFault {
    /// The kind of unit.
    pub kind: ScrubbedKind,
    /// Logical address; of a superblock the byte on the device.
    pub logical: u64,
    /// Bytes.
    pub len: u64,
    /// Number of the copy, from 0.
    pub copy: u32,
    /// Number of the device.
    pub device: u64,
    /// Byte on that device.
    pub offset: u64,
    /// The defect.
    pub problem: String,
    /// The outcome.
    pub fate: Fate,
}

/// A part of a file of which no copy is good.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostRange {
    /// Number of the subvolume.
    pub subvolume: u64,
    /// Inode number.
    pub inode: u64,
    /// Path from the top level of the volume; `None` where a directory on it is damaged, or the file has no name.
    pub path: Option<PathBuf>,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// The result of a scrub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// The counters.
    pub progress: ScrubProgress,
    /// The first faults, at most [`Self::FAULTS_MAX`].
    pub faults: Vec<ScrubFault>,
    /// The first lost parts of files, at most [`Self::LOST_MAX`].
    pub lost: Vec<LostRange>,
    /// Numbers of subvolumes that could not be searched for lost parts.
    pub unreadable: Vec<u64>,
    /// It went to the end.
    pub is_whole: bool,
}

impl ScrubReport {
    /// Limit of the faults in a report.
    pub const FAULTS_MAX: usize = 1000;
    /// Limit of the lost parts in a report.
    pub const LOST_MAX: usize = 10_000;
}
