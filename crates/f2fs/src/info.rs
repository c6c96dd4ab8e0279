//! Reports properties of a volume, and how full it is. The command `info` shows it (`F2fs::info`).

use f2fs_disk::SEGMENT_BLOCKS;
use f2fs_disk::flags::CheckpointFlags;

use crate::error::Result;
use crate::read_volume::ReadVolume;
use crate::segments::AllocType;

/// Checkpoint flags that ask for `fsck.f2fs`.
const NEED_CHECK: CheckpointFlags =
    CheckpointFlags::ERROR.union(CheckpointFlags::FSCK).union(CheckpointFlags::QUOTA_NEED_FSCK);

/// A volume as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Its label.
    pub label: String,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Version of the format: major and minor.
    pub format: (u16, u16),
    /// Features, as `mkfs.f2fs -O` names them.
    pub features: Vec<String>,
    /// Number of the encoding if some directories ignore case, else 0.
    pub encoding: u16,
    /// Version of the checkpoint.
    pub checkpoint: u64,
    /// It was written by an unmount.
    pub is_clean: bool,
    /// The kernel met an error, or the volume or its quotas need a check.
    pub needs_check: bool,
    /// Files recovered from fsyncs after the checkpoint.
    pub recovered_files: u64,
    /// Inodes without names that were open at the checkpoint.
    pub orphans: u64,
    /// Bytes of the device that the format uses.
    pub total_bytes: u64,
    /// Bytes for users.
    pub user_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Segments of the main area, of 2 MiB each.
    pub segments: u32,
    /// Of these, segments without a block in use.
    pub free_segments: u32,
    /// Segments of a section.
    pub section_segments: u32,
    /// Logs that fill holes of segments, of six.
    pub ssr_logs: u32,
    /// Nodes in use.
    pub nodes: u32,
    /// Inodes in use.
    pub inodes: u32,
}

impl Info {
    pub(crate) fn of(volume: &ReadVolume) -> Result<Self> {
        let superblock = volume.superblock().fields();
        let checkpoint = volume.checkpoint().fields();
        let flags = volume.checkpoint().flags();
        let block_bytes = |blocks: u64| blocks.saturating_mul(f2fs_disk::convert::to_u64(f2fs_disk::BLOCK_SIZE));
        Ok(Self {
            label: superblock.label(),
            uuid: superblock.uuid,
            format: (superblock.major_ver.get(), superblock.minor_ver.get()),
            features: volume.features().names(),
            encoding: superblock.s_encoding.get(),
            checkpoint: volume.checkpoint().version(),
            is_clean: flags.contains(CheckpointFlags::UMOUNT),
            needs_check: flags.intersects(NEED_CHECK),
            recovered_files: f2fs_disk::convert::to_u64(volume.overlay().file_count()),
            orphans: volume.orphan_count()?,
            total_bytes: block_bytes(superblock.block_count.get()),
            user_bytes: block_bytes(checkpoint.user_block_count.get()),
            used_bytes: block_bytes(checkpoint.valid_block_count.get()),
            segments: volume.geometry().main_blocks / SEGMENT_BLOCKS,
            free_segments: checkpoint.free_segment_count.get(),
            section_segments: superblock.segs_per_sec.get(),
            ssr_logs: checkpoint.alloc_type.iter().map(|kind| u32::from(AllocType::of(*kind) == AllocType::Ssr)).sum(),
            nodes: checkpoint.valid_node_count.get(),
            inodes: checkpoint.valid_inode_count.get(),
        })
    }
}
