//! Records the charges of inodes to quotas before they changed: a commit adds the difference to the quota files.
//! `write_volume` records them when an inode is edited; `change/quotas` takes them.
//!
//! An inode counts for its owner, group and project: one inode, and its blocks except the inode's own, as in the
//! kernel.

use std::collections::{BTreeSet, HashMap};

use f2fs_disk::Nid;
use f2fs_disk::convert::to_u64;
use f2fs_disk::flags::Features;
use f2fs_disk::inode::Inode;
use f2fs_disk::quota::QuotaKind;

/// The blocks that an inode counts for, and its owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charge {
    /// In the order of [`QuotaKind::ALL`].
    pub(crate) owners: [u32; 3],
    pub(crate) blocks: u64,
}

impl Charge {
    pub(crate) fn of(inode: &Inode, features: Features) -> Self {
        Self { owners: inode.owners(features), blocks: inode.charged_blocks() }
    }
}

/// The quota files of a volume, and changes that they have to count.
#[derive(Debug, Default)]
pub(crate) struct Charges {
    /// Inodes of the quota files, if they exist.
    files: [Option<Nid>; 3],
    /// Charges of changed inodes at the last commit; `None` for new ones.
    before: HashMap<Nid, Option<Charge>>,
    /// The files could not be updated: the next checkpoint asks for `fsck.f2fs`.
    pub(crate) need_repair: bool,
    /// The owners of these inodes, as far as they are known before the commit.
    owners: BTreeSet<(QuotaKind, u32)>,
}

impl Charges {
    pub(crate) fn new(files: [Option<Nid>; 3]) -> Self {
        Self { files, ..Self::default() }
    }

    /// For a volume whose quota files are not updated.
    pub(crate) fn unkept() -> Self {
        Self { need_repair: true, ..Self::default() }
    }

    /// The quota files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (usize, QuotaKind, Nid)> + use<> {
        let files = self.files;
        let all = QuotaKind::ALL.into_iter().zip(files).enumerate();
        all.filter_map(|(index, (kind, ino))| ino.map(|ino| (index, kind, ino)))
    }

    /// True if changes of an inode have to be noted: quota files themselves are not charged.
    pub(crate) fn wants(&self, ino: Nid) -> bool {
        self.files != [None; 3] && !self.files.contains(&Some(ino)) && !self.before.contains_key(&ino)
    }

    /// Notes that an inode is about to change that was charged `before`, or is new and charged `now`.
    pub(crate) fn note(&mut self, ino: Nid, before: Option<Charge>, now: Option<Charge>) {
        if !self.wants(ino) {
            return;
        }
        let owners = before.or(now).map_or([0; 3], |charge| charge.owners);
        self.owners.extend(QuotaKind::ALL.into_iter().zip(owners));
        self.before.insert(ino, before);
    }

    /// Blocks that the quota files may need with the next commit.
    pub(crate) fn blocks(&self) -> u64 {
        to_u64(self.owners.len()).saturating_mul(2)
    }

    /// Takes the charges, which count as written.
    pub(crate) fn take(&mut self) -> HashMap<Nid, Option<Charge>> {
        self.owners.clear();
        std::mem::take(&mut self.before)
    }

    /// Stops updating the files, which can no longer be kept correct.
    pub(crate) fn give_up(&mut self) {
        *self = Self::unkept();
    }
}
