//! Opens a volume: chooses superblock and checkpoint, checks that all features are supported, reads the fsyncs after
//! the checkpoint and, for writing, replays them. The `spinney` library, `f2fs-crash` and `trials` call it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use blockdev::Device;
use f2fs_disk::checkpoint::{Checkpoint, PackEnd};
use f2fs_disk::convert::{to_u64, usize_from};
use f2fs_disk::flags::{CheckpointFlags, Features};
use f2fs_disk::nat::NatEntry;
use f2fs_disk::superblock::{COPIES, SUPERBLOCK_SIZE, Superblock, UncheckedSuperblock, copy_offset};
use f2fs_disk::{At, BLOCK_SIZE, BlockAddr, Corrupt, Detail, Nid, summary};
use host::Env;
use vfs::atime::AtimeMode;

use crate::blocks::Blocks;
use crate::change::{open, replay};
use crate::error::{CallerError, Result, Unsupported};
use crate::policy::{ActiveLogs, BackgroundGc, FsyncMode, Inline, Mode, Policy};
use crate::read_volume::ReadVolume;
use crate::recovery;
use crate::vfs_impl::{F2fs, Serving};

/// Options of opening an image.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    superblock: Option<u64>,
    skips_recovery: bool,
    is_writable: bool,
    atime: AtimeMode,
    commit_interval: Option<Duration>,
    env: Option<Env>,
    policy: Policy,
}

/// Default interval of the periodic checkpoint: the kernel's.
const COMMIT_INTERVAL: Duration = Duration::from_secs(60);

impl OpenOptions {
    /// Options to open an image as the kernel does for reading: with the first valid superblock, and with the fsyncs
    /// after the checkpoint.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses only this copy of the superblock, 0 or 1.
    #[must_use]
    pub fn superblock(self, copy: Option<u64>) -> Self {
        Self { superblock: copy, ..self }
    }

    /// Shows the last checkpoint, without later fsyncs (the kernel's `norecovery`).
    #[must_use]
    pub fn skip_recovery(self, skips_recovery: bool) -> Self {
        Self { skips_recovery, ..self }
    }

    /// Opens the image for writing: replays the fsyncs after the checkpoint, and removes orphans.
    #[must_use]
    pub fn writable(self, is_writable: bool) -> Self {
        Self { is_writable, ..self }
    }

    /// Sets which access times are updated.
    #[must_use]
    pub fn atime(self, atime: AtimeMode) -> Self {
        Self { atime, ..self }
    }

    /// Interval of the periodic checkpoint.
    #[must_use]
    pub fn commit_interval(self, interval: Duration) -> Self {
        Self { commit_interval: Some(interval), ..self }
    }

    /// Discards the blocks that each checkpoint frees (the kernel's `discard`).
    #[must_use]
    pub fn discard(self, discard: bool) -> Self {
        Self { policy: Policy { discard, ..self.policy }, ..self }
    }

    /// Sets where blocks are written (the kernel's `mode`).
    #[must_use]
    pub fn mode(self, mode: Mode) -> Self {
        Self { policy: Policy { mode, ..self.policy }, ..self }
    }

    /// Whether sections are cleaned while the volume is idle (the kernel's `background_gc`).
    #[must_use]
    pub fn background_gc(self, background_gc: BackgroundGc) -> Self {
        Self { policy: Policy { background_gc, ..self.policy }, ..self }
    }

    /// Sets the guarantees of an fsync (the kernel's `fsync_mode`).
    #[must_use]
    pub fn fsync_mode(self, fsync_mode: FsyncMode) -> Self {
        Self { policy: Policy { fsync_mode, ..self.policy }, ..self }
    }

    /// Number of logs among which blocks are divided (the kernel's `active_logs`).
    #[must_use]
    pub fn active_logs(self, active_logs: ActiveLogs) -> Self {
        Self { policy: Policy { active_logs, ..self.policy }, ..self }
    }

    /// Whether new files and links keep short contents in their inodes (the kernel's `inline_data`).
    #[must_use]
    pub fn inline_data(self, data: bool) -> Self {
        Self { policy: Policy { inline: Inline { data, ..self.policy.inline }, ..self.policy }, ..self }
    }

    /// Whether new directories keep few names in their inodes (the kernel's `inline_dentry`).
    #[must_use]
    pub fn inline_dentry(self, dentry: bool) -> Self {
        Self { policy: Policy { inline: Inline { dentry, ..self.policy.inline }, ..self.policy }, ..self }
    }

    /// Whether new inodes have room for attributes (the kernel's `inline_xattr`).
    #[must_use]
    pub fn inline_xattr(self, xattr: bool) -> Self {
        Self { policy: Policy { inline: Inline { xattr, ..self.policy.inline }, ..self.policy }, ..self }
    }

    /// Source of time and randomness; by default the system.
    #[must_use]
    pub fn env(self, env: Env) -> Self {
        Self { env: Some(env), ..self }
    }

