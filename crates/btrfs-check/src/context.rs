//! Holds the context of all passes: devices, findings, memory limits. `run` makes it, and every pass takes it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use btrfs_disk::superblock::DiskSuperblock;
use checking::Watch;

use crate::finding::Findings;
use crate::marks::Marks;
use crate::media::Media;
use crate::pass::Pass;
use crate::sort::{Sorter, lock};

/// Which kinds of tree blocks are lost (unreadable or damaged). Findings that only follow from a loss are left out.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    extents: AtomicBool,
    files: AtomicBool,
    system: AtomicBool,
}

impl Lost {
    pub(crate) fn extents(&self) {
        self.extents.store(true, Ordering::Relaxed);
    }

    pub(crate) fn files(&self) {
        self.files.store(true, Ordering::Relaxed);
    }

    pub(crate) fn system(&self) {
        self.system.store(true, Ordering::Relaxed);
    }

    /// Part of the extent tree is missing.
    pub(crate) fn has_extents(&self) -> bool {
        self.extents.load(Ordering::Relaxed)
    }

    /// Part of the subvolumes or of the other trees is missing, and references with it.
    pub(crate) fn has_files(&self) -> bool {
        self.files.load(Ordering::Relaxed) || self.has_system()
    }

    /// Part of the other trees is missing.
    pub(crate) fn has_system(&self) -> bool {
        self.system.load(Ordering::Relaxed)
    }
}

/// The context of all passes.
pub(crate) struct Context<'a> {
    pub(crate) media: Media,
    pub(crate) fields: Box<DiskSuperblock>,
    pub(crate) findings: Findings,
    pub(crate) watch: Counted<'a>,
    pub(crate) threads: usize,
    pub(crate) passes: Vec<Pass>,
    pub(crate) notes: Mutex<Vec<String>>,
    pub(crate) lost: Lost,
    pub(crate) log: Mutex<LogFound>,
    pub(crate) sorter_bytes: usize,
    pub(crate) folder: PathBuf,
    pub(crate) marks: Option<Arc<dyn Marks>>,
}

/// The contents of a log of fsyncs.
#[derive(Debug, Default)]
pub(crate) struct LogFound {
    /// Addresses of its blocks.
    pub(crate) blocks: Vec<u64>,
    /// Extents of files in it: start, end, the log's tree, inode. The committed trees do not have them.
    pub(crate) extents: Vec<[u64; 4]>,
    /// The extents that must have checksums.
    pub(crate) needs: Vec<[u64; 4]>,
    /// Ranges for which the log has checksums.
    pub(crate) csums: Vec<(u64, u64)>,
}

/// Passes progress on to the caller, and counts it for the report.
pub(crate) struct Counted<'a> {
    watch: &'a dyn Watch,
    bytes: AtomicU64,
    inodes: AtomicU64,
    total: AtomicU64,
}

impl<'a> Counted<'a> {
    pub(crate) fn new(watch: &'a dyn Watch) -> Self {
        Self { watch, bytes: AtomicU64::new(0), inodes: AtomicU64::new(0), total: AtomicU64::new(0) }
    }

    /// Bytes and inodes so far.
    pub(crate) fn so_far(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.inodes.load(Ordering::Relaxed))
    }

    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.watch.add_bytes(bytes);
    }

    /// Subtracts announced bytes that need not be read.
    pub(crate) fn skip_bytes(&self, bytes: u64) {
        let total = self.total.fetch_sub(bytes.min(self.total.load(Ordering::Relaxed)), Ordering::Relaxed);
        self.watch.set_total(total.saturating_sub(bytes));
    }

    pub(crate) fn add_inodes(&self, count: u64) {
        self.inodes.fetch_add(count, Ordering::Relaxed);
        self.watch.add_inodes(count);
    }

    pub(crate) fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
        self.watch.set_total(bytes);
    }
}

impl Context<'_> {
    /// An empty sorter with its share of the memory.
    pub(crate) fn sorter<const N: usize>(&self) -> Sorter<N> {
        Sorter::new(self.sorter_bytes, &self.folder)
    }

    /// Whether a pass is to be done.
    pub(crate) fn wants(&self, pass: Pass) -> bool {
        self.passes.contains(&pass)
    }

    /// Notes a part that was not checked.
    pub(crate) fn note(&self, text: impl Into<String>) {
        let (mut notes, text) = (lock(&self.notes), text.into());
        if !notes.contains(&text) {
            notes.push(text);
        }
    }
}
