//! The first checkpoint of a volume, and what it counts: the root directory and, where it is wanted, `lost+found`.

use blockdev::Device;
use f2fs_disk::convert::{to_u64, usize_from};
use f2fs_disk::flags::{CheckpointFlags, Features, InlineFlags};
use f2fs_disk::inode::{DiskExtra, DiskInode, checksum};
use f2fs_disk::node::Footer;
use f2fs_disk::sit::SitEntry;
use f2fs_disk::summary::{JOURNAL_SIZE, NatJournalEntry, SitJournalEntry, Summary, SummaryBlock};
use f2fs_disk::superblock::DiskSuperblock;
use f2fs_disk::{BLOCK_SIZE, Block, Nid, SEGMENT_BLOCKS, dentry, hash};
use f2fs_disk::nat::NatEntry;
use f2fs_disk::checkpoint::DiskCheckpoint;
use f2fs_disk::kind::Kind;
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::plan::{HOT_NODE, LOGS, Plan};
use super::{MakeError, MakeOptions};

const ROOT: u32 = 3;
const LOST_FOUND: u32 = 4;
/// Byte of the checksum in a checkpoint's block.
const CHECKSUM_AT: usize = BLOCK_SIZE - 4;
/// Permission bits of the directories.
const ROOT_MODE: u16 = 0o040_755;
const LOST_FOUND_MODE: u16 = 0o040_700;
const FIXED_SIZE: usize = size_of::<DiskInode>();

/// Writes it.
pub(super) fn write(
    device: &dyn Device,
    plan: &Plan,
    superblock: &DiskSuperblock,
    options: &MakeOptions,
) -> Result<(), MakeError> {
    let has_lost_found = options.features.contains(Features::LOST_FOUND);
    let mut dirs = vec![Dir { ino: ROOT, mode: ROOT_MODE, links: 2, owner: options.owner, names: own_names(ROOT, ROOT) }];
    if has_lost_found {
        dirs[0].links = 3;
        dirs[0].names.push((b"lost+found", LOST_FOUND));
        dirs.push(Dir { ino: LOST_FOUND, mode: LOST_FOUND_MODE, links: 2, owner: (0, 0), names: own_names(LOST_FOUND, ROOT) });
    }
    let (nodes_at, data_at) = (plan.log_block(HOT_NODE), plan.log_block(0));
    for (index, dir) in (0_u32..).zip(&dirs) {
        put(device, data_at + index, &dir.contents())?;
        put(device, nodes_at + index, &dir.inode(superblock, options, (nodes_at, data_at), index))?;
    }
    let inos: Vec<u32> = dirs.iter().map(|dir| dir.ino).collect();
    write_packs(device, plan, options, &inos)
}

fn own_names(ino: u32, parent: u32) -> Vec<(&'static [u8], u32)> {
    vec![(b".", ino), (b"..", parent)]
}

impl Plan {
    /// First block of a log.
    fn log_block(&self, log: usize) -> u32 {
        self.main + self.logs.get(log).copied().unwrap_or(0) * SEGMENT_BLOCKS
    }
}

struct Dir {
    ino: u32,
    mode: u16,
    links: u32,
    owner: (u32, u32),
    names: Vec<(&'static [u8], u32)>,
}

impl Dir {
    fn contents(&self) -> Block {
        let mut block = [0; BLOCK_SIZE];
        let mut slot = 0;
        for (name, ino) in &self.names {
            slot = dentry::put(&mut block, slot, &dentry::New { name, hash: hash::of_name(name), ino: Nid(*ino), kind: Kind::Directory });
        }
        block
    }

