//! Volumes with all kinds of files, and an editor that changes a byte of one and makes the checksums right again.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;

use blockdev::backends::MemoryDevice;
use blockdev::{Device, Op};
use codec::verity::{DESCRIPTOR_SIZE, Tree};
use f2fs::{Features, MakeOptions, OpenOptions};
use f2fs_disk::checkpoint::{Checkpoint, DiskCheckpoint, PackEnd, encode};
use f2fs_disk::inode::{self, Inode};
use f2fs_disk::nat::{self, NatEntry};
use f2fs_disk::sit::SitEntry;
use f2fs_disk::summary::{self, SummaryBlock};
use f2fs_disk::superblock::{DiskSuperblock, SUPERBLOCK_SIZE, Superblock, UncheckedSuperblock, copy_offset};
use f2fs_disk::{Block, BlockAddr, Geometry, Nid, OnDisk as _};
use host::Env;
use vfs::file_system::NodeFlags;
use vfs::file_system::XattrMode;
use vfs::{File, Volume};

const IMAGE_BYTES: u64 = 64 << 20;
const CLOCK: (i64, u32) = (1_700_000_000, 0);
pub const ALL: Features = Features::EXTRA_ATTR
    .union(Features::QUOTA_INO)
    .union(Features::INODE_CHKSUM)
    .union(Features::CASEFOLD)
    .union(Features::INODE_CRTIME)
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::SB_CHKSUM);

/// Contents of `/sealed`.
pub const SEALED: &[u8] = b"protected contents of one block";
/// Position of its descriptor; a file of one block has no tree.
pub const DESCRIPTOR_AT: u64 = 65_536;
fn descriptor() -> Vec<u8> {
    let mut bytes = vec![0; DESCRIPTOR_SIZE];
    bytes[..3].copy_from_slice(&[1, 1, 12]);
    bytes[8..16].copy_from_slice(&SEALED.len().to_le_bytes());
    let root = Tree::new(&bytes, SEALED.len() as u64).unwrap().hash(SEALED);
    bytes[16..48].copy_from_slice(&root);
    bytes
}

/// A volume, and its origin.
pub struct Base {
    pub name: &'static str,
    pub device: MemoryDevice,
}

/// A closed volume for each set of features, and one cut by a crash: with orphans and fsyncs.
pub fn bases() -> Vec<Base> {
    let made = |features: Features| {
        let device = MemoryDevice::new(IMAGE_BYTES);
        let options = MakeOptions { features, uuid: [7; 16], time: 1_700_000_000, ..MakeOptions::default() };
        f2fs::make(&device, &options).unwrap();
        device
    };
    let mut all = vec![Base { name: "empty", device: made(ALL) }];
    let devices = [
        ("all", "cut", Some(made(ALL))),
        ("plain", "plain cut", Some(made(Features::empty()))),
        ("mkfs.f2fs", "mkfs.f2fs cut", made_by_mkfs()),
    ];
    for (name, cut_name, device) in devices {
        let Some(device) = device.map(Arc::new) else { continue };
        let volume = open(&device);
        fill(&volume);
        volume.close().unwrap();
        all.push(Base { name, device: device.duplicate() });
        let volume = open(&device);
        let orphan = File::open(&volume, "/orphan").unwrap();
        volume.remove_file("/orphan").unwrap();
        let dir = File::open(&volume, "/orphan-dir").unwrap();
        volume.remove_dir("/orphan-dir").unwrap();
        volume.sync().unwrap();
        for index in 0..3 {
            let file = File::create(&volume, format!("/fsynced{index}")).unwrap();
            file.write_at(&[5; 9000], 0).unwrap();
            file.sync_all().unwrap();
        }
        all.push(Base { name: cut_name, device: device.duplicate() });
        drop((orphan, dir));
    }
    all
}

/// A volume made by `mkfs.f2fs`, if that is installed.
fn made_by_mkfs() -> Option<MemoryDevice> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(IMAGE_BYTES).unwrap();
    let features = "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,lost_found";
    let output = Command::new("mkfs.f2fs").args(["-q", "-f", "-O", features]).arg(file.path()).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(MemoryDevice::from_bytes(&std::fs::read(file.path()).unwrap()))
}

