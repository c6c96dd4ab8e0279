//! Verifies the superblock: positions of the areas of a volume. Read by `f2fs::start` and `f2fs-check`, made by
//! `f2fs::make`.
//!
//! There are two copies, at byte 1024 of the first two blocks ([`copy_offset`]). `mkfs` writes it, and it rarely
//! changes after that; checkpoints record changes.
//!
//! ```text
//! bytes -> UncheckedSuperblock --verify(offset)--> Superblock
//! ```

use std::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::convert::{to_u64, u32_len};
use crate::error::{At, Corrupt, Detail, equal, within};
use crate::flags::Features;
use crate::geometry::{Geometry, NAT_ENTRIES_PER_BLOCK};
use crate::ids::{BlockAddr, Nid};
use crate::{OnDisk, SEGMENT_BLOCKS, hash};

pub use crate::ids::MAGIC;

/// Bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 3072;
/// First byte of the first copy.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// How many copies there are.
pub const COPIES: u64 = 2;

/// UTF-16 units of a label.
const VOLUME_NAME_UNITS: usize = 512;
/// File name extensions, for the temperature of their data.
const EXTENSIONS_MAX: usize = 64;
/// Devices of a volume.
const DEVICES_MAX: usize = 8;
/// Bytes of a name of a kernel.
const VERSION_SIZE: usize = 256;
/// `log_blocksize` of blocks of 4 KiB.
pub const LOG_BLOCK_SIZE: u32 = 12;
/// The largest blocks that kernels have, as a logarithm.
const LOG_BLOCK_SIZE_MAX: u32 = 16;
const LOG_SEGMENT_BLOCKS: u32 = 9;
/// Sectors have at least 512 bytes.
const LOG_SECTOR_SIZE_MIN: u32 = 9;
/// Segments of 16 TiB.
const SEGMENTS_MAX: u64 = 8 << 20;
/// Two of checkpoints, SIT and NAT each, one of SSA and two of data at least.
const SEGMENTS_MIN: u64 = 9;
/// Blocks of a checkpoint pack that are no payload, at least.
const CP_BLOCKS_MIN: u64 = 8;

/// First byte of a copy.
#[must_use]
pub fn copy_offset(copy: u64) -> u64 {
    copy.saturating_mul(1 << LOG_BLOCK_SIZE).saturating_add(SUPERBLOCK_OFFSET)
}

/// A device of a volume.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct DiskDevice {
    /// Its path, ended by a zero; none where it begins with one.
    pub path: [u8; 64],
    /// Segments on it.
    pub total_segments: U32,
}

