//! Makes, opens and checks f2fs volumes for the crash explorer: its `Format` for f2fs. Trials (`crash_explore`,
//! `formats`) and tests pass it to the explorer.

use std::sync::Arc;

use anyhow::Result;
use blockdev::Device;
use blockdev::backends::MemoryDevice;
use crash_explorer::{Access, CLOCK, Form, Format, Step};
use f2fs::{ActiveLogs, Features, MakeOptions, OpenOptions};
use f2fs_disk::checkpoint::{Checkpoint, PackEnd, WARM_NODE};
use f2fs_disk::flags::CheckpointFlags;
use f2fs_disk::node::Footer;
use f2fs_disk::superblock::{SUPERBLOCK_SIZE, Superblock, UncheckedSuperblock, copy_offset};
use f2fs_disk::{BLOCK_SIZE, Block, BlockAddr};
use host::Env;

/// Small enough to be kept in memory often, large enough for the kernel to mount.
const IMAGE_BYTES: u64 = 128 << 20;
/// Files of one round of ageing of a volume of [`Form::NoInline`].
const AGING_FILES: usize = 240;
const AGING_ROUNDS_MAX: usize = 20;
const AGED_BYTES: usize = 4 * BLOCK_SIZE;
/// One of this many files stays.
const AGED_ONE_IN: usize = 40;
/// Numbers of logs in `alloc_type`.
const WARM_DATA_LOG: usize = 1;
const WARM_NODE_LOG: usize = 4;
/// Allocation type of a log that fills holes.
const IN_HOLES: u8 = 1;
/// Further features of inodes of [`Form::Usual`].
const USUAL: Features = Features::EXTRA_ATTR
    .union(Features::INODE_CHKSUM)
    .union(Features::INODE_CRTIME)
    .union(Features::FLEXIBLE_INLINE_XATTR)
    .union(Features::SB_CHKSUM);

/// The format.
#[derive(Debug, Clone, Copy, Default)]
pub struct F2fs;

impl Format for F2fs {
    fn make(&self, form: Form) -> Result<Arc<dyn Device>> {
        let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
        // The explorer compares birth times.
        let features = if form == Form::Usual { USUAL } else { Features::EXTRA_ATTR | Features::INODE_CRTIME };
        let section_segments = if form == Form::Compressed { 2 } else { 1 };
        let time = u64::try_from(CLOCK.0)?;
        let options = MakeOptions { features, section_segments, uuid: [7; 16], time, ..MakeOptions::default() };
        f2fs::make(&*device, &options)?;
        if form == Form::NoInline {
            age(&device)?;
        }
        Ok(Arc::new(device.duplicate().into_read_only()))
    }

    fn base(&self, form: Form) -> Form {
        form
    }

    fn open(&self, form: Form, device: Arc<dyn Device>, access: Access) -> Result<vfs::Volume> {
        let is_writable = access == Access::ReadWrite;
        let discard = matches!(form, Form::Small | Form::NoInline);
        let active_logs = if form == Form::Compressed { ActiveLogs::Four } else { ActiveLogs::Six };
        let options = OpenOptions::new().writable(is_writable).discard(discard).active_logs(active_logs);
        let options = options.env(Env::seeded(1, CLOCK));
        let opened = options.open(device)?;
        Ok(vfs::Volume::new(Arc::new(opened)))
    }

    /// If it cannot be told, the volume is opened, which reports the reason.
    fn has_log(&self, device: &dyn Device) -> bool {
        has_fsynced(device).unwrap_or(true)
    }

    fn check(&self, device: &dyn Device) -> Result<()> {
        let report = f2fs_check::check(device, &f2fs_check::Options::default(), &())?;
        match report.findings.first() {
            None => Ok(()),
            Some(finding) => anyhow::bail!("a check finds {:?}; first: {finding:?}", report.counts),
        }
    }

    fn inode_count(&self, device: &dyn Device) -> Result<Option<u64>> {
        let (_, checkpoint) = newest(device)?;
        Ok(Some(u64::from(checkpoint.fields().valid_inode_count.get())))
    }

