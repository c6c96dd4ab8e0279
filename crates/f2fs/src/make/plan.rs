//! Plans the positions of the areas of a new volume. The rules are those of `mkfs.f2fs` 1.15 for one device without
//! zones. Called by `make`.
//!
//! Numbers are of blocks or segments. Options are checked before; sizes beyond 32 bits are refused here as too large,
//! and a saturated number is larger than any device.

use f2fs_disk::convert::{u32_len, whole};
use f2fs_disk::geometry::NAT_ENTRIES_PER_BLOCK;
use f2fs_disk::superblock::{DiskSuperblock, LOG_BLOCK_SIZE, MAGIC};
use f2fs_disk::{BLOCK_SIZE, BlockAddr, SEGMENT_BLOCKS, sit};
use zerocopy::FromZeros as _;

use super::{MakeError, MakeOptions};

/// Segments that both checkpoint packs take.
const CP_SEGMENTS: u32 = 2;
/// Fewest segments of a volume.
const SEGMENTS_MIN: u32 = 9;
/// The logs: data hot, warm and cold, then nodes.
pub(super) const LOGS: usize = 6;
/// Index of the first log of nodes.
pub(super) const HOT_NODE: usize = 3;
/// One bit for each block of a segment.
const BITMAP_BYTES_OF_SEGMENT: u32 = SEGMENT_BLOCKS / 8;
/// Bytes of version bitmaps in a checkpoint's block: between its fields, 192 bytes, and its checksum at the end.
const BITMAP_BYTES_MAX: u32 = 4092 - 192;
/// Largest bitmap of the SIT in bytes that leaves room for the NAT bitmap of one segment.
const SIT_BITMAP_BYTES_INSIDE: u32 = BITMAP_BYTES_MAX - BITMAP_BYTES_OF_SEGMENT;
/// With fewer data segments, the best overprovisioning is searched in coarser steps.
const SMALL_SEGMENTS: u32 = 256;
const SEGMENT_BYTES: u64 = 2 << 20;

const _: () = assert!(SEGMENT_BYTES == 512 * 4096 && BLOCK_SIZE == 4096 && SEGMENT_BLOCKS == 512);

/// A part of the device: its first block, and its segments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub(super) start: u32,
    pub(super) segments: u32,
}

impl Area {
    /// First block behind it.
    const fn end(self) -> u32 {
        self.start.saturating_add(self.segments.saturating_mul(SEGMENT_BLOCKS))
    }

    /// The next area, of `segments`.
    const fn then(self, segments: u32) -> Self {
        Self { start: self.end(), segments }
    }

    /// Bytes of a bitmap for the blocks of one of its two copies.
    pub(super) const fn bitmap_bytes(self) -> u32 {
        (self.segments / 2).saturating_mul(BITMAP_BYTES_OF_SEGMENT)
    }
}

/// Positions of all areas. Blocks are counted from the start of the device, segments of logs from that of the main
/// area.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plan {
    pub(super) block_count: u64,
    pub(super) section_segments: u32,
    pub(super) zone_sections: u32,
    pub(super) segments: u32,
    pub(super) cp: Area,
    /// Blocks of checkpoints behind the first, for the SIT's version bitmap.
    pub(super) cp_payload: u32,
    pub(super) sit: Area,
    pub(super) nat: Area,
    pub(super) ssa: Area,
    pub(super) main: Area,
    pub(super) sections: u32,
    /// Segments reserved for the cleaner.
    pub(super) reserved_segments: u32,
    /// Segments that users cannot fill, including those.
    pub(super) overprovision_segments: u32,
    pub(super) logs: [u32; LOGS],
}