/// A superblock, as it lies on disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct DiskSuperblock {
    /// [`MAGIC`].
    pub magic: U32,
    /// Version of the format.
    pub major_ver: U16,
    /// Its lower part.
    pub minor_ver: U16,
    /// Logarithm of the bytes of a sector.
    pub log_sectorsize: U32,
    /// Logarithm of the sectors of a block.
    pub log_sectors_per_block: U32,
    /// Logarithm of the bytes of a block.
    pub log_blocksize: U32,
    /// Logarithm of the blocks of a segment.
    pub log_blocks_per_seg: U32,
    /// Segments of a section.
    pub segs_per_sec: U32,
    /// Sections of a zone.
    pub secs_per_zone: U32,
    /// Byte of the checksum within the superblock.
    pub checksum_offset: U32,
    /// Blocks in all.
    pub block_count: U64,
    /// Sections of the main area.
    pub section_count: U32,
    /// Segments in all.
    pub segment_count: U32,
    /// Segments of checkpoints.
    pub segment_count_ckpt: U32,
    /// Segments of the SIT, both copies.
    pub segment_count_sit: U32,
    /// Segments of the NAT, both copies.
    pub segment_count_nat: U32,
    /// Segments of summaries.
    pub segment_count_ssa: U32,
    /// Segments of nodes and data.
    pub segment_count_main: U32,
    /// First block of the first segment.
    pub segment0_blkaddr: U32,
    /// First block of checkpoints.
    pub cp_blkaddr: U32,
    /// First block of the SIT.
    pub sit_blkaddr: U32,
    /// First block of the NAT.
    pub nat_blkaddr: U32,
    /// First block of summaries.
    pub ssa_blkaddr: U32,
    /// First block of nodes and data.
    pub main_blkaddr: U32,
    /// Inode of the root directory.
    pub root_ino: U32,
    /// Number that stands for all nodes.
    pub node_ino: U32,
    /// Number that stands for all metadata.
    pub meta_ino: U32,
    /// Of the volume.
    pub uuid: [u8; 16],
    /// Label in UTF-16, ended by a zero.
    pub volume_name: [U16; VOLUME_NAME_UNITS],
    /// Extensions of files that change rarely.
    pub extension_count: U32,
    /// These, and behind them those of files that change often.
    pub extension_list: [[u8; 8]; EXTENSIONS_MAX],
    /// Blocks of a checkpoint pack behind the first that hold a version bitmap.
    pub cp_payload: U32,
    /// Kernel that wrote it.
    pub version: [u8; VERSION_SIZE],
    /// Kernel that wrote it first.
    pub init_version: [u8; VERSION_SIZE],
    /// [`Features`].
    pub feature: U32,
    /// Version of encryption.
    pub encryption_level: u8,
    /// Salt of encryption.
    pub encrypt_pw_salt: [u8; 16],
    /// Devices, where there are several.
    pub devs: [DiskDevice; DEVICES_MAX],
    /// Inodes of quotas: of users, groups and projects.
    pub qf_ino: [U32; 3],
    /// Extensions of files that change often.
    pub hot_ext_count: u8,
    /// Encoding of names: 1 for UTF-8 12.1, 0 for none.
    pub s_encoding: U16,
    /// How strict it is.
    pub s_encoding_flags: U16,
    /// Why checkpointing stopped.
    pub s_stop_reason: [u8; 32],
    /// Errors that a kernel found.
    pub s_errors: [u8; 16],
    /// Zeros.
    pub reserved: [u8; 258],
    /// Checksum of the preceding bytes.
    pub crc: U32,
}

const _: () = assert!(size_of::<DiskSuperblock>() == SUPERBLOCK_SIZE);

/// Byte of the checksum within the superblock.
const CHECKSUM_AT: usize = std::mem::offset_of!(DiskSuperblock, crc);

impl OnDisk for DiskSuperblock {
    const NAME: &'static str = "superblock size";
}

impl DiskSuperblock {
    /// Its features.
    #[must_use]
    pub fn features(&self) -> Features {
        Features::from_bits_retain(self.feature.get())
    }

    /// Writes the checksum, for volumes with [`Features::SB_CHKSUM`].
    pub fn seal(&mut self) {
        self.checksum_offset = U32::new(u32_len(CHECKSUM_AT));
        self.crc = U32::new(hash::crc32(self.as_bytes().split_at(CHECKSUM_AT).0));
    }

    /// The label; invalid UTF-16 is shown as replacement characters.
    #[must_use]
    pub fn label(&self) -> String {
        let units = self.volume_name.iter().map(|unit| unit.get()).take_while(|unit| *unit != 0);
        char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    }

    /// Devices that are listed: none where there is but one.
    #[must_use]
    pub fn device_count(&self) -> usize {
        self.devs.iter().filter(|device| !device.path.starts_with(&[0])).count()
    }
}

impl fmt::Display for DiskSuperblock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "f2fs {}.{}: {} blocks, {} segments, main area from block {}, features {}",
            self.major_ver,
            self.minor_ver,
            self.block_count,
            self.segment_count,
            self.main_blkaddr,
            self.features().names().join(",")
        )
    }
}

/// The bytes of a superblock of which nothing is known.
#[derive(Clone, Debug)]
#[must_use = "nothing is known about it until it is verified"]
pub struct UncheckedSuperblock(Box<DiskSuperblock>);

impl UncheckedSuperblock {
    /// Takes the first [`SUPERBLOCK_SIZE`] bytes.
    ///
    /// # Errors
    /// [`Corrupt`] where there are fewer.
    pub fn new(bytes: &[u8]) -> Result<Self, Corrupt> {
        DiskSuperblock::parse(bytes).map(|fields| Self(Box::new(*fields)))
    }

    /// The raw fields.
    #[must_use]
    pub fn fields(&self) -> &DiskSuperblock {
        &self.0
    }

