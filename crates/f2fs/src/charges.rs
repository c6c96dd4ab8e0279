//! Charges of inodes to quotas before they changed: a commit adds the difference to the quota files.
//!
//! An inode counts for its owner, group and project: one inode, and its blocks but for the one of the inode itself, as
//! in the kernel.

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

/// The quota files of a volume, and what changed that they count.
#[derive(Debug, Default)]
pub(crate) struct Charges {
    /// Inodes of the files, where there are such.
    files: [Option<Nid>; 3],
    /// Charges at the last commit of inodes that changed since; `None` for new ones.
    before: HashMap<Nid, Option<Charge>>,
    /// The files could not be kept right: the next checkpoint asks for `fsck.f2fs`.
    pub(crate) need_repair: bool,
    /// The owners of these inodes, as far as they are known before the commit.
    owners: BTreeSet<(QuotaKind, u32)>,
}

impl Charges {
    pub(crate) fn new(files: [Option<Nid>; 3]) -> Self {
        Self { files, ..Self::default() }
    }

    /// For files that are left alone.
    pub(crate) fn unkept() -> Self {
        Self { need_repair: true, ..Self::default() }
    }

    /// The quota files.
    pub(crate) fn files(&self) -> impl Iterator<Item = (usize, QuotaKind, Nid)> + use<> {
        let files = self.files;
        let all = QuotaKind::ALL.into_iter().zip(files).enumerate();
        all.filter_map(|(index, (kind, ino))| ino.map(|ino| (index, kind, ino)))
    }

    /// True where it has to be noted what an inode counts for: quota files themselves count for nobody.
    pub(crate) fn wants(&self, ino: Nid) -> bool {
        self.files != [None; 3] && !self.files.contains(&Some(ino)) && !self.before.contains_key(&ino)
    }

    /// An inode is about to change that counted for this, or is new and now counts for that.
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

    /// Takes the charges, which count as written from now on.
    pub(crate) fn take(&mut self) -> HashMap<Nid, Option<Charge>> {
        self.owners.clear();
        std::mem::take(&mut self.before)
    }

    /// The files are left alone from now on: they cannot be kept right.
    pub(crate) fn give_up(&mut self) {
        *self = Self::unkept();
    }
}
