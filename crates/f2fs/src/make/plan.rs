//! Which area of a new volume lies where. The rules are those of `mkfs.f2fs` 1.15 for one device without zones.

use f2fs_disk::convert::to_u64;
use f2fs_disk::flags::Features;
use f2fs_disk::geometry::NAT_ENTRIES_PER_BLOCK;
use f2fs_disk::superblock::{DiskSuperblock, LOG_BLOCK_SIZE, MAGIC};
use f2fs_disk::{BLOCK_SIZE, SEGMENT_BLOCKS, sit};
use zerocopy::FromZeros as _;

use super::{MakeError, MakeOptions};

/// Segments that both checkpoint packs take.
const CP_SEGMENTS: u32 = 2;
/// Fewer are no volume.
const SEGMENTS_MIN: u32 = 9;
/// Segments of 16 TiB.
const SEGMENTS_MAX: u64 = 8 << 20;
/// The logs: data hot, warm and cold, then nodes.
pub(super) const LOGS: usize = 6;
const HOT_DATA: usize = 0;
const WARM_DATA: usize = 1;
const COLD_DATA: usize = 2;
pub(super) const HOT_NODE: usize = 3;
const WARM_NODE: usize = 4;
const COLD_NODE: usize = 5;
/// Bytes of version bitmaps in a checkpoint's block: between its fields, 192 bytes, and its checksum at the end.
const BITMAP_BYTES_MAX: u32 = 4092 - 192;
/// Bytes of the SIT's at most, and where it leaves room for one segment of the NAT.
const SIT_BITMAP_BYTES_MAX: u32 =
    (8_u32 << 20).div_ceil(sit::ENTRIES_PER_BLOCK).div_ceil(SEGMENT_BLOCKS) * SEGMENT_BLOCKS / 8;
const SIT_BITMAP_BYTES_INSIDE: u32 = BITMAP_BYTES_MAX - 64;
/// Below so many segments of data, a coarser choice of overprovisioning is made.
const SMALL_SEGMENTS: u32 = 256;

/// Where everything is. Blocks are counted from the start of the device, segments of logs from that of the main area.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plan {
    pub(super) block_count: u64,
    pub(super) section_segments: u32,
    pub(super) zone_sections: u32,
    pub(super) segments: u32,
    pub(super) cp: u32,
    pub(super) cp_payload: u32,
    pub(super) sit: u32,
    pub(super) sit_segments: u32,
    pub(super) nat: u32,
    pub(super) nat_segments: u32,
    pub(super) ssa: u32,
    pub(super) ssa_segments: u32,
    pub(super) main: u32,
    pub(super) main_segments: u32,
    pub(super) sections: u32,
    /// Segments kept for the cleaner.
    pub(super) reserved_segments: u32,
    /// Segments that users never see, those included.
    pub(super) overprovision_segments: u32,
    pub(super) logs: [u32; LOGS],
    pub(super) features: Features,
}

impl Plan {
    /// The plan for a device of `bytes`.
    pub(super) fn of(bytes: u64, options: &MakeOptions) -> Result<Self, MakeError> {
        let too_small = || MakeError::TooSmall { bytes };
        let zone_segments = options.section_segments.checked_mul(options.zone_sections).ok_or_else(too_small)?;
        let segment_bytes = u64::from(SEGMENT_BLOCKS) * to_u64(BLOCK_SIZE);
        let zone_bytes = segment_bytes.saturating_mul(u64::from(zone_segments));
        // Behind both superblocks, from where a zone begins.
        let start = (2 * to_u64(BLOCK_SIZE)).next_multiple_of(zone_bytes);
        let all = bytes.saturating_sub(start) / segment_bytes;
        if all > SEGMENTS_MAX {
            return Err(MakeError::TooLarge { bytes });
        }
        let segments = u32::try_from(all).unwrap_or(0) / zone_segments * zone_segments;
        if u32::try_from(all).unwrap_or(0) < SEGMENTS_MIN {
            return Err(too_small());
        }
        let cp = u32::try_from(start / to_u64(BLOCK_SIZE)).map_err(|_| too_small())?;
        let sit = cp + CP_SEGMENTS * SEGMENT_BLOCKS;
        let sit_segments = segments.div_ceil(sit::ENTRIES_PER_BLOCK).div_ceil(SEGMENT_BLOCKS) * 2;
        let nat = sit + sit_segments * SEGMENT_BLOCKS;
        let left = |taken: u32| segments.checked_sub(taken).ok_or_else(too_small);
        let (nat_half, cp_payload) = nat_of(left(CP_SEGMENTS + sit_segments)?, sit_segments);
        let nat_segments = nat_half * 2;
        let ssa = nat + nat_segments * SEGMENT_BLOCKS;
        let before = CP_SEGMENTS + sit_segments + nat_segments;
        // A block for each segment, and one more.
        let ssa_segments = (left(before)? + 1).div_ceil(SEGMENT_BLOCKS);
        let metadata = (before + ssa_segments).next_multiple_of(zone_segments);
        let zones = (segments / zone_segments).checked_sub(metadata / zone_segments).ok_or_else(too_small)?;
        if to_u64(LOGS) >= u64::from(zones) {
            return Err(too_small());
        }
        let sections = zones * options.zone_sections;
        let mut plan = Self {
            block_count: bytes / to_u64(BLOCK_SIZE),
            section_segments: options.section_segments,
            zone_sections: options.zone_sections,
            segments,
            cp,
            cp_payload,
            sit,
            sit_segments,
            nat,
            nat_segments,
            ssa,
            ssa_segments: metadata - before,
            main: cp + metadata * SEGMENT_BLOCKS,
            main_segments: sections * options.section_segments,
            sections,
            reserved_segments: 0,
            overprovision_segments: 0,
            logs: logs(zones, zone_segments),
            features: options.features,
        };
        plan.keep_for_cleaner(options.overprovision).ok_or_else(too_small)?;
        Ok(plan)
    }