    /// The logarithm of the size of blocks, where it is one that other kernels have and this format's types have not.
    #[must_use]
    pub fn foreign_block_size(&self) -> Option<u32> {
        let (magic, log) = (self.0.magic.get(), self.0.log_blocksize.get());
        (magic == MAGIC && log > LOG_BLOCK_SIZE && log <= LOG_BLOCK_SIZE_MAX).then_some(log)
    }

    /// Checks everything that can be told from the superblock alone, given the byte of the device it was read from.
    ///
    /// # Errors
    /// [`Corrupt`] naming the first value that is wrong. Features are not judged here.
    pub fn verify(self, offset: u64) -> Result<Superblock, Corrupt> {
        let geometry = verify(&self.0).map_err(|error| error.at(At::Superblock(offset)))?;
        Ok(Superblock { fields: self.0, geometry })
    }
}

/// A superblock that was verified.
#[derive(Clone, Debug)]
pub struct Superblock {
    fields: Box<DiskSuperblock>,
    geometry: Geometry,
}

impl Superblock {
    /// The verified fields.
    #[must_use]
    pub fn fields(&self) -> &DiskSuperblock {
        &self.fields
    }

    /// Where its areas lie.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Its features.
    #[must_use]
    pub fn features(&self) -> Features {
        self.fields.features()
    }

    /// Inode of the root directory.
    #[must_use]
    pub fn root(&self) -> Nid {
        Nid(self.fields.root_ino.get())
    }

    /// Seed of the checksums of inodes.
    #[must_use]
    pub fn inode_checksum_seed(&self) -> u32 {
        hash::crc32_from(!0, &self.fields.uuid)
    }
}

fn verify(fields: &DiskSuperblock) -> Result<Geometry, Corrupt> {
    if fields.magic.get() != MAGIC {
        return Err(Corrupt::new(
            "superblock magic",
            Detail::Hex(u64::from(MAGIC)),
            Detail::Hex(u64::from(fields.magic.get())),
        ));
    }
    verify_checksum(fields)?;
    let number = |field: U32| u64::from(field.get());
    equal("superblock log_blocksize", u64::from(LOG_BLOCK_SIZE), number(fields.log_blocksize))?;
    equal("superblock log_blocks_per_seg", u64::from(LOG_SEGMENT_BLOCKS), number(fields.log_blocks_per_seg))?;
    let (sector_min, block) = (u64::from(LOG_SECTOR_SIZE_MIN), u64::from(LOG_BLOCK_SIZE));
    within("superblock log_sectorsize", number(fields.log_sectorsize), sector_min, block)?;
    let sectors = block.saturating_sub(number(fields.log_sectorsize));
    equal("superblock log_sectors_per_block", sectors, number(fields.log_sectors_per_block))?;
    within("superblock segment_count", number(fields.segment_count), SEGMENTS_MIN, SEGMENTS_MAX)?;
    within("superblock segs_per_sec", number(fields.segs_per_sec), 1, number(fields.segment_count))?;
    within("superblock secs_per_zone", number(fields.secs_per_zone), 1, number(fields.segment_count))?;
    let payload_max = u64::from(SEGMENT_BLOCKS).saturating_sub(CP_BLOCKS_MIN);
    within("superblock cp_payload", number(fields.cp_payload), 0, payload_max)?;
    equal("superblock node_ino", 1, number(fields.node_ino))?;
    equal("superblock meta_ino", 2, number(fields.meta_ino))?;
    equal("superblock root_ino", 3, number(fields.root_ino))?;
    verify_areas(fields)
}

fn verify_checksum(fields: &DiskSuperblock) -> Result<(), Corrupt> {
    if !fields.features().contains(Features::SB_CHKSUM) {
        return Ok(());
    }
    equal("superblock checksum_offset", to_u64(CHECKSUM_AT), u64::from(fields.checksum_offset.get()))?;
    let sum = hash::crc32(fields.as_bytes().split_at(CHECKSUM_AT).0);
    if sum != fields.crc.get() {
        let (expected, found) = (Detail::Hex(u64::from(sum)), Detail::Hex(u64::from(fields.crc.get())));
        return Err(Corrupt::new("superblock checksum", expected, found));
    }
    Ok(())
}