impl Plan {
    /// The plan for a device of `bytes`.
    pub(super) fn of(bytes: u64, options: &MakeOptions) -> Result<Self, MakeError> {
        let too_small = || MakeError::TooSmall { bytes };
        let zone = options.section_segments.saturating_mul(options.zone_sections).max(1);
        // Both superblocks lie in front of the first zone, and take one of their own.
        let usable = (bytes / SEGMENT_BYTES).saturating_sub(u64::from(zone));
        let usable = u32::try_from(usable).map_err(|_| MakeError::TooLarge { bytes })?;
        let zones = usable.checked_div(zone).unwrap_or(0);
        if usable < SEGMENTS_MIN || zones == 0 {
            return Err(too_small());
        }
        let segments = zones.saturating_mul(zone);
        let end = u64::from(segments.saturating_add(zone)).saturating_mul(u64::from(SEGMENT_BLOCKS));
        // The two highest addresses are marks.
        if end > u64::from(BlockAddr::COMPRESS.0) {
            return Err(MakeError::TooLarge { bytes });
        }
        let (areas, cp_payload) = areas(segments, zone).ok_or_else(too_small)?;
        let [cp, sit, nat, ssa, main] = areas;
        let main_zones = main.segments.checked_div(zone).unwrap_or(0);
        if main_zones <= u32_len(LOGS) {
            return Err(too_small());
        }
        let mut plan = Self {
            block_count: bytes >> LOG_BLOCK_SIZE,
            section_segments: options.section_segments,
            zone_sections: options.zone_sections,
            segments,
            cp,
            cp_payload,
            sit,
            nat,
            ssa,
            main,
            sections: main.segments.checked_div(options.section_segments).unwrap_or(0),
            reserved_segments: 0,
            overprovision_segments: 0,
            logs: logs(main_zones, zone),
        };
        let rest = usable.saturating_sub(segments);
        plan.keep_for_cleaner(options.overprovision, rest).ok_or_else(too_small)?;
        Ok(plan)
    }

    /// Reserves segments for the cleaner; `None` if none would be left. The `rest` of the device, less than a zone,
    /// does not belong to the main area; but `mkfs.f2fs` counts it here, so that sections may seem one longer.
    fn keep_for_cleaner(&mut self, overprovision: Option<f64>, rest: u32) -> Option<()> {
        let usable = self.main.segments.saturating_add(rest);
        let section = f64::from(usable.div_ceil(self.sections.max(1)));
        let reserved = |percent: f64| (2.0 * (100.0 / percent + 1.0) + 6.0) * section;
        let is_small = self.main.segments < SMALL_SEGMENTS;
        let percent = overprovision.or_else(|| best(f64::from(usable), is_small, reserved))?;
        self.reserved_segments = whole(reserved(percent));
        self.main.segments.checked_sub(self.reserved_segments).filter(|left| *left >= u32_len(LOGS))?;
        let hidden = whole(f64::from(usable.saturating_sub(self.reserved_segments)) * percent / 100.0);
        self.overprovision_segments = hidden.saturating_add(self.reserved_segments);
        (self.main.segments > self.overprovision_segments).then_some(())
    }

    /// Blocks that users may fill.
    pub(super) fn user_blocks(&self) -> u64 {
        let segments = self.main.segments.saturating_sub(self.overprovision_segments);
        u64::from(segments).saturating_mul(u64::from(SEGMENT_BLOCKS))
    }

    /// Segment of a log.
    pub(super) fn log(&self, log: usize) -> u32 {
        self.logs.get(log).copied().unwrap_or(0)
    }

    /// First block of a log.
    pub(super) fn log_block(&self, log: usize) -> u32 {
        self.main.start.saturating_add(self.log(log).saturating_mul(SEGMENT_BLOCKS))
    }

    /// The superblock's fields with positions.
    pub(super) fn superblock(&self) -> DiskSuperblock {
        let mut fields = DiskSuperblock::new_zeroed();
        fields.magic = MAGIC.into();
        (fields.major_ver, fields.minor_ver) = (1.into(), 15.into());
        (fields.log_sectorsize, fields.log_sectors_per_block) = (9.into(), 3.into());
        fields.log_blocksize = LOG_BLOCK_SIZE.into();
        fields.log_blocks_per_seg = SEGMENT_BLOCKS.trailing_zeros().into();
        fields.segs_per_sec = self.section_segments.into();
        fields.secs_per_zone = self.zone_sections.into();
        fields.block_count = self.block_count.into();
        fields.section_count = self.sections.into();
        fields.segment_count = self.segments.into();
        fields.segment0_blkaddr = self.cp.start.into();
        let places = [
            (&mut fields.cp_blkaddr, &mut fields.segment_count_ckpt, self.cp),
            (&mut fields.sit_blkaddr, &mut fields.segment_count_sit, self.sit),
            (&mut fields.nat_blkaddr, &mut fields.segment_count_nat, self.nat),
            (&mut fields.ssa_blkaddr, &mut fields.segment_count_ssa, self.ssa),
            (&mut fields.main_blkaddr, &mut fields.segment_count_main, self.main),
        ];
        for (start, segments, area) in places {
            (*start, *segments) = (area.start.into(), area.segments.into());
        }
        (fields.node_ino, fields.meta_ino, fields.root_ino) = (1.into(), 2.into(), 3.into());
        fields.cp_payload = self.cp_payload.into();
        fields
    }
}

