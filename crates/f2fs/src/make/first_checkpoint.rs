//! Writes the first checkpoint of a volume, with its files: the root directory and, on request, `lost+found` and quota
//! files. Called by `make`.

use blockdev::Device;
use f2fs_disk::bits::{clear_bit_le, set_bit};
use f2fs_disk::checkpoint::{self, DiskCheckpoint, NatBits, PackEnd};
use f2fs_disk::convert::{to_u64, u32_len, usize_from};
use f2fs_disk::dentry::{New, SlotsMut};
use f2fs_disk::flags::{CheckpointFlags, Features, InodeFlags};
use f2fs_disk::inode::{self, DiskInode};
use f2fs_disk::kind::Kind;
use f2fs_disk::nat::{self, NatEntry};
use f2fs_disk::node::Footer;
use f2fs_disk::quota::{self, Quota, QuotaKind};
use f2fs_disk::sit::SitEntry;
use f2fs_disk::summary::{self, Summary, SummaryBlock};
use f2fs_disk::{BLOCK_SIZE, Block, BlockAddr, Nid, SEGMENT_BLOCKS, hash};
use zerocopy::FromZeros as _;

use super::plan::{HOT_NODE, LOGS, Plan};
use super::{MakeError, MakeOptions};

const NODES: Nid = Nid(1);
const METADATA: Nid = Nid(2);
const ROOT: Nid = Nid(3);
const LOST_FOUND_NAME: &[u8] = b"lost+found";
/// Byte of the checksum in a checkpoint's block.
const CHECKSUM_AT: u32 = 4092;
/// Seconds for which soft limits may be exceeded: a week.
const GRACE: u32 = 7 * 24 * 60 * 60;
/// Permissions of a quota file.
const QUOTA_PERMISSIONS: u16 = 0o600;
/// The log of the contents of directories and of quota files.
const HOT_DATA: usize = 0;
/// Blocks of a pack without its payload: itself at both ends, the packed summaries of data, and three of nodes.
const PACK_BLOCKS: u32 = 6;

/// Writes the checkpoint.
pub(super) fn write(device: &dyn Device, plan: &Plan, seed: u32, options: &MakeOptions) -> Result<(), MakeError> {
    let files = File::all(options);
    let (nodes_at, mut data_at) = (plan.log_block(HOT_NODE), plan.log_block(HOT_DATA));
    for (node, file) in (nodes_at..).zip(&files) {
        for (at, block) in (data_at..).zip(&file.contents) {
            put(device, at, block)?;
        }
        put(device, node, &file.inode(node, data_at, seed, options))?;
        data_at = data_at.saturating_add(file.blocks());
    }
    put(device, plan.nat.start, &nat_block(nodes_at, &files))?;
    write_packs(device, plan, options, &files)
}

/// The quota files of a new volume: index in the superblock's list, kind, and inode number.
pub(super) fn quota_files(options: &MakeOptions) -> Vec<(usize, (QuotaKind, Nid))> {
    let has = |feature| options.features.contains(feature);
    let wanted = QuotaKind::ALL.into_iter().enumerate().filter(|(_, kind)| match kind {
        QuotaKind::User | QuotaKind::Group => has(Features::QUOTA_INO),
        QuotaKind::Project => has(Features::PRJQUOTA),
    });
    wanted.zip(ROOT.0.saturating_add(1)..).map(|((index, kind), ino)| (index, (kind, Nid(ino)))).collect()
}

/// A file of a new volume: a directory, or one of quotas.
struct File {
    ino: Nid,
    mode: u16,
    flags: InodeFlags,
    owner: (u32, u32),
    links: u32,
    /// Its name in the root directory.
    name: &'static [u8],
    contents: Vec<Block>,
    size: u64,
}

impl File {
    /// All files of a new volume.
    fn all(options: &MakeOptions) -> Vec<Self> {
        let quotas = quota_files(options);
        let lost_found = Nid(ROOT.0.saturating_add(u32_len(quotas.len())).saturating_add(1));
        let has_lost = options.features.contains(Features::LOST_FOUND);
        let mut names = vec![(&b"."[..], ROOT), (b"..", ROOT)];
        if has_lost {
            names.push((LOST_FOUND_NAME, lost_found));
        }
        let mut all = vec![Self::directory(ROOT, 0o755, options.owner, b"", &names)];
        all.extend(quotas.into_iter().map(|(_, (kind, ino))| Self::quota(kind, ino, has_lost, options)));
        if has_lost {
            let names = [(&b"."[..], lost_found), (b"..", ROOT)];
            all.push(Self::directory(lost_found, 0o700, (0, 0), LOST_FOUND_NAME, &names));
        }
        all
    }