/// Each area begins where the one before it ends; both copies of SIT and NAT are as long as the other.
fn verify_areas(fields: &DiskSuperblock) -> Result<Geometry, Corrupt> {
    let mut next = u64::from(fields.segment0_blkaddr.get());
    // Behind the two superblocks.
    within("superblock segment0_blkaddr", next, COPIES, u64::from(u32::MAX))?;
    let areas = [
        ("superblock cp_blkaddr", fields.cp_blkaddr, fields.segment_count_ckpt, 2),
        ("superblock sit_blkaddr", fields.sit_blkaddr, fields.segment_count_sit, 2),
        ("superblock nat_blkaddr", fields.nat_blkaddr, fields.segment_count_nat, 2),
        ("superblock ssa_blkaddr", fields.ssa_blkaddr, fields.segment_count_ssa, 1),
        ("superblock main_blkaddr", fields.main_blkaddr, fields.segment_count_main, 1),
    ];
    for (what, start, segments, copies) in areas {
        equal(what, next, u64::from(start.get()))?;
        if segments.get() == 0 || !segments.get().is_multiple_of(copies) {
            let expected = Detail::Text(if copies == 2 { "an even count of segments" } else { "segments" });
            return Err(Corrupt::new("superblock area size", expected, Detail::Number(u64::from(segments.get()))));
        }
        next = next.saturating_add(u64::from(segments.get()).saturating_mul(u64::from(SEGMENT_BLOCKS)));
    }
    equal("superblock segment_count_ckpt", 2, u64::from(fields.segment_count_ckpt.get()))?;
    let segments = u64::from(fields.segment_count.get()).saturating_mul(u64::from(SEGMENT_BLOCKS));
    let end = u64::from(fields.segment0_blkaddr.get()).saturating_add(segments);
    // The two highest addresses have a meaning of their own.
    let end = end.min(u64::from(BlockAddr::COMPRESS.0));
    within("superblock end of the main area", next, 0, end)?;
    let main_blocks = u32::try_from(next.saturating_sub(u64::from(fields.main_blkaddr.get()))).unwrap_or(u32::MAX);
    let nat_blocks = (fields.segment_count_nat.get() / 2).saturating_mul(SEGMENT_BLOCKS);
    let sit_blocks = (fields.segment_count_sit.get() / 2).saturating_mul(SEGMENT_BLOCKS);
    let covered = u64::from(sit_blocks).saturating_mul(u64::from(crate::sit::ENTRIES_PER_BLOCK));
    within("superblock segment_count_main", u64::from(fields.segment_count_main.get()), 1, covered)?;
    Ok(Geometry {
        cp: BlockAddr(fields.cp_blkaddr.get()),
        sit: BlockAddr(fields.sit_blkaddr.get()),
        nat: BlockAddr(fields.nat_blkaddr.get()),
        ssa: BlockAddr(fields.ssa_blkaddr.get()),
        main: BlockAddr(fields.main_blkaddr.get()),
        main_blocks,
        sit_blocks,
        nat_blocks,
        cp_payload: fields.cp_payload.get(),
        nid_count: nat_blocks.saturating_mul(NAT_ENTRIES_PER_BLOCK),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    /// The superblock of a volume of 32 segments.
    pub(crate) fn sample() -> DiskSuperblock {
        let mut fields = DiskSuperblock::new_zeroed();
        fields.magic = U32::new(MAGIC);
        fields.log_sectorsize = U32::new(9);
        fields.log_sectors_per_block = U32::new(3);
        fields.log_blocksize = U32::new(12);
        fields.log_blocks_per_seg = U32::new(9);
        fields.segs_per_sec = U32::new(1);
        fields.secs_per_zone = U32::new(1);
        fields.checksum_offset = U32::new(3068);
        fields.segment_count = U32::new(31);
        fields.segment_count_ckpt = U32::new(2);
        fields.segment_count_sit = U32::new(2);
        fields.segment_count_nat = U32::new(4);
        fields.segment_count_ssa = U32::new(1);
        fields.segment_count_main = U32::new(22);
        for (field, start) in [
            (&mut fields.segment0_blkaddr, 512),
            (&mut fields.cp_blkaddr, 512),
            (&mut fields.sit_blkaddr, 1536),
            (&mut fields.nat_blkaddr, 2560),
            (&mut fields.ssa_blkaddr, 4608),
            (&mut fields.main_blkaddr, 5120),
        ] {
            *field = U32::new(start);
        }
        fields.block_count = U64::new(32 * 512);
        fields.root_ino = U32::new(3);
        fields.node_ino = U32::new(1);
        fields.meta_ino = U32::new(2);
        fields.feature = U32::new(Features::SB_CHKSUM.bits());
        for (unit, char) in fields.volume_name.iter_mut().zip("näme".encode_utf16()) {
            *unit = U16::new(char);
        }
        sealed(fields)
    }

    fn sealed(mut fields: DiskSuperblock) -> DiskSuperblock {
        let offset = fields.checksum_offset;
        fields.seal();
        assert_eq!(fields.checksum_offset.get(), 3068);
        fields.checksum_offset = offset;
        fields.crc = U32::new(hash::crc32(&fields.as_bytes()[..3068]));
        fields
    }

    pub(crate) fn verified() -> Superblock {
        UncheckedSuperblock::new(sample().as_bytes()).unwrap().verify(1024).unwrap()
    }

    #[test]
    fn fields_lie_where_the_format_says() {
        use std::mem::offset_of;
        assert_eq!(offset_of!(DiskSuperblock, block_count), 36);
        assert_eq!(offset_of!(DiskSuperblock, root_ino), 96);
        assert_eq!(offset_of!(DiskSuperblock, uuid), 108);
        assert_eq!(offset_of!(DiskSuperblock, volume_name), 124);
        assert_eq!(offset_of!(DiskSuperblock, cp_payload), 1664);
        assert_eq!(offset_of!(DiskSuperblock, feature), 2180);
        assert_eq!(offset_of!(DiskSuperblock, devs), 2201);
        assert_eq!(offset_of!(DiskSuperblock, crc), 3068);
        assert_eq!(copy_offset(1), 5120);
    }

    #[test]
    fn a_right_one_is_taken_and_its_areas_known() {
        let superblock = verified();
        assert_eq!(superblock.fields().label(), "näme");
        let geometry = superblock.geometry();
        assert_eq!((geometry.nat_blocks, geometry.sit_blocks, geometry.main_blocks), (1024, 512, 22 * 512));
        assert_eq!(geometry.nid_count, 1024 * 455);
        assert!(superblock.fields().to_string().ends_with("features sb_checksum"));
    }

    #[test]
    fn each_wrong_field_is_named() {
        type Change = fn(&mut DiskSuperblock);
        let wrong: &[(Change, &str)] = &[
            (|fields| fields.magic = U32::new(1), "magic"),
            (|fields| fields.log_blocksize = U32::new(14), "log_blocksize"),
            (|fields| fields.log_sectorsize = U32::new(8), "log_sectorsize"),
            (|fields| fields.segment_count = U32::new(u32::MAX), "segment_count"),
            (|fields| fields.segs_per_sec = U32::new(0), "segs_per_sec"),
            (|fields| fields.cp_payload = U32::new(505), "cp_payload"),
            (|fields| fields.root_ino = U32::new(4), "root_ino"),
            (|fields| fields.nat_blkaddr = U32::new(2561), "nat_blkaddr"),
            (|fields| fields.segment_count_nat = U32::new(3), "area size"),
            (|fields| fields.segment_count_main = U32::new(23), "end of the main area"),
            (|fields| fields.segment_count_main = U32::new(u32::MAX), "end of the main area"),
            (|fields| fields.checksum_offset = U32::new(3072), "checksum_offset"),
        ];
        for (change, what) in wrong {
            let mut fields = sample();
            change(&mut fields);
            let error = UncheckedSuperblock::new(sealed(fields).as_bytes()).unwrap().verify(1024).unwrap_err();
            assert!(error.what.contains(what), "{what}: {error}");
            assert_eq!(error.at, At::Superblock(1024));
        }
        let mut fields = sample();
        fields.block_count = U64::new(1);
        let error = UncheckedSuperblock::new(fields.as_bytes()).unwrap().verify(1024).unwrap_err();
        assert_eq!(error.what, "superblock checksum");
        assert!(UncheckedSuperblock::new(&[0; 100]).is_err());
    }
}
