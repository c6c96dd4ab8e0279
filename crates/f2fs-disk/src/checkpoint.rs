//! Verifies and encodes checkpoints: the state of a volume that counts. Read by `f2fs::start` and `f2fs-check`, written
//! by the commit of `f2fs` and by `f2fs::make`.
//!
//! There are two packs, written in turn. A pack is valid when its first and last block have right checksums and the
//! same version; the newest valid one counts.
//!
//! ```text
//!    | checkpoint | payload | orphans | summaries of data | summaries of nodes | checkpoint | ... | NAT bits |
//!    0            1         1+payload  cp_pack_start_sum                         total-1             end of segment
//! ```
//!
//! The version bitmaps of SIT and NAT stand behind the fields: SIT before NAT; or NAT behind the fields and SIT in the
//! payload; or, with a large NAT bitmap, behind the checksum, NAT before SIT.

use std::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::convert::{to_u64, to_usize, usize_from};
use crate::error::{At, Corrupt, Detail, equal, within};
use crate::flags::{CheckpointFlags, Features};
use crate::ids::{Block, BlockAddr};
use crate::superblock::Superblock;
use crate::{BLOCK_SIZE, OnDisk, SEGMENT_BLOCKS, hash};

/// Bytes of a checksum.
const CHECKSUM_SIZE: usize = 4;
/// Logs of nodes, and logs of data, that are in use: hot, warm and cold.
pub const LOGS: usize = 3;
/// Of these, the log that fsynced nodes go to.
pub const WARM_NODE: usize = 1;

/// The fields of a checkpoint, as they lie on disk.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct DiskCheckpoint {
    /// Counts checkpoints.
    pub checkpoint_ver: U64,
    /// Blocks that users may fill.
    pub user_block_count: U64,
    /// Blocks of the main area that are in use.
    pub valid_block_count: U64,
    /// Segments kept for the cleaner.
    pub rsvd_segment_count: U32,
    /// Segments that users never see.
    pub overprov_segment_count: U32,
    /// Segments of the main area without a block in use.
    pub free_segment_count: U32,
    /// Segments that logs of nodes are written to.
    pub cur_node_segno: [U32; 8],
    /// Next block in each.
    pub cur_node_blkoff: [U16; 8],
    /// Segments that logs of data are written to.
    pub cur_data_segno: [U32; 8],
    /// Next block in each.
    pub cur_data_blkoff: [U16; 8],
    /// [`CheckpointFlags`].
    pub ckpt_flags: U32,
    /// Blocks of the pack.
    pub cp_pack_total_block_count: U32,
    /// Where in it the summaries begin.
    pub cp_pack_start_sum: U32,
    /// Nodes in use.
    pub valid_node_count: U32,
    /// Inodes in use.
    pub valid_inode_count: U32,
    /// Where the search for a free node goes on.
    pub next_free_nid: U32,
    /// Bytes of the SIT's version bitmap.
    pub sit_ver_bitmap_bytesize: U32,
    /// Bytes of the NAT's version bitmap.
    pub nat_ver_bitmap_bytesize: U32,
    /// Byte of the checksum within the block.
    pub checksum_offset: U32,
    /// Seconds that the volume was mounted.
    pub elapsed_time: U64,
    /// How each log allocates.
    pub alloc_type: [u8; 16],
}

/// Bytes of the fixed fields; the rest varies.
const FIELDS_SIZE: usize = 192;
const _: () = assert!(size_of::<DiskCheckpoint>() == FIELDS_SIZE);

impl OnDisk for DiskCheckpoint {
    const NAME: &'static str = "checkpoint size";
}

impl DiskCheckpoint {
    /// Its flags.
    #[must_use]
    pub fn flags(&self) -> CheckpointFlags {
        CheckpointFlags::from_bits_retain(self.ckpt_flags.get())
    }
}

impl fmt::Display for DiskCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "checkpoint {}: {} of {} blocks, {} nodes, {} inodes, flags {:#x}",
            self.checkpoint_ver,
            self.valid_block_count,
            self.user_block_count,
            self.valid_node_count,
            self.valid_inode_count,
            self.ckpt_flags.get()
        )
    }
}

