//! Makes and opens btrfs volumes for the crash explorer (its [`Format`] for btrfs), and tells whether they have a log
//! tree.
//!
//! [`Several`] makes them on several devices, and loses one of these after the power cut.
//!
//! Callers: the explorer, to which trials and tests pass it; scripts of trials take the options ([`volume_options`]).

mod several;

use std::sync::Arc;

use anyhow::Result;
use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{Compression, CompressionType, Env, MakeOptions, Volume, VolumeOptions};
use crash_explorer::{Access, CLOCK, Form, Format};

pub use several::Several;

/// Small enough for many copies in memory, large enough for the kernel to mount, with one mirror of the superblock.
const IMAGE_BYTES: u64 = 128 << 20;
/// One block of a tree is a few KiB: the trees of a state are few.
const CACHE_BYTES: usize = 4 << 20;
/// Bytes of a tree block in [`Form::Small`].
const SMALL_NODE_BYTES: u32 = 4096;
/// Where the primary superblock has the address of the log tree's root.
const LOG_ROOT_AT: u64 = (64 << 10) + 96;

/// The fastest level of zlib, which every kernel has. All data that becomes smaller is compressed.
const COMPRESSION: Compression = Compression { kind: CompressionType::Zlib, level: 1, is_forced: true };

/// The format btrfs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Btrfs;

/// Options to open a volume of a form: on the calling thread, with a clock that stands still.
#[must_use]
pub fn volume_options(form: Form) -> VolumeOptions {
    let options = Volume::options().workers(1).cache_bytes(CACHE_BYTES).env(Env::seeded(1, CLOCK));
    match form {
        Form::Small => options.discard(true),
        Form::Usual => options,
        Form::NoInline => options.max_inline(0).discard(true),
        Form::Compressed => options.max_inline(0).compress(Some(COMPRESSION)),
    }
}

impl Format for Btrfs {
    fn make(&self, form: Form) -> Result<Arc<dyn Device>> {
        let device = Arc::new(MemoryDevice::new(IMAGE_BYTES));
        let mut make = MakeOptions { size: Some(IMAGE_BYTES), ..MakeOptions::default() };
        if form != Form::Usual {
            make.nodesize = SMALL_NODE_BYTES;
            make.metadata_profile = Default::default();
        }
        let volume = volume_options(form).make_device(Arc::<MemoryDevice>::clone(&device), &make)?;
        volume.close()?;
        Ok(Arc::new(device.duplicate().into_read_only()))
    }

    fn open(&self, form: Form, device: Arc<dyn Device>, access: Access) -> Result<vfs::Volume> {
        let volume = volume_options(form).read_only(access == Access::ReadOnly).open_device(device)?;
        Ok(volume.by_paths().clone())
    }

    fn has_log(&self, device: &dyn Device) -> bool {
        has_log_at(device, 0)
    }
}

/// True if the volume that begins at `start` of a device may have a log.
fn has_log_at(device: &dyn Device, start: u64) -> bool {
    let mut log_root = [0; 8];
    // If the primary superblock cannot be read, a mirror, which is not read here, may have a log: true is safe.
    device.read_at(start.saturating_add(LOG_ROOT_AT), &mut log_root).is_err() || log_root != [0; 8]
}