fn open(device: &Arc<MemoryDevice>) -> Volume {
    let device: Arc<dyn Device> = Arc::<MemoryDevice>::clone(device);
    Volume::new(Arc::new(OpenOptions::new().writable(true).env(Env::seeded(1, CLOCK)).open(device).unwrap()))
}

fn fill(volume: &Volume) {
    volume.write("/big", vec![3; 7 << 20]).unwrap();
    volume.write("/small", b"inline").unwrap();
    volume.write("/middle", vec![4; 50_000]).unwrap();
    volume.create_dir_all("/deep/er/and/deeper").unwrap();
    volume.write("/deep/er/and/deeper/file", b"x").unwrap();
    let sealed = File::create(volume, "/sealed").unwrap();
    sealed.write_at(SEALED, 0).unwrap();
    sealed.write_at(&descriptor(), DESCRIPTOR_AT).unwrap();
    drop(sealed);
    volume.create_dir("/many").unwrap();
    volume.create_dir("/folded").unwrap();
    // Where the volume has no such directories, it stays as the others are.
    let _ = volume.set_flags("/folded", NodeFlags::from_bits_retain(0x4000_0000));
    for name in ["Größe", "SIZE", "odd \u{1f972}"] {
        volume.write(format!("/folded/{name}"), b"z").unwrap();
    }
    for index in 0..700 {
        volume.write(format!("/many/a name that takes some slots {index}"), b"y").unwrap();
    }
    volume.symlink("target", "/link").unwrap();
    volume.hard_link("/middle", "/deep/linked").unwrap();
    volume.set_xattr("/small", "user.one", "value", XattrMode::Either).unwrap();
    volume.set_xattr("/middle", "user.long", "v".repeat(3000), XattrMode::Either).unwrap();
    volume.write("/orphan", vec![6; 20_000]).unwrap();
    volume.create_dir("/orphan-dir").unwrap();
    let sparse = File::create(volume, "/sparse").unwrap();
    sparse.write_at(b"far", 5 << 30).unwrap();
    volume.sync().unwrap();
    // Blocks become free, and the segments of the logs have holes.
    for index in (0..700).step_by(3) {
        volume.remove_file(format!("/many/a name that takes some slots {index}")).unwrap();
    }
}

/// A device with blocks that cannot be read, or that is shorter than it was.
#[derive(Debug)]
pub struct Worn {
    inner: MemoryDevice,
    bad: BTreeSet<u32>,
    size_bytes: u64,
}

impl Device for Worn {
    fn name(&self) -> &str {
        "worn"
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        let end = offset + buf.len() as u64;
        if self.bad.iter().any(|at| u64::from(*at) * 4096 < end && u64::from(*at + 1) * 4096 > offset) {
            let source = std::io::Error::other("a bad block");
            return Err(blockdev::Error::io(Op::Read, "worn", offset, buf.len() as u64, source));
        }
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, _: u64, _: &[&[u8]]) -> blockdev::Result<()> {
        panic!("a check writes");
    }

    fn flush(&self) -> blockdev::Result<()> {
        panic!("a check flushes");
    }

    fn discard(&self, _: u64, _: u64) -> blockdev::Result<()> {
        panic!("a check discards");
    }

    fn grow(&self, _: u64) -> blockdev::Result<()> {
        panic!("a check grows");
    }
}

/// Changes a volume.
pub struct Editor {
    device: MemoryDevice,
    bad: BTreeSet<u32>,
    size_bytes: u64,
    pub superblock: Superblock,
    pub checkpoint: Checkpoint,
    inos: Vec<(String, u32)>,
}

impl Editor {
    pub fn new(base: &Base) -> Self {
        let device = base.device.duplicate();
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        device.read_at(copy_offset(0), &mut bytes).unwrap();
        let superblock = UncheckedSuperblock::new(&bytes).unwrap().verify(copy_offset(0)).unwrap();
        let packs: Vec<Checkpoint> = [0, 1]
            .iter()
            .filter_map(|number| pack(&device, &superblock, superblock.geometry().pack(*number)))
            .collect();
        let checkpoint = packs.into_iter().reduce(|a, b| if b.is_newer_than(&a) { b } else { a }).unwrap();
        let read_only: Arc<dyn Device> = Arc::new(device.duplicate().into_read_only());
        let volume = Volume::new(Arc::new(OpenOptions::new().skip_recovery(true).open(read_only).unwrap()));
        let mut inos = Vec::new();
        for path in
            ["/big", "/small", "/middle", "/deep", "/deep/er", "/many", "/folded", "/sealed", "/link", "/sparse"]
        {
            if let Ok(metadata) = volume.symlink_metadata(path) {
                inos.push((path.to_owned(), u32::try_from(metadata.home.ino).unwrap()));
            }
        }
        let size_bytes = device.size_bytes();
        Self { device, bad: BTreeSet::new(), size_bytes, superblock, checkpoint, inos }
    }

