//! The first checkpoint of a volume, and what it counts: the root directory and, where it is wanted, `lost+found`.

use blockdev::Device;
use f2fs_disk::bits::{clear_bit_le, set_bit};
use f2fs_disk::checkpoint::{self, DiskCheckpoint, NatBits, PackEnd};
use f2fs_disk::convert::{to_u64, u32_len, usize_from};
use f2fs_disk::dentry::{New, SlotsMut};
use f2fs_disk::flags::{CheckpointFlags, Features};
use f2fs_disk::inode::{self, DiskInode};
use f2fs_disk::kind::Kind;
use f2fs_disk::nat::{self, NatEntry};
use f2fs_disk::node::Footer;
use f2fs_disk::sit::SitEntry;
use f2fs_disk::summary::{self, Summary, SummaryBlock};
use f2fs_disk::{BLOCK_SIZE, Block, BlockAddr, Nid, SEGMENT_BLOCKS, hash};
use zerocopy::FromZeros as _;

use super::plan::{HOT_NODE, LOGS, Plan};
use super::{MakeError, MakeOptions};

const NODES: Nid = Nid(1);
const METADATA: Nid = Nid(2);
const ROOT: Nid = Nid(3);
const LOST_FOUND: Nid = Nid(4);
const LOST_FOUND_NAME: &[u8] = b"lost+found";
/// Byte of the checksum in a checkpoint's block.
const CHECKSUM_AT: u32 = 4092;
/// The log of the contents of directories.
const HOT_DATA: usize = 0;
/// Blocks of a pack without its payload: itself at both ends, the packed summaries of data, and three of nodes.
const PACK_BLOCKS: u32 = 6;

/// Writes it.
pub(super) fn write(device: &dyn Device, plan: &Plan, seed: u32, options: &MakeOptions) -> Result<(), MakeError> {
    let dirs = Dir::all(options);
    let (nodes_at, data_at) = (plan.log_block(HOT_NODE), plan.log_block(HOT_DATA));
    for (index, dir) in (0_u32..).zip(&dirs) {
        let (node, data) = (nodes_at.saturating_add(index), data_at.saturating_add(index));
        put(device, data, &dir.contents())?;
        put(device, node, &dir.inode(node, data, seed, options))?;
    }
    put(device, plan.nat.start, &nat_block(nodes_at))?;
    let inos: Vec<Nid> = dirs.iter().map(|dir| dir.ino).collect();
    write_packs(device, plan, options, &inos)
}

/// A directory.
struct Dir {
    ino: Nid,
    permissions: u16,
    owner: (u32, u32),
    links: u32,
    /// Its name in the root directory.
    name: &'static [u8],
    names: Vec<(&'static [u8], Nid)>,
}

impl Dir {
    /// All that a new volume has.
    fn all(options: &MakeOptions) -> Vec<Self> {
        let own_names = |ino| vec![(&b"."[..], ino), (b"..", ROOT)];
        let owner = options.owner;
        let names = own_names(ROOT);
        let mut root = Self { ino: ROOT, permissions: 0o755, owner, links: 2, name: b"", names };
        if !options.features.contains(Features::LOST_FOUND) {
            return vec![root];
        }
        root.links = 3;
        root.names.push((LOST_FOUND_NAME, LOST_FOUND));
        let names = own_names(LOST_FOUND);
        let owner = (0, 0);
        let lost = Self { ino: LOST_FOUND, permissions: 0o700, owner, links: 2, name: LOST_FOUND_NAME, names };
        vec![root, lost]
    }

    /// The block with its names.
    fn contents(&self) -> Block {
        let mut block = [0; BLOCK_SIZE];
        let mut slots = SlotsMut::of_block(&mut block);
        for (name, ino) in &self.names {
            if let Some(slot) = slots.room(name.len()) {
                slots.put(slot, &New { name, hash: hash::of_name(name), ino: *ino, kind: Kind::Directory });
            }
        }
        block
    }