    fn directory(
        ino: Nid,
        permissions: u16,
        owner: (u32, u32),
        name: &'static [u8],
        names: &[(&'static [u8], Nid)],
    ) -> Self {
        let mut block = [0; BLOCK_SIZE];
        let mut slots = SlotsMut::of_block(&mut block);
        for (name, ino) in names {
            if let Some(slot) = slots.room(name.len()) {
                slots.put(slot, &New { name, hash: hash::of_name(name), ino: *ino, kind: Kind::Directory });
            }
        }
        let mode = Kind::Directory.mode_bits() | permissions;
        let (flags, links) = (InodeFlags::empty(), u32_len(names.len()));
        Self { ino, mode, flags, owner, links, name, contents: vec![block], size: to_u64(BLOCK_SIZE) }
    }

    /// A quota file, which counts the directories: each has an inode and a block.
    fn quota(kind: QuotaKind, ino: Nid, has_lost: bool, options: &MakeOptions) -> Self {
        let root = match kind {
            QuotaKind::User => options.owner.0,
            QuotaKind::Group => options.owner.1,
            QuotaKind::Project => 0,
        };
        let block = to_u64(BLOCK_SIZE);
        let both = has_lost && root == 0;
        let (inodes, bytes) = if both { (2, block.saturating_mul(2)) } else { (1, block) };
        let mut bytes = quota::new_file(kind, root, inodes, bytes, (GRACE, GRACE));
        if has_lost && !both {
            let size = to_u64(bytes.len());
            let added = Quota::open(bytes.clone(), kind, size).and_then(|mut quota| {
                quota.add(0, 1, i64::try_from(block).unwrap_or(0))?;
                quota.close()
            });
            bytes = added.unwrap_or(bytes);
        }
        let size = to_u64(bytes.len());
        bytes.resize(bytes.len().next_multiple_of(BLOCK_SIZE), 0);
        let contents = bytes.as_chunks::<BLOCK_SIZE>().0.to_vec();
        let mode = Kind::File.mode_bits() | QUOTA_PERMISSIONS;
        Self { ino, mode, flags: InodeFlags::IMMUTABLE, owner: (0, 0), links: 1, name: b"", contents, size }
    }

    const fn is_dir(&self) -> bool {
        self.flags.is_empty()
    }

    fn blocks(&self) -> u32 {
        u32_len(self.contents.len())
    }

    /// Its node at block `node`, with contents from block `data` on.
    fn inode(&self, node: u32, data: u32, seed: u32, options: &MakeOptions) -> Block {
        let (features, time) = (super::features_of(options), options.time);
        let mut block = inode::new_block(self.ino, self.mode, features);
        let fields = inode::fields_mut(&mut block);
        fields.i_links = self.links.into();
        fields.i_flags = self.flags.bits().into();
        (fields.i_uid, fields.i_gid) = (self.owner.0.into(), self.owner.1.into());
        (fields.i_size, fields.i_blocks) = (self.size.into(), to_u64(self.contents.len()).saturating_add(1).into());
        (fields.i_atime, fields.i_ctime, fields.i_mtime) = (time.into(), time.into(), time.into());
        fields.i_current_depth = u32::from(self.is_dir()).into();
        if !self.name.is_empty() {
            fields.i_pino = ROOT.0.into();
            fields.i_namelen = u32_len(self.name.len()).into();
            fields.i_name.iter_mut().zip(self.name).for_each(|(to, byte)| *to = *byte);
        }
        let extra_size = extra_size(features);
        if let Some(extra) = inode::extra_mut(&mut block) {
            extra.i_extra_isize = extra_size.into();
            extra.i_inline_xattr_size = 0.into();
            if features.contains(Features::INODE_CRTIME) && self.is_dir() {
                extra.i_crtime = time.into();
            }
        }
        // The addresses follow the extra attributes.
        let addresses = size_of::<DiskInode>().saturating_add(usize::from(extra_size));
        for (index, at) in (data..data.saturating_add(self.blocks())).enumerate() {
            overwrite(&mut block, addresses.saturating_add(index.saturating_mul(4)), &at.to_le_bytes());
        }
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

/// The first block of the NAT: it has entries for the numbers that represent all nodes and all metadata, and for the
/// root and quota files, though those in the journal are the valid ones.
fn nat_block(nodes_at: u32, files: &[File]) -> Block {
    let mut block = [0; BLOCK_SIZE];
    let stored = files.iter().zip(nodes_at..).filter(|(file, _)| file.ino == ROOT || !file.is_dir());
    let stored = stored.map(|(file, at)| (file.ino, at));
    for (nid, at) in [(NODES, 1), (METADATA, 1)].into_iter().chain(stored) {
        nat::put(&mut block, usize_from(nid.0), &NatEntry::new(0, nid, BlockAddr(at)));
    }
    block
}

/// Writes both packs: the first is valid, the second is older.
fn write_packs(device: &dyn Device, plan: &Plan, options: &MakeOptions, files: &[File]) -> Result<(), MakeError> {
    let second = plan.cp.start.saturating_add(SEGMENT_BLOCKS);
    let bits_at = second.saturating_sub(nat_bits_blocks(plan));
    let mut fields = fields(plan, files);
    fields.checkpoint_ver = version(&options.uuid).into();
    let head = write_ends(device, plan, &fields, plan.cp.start)?;
    let summaries_at = plan.cp.start.saturating_add(fields.cp_pack_start_sum.get());
    let nodes: Vec<Summary> = files.iter().map(|file| Summary::new(file.ino, 0, 0)).collect();
    let packed = packed_summaries(plan, files);
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

fn fields(plan: &Plan, files: &[File]) -> DiskCheckpoint {
    let (inodes, blocks) = (u32_len(files.len()), files.iter().map(File::blocks).sum::<u32>());
    let mut fields = DiskCheckpoint::new_zeroed();
    let (data, nodes) = plan.logs.split_at(HOT_NODE);
    let or_none = |logs: &[u32], index: usize| logs.get(index).copied().unwrap_or(u32::MAX).into();
    fields.cur_node_segno = std::array::from_fn(|index| or_none(nodes, index));
    fields.cur_data_segno = std::array::from_fn(|index| or_none(data, index));
    for (offsets, used) in [(&mut fields.cur_node_blkoff, inodes), (&mut fields.cur_data_blkoff, blocks)] {
        if let Some(hot) = offsets.first_mut() {
            *hot = u16::try_from(used).unwrap_or(0).into();
        }
    }
    fields.valid_block_count = u64::from(inodes.saturating_add(blocks)).into();
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

/// The journals, and the owners of the blocks of the data logs, of which only the hot one has blocks.
fn packed_summaries(plan: &Plan, files: &[File]) -> Vec<Block> {
    let nodes_at = plan.log_block(HOT_NODE);
    let nat = |(file, at): (&File, u32)| (file.ino, NatEntry::new(0, file.ino, BlockAddr(at)));
    let nats: Vec<_> = files.iter().zip(nodes_at..).map(nat).collect();
    let owners: Vec<Summary> = files
        .iter()
        .flat_map(|file| (0_u16..).zip(&file.contents).map(|(index, _)| Summary::new(file.ino, 0, index)))
        .collect();
    let used = |count: usize| {
        let mut used = [0; 64];
        (0..count).for_each(|index| set_bit(&mut used, index));
        used
    };
    // Nodes first, as in `mkfs.f2fs`.
    let sits = [3, 4, 5, 0, 1, 2_u16].map(|log| {
        let index = usize::from(log);
        let count = match index {
            HOT_DATA => owners.len(),
            HOT_NODE => files.len(),
            _ => 0,
        };
        (plan.log(index), SitEntry::new(log, used(count), 0))
    });
    summary::compact(&summary::nat_journal_of(&nats), &summary::sit_journal_of(&sits), &owners)
}

fn nat_bits_blocks(plan: &Plan) -> u32 {
    NatBits::block_count((plan.nat.segments / 2).saturating_mul(SEGMENT_BLOCKS))
}

/// Full and empty blocks of the NAT: all but the first are empty.
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