/// The first or last block of a pack, with a right checksum.
#[derive(Clone, Copy, Debug)]
pub struct PackEnd {
    /// Its fields.
    pub fields: DiskCheckpoint,
    /// Its checksum.
    pub crc: u32,
}

impl PackEnd {
    /// Checks the checksum of a block, and the size that the pack claims.
    ///
    /// # Errors
    /// [`Corrupt`], without its place.
    pub fn verify(block: &Block) -> Result<Self, Corrupt> {
        let fields = *DiskCheckpoint::parse(block)?;
        let last = BLOCK_SIZE.saturating_sub(CHECKSUM_SIZE);
        let offset = usize_from(fields.checksum_offset.get());
        within("checkpoint checksum_offset", to_u64(offset), to_u64(FIELDS_SIZE), to_u64(last))?;
        let (before, rest) = block.split_at(offset);
        let stored = U32::ref_from_prefix(rest);
        let Ok((stored, behind)) = stored else {
            return Err(Corrupt::new("checkpoint checksum_offset", Detail::AtMost(to_u64(last)), Detail::size(offset)));
        };
        // Bytes behind the checksum are included.
        let sum = hash::crc32_from(hash::crc32(before), behind);
        if sum != stored.get() {
            let (expected, found) = (Detail::Hex(u64::from(sum)), Detail::Hex(u64::from(stored.get())));
            return Err(Corrupt::new("checkpoint checksum", expected, found));
        }
        let total = u64::from(fields.cp_pack_total_block_count.get());
        within("checkpoint cp_pack_total_block_count", total, 3, u64::from(SEGMENT_BLOCKS))?;
        Ok(Self { fields, crc: sum })
    }

    /// Index of the last block of the pack.
    #[must_use]
    pub fn last_index(&self) -> u32 {
        self.fields.cp_pack_total_block_count.get().saturating_sub(1)
    }
}

/// A checkpoint that was verified, with its version bitmaps.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    fields: DiskCheckpoint,
    at: BlockAddr,
    crc: u32,
    sit_bitmap: Vec<u8>,
    nat_bitmap: Vec<u8>,
}

impl Checkpoint {
    /// Checks a pack: `first` is its first block with the payload behind it, `last` its last block, `at` where it
    /// begins.
    ///
    /// # Errors
    /// [`Corrupt`] naming the first value that is wrong.
    pub fn verify(first: &[u8], last: &Block, at: BlockAddr, superblock: &Superblock) -> Result<Self, Corrupt> {
        Self::verify_pack(first, last, at, superblock).map_err(|error| error.at(At::Checkpoint(at)))
    }

    fn verify_pack(first: &[u8], last: &Block, at: BlockAddr, superblock: &Superblock) -> Result<Self, Corrupt> {
        let block = first.first_chunk().ok_or_else(|| too_short(first))?;
        let (end, other) = (PackEnd::verify(block)?, PackEnd::verify(last)?);
        let fields = end.fields;
        equal("checkpoint version of the last block", fields.checkpoint_ver.get(), other.fields.checkpoint_ver.get())?;
        verify_fields(&fields, superblock)?;
        let [sit_bitmap, nat_bitmap] = bitmaps(first, &fields, superblock)?;
        Ok(Self { fields, at, crc: end.crc, sit_bitmap: sit_bitmap.to_vec(), nat_bitmap: nat_bitmap.to_vec() })
    }

    /// The verified fields.
    #[must_use]
    pub const fn fields(&self) -> &DiskCheckpoint {
        &self.fields
    }

    /// Its flags.
    #[must_use]
    pub fn flags(&self) -> CheckpointFlags {
        self.fields.flags()
    }

    /// First block of the pack.
    #[must_use]
    pub const fn at(&self) -> BlockAddr {
        self.at
    }