    /// Decides what is kept for the cleaner; `None` where nothing would be left.
    fn keep_for_cleaner(&mut self, overprovision: Option<f64>) -> Option<()> {
        let usable = f64::from(self.main_segments);
        let section = f64::from(self.main_segments.checked_div(self.sections)?);
        let reserved = |percent: f64| (2.0 * (100.0 / percent + 1.0) + 6.0) * section;
        let percent = overprovision.or_else(|| best(usable, self.main_segments < SMALL_SEGMENTS, reserved))?;
        self.reserved_segments = truncated(reserved(percent));
        let left = self.main_segments.checked_sub(self.reserved_segments).filter(|left| *left >= 6)?;
        self.overprovision_segments = truncated(f64::from(left) * percent / 100.0) + self.reserved_segments;
        (self.main_segments > self.overprovision_segments).then_some(())
    }

    /// Segments that users see.
    pub(super) fn user_segments(&self) -> u32 {
        self.main_segments - self.overprovision_segments
    }

    /// The superblock's fields that are about places.
    pub(super) fn superblock(&self) -> DiskSuperblock {
        let mut fields = DiskSuperblock::new_zeroed();
        fields.magic = MAGIC.into();
        (fields.major_ver, fields.minor_ver) = (1.into(), 16.into());
        (fields.log_sectorsize, fields.log_sectors_per_block) = (9.into(), 3.into());
        fields.log_blocksize = LOG_BLOCK_SIZE.into();
        fields.log_blocks_per_seg = SEGMENT_BLOCKS.ilog2().into();
        fields.segs_per_sec = self.section_segments.into();
        fields.secs_per_zone = self.zone_sections.into();
        fields.block_count = self.block_count.into();
        fields.section_count = self.sections.into();
        fields.segment_count = self.segments.into();
        fields.segment_count_ckpt = CP_SEGMENTS.into();
        fields.segment_count_sit = self.sit_segments.into();
        fields.segment_count_nat = self.nat_segments.into();
        fields.segment_count_ssa = self.ssa_segments.into();
        fields.segment_count_main = self.main_segments.into();
        (fields.segment0_blkaddr, fields.cp_blkaddr) = (self.cp.into(), self.cp.into());
        fields.sit_blkaddr = self.sit.into();
        fields.nat_blkaddr = self.nat.into();
        fields.ssa_blkaddr = self.ssa.into();
        fields.main_blkaddr = self.main.into();
        (fields.node_ino, fields.meta_ino, fields.root_ino) = (1.into(), 2.into(), 3.into());
        fields.cp_payload = self.cp_payload.into();
        fields
    }
}

/// Segments of one copy of the NAT, where so many are left, and blocks of checkpoints for bitmaps: as many as are
/// useful, and as its version bitmap has room for.
fn nat_of(left: u32, sit_segments: u32) -> (u32, u32) {
    let wanted = (u64::from(left) * u64::from(SEGMENT_BLOCKS)).div_ceil(u64::from(NAT_ENTRIES_PER_BLOCK));
    let wanted = u32::try_from(wanted.div_ceil(u64::from(SEGMENT_BLOCKS))).unwrap_or(u32::MAX);
    let sit_bytes = (sit_segments / 2 * SEGMENT_BLOCKS / 8).min(SIT_BITMAP_BYTES_MAX);
    let (nat_bytes, payload) = match sit_bytes > SIT_BITMAP_BYTES_INSIDE {
        true => (BITMAP_BYTES_MAX, sit_bytes.div_ceil(4096)),
        false => (BITMAP_BYTES_MAX - sit_bytes, 0),
    };
    (wanted.min(nat_bytes * 8 / SEGMENT_BLOCKS), payload)
}

/// The percentage that leaves users the most.
fn best(usable: f64, is_small: bool, reserved: impl Fn(f64) -> f64) -> Option<f64> {
    let (mut percent, end, step) = if is_small { (10.0, 95.0, 5.0) } else { (0.01, 10.0, 0.01) };
    let (mut found, mut most) = (None, 0.0);
    while percent <= end {
        let kept = reserved(percent);
        let space = usable - kept - (usable - kept) * percent / 100.0;
        if most < space {
            (found, most) = (Some(percent), space);
        }
        percent += step;
    }
    found
}

/// The whole part of a positive number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the formula of mkfs.f2fs is of such numbers")]
fn truncated(number: f64) -> u32 {
    number as u32
}

/// In which segments the logs begin, each in a zone of its own.
fn logs(zones: u32, zone_segments: u32) -> [u32; LOGS] {
    let last = |zone: u32| zone.saturating_sub(1) * zone_segments;
    let mut logs = [0; LOGS];
    logs[WARM_NODE] = zone_segments;
    logs[COLD_NODE] = 2 * zone_segments;
    logs[HOT_DATA] = 3 * zone_segments;
    logs[COLD_DATA] = last(zones / 4).max(logs[HOT_DATA] + zone_segments);
    logs[WARM_DATA] = last(zones / 2).max(logs[COLD_DATA] + zone_segments);
    logs
}