    /// The changed device.
    pub fn finish(self) -> Worn {
        Worn { inner: self.device, bad: self.bad, size_bytes: self.size_bytes }
    }

    pub fn geometry(&self) -> Geometry {
        *self.superblock.geometry()
    }

    pub fn ino(&self, path: &str) -> Option<Nid> {
        self.inos.iter().find(|(known, _)| known == path).map(|(_, ino)| Nid(*ino))
    }

    pub fn read(&self, at: BlockAddr) -> Block {
        read(&self.device, at)
    }

    pub fn write(&self, at: BlockAddr, block: &Block) {
        self.device.write_at(at.byte(), &[block.as_slice()]).unwrap();
    }

    pub fn edit(&self, at: BlockAddr, change: impl FnOnce(&mut Block)) {
        let mut block = self.read(at);
        change(&mut block);
        self.write(at, &block);
    }

    pub fn spoil(&mut self, at: BlockAddr) {
        self.bad.insert(at.0);
    }

    pub fn shorten(&mut self, by: u64) {
        self.size_bytes -= by;
    }

    pub fn super_copy(&self, copy: u64, seals: bool, change: impl FnOnce(&mut DiskSuperblock)) {
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        self.device.read_at(copy_offset(copy), &mut bytes).unwrap();
        let mut fields = *DiskSuperblock::parse(&bytes).unwrap();
        change(&mut fields);
        if seals && fields.features().contains(Features::SB_CHKSUM) {
            fields.seal();
        }
        self.device.write_at(copy_offset(copy), &[zerocopy::IntoBytes::as_bytes(&fields)]).unwrap();
    }

    pub fn checkpoint_fields(&self, change: impl FnOnce(&mut DiskCheckpoint)) {
        let mut fields = *self.checkpoint.fields();
        change(&mut fields);
        let payload = self.geometry().cp_payload;
        let head = encode(&fields, self.checkpoint.sit_bitmap(), self.checkpoint.nat_bitmap(), payload);
        self.device.write_at(self.checkpoint.at().byte(), &[&head]).unwrap();
        let last = self.checkpoint.at().plus(self.checkpoint.fields().cp_pack_total_block_count.get() - 1);
        self.write(last, head.first_chunk().unwrap());
    }

    /// Changes the first block of the checkpoint freely; the checksum is corrected if it stays there.
    pub fn checkpoint_bytes(&self, change: impl FnOnce(&mut [u8])) {
        let last = self.checkpoint.at().plus(self.checkpoint.fields().cp_pack_total_block_count.get() - 1);
        self.edit(self.checkpoint.at(), |block| {
            let (contents, sum) = block.split_at_mut(4092);
            change(&mut contents[..192]);
            sum.copy_from_slice(&f2fs_disk::hash::crc32(contents).to_le_bytes());
        });
        self.write(last, &self.read(self.checkpoint.at()));
    }

    /// True where the summaries of the logs of data lie in few blocks.
    pub fn is_packed(&self) -> bool {
        self.checkpoint.flags().contains(f2fs_disk::flags::CheckpointFlags::COMPACT_SUM)
    }

    /// Summary of a log of data that is being written, where it is not packed.
    pub fn edit_summary(&self, log: u32, change: impl FnOnce(&mut SummaryBlock)) {
        self.edit_summary_at(self.checkpoint.data_summary(log), change);
    }

    pub fn edit_summary_at(&self, at: BlockAddr, change: impl FnOnce(&mut SummaryBlock)) {
        self.edit(at, |block| change(zerocopy::transmute_mut!(block)));
    }

    pub fn nat(&self, nid: Nid) -> NatEntry {
        let journal = self.nat_journal();
        if let Some((_, entry)) = journal.iter().find(|(found, _)| *found == nid) {
            return *entry;
        }
        let (at, index) = self.geometry().nat_block(nid, self.checkpoint.nat_bitmap());
        nat::entry(&self.read(at), index).unwrap()
    }

