//! Reads tree blocks by address: from the mirrors of their chunk, and from any copy that the scan found if those fail.
//! All modules of the crate read tree blocks here.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};

use blockdev::Device;
use btrfs_check::Media;
use btrfs_disk::node::header;

use crate::locks::lock;
use crate::scan::{Found, Table};
use crate::watch::Watch;

/// Limit on cached tree blocks.
const KEPT_BYTES: usize = 64 << 20;
/// Limit on addresses remembered as good or as lost.
const GOOD_MAX: usize = 8 << 20;

/// Address and generation of a block, as its parent records them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct At {
    pub(crate) logical: u64,
    pub(crate) generation: u64,
}

/// Devices, chunks, and the tree blocks on them.
pub(crate) struct Blocks {
    pub(crate) media: Media,
    table: OnceLock<Table>,
    threads: usize,
    watch: Arc<dyn Watch>,
    kept: Mutex<HashMap<At, Arc<[u8]>>>,
    good: Mutex<HashSet<(At, u8)>>,
    lost: Mutex<HashSet<(At, u8)>>,
}

impl Blocks {
    pub(crate) fn new(media: Media, threads: usize, watch: Arc<dyn Watch>) -> Self {
        let (table, kept, good, lost) = (OnceLock::new(), Mutex::default(), Mutex::default(), Mutex::default());
        Self { media, table, threads, watch, kept, good, lost }
    }

    /// The table of all tree blocks on the devices. The first call scans them.
    pub(crate) fn table(&self) -> &Table {
        let scan = || Table::read(&self.media.disks, &self.media.format, self.threads, &*self.watch);
        self.table.get_or_init(scan)
    }

    /// Whether the devices were scanned.
    pub(crate) fn has_scanned(&self) -> bool {
        self.table.get().is_some()
    }

    /// Returns the block with this address, generation and level.
    pub(crate) fn read(&self, at: At, level: u8) -> Option<Arc<[u8]>> {
        if let Some(block) = lock(&self.kept).get(&at) {
            return (header(block)?.level == level).then(|| Arc::clone(block));
        }
        if lock(&self.lost).contains(&(at, level)) {
            return None;
        }
        let Some(block) = self.find(at, level) else {
            let mut lost = lock(&self.lost);
            if lost.len() < GOOD_MAX {
                lost.insert((at, level));
            }
            return None;
        };
        let block: Arc<[u8]> = block.into();
        let mut kept = lock(&self.kept);
        if kept.len().saturating_mul(self.media.node_bytes()) >= KEPT_BYTES {
            kept.clear();
        }
        kept.insert(at, Arc::clone(&block));
        Some(block)
    }

    /// Whether the block can be read. Results are remembered because snapshots share blocks.
    pub(crate) fn is_good(&self, at: At, level: u8) -> bool {
        if lock(&self.good).contains(&(at, level)) {
            return true;
        }
        let is_good = self.read(at, level).is_some();
        if is_good {
            let mut good = lock(&self.good);
            if good.len() >= GOOD_MAX {
                good.clear();
            }
            good.insert((at, level));
        }
        is_good
    }

    fn find(&self, at: At, level: u8) -> Option<Vec<u8>> {
        let mut block = vec![0; self.media.node_bytes()];
        for mirror in self.media.ways(at.logical, block.len()) {
            let is_read = self.media.read_copy(at.logical, &mut block, mirror).is_ok();
            if is_read && self.is(&block, at, level) {
                return Some(block);
            }
        }
        let copies = self.table().copies(at.logical, Some(at.generation)).filter(|found| found.level == level);
        for found in copies {
            if self.read_found(found, &mut block) && self.is(&block, at, level) {
                return Some(block);
            }
        }
        None
    }

    fn read_found(&self, found: &Found, block: &mut [u8]) -> bool {
        let disk = self.media.disks.get(usize::from(found.device));
        disk.is_some_and(|disk| disk.device.read_at(found.physical, block).is_ok())
    }

    fn is(&self, block: &[u8], at: At, level: u8) -> bool {
        header(block).is_some_and(|head| {
            head.bytenr.get() == at.logical
                && head.generation.get() == at.generation
                && head.level == level
                && self.media.format.has_fsid(head.fsid)
        }) && self.media.has_right_checksum(block)
    }
}