    /// Opens the file system on a device; nothing is written unless it is opened for writing.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt) without a valid superblock or checkpoint, `Unsupported`, `Io`, and
    /// [`CallerError::InvalidArgument`] for a missing copy.
    pub fn open(self, device: Arc<dyn Device>) -> Result<F2fs> {
        let blocks = Blocks::new(device);
        let superblock = self.read_superblock(&blocks)?;
        check_is_supported(&superblock)?;
        let (end, size) = (superblock.geometry().end().byte(), blocks.size_bytes());
        // A read-only volume may be truncated after its tables. The tables must be complete: their sizes follow from
        // the superblock, which is not trusted otherwise.
        if size < end && (self.is_writable || size < superblock.geometry().main.byte()) {
            return Err(Corrupt::new("device size", Detail::AtLeast(end), Detail::Number(size)).into());
        }
        let checkpoint = read_checkpoint(&blocks, &superblock)?;
        let journal = read_nat_journal(&blocks, &checkpoint)?;
        let mut volume = ReadVolume::new(blocks, superblock, checkpoint, journal);
        if !self.skips_recovery || self.is_writable {
            let overlay = recovery::read(&volume)?;
            volume.set_overlay(overlay);
        }
        // A volume without a root is refused now.
        volume.inode(volume.root())?;
        let serving = Serving { atime: self.atime, commit_interval: self.commit_interval.unwrap_or(COMMIT_INTERVAL) };
        if !self.is_writable {
            return Ok(F2fs::read_only(volume, serving));
        }
        let overlay = volume.take_overlay();
        let mut volume = open::open(volume, self.env.clone().unwrap_or_default(), self.policy)?;
        replay::replay(&mut volume, &overlay)?;
        open::remove_orphans(&mut volume)?;
        Ok(F2fs::read_write(volume, serving))
    }

    fn read_superblock(&self, blocks: &Blocks) -> Result<Superblock> {
        let copies = match self.superblock {
            Some(copy) if copy < COPIES => copy..copy.saturating_add(1),
            Some(_) => return Err(CallerError::InvalidArgument.into()),
            None => 0..COPIES,
        };
        let mut first_error = None;
        for copy in copies {
            match read_copy(blocks, copy_offset(copy)) {
                Ok(superblock) => return Ok(superblock),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.unwrap_or(CallerError::InvalidArgument.into()))
    }
}

fn read_copy(blocks: &Blocks, offset: u64) -> Result<Superblock> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    blocks.read_bytes(offset, &mut bytes)?;
    let unchecked = UncheckedSuperblock::new(&bytes)?;
    if let Some(log) = unchecked.foreign_block_size() {
        return Err(Unsupported::BlockSize(log).into());
    }
    Ok(unchecked.verify(offset)?)
}

fn check_is_supported(superblock: &Superblock) -> Result<()> {
    let missing = superblock.features().difference(Features::READABLE);
    if !missing.is_empty() {
        return Err(Unsupported::Features(missing).into());
    }
    let devices = superblock.fields().device_count();
    if devices > 1 {
        return Err(Unsupported::Devices(devices).into());
    }
    Ok(())
}

/// The newest valid pack.
fn read_checkpoint(blocks: &Blocks, superblock: &Superblock) -> Result<Checkpoint> {
    let packs = [0, 1].map(|number| read_pack(blocks, superblock, superblock.geometry().pack(number)));
    match packs {
        [Ok(first), Ok(second)] => Ok(if second.is_newer_than(&first) { second } else { first }),
        [Ok(checkpoint), Err(_)] | [Err(_), Ok(checkpoint)] => Ok(checkpoint),
        [Err(error), Err(_)] => Err(error),
    }
}

fn read_pack(blocks: &Blocks, superblock: &Superblock, at: BlockAddr) -> Result<Checkpoint> {
    let head = blocks.read(at)?;
    let end = PackEnd::verify(&head).map_err(|error| error.at(At::Checkpoint(at)))?;
    // Bounded: the superblock was verified.
    let payload = usize_from(superblock.geometry().cp_payload);
    let mut first = vec![0; payload.saturating_add(1).saturating_mul(BLOCK_SIZE)];
    blocks.read_bytes(at.byte(), &mut first)?;
    let last = blocks.read(at.plus(end.last_index()))?;
    Ok(Checkpoint::verify(&first, &last, at, superblock)?)
}

/// Entries of the NAT that the checkpoint keeps beside the summaries of its data segments.
fn read_nat_journal(blocks: &Blocks, checkpoint: &Checkpoint) -> Result<HashMap<Nid, NatEntry>> {
    let is_compact = checkpoint.flags().contains(CheckpointFlags::COMPACT_SUM);
    let at = if is_compact { checkpoint.compact_summaries() } else { checkpoint.data_summary(0) };
    let block = blocks.read(at)?;
    let entries = if is_compact {
        let missing = Corrupt::new("packed summaries", Detail::AtLeast(to_u64(BLOCK_SIZE)), Detail::Number(0));
        summary::nat_journal(summary::compact_journals(&block).ok_or(missing)?.0)
    } else {
        summary::SummaryBlock::verify(&block).and_then(|summary| summary::nat_journal(&summary.journal))
    };
    let entries = entries.map_err(|error| error.at(At::Block(at)))?;
    Ok(entries.into_iter().collect())
}