    /// Counts checkpoints.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.fields.checkpoint_ver.get()
    }

    /// True where this one was written after the other; versions may wrap.
    #[must_use]
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.version().wrapping_sub(other.version()).cast_signed() > 0
    }

    /// Which copy of each NAT block counts.
    #[must_use]
    pub fn nat_bitmap(&self) -> &[u8] {
        &self.nat_bitmap
    }

    /// Which copy of each SIT block counts.
    #[must_use]
    pub fn sit_bitmap(&self) -> &[u8] {
        &self.sit_bitmap
    }

    /// Blocks with orphans: first one and count.
    #[must_use]
    pub fn orphan_blocks(&self, payload: u32) -> (BlockAddr, u32) {
        let first = payload.saturating_add(1);
        let count = self.fields.cp_pack_start_sum.get().saturating_sub(first);
        let count = if self.flags().contains(CheckpointFlags::ORPHAN_PRESENT) { count } else { 0 };
        (self.at.plus(first), count)
    }

    /// The first block of packed summaries.
    #[must_use]
    pub fn compact_summaries(&self) -> BlockAddr {
        self.at.plus(self.fields.cp_pack_start_sum.get())
    }

    /// The block with the summary of a log of data (0 hot, 1 warm, 2 cold), where summaries are not packed. They are
    /// counted from the end of the pack, as those of nodes are not always there.
    #[must_use]
    pub fn data_summary(&self, log: u32) -> BlockAddr {
        let has_nodes = self.flags().intersects(CheckpointFlags::UMOUNT | CheckpointFlags::FASTBOOT);
        let from_end = if has_nodes { 7 } else { 4 };
        let total = self.fields.cp_pack_total_block_count.get();
        self.at.plus(total.saturating_sub(from_end)).plus(log)
    }

    /// The mark of nodes written after this checkpoint and before the next one.
    #[must_use]
    pub fn mark_of_next(&self) -> u64 {
        let crc = if self.flags().contains(CheckpointFlags::CRC_RECOVERY) { u64::from(self.crc) << 32 } else { 0 };
        self.version() | crc
    }

    /// A mark for nodes written after this checkpoint that must not count as such: the version of an earlier one.
    #[must_use]
    pub fn mark_of_past(&self) -> u64 {
        self.version().wrapping_sub(1)
    }

    /// True if `found` is the mark of nodes written after this checkpoint and before the next one.
    #[must_use]
    pub fn is_of_next(&self, found: u64) -> bool {
        let flags = self.flags();
        if flags.contains(CheckpointFlags::NOCRC_RECOVERY) {
            return found << 32 == self.version() << 32;
        }
        found == self.mark_of_next()
    }
}

fn too_short(bytes: &[u8]) -> Corrupt {
    Corrupt::new("checkpoint size", Detail::size(BLOCK_SIZE), Detail::size(bytes.len()))
}

fn verify_fields(fields: &DiskCheckpoint, superblock: &Superblock) -> Result<(), Corrupt> {
    let geometry = superblock.geometry();
    let number = |field: U32| u64::from(field.get());
    let start_max = number(fields.cp_pack_total_block_count).saturating_sub(2);
    let start_min = u64::from(geometry.cp_payload).saturating_add(1);
    within("checkpoint cp_pack_start_sum", number(fields.cp_pack_start_sum), start_min, start_max)?;
    equal(
        "checkpoint sit_ver_bitmap_bytesize",
        u64::from(geometry.sit_blocks / 8),
        number(fields.sit_ver_bitmap_bytesize),
    )?;
    equal(
        "checkpoint nat_ver_bitmap_bytesize",
        u64::from(geometry.nat_blocks / 8),
        number(fields.nat_ver_bitmap_bytesize),
    )?;
    within("checkpoint user_block_count", fields.user_block_count.get(), 1, u64::from(geometry.main_blocks))?;
    within("checkpoint valid_block_count", fields.valid_block_count.get(), 0, fields.user_block_count.get())?;
    within("checkpoint valid_node_count", number(fields.valid_node_count), 0, u64::from(geometry.nid_count))?;
    // A volume that is never written has one log of each.
    let logs = if superblock.features().contains(Features::RO) { 1 } else { LOGS };
    let segments = u64::from(geometry.main_blocks / SEGMENT_BLOCKS);
    let nodes = fields.cur_node_segno.iter().zip(&fields.cur_node_blkoff).take(logs);
    let data = fields.cur_data_segno.iter().zip(&fields.cur_data_blkoff).take(logs);
    for (segment, offset) in nodes.chain(data) {
        within("checkpoint current segment", number(*segment), 0, segments.saturating_sub(1))?;
        within("checkpoint next block of a segment", u64::from(offset.get()), 0, u64::from(SEGMENT_BLOCKS))?;
    }
    Ok(())
}