    /// Without sharing, defragmentation, orders, and subvolumes.
    fn can(&self, step: &Step) -> bool {
        match step {
            Step::Subvolume { .. } | Step::Snapshot { .. } | Step::DeleteSubvolume { .. } => false,
            Step::Clone { .. } | Step::Defrag { .. } => false,
            Step::Order { .. } | Step::Resize { .. } => false,
            // Compression and writes in place are set in other ways.
            Step::Chattr { flags, .. } => !flags.contains(['c', 'm', 'C']),
            _ => true,
        }
    }
}

/// Leaves files in partly used segments, and logs that fill their holes.
fn age(device: &Arc<MemoryDevice>) -> Result<()> {
    let options = OpenOptions::new().writable(true).env(Env::seeded(1, CLOCK));
    let volume = vfs::Volume::new(Arc::new(options.open(Arc::<MemoryDevice>::clone(device))?));
    volume.create_dir("aged")?;
    for round in 0..AGING_ROUNDS_MAX {
        let name = |number: usize| format!("aged/{round}-{number}");
        for number in 0..AGING_FILES {
            volume.write(name(number), vec![u8::try_from(number % 255)?; AGED_BYTES])?;
        }
        volume.sync()?;
        for number in (0..AGING_FILES).filter(|number| !number.is_multiple_of(AGED_ONE_IN)) {
            volume.remove_file(name(number))?;
        }
        volume.sync()?;
        let (_, checkpoint) = newest(&**device)?;
        if [WARM_DATA_LOG, WARM_NODE_LOG].iter().all(|log| checkpoint.fields().alloc_type[*log] == IN_HOLES) {
            return Ok(volume.close()?);
        }
    }
    anyhow::bail!("no log fills holes after {AGING_ROUNDS_MAX} rounds")
}

/// The superblock, and the valid checkpoint.
fn newest(device: &dyn Device) -> Result<(Superblock, Checkpoint)> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at(copy_offset(0), &mut bytes)?;
    let superblock = UncheckedSuperblock::new(&bytes)?.verify(copy_offset(0))?;
    let geometry = superblock.geometry();
    let packs = [0, 1].map(|number| read_pack(device, &superblock, geometry.pack(number)));
    let checkpoint = match packs {
        [Ok(first), Ok(second)] if second.is_newer_than(&first) => second,
        [Ok(first), _] => first,
        [Err(_), second] => second?,
    };
    Ok((superblock, checkpoint))
}

/// True if the next opening has to finish something: a node of an fsync behind the checkpoint, or orphans. Follows no
/// more nodes than the device has blocks.
fn has_fsynced(device: &dyn Device) -> Result<bool> {
    let (superblock, checkpoint) = newest(device)?;
    if checkpoint.flags().contains(CheckpointFlags::ORPHAN_PRESENT) {
        return Ok(true);
    }
    let geometry = superblock.geometry();
    let fields = checkpoint.fields();
    let (segment, next) = (fields.cur_node_segno[WARM_NODE].get(), fields.cur_node_blkoff[WARM_NODE].get());
    let mut at = geometry.segment_block(segment, u32::from(next));
    for _ in 0..geometry.main_blocks {
        if !geometry.is_main(at) {
            break;
        }
        let footer = Footer::of(&read(device, at)?);
        if !checkpoint.is_of_next(footer.cp_ver.get()) {
            break;
        }
        if footer.is_fsync() {
            return Ok(true);
        }
        at = BlockAddr(footer.next_blkaddr.get());
    }
    Ok(false)
}

/// A pack of a volume without a payload, as [`F2fs`] makes them.
fn read_pack(device: &dyn Device, superblock: &Superblock, at: BlockAddr) -> Result<Checkpoint> {
    let head = read(device, at)?;
    let end = PackEnd::verify(&head)?;
    let last = read(device, at.plus(end.last_index()))?;
    Ok(Checkpoint::verify(&head, &last, at, superblock)?)
}

fn read(device: &dyn Device, at: BlockAddr) -> Result<Block> {
    let mut block = [0; BLOCK_SIZE];
    device.read_at(at.byte(), &mut block)?;
    Ok(block)
}