    fn nat_journal(&self) -> Vec<(Nid, NatEntry)> {
        let block = self.read(self.checkpoint.data_summary(0));
        // Another change may have damaged it.
        let summary = SummaryBlock::verify(&block);
        summary.and_then(|summary| summary::nat_journal(&summary.journal)).unwrap_or_default()
    }

    pub fn set_nat(&self, nid: Nid, entry: NatEntry) {
        let mut journal = self.nat_journal();
        if let Some((_, old)) = journal.iter_mut().find(|(found, _)| *found == nid) {
            *old = entry;
            self.edit_summary(0, |summary| summary.journal = summary::nat_journal_of(&journal));
            return;
        }
        let (at, index) = self.geometry().nat_block(nid, self.checkpoint.nat_bitmap());
        self.edit(at, |block| nat::put(block, index, &entry));
    }

    /// Entries of the SIT that are in the checkpoint.
    pub fn sit_journal(&self) -> Vec<(u32, SitEntry)> {
        let block = self.read(self.checkpoint.data_summary(2));
        let summary = SummaryBlock::verify(&block);
        summary.and_then(|summary| summary::sit_journal(&summary.journal)).unwrap_or_default()
    }

    /// Changes the SIT's entry of a segment.
    pub fn edit_sit(&self, segment: u32, change: impl FnOnce(&mut SitEntry)) {
        let mut journal = self.sit_journal();
        if let Some((_, entry)) = journal.iter_mut().find(|(found, _)| *found == segment) {
            change(entry);
            self.edit_summary(2, |summary| summary.journal = summary::sit_journal_of(&journal));
            return;
        }
        let (at, index) = self.geometry().sit_block(segment, self.checkpoint.sit_bitmap());
        self.edit(at, |block| {
            let bytes = &mut block[index * size_of::<SitEntry>()..][..size_of::<SitEntry>()];
            let mut entry = *SitEntry::parse(bytes).unwrap();
            change(&mut entry);
            bytes.copy_from_slice(zerocopy::IntoBytes::as_bytes(&entry));
        });
    }

    /// Changes the node of a file, and makes the checksum of an inode right.
    pub fn edit_node(&self, nid: Nid, change: impl FnOnce(&mut Block)) {
        let (features, seed) = (self.superblock.features(), self.superblock.inode_checksum_seed());
        let at = self.nat(nid).at();
        if !self.geometry().is_main(at) {
            return;
        }
        self.edit(at, |block| {
            change(block);
            if f2fs_disk::node::Footer::of(block).is_inode() {
                inode::seal(block, nid, features, seed);
            }
        });
    }

    pub fn inode(&self, ino: Nid) -> (Inode, Block) {
        let block = self.read(self.nat(ino).at());
        let inode = Inode::verify(&block, ino, self.superblock.features(), self.superblock.inode_checksum_seed());
        (inode.unwrap(), block)
    }

    /// The address of a file's block that the inode has.
    pub fn address(&self, ino: Nid, index: usize) -> BlockAddr {
        let (inode, block) = self.inode(ino);
        BlockAddr(inode.addresses(&block)[index].get())
    }

    pub fn set_address(&self, ino: Nid, index: usize, at: BlockAddr) {
        let (inode, _) = self.inode(ino);
        self.edit_node(ino, |block| inode.addresses_mut(block)[index] = at.0.into());
    }

    pub fn segment_of(&self, at: BlockAddr) -> u32 {
        (at.0 - self.geometry().main.0) / 512
    }

    /// A number that no node has.
    pub fn free_nid(&self) -> Nid {
        Nid(self.geometry().nid_count - 1)
    }
}

fn read(device: &MemoryDevice, at: BlockAddr) -> Block {
    let mut block = [0; 4096];
    device.read_at(at.byte(), &mut block).unwrap();
    block
}

fn pack(device: &MemoryDevice, superblock: &Superblock, at: BlockAddr) -> Option<Checkpoint> {
    let head = read(device, at);
    let last = read(device, at.plus(PackEnd::verify(&head).ok()?.last_index()));
    Checkpoint::verify(&head, &last, at, superblock).ok()
}
