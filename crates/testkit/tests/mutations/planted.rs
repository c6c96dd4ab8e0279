//! Mistakes made below the engine: the device changes writes, or omits a flush.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use blockdev::Device;
use btrfs_crash::Btrfs;
use btrfs_disk::items::{InodeItem, OnDisk};
use btrfs_disk::key::item_type::INODE_ITEM;
use btrfs_disk::node::{HEADER_SIZE, LeafView, header};
use btrfs_disk::superblock::{DiskSuperblock, SUPERBLOCK_SIZE};
use btrfs_disk::{TreeId, verify};
use codec::ChecksumType;
use crash_explorer::{Access, Form, Format};

/// Where the primary superblock lies.
const SUPERBLOCK_AT: u64 = 64 << 10;
/// Type bits of a regular file in a mode.
const REGULAR: u32 = 0o100_000;
const TYPE_MASK: u32 = 0o170_000;
/// Bytes by which a size is too large.
const SECTOR_BYTES: u64 = 4096;

/// A mistake below the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// The log gets a mode with another bit.
    LoggedModeWrong,
    /// The log gets another owner and group.
    LoggedOwnerWrong,
    /// The log gets times that are 0.
    LoggedTimesZero,
    /// The log gets no inode flags.
    LoggedFlagsZero,
    /// A file's size in the log is a sector too large.
    SizeTooLarge,
    /// A commit gets times that are 0.
    CommittedTimesZero,
    /// A commit gets no inode flags.
    CommittedFlagsZero,
    /// No flush between blocks and the superblock that leads to them.
    NoFlushBeforeSuperblock,
    /// No flush after the superblock: a sync returns before it is durable.
    NoFlushAfterSuperblock,
}

impl Planted {
    pub(crate) const ALL: [Self; 9] = [
        Self::LoggedModeWrong,
        Self::LoggedOwnerWrong,
        Self::LoggedTimesZero,
        Self::LoggedFlagsZero,
        Self::SizeTooLarge,
        Self::CommittedTimesZero,
        Self::CommittedFlagsZero,
        Self::NoFlushBeforeSuperblock,
        Self::NoFlushAfterSuperblock,
    ];

    /// A workload that meets the mistake: operations, one a line.
    pub(crate) fn steps(self) -> &'static str {
        match self {
            Self::LoggedModeWrong => "creat a\nsync\nchmod a 600\nfsync a",
            Self::LoggedOwnerWrong => "creat a\nsync\nchown a 7 8\nfsync a",
            Self::LoggedTimesZero => "creat a\nsync\nutimes a 5 7\nfsync a",
            Self::LoggedFlagsZero => "creat a\nsync\nchattr a =d\nfsync a",
            Self::SizeTooLarge => "creat a\nwrite a 0 5000\nfsync a",
            Self::CommittedTimesZero => "creat a\nutimes a 5 7\nsync",
            Self::CommittedFlagsZero => "mkdir a\nchattr a =A\nsync",
            Self::NoFlushBeforeSuperblock | Self::NoFlushAfterSuperblock => {
                "creat a\nwrite a 0 9000\nfsync a\ncreat b\nwrite b 0 9000\nfsync b"
            }
        }
    }

    /// Whether the mistake is one in blocks of this tree.
    fn is_in(self, tree: TreeId) -> bool {
        match self {
            Self::CommittedTimesZero | Self::CommittedFlagsZero => tree.is_subvolume(),
            Self::NoFlushBeforeSuperblock | Self::NoFlushAfterSuperblock => false,
            _ => tree == TreeId::TREE_LOG,
        }
    }

    fn change(self, item: &mut InodeItem) {
        match self {
            Self::LoggedModeWrong => item.mode = (item.mode.get() ^ 0o020).into(),
            Self::LoggedOwnerWrong => {
                (item.uid, item.gid) = ((item.uid.get() ^ 1).into(), (item.gid.get() ^ 1).into());
            }
            Self::LoggedTimesZero | Self::CommittedTimesZero => {
                (item.atime, item.mtime, item.ctime) = Default::default();
            }
            Self::LoggedFlagsZero | Self::CommittedFlagsZero => item.flags = 0.into(),
            // An item of size 0 says that the inode exists, and nothing of its contents.
            Self::SizeTooLarge if item.mode.get() & TYPE_MASK == REGULAR && item.size.get() > 0 => {
                item.size = (item.size.get() + SECTOR_BYTES).into();
            }
            _ => {}
        }
    }
}