    /// Its node, which lies at one block, and its contents at another.
    fn inode(&self, node: u32, data: u32, seed: u32, options: &MakeOptions) -> Block {
        let (features, time) = (options.features, options.time);
        let mut block = inode::new_block(self.ino, Kind::Directory.mode_bits() | self.permissions, features);
        let fields = inode::fields_mut(&mut block);
        fields.i_links = self.links.into();
        (fields.i_uid, fields.i_gid) = (self.owner.0.into(), self.owner.1.into());
        (fields.i_size, fields.i_blocks) = (to_u64(BLOCK_SIZE).into(), 2.into());
        (fields.i_atime, fields.i_ctime, fields.i_mtime) = (time.into(), time.into(), time.into());
        fields.i_current_depth = 1.into();
        if !self.name.is_empty() {
            fields.i_pino = ROOT.0.into();
            fields.i_namelen = u32_len(self.name.len()).into();
            fields.i_name.iter_mut().zip(self.name).for_each(|(to, byte)| *to = *byte);
        }
        let extra_size = extra_size(features);
        if let Some(extra) = inode::extra_mut(&mut block) {
            extra.i_extra_isize = extra_size.into();
            extra.i_inline_xattr_size = 0.into();
            if features.contains(Features::INODE_CRTIME) {
                extra.i_crtime = time.into();
            }
        }
        // Behind the extra attributes come the addresses, of which there is one.
        let address = size_of::<DiskInode>().saturating_add(usize::from(extra_size));
        overwrite(&mut block, address, &data.to_le_bytes());
        let mut footer = Footer::new(self.ino, self.ino, 0);
        footer.cp_ver = 1.into();
        footer.next_blkaddr = node.saturating_add(1).into();
        footer.put(&mut block);
        inode::seal(&mut block, self.ino, features, seed);
        block
    }
}

/// Bytes of extra attributes: up to the last one that the volume needs.
fn extra_size(features: Features) -> u16 {
    let ends = [
        (Features::COMPRESSION, 36),
        (Features::INODE_CRTIME, 24),
        (Features::INODE_CHKSUM, 12),
        (Features::PRJQUOTA, 8),
        (Features::EXTRA_ATTR, 4),
    ];
    ends.into_iter().find(|(feature, _)| features.contains(*feature)).map_or(0, |(_, end)| end)
}

/// The first block of the NAT: the numbers that stand for all nodes and for all metadata have an entry, and the root's
/// is there too, though that of the journal counts.
fn nat_block(root_at: u32) -> Block {
    let mut block = [0; BLOCK_SIZE];
    for (nid, at) in [(NODES, 1), (METADATA, 1), (ROOT, root_at)] {
        nat::put(&mut block, usize_from(nid.0), &NatEntry::new(0, nid, BlockAddr(at)));
    }
    block
}

/// Both packs: the first counts, the second is older than any.
fn write_packs(device: &dyn Device, plan: &Plan, options: &MakeOptions, inos: &[Nid]) -> Result<(), MakeError> {
    let second = plan.cp.start.saturating_add(SEGMENT_BLOCKS);
    let bits_at = second.saturating_sub(nat_bits_blocks(plan));
    let mut fields = fields(plan, u32_len(inos.len()));
    fields.checkpoint_ver = version(&options.uuid).into();
    let head = write_ends(device, plan, &fields, plan.cp.start)?;
    let summaries_at = plan.cp.start.saturating_add(fields.cp_pack_start_sum.get());
    let nodes = owners(inos);
    let packed = packed_summaries(plan, inos);
    let of_nodes = [&nodes, &[][..], &[]].map(|nodes| SummaryBlock::new(nodes, true, &summary::nat_journal_of(&[])));
    for (at, block) in (summaries_at..).zip(packed.iter().chain(&of_nodes)) {
        put(device, at, block)?;
    }
    if fields.flags().contains(CheckpointFlags::NAT_BITS) {
        let crc = PackEnd::verify(&head).map_or(0, |end| end.crc);
        device.write_at(BlockAddr(bits_at).byte(), &[&nat_bits(plan, crc, fields.checkpoint_ver.get())])?;
    }
    fields.checkpoint_ver = 0.into();
    write_ends(device, plan, &fields, second).map(drop)
}

/// Writes the first blocks and the last one of a pack, and returns the first.
fn write_ends(device: &dyn Device, plan: &Plan, fields: &DiskCheckpoint, at: u32) -> Result<Block, MakeError> {
    let first = checkpoint::encode(fields, &[], &[], plan.cp_payload);
    let head = first.first_chunk().copied().unwrap_or([0; BLOCK_SIZE]);
    device.write_at(BlockAddr(at).byte(), &[&first])?;
    put(device, at.saturating_add(fields.cp_pack_total_block_count.get()).saturating_sub(1), &head)?;
    Ok(head)
}

/// The version of the first checkpoint, from the UUID so that the same input makes the same volume: odd, and below
/// 2^31.
fn version(uuid: &[u8; 16]) -> u64 {
    u64::from((hash::crc32(uuid) >> 1) | 1)
}

fn fields(plan: &Plan, inodes: u32) -> DiskCheckpoint {
    let mut fields = DiskCheckpoint::new_zeroed();
    let (data, nodes) = plan.logs.split_at(HOT_NODE);
    let or_none = |logs: &[u32], index: usize| logs.get(index).copied().unwrap_or(u32::MAX).into();
    fields.cur_node_segno = std::array::from_fn(|index| or_none(nodes, index));
    fields.cur_data_segno = std::array::from_fn(|index| or_none(data, index));
    let used = u16::try_from(inodes).unwrap_or(0);
    for offsets in [&mut fields.cur_node_blkoff, &mut fields.cur_data_blkoff] {
        if let Some(hot) = offsets.first_mut() {
            *hot = used.into();
        }
    }
    fields.valid_block_count = u64::from(inodes).saturating_mul(2).into();
    fields.rsvd_segment_count = plan.reserved_segments.into();
    fields.overprov_segment_count = plan.overprovision_segments.into();
    fields.free_segment_count = plan.main.segments.saturating_sub(u32_len(LOGS)).into();
    fields.user_block_count = plan.user_blocks().into();
    let total = plan.cp_payload.saturating_add(PACK_BLOCKS);
    fields.cp_pack_total_block_count = total.into();
    let mut flags = CheckpointFlags::UMOUNT | CheckpointFlags::COMPACT_SUM;
    flags.set(CheckpointFlags::NAT_BITS, total.saturating_add(nat_bits_blocks(plan)) <= SEGMENT_BLOCKS);
    fields.ckpt_flags = flags.bits().into();
    fields.cp_pack_start_sum = plan.cp_payload.saturating_add(1).into();
    (fields.valid_node_count, fields.valid_inode_count) = (inodes.into(), inodes.into());
    fields.next_free_nid = ROOT.0.saturating_add(inodes).into();
    fields.sit_ver_bitmap_bytesize = plan.sit.bitmap_bytes().into();
    fields.nat_ver_bitmap_bytesize = plan.nat.bitmap_bytes().into();
    fields.checksum_offset = CHECKSUM_AT.into();
    fields
}

/// The journals, and the owners of the blocks of the logs of data, of which only the hot one has any.
fn packed_summaries(plan: &Plan, inos: &[Nid]) -> Vec<Block> {
    let nodes_at = plan.log_block(HOT_NODE);
    let nat = |(ino, at): (&Nid, u32)| (*ino, NatEntry::new(0, *ino, BlockAddr(at)));
    let nats: Vec<_> = inos.iter().zip(nodes_at..).map(nat).collect();
    let mut used = [0; 64];
    (0..inos.len()).for_each(|index| set_bit(&mut used, index));
    // Nodes first, as `mkfs.f2fs` has them.
    let sits = [3, 4, 5, 0, 1, 2_u16].map(|log| {
        let index = usize::from(log);
        let is_used = index == HOT_DATA || index == HOT_NODE;
        (plan.log(index), SitEntry::new(log, if is_used { used } else { [0; 64] }, 0))
    });
    summary::compact(&summary::nat_journal_of(&nats), &summary::sit_journal_of(&sits), &owners(inos))
}

/// What the summaries say of the first blocks of a log: of nodes their numbers, of data the nodes that point there.
fn owners(inos: &[Nid]) -> Vec<Summary> {
    inos.iter().map(|ino| Summary::new(*ino, 0, 0)).collect()
}

fn nat_bits_blocks(plan: &Plan) -> u32 {
    NatBits::block_count((plan.nat.segments / 2).saturating_mul(SEGMENT_BLOCKS))
}

/// Which blocks of the NAT are full, and which are empty: all but the first.
fn nat_bits(plan: &Plan, crc: u32, version: u64) -> Vec<u8> {
    let size = usize_from(plan.nat.bitmap_bytes());
    let mut empty = vec![0xff; size];
    clear_bit_le(&mut empty, 0);
    NatBits::encode(&vec![0; size], &empty, crc, version)
}

fn put(device: &dyn Device, block: u32, contents: &Block) -> Result<(), MakeError> {
    Ok(device.write_at(BlockAddr(block).byte(), &[contents])?)
}

fn overwrite(block: &mut Block, at: usize, bytes: &[u8]) {
    if let Some(to) = block.get_mut(at..at.saturating_add(bytes.len())) {
        to.copy_from_slice(bytes);
    }
}
