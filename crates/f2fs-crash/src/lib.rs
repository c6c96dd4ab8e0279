//! f2fs as the crash explorer sees it: how a volume is made and opened.

use std::sync::Arc;

use anyhow::Result;
use blockdev::Device;
use blockdev::backends::MemoryDevice;
use crash_explorer::{Access, CLOCK, Form, Format, Step};
use f2fs::{Features, MakeOptions, OpenOptions};
use host::Env;

/// Small enough to be kept in memory often, large enough for the kernel to mount.
const IMAGE_BYTES: u64 = 128 << 20;
/// What inodes of [`Form::Usual`] have besides.
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
        // The explorer looks at births.
        let features = if form == Form::Usual { USUAL } else { Features::EXTRA_ATTR | Features::INODE_CRTIME };
        let section_segments = if form == Form::Compressed { 2 } else { 1 };
        let time = u64::try_from(CLOCK.0)?;
        let options = MakeOptions { features, section_segments, uuid: [7; 16], time, ..MakeOptions::default() };
        f2fs::make(&*device, &options)?;
        Ok(Arc::new(device.duplicate().into_read_only()))
    }

    fn open(&self, _form: Form, device: Arc<dyn Device>, access: Access) -> Result<vfs::Volume> {
        let is_writable = access == Access::ReadWrite;
        let opened = OpenOptions::new().writable(is_writable).env(Env::seeded(1, CLOCK)).open(device)?;
        Ok(vfs::Volume::new(Arc::new(opened)))
    }

    /// Nothing is shared, laid out anew or ordered; there are no subvolumes.
    fn can(&self, step: &Step) -> bool {
        match step {
            Step::Subvolume { .. } | Step::Snapshot { .. } | Step::DeleteSubvolume { .. } => false,
            Step::Clone { .. } | Step::Defrag { .. } => false,
            Step::Order { .. } | Step::Resize { .. } | Step::Trim => false,
            // Compression and writing in place are chosen otherwise.
            Step::Chattr { flags, .. } => !flags.contains(['c', 'm', 'C']),
            _ => true,
        }
    }
}