/// Checkpoints, SIT, NAT, summaries and data of a volume of `segments`, and the checkpoint blocks for a bitmap; `None`
/// if they do not fit.
fn areas(segments: u32, zone: u32) -> Option<([Area; 5], u32)> {
    let cp = Area { start: zone.saturating_mul(SEGMENT_BLOCKS), segments: CP_SEGMENTS };
    let sit_half = segments.div_ceil(sit::ENTRIES_PER_BLOCK).div_ceil(SEGMENT_BLOCKS);
    let sit = cp.then(sit_half.saturating_mul(2));
    let left = segments.checked_sub(CP_SEGMENTS)?.checked_sub(sit.segments)?;
    let (nat_half, payload) = nat_of(left, sit.bitmap_bytes());
    let nat = sit.then(nat_half.saturating_mul(2));
    // A block for each remaining segment, and one more.
    let ssa = nat.then(left.checked_sub(nat.segments)?.saturating_add(1).div_ceil(SEGMENT_BLOCKS));
    // The main area begins with a zone, and the summaries fill the space before it.
    let before = [cp, sit, nat, ssa].iter().fold(0_u32, |sum, area| sum.saturating_add(area.segments));
    let metadata = before.checked_next_multiple_of(zone)?;
    let ssa = nat.then(ssa.segments.saturating_add(metadata.saturating_sub(before)));
    let main = ssa.then(segments.checked_sub(metadata)?);
    Some(([cp, sit, nat, ssa, main], payload))
}

/// Segments of one copy of the NAT, with `left` segments remaining, and checkpoint blocks for the SIT's bitmap: the NAT
/// has an entry for each block, or as many as its own bitmap allows.
fn nat_of(left: u32, sit_bytes: u32) -> (u32, u32) {
    let entries = u64::from(left).saturating_mul(u64::from(SEGMENT_BLOCKS));
    let blocks = entries.div_ceil(u64::from(NAT_ENTRIES_PER_BLOCK));
    let wanted = u32::try_from(blocks.div_ceil(u64::from(SEGMENT_BLOCKS))).unwrap_or(u32::MAX);
    let (room, payload) = match sit_bytes > SIT_BITMAP_BYTES_INSIDE {
        true => (BITMAP_BYTES_MAX, sit_bytes.div_ceil(u32_len(BLOCK_SIZE))),
        false => (BITMAP_BYTES_MAX.saturating_sub(sit_bytes), 0),
    };
    (wanted.min(room / BITMAP_BYTES_OF_SEGMENT), payload)
}

/// The percentage that leaves users the most space.
fn best(usable: f64, is_small: bool, reserved: impl Fn(f64) -> f64) -> Option<f64> {
    let (mut percent, end, step) = if is_small { (10.0, 95.0, 5.0) } else { (0.01, 10.0, 0.01) };
    let (mut found, mut most) = (None, 0.0);
    // The steps are added up, with their rounding, as in `mkfs.f2fs`.
    while percent <= end {
        let rest = usable - reserved(percent);
        let space = rest - rest * percent / 100.0;
        if most < space {
            (found, most) = (Some(percent), space);
        }
        percent += step;
    }
    found
}

/// The first segments of the logs, each in a zone of its own: data hot, warm and cold, then nodes.
fn logs(zones: u32, zone: u32) -> [u32; LOGS] {
    let start_of = |index: u32| index.saturating_mul(zone);
    let last_before = |count: u32| start_of(count.saturating_sub(1));
    let hot_data = start_of(3);
    let cold_data = last_before(zones / 4).max(hot_data.saturating_add(zone));
    let warm_data = last_before(zones / 2).max(cold_data.saturating_add(zone));
    [hot_data, warm_data, cold_data, start_of(0), start_of(1), start_of(2)]
}
