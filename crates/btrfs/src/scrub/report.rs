//! What a scrub is to do, and what it found.

use std::path::PathBuf;

use btrfs_store::Fate;

/// What a scrub is to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Bad copies are counted, and left as they are.
    pub read_only: bool,
    /// Logical address at which it begins: [`ScrubProgress::place`] of one that was stopped.
    pub from: u64,
}

/// How far a scrub has come, and what it has counted. Bytes and errors are of all copies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScrubProgress {
    /// Bytes read.
    pub bytes: u64,
    /// Bytes that there were to be read when it began.
    pub bytes_total: u64,
    /// Bytes of tree blocks among them.
    pub tree_bytes: u64,
    /// Bytes of data among them.
    pub data_bytes: u64,
    /// Bytes of data that have no checksum.
    pub unchecked_bytes: u64,
    /// Logical address at which it goes on.
    pub place: u64,
    /// Units that could not be read.
    pub read_errors: u64,
    /// Sectors of data with a wrong checksum.
    pub data_errors: u64,
    /// Tree blocks that are not what was written.
    pub tree_errors: u64,
    /// Those of them that another transaction wrote.
    pub generation_errors: u64,
    /// Copies of the superblock that are not the last one.
    pub superblock_errors: u64,
    /// Units that were written anew from a good copy.
    pub mended: u64,
    /// Units of which another copy is good, and that were left as they are.
    pub left: u64,
    /// Units of which no copy is good, each copy counted.
    pub lost: u64,
}

impl ScrubProgress {
    /// All that was wrong.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.mended.saturating_add(self.left).saturating_add(self.lost)
    }
}

/// What a unit is that was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubbedKind {
    /// A copy of the superblock.
    Superblock,
    /// A tree block.
    TreeBlock,
    /// A sector of data.
    Data,
}

/// One copy of a unit that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubFault {
    /// What it is.
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
    /// What is wrong with it.
    pub problem: String,
    /// What became of it.
    pub fate: Fate,
}

/// A part of a file of which no copy is good.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostRange {
    /// Number of the subvolume.
    pub subvolume: u64,
    /// Inode number.
    pub inode: u64,
    /// From the top level of the volume; `None` where the way to it is damaged, or the file has no name.
    pub path: Option<PathBuf>,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// What a scrub found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// What was counted.
    pub progress: ScrubProgress,
    /// The faults, as many as are told: the first [`Self::FAULTS_MAX`].
    pub faults: Vec<ScrubFault>,
    /// Parts of files that are lost, as many as are told: the first [`Self::LOST_MAX`].
    pub lost: Vec<LostRange>,
    /// Numbers of subvolumes that could not be looked through for what is lost.
    pub unreadable: Vec<u64>,
    /// It went to the end.
    pub is_whole: bool,
}

impl ScrubReport {
    /// Faults that are told.
    pub const FAULTS_MAX: usize = 1000;
    /// Parts of files that are told.
    pub const LOST_MAX: usize = 10_000;
}