/// The version bitmaps of SIT and NAT.
fn bitmaps<'a>(pack: &'a [u8], fields: &DiskCheckpoint, superblock: &Superblock) -> Result<[&'a [u8]; 2], Corrupt> {
    let sit_size = usize_from(fields.sit_ver_bitmap_bytesize.get());
    let nat_size = usize_from(fields.nat_ver_bitmap_bytesize.get());
    let [sit, nat] = bitmap_starts(fields, superblock.geometry().cp_payload);
    let part = |start: usize, len: usize| {
        let end = start.saturating_add(len);
        let room = Detail::AtMost(to_u64(pack.len()));
        pack.get(start..end).ok_or(Corrupt::new("checkpoint end of a version bitmap", room, Detail::size(end)))
    };
    Ok([part(sit, sit_size)?, part(nat, nat_size)?])
}

/// Where the version bitmaps of SIT and NAT begin within a pack.
fn bitmap_starts(fields: &DiskCheckpoint, payload: u32) -> [usize; 2] {
    let sit_size = usize_from(fields.sit_ver_bitmap_bytesize.get());
    let nat_size = usize_from(fields.nat_ver_bitmap_bytesize.get());
    if fields.flags().contains(CheckpointFlags::LARGE_NAT_BITMAP) {
        let nat = FIELDS_SIZE.saturating_add(CHECKSUM_SIZE);
        [nat.saturating_add(nat_size), nat]
    } else if payload > 0 {
        [BLOCK_SIZE, FIELDS_SIZE]
    } else {
        [FIELDS_SIZE, FIELDS_SIZE.saturating_add(sit_size)]
    }
}

/// The beginning of a pack: its first block, with the checksum at `checksum_offset`, and `payload` blocks behind it.
/// The last block of a pack repeats its first. The fields have the sizes of the bitmaps.
#[must_use]
pub fn encode(fields: &DiskCheckpoint, sit_bitmap: &[u8], nat_bitmap: &[u8], payload: u32) -> Vec<u8> {
    let mut pack = vec![0; usize_from(payload).saturating_add(1).saturating_mul(BLOCK_SIZE)];
    let [sit, nat] = bitmap_starts(fields, payload);
    let offset = usize_from(fields.checksum_offset.get());
    for (at, bytes) in [(0, fields.as_bytes()), (sit, sit_bitmap), (nat, nat_bitmap)] {
        overwrite(&mut pack, at, bytes);
    }
    let (before, rest) = pack.split_at(BLOCK_SIZE).0.split_at(offset.min(BLOCK_SIZE));
    let behind = rest.get(CHECKSUM_SIZE..).unwrap_or_default();
    let sum = hash::crc32_from(hash::crc32(before), behind);
    overwrite(&mut pack, offset, &sum.to_le_bytes());
    pack
}

fn overwrite(pack: &mut [u8], at: usize, bytes: &[u8]) {
    let to = pack.get_mut(at..at.saturating_add(bytes.len()));
    debug_assert!(to.is_some(), "a part of a checkpoint does not fit it");
    if let Some(to) = to {
        to.copy_from_slice(bytes);
    }
}

/// Which NAT blocks are full of entries in use, and which have none: a help for finding free numbers, at the end of
/// the pack's segment. The kernel believes it only where its head has the checkpoint's version and checksum.
#[derive(Clone, Copy, Debug)]
pub struct NatBits<'a> {
    /// A bit for each NAT block whose entries are all in use, the lowest of a byte first.
    pub full: &'a [u8],
    /// A bit for each NAT block without an entry in use.
    pub empty: &'a [u8],
}

impl<'a> NatBits<'a> {
    /// Blocks that they take, given the blocks of one copy of the NAT.
    #[must_use]
    pub fn block_count(nat_blocks: u32) -> u32 {
        let bytes = u64::from(nat_blocks / 8).saturating_mul(2).saturating_add(8);
        u32::try_from(bytes.div_ceil(to_u64(BLOCK_SIZE))).unwrap_or(u32::MAX)
    }