/// btrfs on devices that make the mistake.
pub(crate) struct PlantedBtrfs(pub(crate) Planted);

impl Format for PlantedBtrfs {
    fn make(&self, form: Form) -> Result<Arc<dyn Device>> {
        Btrfs.make(form)
    }

    fn open(&self, form: Form, device: Arc<dyn Device>, access: Access) -> Result<vfs::Volume> {
        let device: Arc<dyn Device> = match access {
            Access::ReadWrite => Arc::new(PlantedDevice::new(device, self.0)?),
            Access::ReadOnly => device,
        };
        Btrfs.open(form, device, access)
    }

    fn has_log(&self, device: &dyn Device) -> bool {
        Btrfs.has_log(device)
    }
}

/// A device that makes a mistake.
#[derive(Debug)]
struct PlantedDevice {
    device: Arc<dyn Device>,
    planted: Planted,
    /// Bytes of a tree block, and the UUID that each begins with behind its checksum.
    node_bytes: usize,
    fsid: [u8; 16],
    /// The primary superblock was written since the last flush.
    wrote_superblock: AtomicBool,
}

impl PlantedDevice {
    fn new(device: Arc<dyn Device>, planted: Planted) -> Result<Self> {
        let mut head = [0; SUPERBLOCK_SIZE];
        device.read_at(SUPERBLOCK_AT, &mut head)?;
        let fields = *DiskSuperblock::parse(&head)?;
        let node_bytes = usize::try_from(fields.nodesize.get())?;
        Ok(Self { device, planted, node_bytes, fsid: fields.fsid.0, wrote_superblock: AtomicBool::new(false) })
    }

    /// Makes the mistake in a leaf.
    fn spoil(&self, block: &mut [u8]) {
        let Some(head) = header(block).filter(|head| head.fsid.0 == self.fsid) else { return };
        if head.level != 0 || !self.planted.is_in(TreeId(head.owner.get())) {
            return;
        }
        let leaf = LeafView::new(block);
        let inodes = leaf.items().iter().filter(|item| item.key.get().item_type == INODE_ITEM);
        let places: Vec<usize> =
            inodes.filter_map(|item| Some(HEADER_SIZE + usize::try_from(item.offset.get()).ok()?)).collect();
        for at in places {
            let bytes = block.get_mut(at..at + size_of::<InodeItem>());
            if let Some(item) = bytes.and_then(|bytes| InodeItem::parse_mut(bytes).ok()) {
                self.planted.change(item);
            }
        }
        verify::seal(block, ChecksumType::Crc32c);
    }
}

impl Device for PlantedDevice {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        self.device.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> blockdev::Result<()> {
        if offset == SUPERBLOCK_AT {
            self.wrote_superblock.store(true, Ordering::Relaxed);
            return self.device.write_at(offset, parts);
        }
        let mut bytes = parts.concat();
        bytes.chunks_exact_mut(self.node_bytes).for_each(|block| self.spoil(block));
        self.device.write_at(offset, &[&bytes])
    }

    fn flush(&self) -> blockdev::Result<()> {
        let is_behind = self.wrote_superblock.swap(false, Ordering::Relaxed);
        match self.planted {
            Planted::NoFlushBeforeSuperblock if !is_behind => Ok(()),
            Planted::NoFlushAfterSuperblock if is_behind => Ok(()),
            _ => self.device.flush(),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> blockdev::Result<()> {
        self.device.discard(offset, len)
    }

    fn grow(&self, size_bytes: u64) -> blockdev::Result<()> {
        self.device.grow(size_bytes)
    }
}
