//! Compares quota files with the usage found: of each owner, group and project its inodes, and their blocks except the
//! inode's own. Called by the walk (`mod.rs`) at its end; `inode` counts.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use f2fs_disk::convert::to_u64;
use f2fs_disk::flags::Features;
use f2fs_disk::inode::Inode;
use f2fs_disk::quota::{self, QUOTA_BLOCK_SIZE, Quota, QuotaBlock, QuotaFile, QuotaKind};
use f2fs_disk::{BLOCK_SIZE, BlockAddr, Corrupt, Nid};

use super::{LedBy, Walk};
use crate::code::Code;
use crate::finding::Place;
use crate::volume::{Media, Volume};

/// Inodes and bytes.
type Use = (u64, u64);

/// Usage found, and quota files.
#[derive(Default)]
pub(super) struct Quotas {
    /// Usage of each number, in the order of [`QuotaKind::ALL`].
    uses: [HashMap<u32, Use>; 3],
    /// Quota files: inode and addresses of each.
    files: Vec<(QuotaKind, Inode, BTreeMap<u64, BlockAddr>)>,
}

/// The reason why a quota file cannot be read.
enum Unread {
    Device(blockdev::Error),
    Damage(Corrupt),
}

impl From<Corrupt> for Unread {
    fn from(error: Corrupt) -> Self {
        Self::Damage(error)
    }
}

struct Reading<'a, 'b> {
    media: &'a mut Media<'b>,
    blocks: &'a BTreeMap<u64, BlockAddr>,
}

impl QuotaFile for Reading<'_, '_> {
    type Error = Unread;

    fn block(&mut self, number: u32) -> Result<QuotaBlock, Unread> {
        let (index, part) = quota::place_of(number);
        let Some(at) = self.blocks.get(&index) else { return Ok([0; QUOTA_BLOCK_SIZE]) };
        let block: Arc<_> = self.media.get(*at).map_err(Unread::Device)?;
        Ok(quota::part_of(&block, part))
    }
}

impl Walk<'_, '_> {
    /// Charges an inode to its owners, unless it is a quota file.
    pub(super) fn count_use(&mut self, inode: &Inode, from: LedBy) {
        let features = self.volume.superblock.features();
        if !features.contains(Features::QUOTA_INO) || matches!(from, LedBy::Quota(_)) {
            return;
        }
        let bytes = inode.charged_blocks().saturating_mul(to_u64(BLOCK_SIZE));
        for (uses, owner) in self.quotas.uses.iter_mut().zip(inode.owners(features)) {
            let found = uses.entry(owner).or_default();
            *found = (found.0.saturating_add(1), found.1.saturating_add(bytes));
        }
    }

    /// Remembers the addresses of a quota file.
    pub(super) fn keep_quota_file(&mut self, kind: QuotaKind, inode: &Inode, blocks: BTreeMap<u64, BlockAddr>) {
        self.quotas.files.push((kind, *inode, blocks));
    }

    /// Compares all quota files with the usage found.
    pub(super) fn compare_quotas(&mut self) {
        let Quotas { mut uses, files } = std::mem::take(&mut self.quotas);
        for (kind, inode, blocks) in files {
            let Some(index) = QuotaKind::ALL.iter().position(|known| *known == kind) else { continue };
            let found = uses.get_mut(index).map(std::mem::take).unwrap_or_default();
            self.compare_quota(kind, &inode, &blocks, found);
        }
    }

    fn compare_quota(
        &mut self,
        kind: QuotaKind,
        inode: &Inode,
        blocks: &BTreeMap<u64, BlockAddr>,
        mut found: HashMap<u32, Use>,
    ) {
        let place = || Place::inode(inode.ino());
        let entries = match read(self.volume, kind, inode, blocks) {
            Ok(entries) => entries,
            Err(Unread::Damage(error)) => {
                self.findings.add_corrupt(Code::QuotaFile, place(), &error);
                return;
            }
            Err(Unread::Device(error)) => {
                self.findings.add(Code::QuotaFile, place(), "a quota file that can be read", error);
                return;
            }
        };
        let name = |id: u32| format!("{kind:?} {id}").to_lowercase();
        let said = |(inodes, bytes): Use| format!("{inodes} inodes, {bytes} bytes");
        for (id, stored) in entries {
            let counted = found.remove(&id).unwrap_or_default();
            if counted != stored {
                self.findings.add_what(Code::QuotaUsage, &name(id), place(), said(counted), said(stored));
            }
        }
        let mut missing: Vec<(u32, Use)> = found.into_iter().collect();
        missing.sort_unstable();
        for (id, counted) in missing {
            self.findings.add_what(Code::QuotaUsage, &name(id), place(), said(counted), "no entry");
        }
    }
}

/// The entries of a quota file: numbers, inodes and bytes.
fn read(
    volume: &mut Volume<'_>,
    kind: QuotaKind,
    inode: &Inode,
    blocks: &BTreeMap<u64, BlockAddr>,
) -> Result<Vec<(u32, Use)>, Unread> {
    // At most the size of the volume, whatever the inode says.
    let size = inode.size().min(BlockAddr(volume.geometry().main_blocks).byte());
    let mut quota = Quota::open(Reading { media: &mut volume.media, blocks }, kind, size)?;
    let entries = quota.entries()?;
    let uses = entries.iter().map(|entry| (entry.dqb_id.get(), (entry.dqb_curinodes.get(), entry.dqb_curspace.get())));
    Ok(uses.collect())
}

/// The kinds of quota files that the superblock has, with their inodes.
pub(super) fn files(volume: &Volume<'_>) -> impl Iterator<Item = (QuotaKind, Nid)> + use<> {
    let inos = volume.superblock.fields().qf_ino.map(|ino| Nid(ino.get()));
    QuotaKind::ALL.into_iter().zip(inos).filter(|(_, ino)| ino.0 != 0)
}