    /// The blocks of the bits, for the checkpoint with this version and checksum.
    #[must_use]
    pub fn encode(full: &[u8], empty: &[u8], crc: u32, version: u64) -> Vec<u8> {
        let head = version | (u64::from(crc) << 32);
        let mut bytes = [&head.to_le_bytes(), full, empty].concat();
        bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE), 0);
        bytes
    }

    /// Reads them. `None` where they are of another checkpoint, and so count for nothing.
    ///
    /// # Errors
    /// [`Corrupt`] where there are too few bytes.
    pub fn parse(bytes: &'a [u8], nat_blocks: u32, checkpoint: &Checkpoint) -> Result<Option<Self>, Corrupt> {
        let size = to_usize(u64::from(nat_blocks / 8));
        let parts = bytes.split_first_chunk().and_then(|(head, rest)| {
            let (full, rest) = rest.split_at_checked(size)?;
            Some((u64::from_le_bytes(*head), full, rest.get(..size)?))
        });
        let missing = || Corrupt::new("NAT bits size", Detail::size(size), Detail::size(bytes.len()));
        let (head, full, empty) = parts.ok_or_else(missing)?;
        let expected = checkpoint.version() | (u64::from(checkpoint.crc) << 32);
        Ok((head == expected).then_some(Self { full, empty }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::tests::verified;

    pub(crate) fn sample(version: u64) -> Block {
        let mut block = [0; BLOCK_SIZE];
        let (fields, _) = DiskCheckpoint::mut_from_prefix(&mut block).unwrap();
        fields.checkpoint_ver = U64::new(version);
        fields.user_block_count = U64::new(8000);
        fields.valid_block_count = U64::new(3);
        fields.cp_pack_total_block_count = U32::new(8);
        fields.cp_pack_start_sum = U32::new(1);
        fields.sit_ver_bitmap_bytesize = U32::new(64);
        fields.nat_ver_bitmap_bytesize = U32::new(128);
        fields.checksum_offset = U32::new(4092);
        fields.ckpt_flags = U32::new(CheckpointFlags::UMOUNT.bits());
        block[192] = 0x55;
        block[192 + 64] = 0xaa;
        seal(&mut block);
        block
    }

    fn seal(block: &mut Block) {
        let offset = usize_from(DiskCheckpoint::parse(block.as_slice()).unwrap().checksum_offset.get());
        let sum = hash::crc32_from(hash::crc32(&block[..offset]), &block[offset + 4..]);
        block[offset..offset + 4].copy_from_slice(&sum.to_le_bytes());
    }

    fn verify(first: &Block, last: &Block) -> Result<Checkpoint, Corrupt> {
        Checkpoint::verify(first, last, BlockAddr(512), &verified())
    }

    #[test]
    fn a_pack_needs_two_ends_of_one_version() {
        let block = sample(7);
        let found = verify(&block, &block).unwrap();
        assert_eq!((found.version(), found.sit_bitmap()[0], found.nat_bitmap()[0]), (7, 0x55, 0xaa));
        assert_eq!(found.data_summary(0), BlockAddr(513));
        assert_eq!(found.orphan_blocks(0), (BlockAddr(513), 0));
        assert!(verify(&sample(8), &sample(8)).unwrap().is_newer_than(&found));
        assert!(
            verify(&sample(0), &sample(0))
                .unwrap()
                .is_newer_than(&verify(&sample(u64::MAX), &sample(u64::MAX)).unwrap())
        );
        let error = verify(&block, &sample(8)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "corrupt checkpoint version of the last block in the checkpoint at block 512: expected 7, found 8"
        );
        let mut broken = block;
        broken[300] ^= 1;
        assert_eq!(verify(&broken, &block).unwrap_err().what, "checkpoint checksum");
    }

    #[test]
    fn each_wrong_field_is_named() {
        type Change = fn(&mut DiskCheckpoint);
        let wrong: &[(Change, &str)] = &[
            (|fields| fields.checksum_offset = U32::new(100), "checksum_offset"),
            (|fields| fields.cp_pack_total_block_count = U32::new(600), "total_block_count"),
            (|fields| fields.cp_pack_start_sum = U32::new(0), "start_sum"),
            (|fields| fields.nat_ver_bitmap_bytesize = U32::new(4000), "nat_ver"),
            (|fields| fields.sit_ver_bitmap_bytesize = U32::new(8), "sit_ver"),
            (|fields| fields.user_block_count = U64::new(u64::MAX), "user_block_count"),
            (|fields| fields.cur_node_segno[1] = U32::new(22), "current segment"),
            (|fields| fields.cur_data_blkoff[2] = U16::new(513), "next block"),
        ];
        for (change, what) in wrong {
            let mut block = sample(7);
            change(DiskCheckpoint::mut_from_prefix(&mut block).unwrap().0);
            if *what != "checksum_offset" {
                seal(&mut block);
            }
            let error = verify(&block, &block).unwrap_err();
            assert!(error.what.contains(what), "{what}: {error}");
        }
    }

    #[test]
    fn nodes_of_the_time_after_it_are_known_by_version_and_checksum() {
        let mut block = sample(7);
        assert!(verify(&block, &block).unwrap().is_of_next(7));
        DiskCheckpoint::mut_from_prefix(&mut block).unwrap().0.ckpt_flags =
            U32::new(CheckpointFlags::CRC_RECOVERY.bits());
        seal(&mut block);
        let found = verify(&block, &block).unwrap();
        let crc = u64::from(u32::from_le_bytes(*block.last_chunk().unwrap()));
        assert!(found.is_of_next(7 | crc << 32) && !found.is_of_next(7));
        assert_eq!(found.data_summary(2), BlockAddr(512 + 6), "without summaries of nodes");
        let mut bits = vec![0; 4096];
        bits[..8].copy_from_slice(&(7 | crc << 32).to_le_bytes());
        bits[8 + 128] = 1;
        let parsed = NatBits::parse(&bits, 1024, &found).unwrap().unwrap();
        assert_eq!((parsed.full[0], parsed.empty[0], NatBits::block_count(1024)), (0, 1, 1));
        let (full, empty) = ([0; 128], [1; 128]);
        let encoded = NatBits::encode(&full, &empty, u32::try_from(crc).unwrap(), 7);
        assert_eq!(encoded.len(), BLOCK_SIZE);
        let parsed = NatBits::parse(&encoded, 1024, &found).unwrap().unwrap();
        assert_eq!((parsed.full, parsed.empty), (&full[..], &empty[..]));
        bits[0] = 8;
        assert!(NatBits::parse(&bits, 1024, &found).unwrap().is_none());
        assert!(NatBits::parse(&bits[..100], 1024, &found).is_err());
    }

    #[test]
    fn a_built_block_parses() {
        let (sit, nat) = ([0x55; 64], [0xaa; 128]);
        let fields = *DiskCheckpoint::parse(&sample(7)).unwrap();
        let large = DiskCheckpoint {
            ckpt_flags: U32::new(CheckpointFlags::LARGE_NAT_BITMAP.bits()),
            checksum_offset: U32::new(192),
            ..fields
        };
        for (fields, payload) in [(fields, 0), (fields, 2), (large, 0)] {
            let mut superblock = crate::superblock::tests::sample();
            superblock.cp_payload = U32::new(payload);
            superblock.seal();
            let bytes = superblock.as_bytes();
            let superblock = crate::superblock::UncheckedSuperblock::new(bytes).unwrap().verify(1024).unwrap();
            let fields = DiskCheckpoint { cp_pack_start_sum: U32::new(payload + 1), ..fields };
            let pack = encode(&fields, &sit, &nat, payload);
            assert_eq!(pack.len(), (usize_from(payload) + 1) * BLOCK_SIZE);
            let last = pack.first_chunk().unwrap();
            let found = Checkpoint::verify(&pack, last, BlockAddr(512), &superblock).unwrap();
            assert_eq!((found.sit_bitmap(), found.nat_bitmap()), (&sit[..], &nat[..]));
        }
    }

    #[test]
    fn a_large_bitmap_lies_behind_the_checksum() {
        let mut block = sample(7);
        let fields = DiskCheckpoint::mut_from_prefix(&mut block).unwrap().0;
        fields.ckpt_flags = U32::new(CheckpointFlags::LARGE_NAT_BITMAP.bits());
        fields.checksum_offset = U32::new(192);
        block[196] = 0x11;
        block[196 + 128] = 0x22;
        seal(&mut block);
        let found = verify(&block, &block).unwrap();
        assert_eq!((found.nat_bitmap()[0], found.sit_bitmap()[0]), (0x11, 0x22));
    }
}