    /// Its node, the `index`th of the logs that begin at these blocks.
    fn inode(&self, superblock: &DiskSuperblock, options: &MakeOptions, (nodes_at, data_at): (u32, u32), index: u32) -> Block {
        let features = options.features;
        let time = options.time;
        let mut fields = DiskInode::new_zeroed();
        fields.i_mode = self.mode.into();
        fields.i_links = self.links.into();
        (fields.i_uid, fields.i_gid) = (self.owner.0.into(), self.owner.1.into());
        (fields.i_size, fields.i_blocks) = (to_u64(BLOCK_SIZE).into(), 2.into());
        (fields.i_atime, fields.i_ctime, fields.i_mtime) = (time.into(), time.into(), time.into());
        fields.i_current_depth = 1.into();
        if self.ino == LOST_FOUND {
            let name = b"lost+found";
            fields.i_pino = ROOT.into();
            fields.i_namelen = u32::try_from(name.len()).unwrap_or(0).into();
            fields.i_name.iter_mut().zip(name).for_each(|(to, byte)| *to = *byte);
        }
        let extra_size = extra_size(features);
        let mut extra = DiskExtra::new_zeroed();
        if extra_size > 0 {
            fields.i_inline |= InlineFlags::EXTRA_ATTR.bits();
            extra.i_extra_isize = u16::try_from(extra_size).unwrap_or(0).into();
            if features.contains(Features::INODE_CRTIME) {
                extra.i_crtime = time.into();
            }
        }
        let mut block = [0; BLOCK_SIZE];
        copy(&mut block, 0, fields.as_bytes());
        copy(&mut block, FIXED_SIZE, extra.as_bytes().get(..extra_size).unwrap_or_default());
        copy(&mut block, FIXED_SIZE + extra_size, &(data_at + index).to_le_bytes());
        let mut footer = Footer::new_zeroed();
        (footer.nid, footer.ino) = (self.ino.into(), self.ino.into());
        footer.cp_ver = 1.into();
        footer.next_blkaddr = (nodes_at + index + 1).into();
        copy(&mut block, BLOCK_SIZE - size_of::<Footer>(), footer.as_bytes());
        if features.contains(Features::INODE_CHKSUM) {
            let seed = hash::crc32_from(u32::MAX, &superblock.uuid);
            let sum = checksum(&block, Nid(self.ino), fields.i_generation, seed);
            copy(&mut block, FIXED_SIZE + 8, &sum.to_le_bytes());
        }
        block
    }
}

/// Bytes of extra attributes: up to the last one that is wanted.
fn extra_size(features: Features) -> usize {
    let ends = [
        (Features::COMPRESSION, 36),
        (Features::INODE_CRTIME, 24),
        (Features::INODE_CHKSUM, 12),
        (Features::PRJQUOTA, 8),
        (Features::EXTRA_ATTR, 4),
    ];
    ends.into_iter().find(|(feature, _)| features.contains(*feature)).map_or(0, |(_, end)| end)
}

/// Both packs: the first counts, the second is older than any.
fn write_packs(device: &dyn Device, plan: &Plan, options: &MakeOptions, inos: &[u32]) -> Result<(), MakeError> {
    let count = u32::try_from(inos.len()).unwrap_or(0);
    let nat_bits = nat_bits_blocks(plan);
    let mut fields = checkpoint(plan, count, nat_bits);
    let last = fields.cp_pack_total_block_count.get() - 1;
    fields.checkpoint_ver = version(&options.uuid).into();
    let first = sealed(&fields);
    let compact = compact_summaries(plan, inos);
    let summaries = [0, 1, 2].map(|log| node_summary(if log == 0 { inos } else { &[] }));
    put(device, plan.cp, &first)?;
    let at = plan.cp + 1 + plan.cp_payload;
    put(device, at, &compact)?;
    for (index, summary) in (1_u32..).zip(&summaries) {
        put(device, at + index, summary)?;
    }
    put(device, plan.cp + last, &first)?;
    if fields.flags().contains(CheckpointFlags::NAT_BITS) {
        let bits = bits_of_nat(plan, &first, nat_bits);
        device.write_at(byte(plan.cp + SEGMENT_BLOCKS - nat_bits), &[&bits])?;
    }
    fields.checkpoint_ver = 0.into();
    let second = sealed(&fields);
    put(device, plan.cp + SEGMENT_BLOCKS, &second)?;
    put(device, plan.cp + SEGMENT_BLOCKS + last, &second)
}

/// From the UUID, so that the same input makes the same volume: odd, and below 2^31.
fn version(uuid: &[u8; 16]) -> u64 {
    u64::from(hash::crc32(uuid) >> 1 | 1)
}

fn checkpoint(plan: &Plan, inodes: u32, nat_bits: u32) -> DiskCheckpoint {
    let mut fields = DiskCheckpoint::new_zeroed();
    let none = |_| u32::MAX.into();
    fields.cur_node_segno = std::array::from_fn(none);
    fields.cur_data_segno = std::array::from_fn(none);
    let (data, nodes) = plan.logs.split_at(HOT_NODE);
    fields.cur_node_segno.iter_mut().zip(nodes).for_each(|(to, log)| *to = (*log).into());
    fields.cur_data_segno.iter_mut().zip(data).for_each(|(to, log)| *to = (*log).into());
    let used = u16::try_from(inodes).unwrap_or(0);
    (fields.cur_node_blkoff[0], fields.cur_data_blkoff[0]) = (used.into(), used.into());
    fields.valid_block_count = u64::from(2 * inodes).into();
    fields.rsvd_segment_count = plan.reserved_segments.into();
    fields.overprov_segment_count = plan.overprovision_segments.into();
    fields.free_segment_count = (plan.main_segments - 6).into();
    fields.user_block_count = (u64::from(plan.user_segments()) * u64::from(SEGMENT_BLOCKS)).into();
    // Itself twice, the packed summaries of data, and three of nodes.
    let total = 6 + plan.cp_payload;
    fields.cp_pack_total_block_count = total.into();
    let mut flags = CheckpointFlags::UMOUNT | CheckpointFlags::COMPACT_SUM;
    flags.set(CheckpointFlags::NAT_BITS, total + nat_bits <= SEGMENT_BLOCKS);
    fields.ckpt_flags = flags.bits().into();
    fields.cp_pack_start_sum = (1 + plan.cp_payload).into();
    (fields.valid_node_count, fields.valid_inode_count) = (inodes.into(), inodes.into());
    fields.next_free_nid = (ROOT + inodes).into();
    fields.sit_ver_bitmap_bytesize = (plan.sit_segments / 2 * SEGMENT_BLOCKS / 8).into();
    fields.nat_ver_bitmap_bytesize = (plan.nat_segments / 2 * SEGMENT_BLOCKS / 8).into();
    fields.checksum_offset = u32::try_from(CHECKSUM_AT).unwrap_or(0).into();
    fields
}

fn sealed(fields: &DiskCheckpoint) -> Block {
    let mut block = [0; BLOCK_SIZE];
    copy(&mut block, 0, fields.as_bytes());
    let sum = hash::crc32(block.split_at(CHECKSUM_AT).0);
    copy(&mut block, CHECKSUM_AT, &sum.to_le_bytes());
    block
}

/// The journals, and the summaries of the logs of data behind each other: only the hot one has any.
fn compact_summaries(plan: &Plan, inos: &[u32]) -> Block {
    let mut block = [0; BLOCK_SIZE];
    let count = u16::try_from(inos.len()).unwrap_or(0);
    copy(&mut block, 0, &count.to_le_bytes());
    let nodes_at = plan.log_block(HOT_NODE);
    for (index, (ino, at)) in inos.iter().zip(nodes_at..).enumerate() {
        let ne = NatEntry { version: 0, ino: (*ino).into(), block_addr: at.into() };
        let entry = NatJournalEntry { nid: (*ino).into(), ne };
        copy(&mut block, 2 + index * size_of::<NatJournalEntry>(), entry.as_bytes());
    }
    copy(&mut block, JOURNAL_SIZE, &u16::try_from(LOGS).unwrap_or(0).to_le_bytes());
    // Nodes first, as `mkfs.f2fs` has them.
    let order = [3, 4, 5, 0, 1, 2_u16];
    for (index, log) in order.into_iter().enumerate() {
        let mut se = SitEntry::new_zeroed();
        let is_used = log == 0 || usize::from(log) == HOT_NODE;
        let blocks = if is_used { count } else { 0 };
        se.vblocks = (log << 10 | blocks).into();
        for block in 0..usize::from(blocks) {
            se.valid_map[block / 8] |= 0x80 >> (block % 8);
        }
        let segno = plan.logs.get(usize::from(log)).copied().unwrap_or(0);
        let entry = SitJournalEntry { segno: segno.into(), se };
        copy(&mut block, JOURNAL_SIZE + 2 + index * size_of::<SitJournalEntry>(), entry.as_bytes());
    }
    for (index, ino) in inos.iter().enumerate() {
        let summary = Summary { nid: (*ino).into(), version: 0, ofs_in_node: 0.into() };
        copy(&mut block, 2 * JOURNAL_SIZE + index * size_of::<Summary>(), summary.as_bytes());
    }
    block
}

fn node_summary(inos: &[u32]) -> Block {
    let mut block = SummaryBlock::new_zeroed();
    for (entry, ino) in block.entries.iter_mut().zip(inos) {
        entry.nid = (*ino).into();
    }
    block.footer.entry_type = 1;
    zerocopy::transmute!(block)
}

/// Bytes of one map of the NAT's blocks.
fn nat_bits_bytes(plan: &Plan) -> usize {
    usize_from(plan.nat_segments) << 5
}

fn nat_bits_blocks(plan: &Plan) -> u32 {
    u32::try_from((nat_bits_bytes(plan) * 2 + 8).div_ceil(BLOCK_SIZE)).unwrap_or(u32::MAX)
}

/// Which blocks of the NAT are full, and which are empty: all but the first.
fn bits_of_nat(plan: &Plan, first: &Block, blocks: u32) -> Vec<u8> {
    let bytes = nat_bits_bytes(plan);
    let mut bits = vec![0; usize_from(blocks) * BLOCK_SIZE];
    let (before, sum) = first.split_at(CHECKSUM_AT);
    // The version, and the checksum in its upper half.
    let version = u64::from_le_bytes(before.first_chunk().copied().unwrap_or_default());
    let sum = u32::from_le_bytes(sum.first_chunk().copied().unwrap_or_default());
    copy(&mut bits, 0, &(version | u64::from(sum) << 32).to_le_bytes());
    if let Some(empty) = bits.get_mut(8 + bytes..8 + 2 * bytes) {
        empty.fill(0xff);
        if let Some(byte) = empty.first_mut() {
            *byte &= !1;
        }
    }
    bits
}

fn byte(block: u32) -> u64 {
    u64::from(block) * to_u64(BLOCK_SIZE)
}

fn put(device: &dyn Device, block: u32, contents: &Block) -> Result<(), MakeError> {
    Ok(device.write_at(byte(block), &[contents])?)
}

fn copy(block: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = block.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}
