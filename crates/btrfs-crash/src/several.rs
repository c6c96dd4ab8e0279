//! Makes volumes on several devices, each of which is a part of the recorded one. After a power cut each device has its
//! own subset of the writes that were not flushed, and then one of the devices may be lost: promises have to hold
//! still.
//!
//! A volume flushes its devices one after the other, and promises nothing before the last of them: so only the flush of
//! the last one is recorded. That leaves more states than there can be, and none too few.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use blockdev::Device;
use blockdev::backends::MemoryDevice;
use btrfs::{MakeOptions, Volume};
use btrfs_disk::flags::BlockGroupFlags;
use crash_explorer::{Access, Form, Format};

use crate::{SMALL_NODE_BYTES, has_log_at, volume_options};

/// Bytes of each device, with one mirror of the superblock.
const DEVICE_BYTES: u64 = 96 << 20;

/// The format btrfs, on several devices.
#[derive(Debug, Clone, Copy)]
pub struct Several {
    /// Number of devices.
    pub count: usize,
    /// Profile of data and of metadata.
    pub profile: BlockGroupFlags,
    /// Index of the device that is lost after the power cut.
    pub lost: Option<usize>,
}

impl Several {
    /// A device that is a part of `whole`, by its index, which may be beyond [`Self::count`]. Each flush of it is one
    /// of the whole.
    #[must_use]
    pub fn part(&self, whole: &Arc<dyn Device>, index: usize) -> Arc<dyn Device> {
        Arc::new(Part {
            whole: Arc::clone(whole),
            name: format!("device {index}"),
            start: start_of(index),
            flushes: true,
        })
    }

    /// Bytes of so many devices.
    #[must_use]
    pub fn bytes_of(&self, count: usize) -> u64 {
        start_of(count)
    }

    /// The devices that are parts of `whole`, without the lost one.
    fn parts(&self, whole: &Arc<dyn Device>, lost: Option<usize>) -> Vec<Arc<dyn Device>> {
        let kept: Vec<usize> = (0..self.count).filter(|index| Some(*index) != lost).collect();
        let part = |index: &usize| -> Arc<dyn Device> {
            Arc::new(Part {
                whole: Arc::clone(whole),
                name: format!("device {index}"),
                start: start_of(*index),
                flushes: kept.last() == Some(index),
            })
        };
        kept.iter().map(part).collect()
    }

    fn open_without(
        &self,
        form: Form,
        device: &Arc<dyn Device>,
        access: Access,
        lost: Option<usize>,
    ) -> Result<vfs::Volume> {
        let options = volume_options(form).read_only(access == Access::ReadOnly).degraded(lost.is_some());
        Ok(options.open_devices(self.parts(device, lost))?.by_paths().clone())
    }
}

impl Format for Several {
    fn make(&self, form: Form) -> Result<Arc<dyn Device>> {
        let count = u64::try_from(self.count)?;
        let device = Arc::new(MemoryDevice::new(DEVICE_BYTES.saturating_mul(count)));
        let (data_profile, metadata_profile) = (self.profile, self.profile);
        let mut make = MakeOptions { data_profile, metadata_profile, ..MakeOptions::default() };
        if form != Form::Usual {
            make.nodesize = SMALL_NODE_BYTES;
        }
        let whole: Arc<dyn Device> = device.clone();
        let volume: Volume = volume_options(form).make_devices(self.parts(&whole, None), &make)?;
        volume.close()?;
        Ok(Arc::new(device.duplicate().into_read_only()))
    }

    fn open(&self, form: Form, device: Arc<dyn Device>, access: Access) -> Result<vfs::Volume> {
        self.open_without(form, &device, access, None)
    }

    fn open_state(&self, form: Form, device: Arc<dyn Device>, access: Access) -> Result<vfs::Volume> {
        let without = || format!("without the device {:?}", self.lost);
        self.open_without(form, &device, access, self.lost).with_context(without)
    }

    fn has_log(&self, device: &dyn Device) -> bool {
        (0..self.count).any(|index| has_log_at(device, start_of(index)))
    }
}

/// The first byte of a device in the recorded one.
fn start_of(index: usize) -> u64 {
    u64::try_from(index).unwrap_or(0).saturating_mul(DEVICE_BYTES)
}

/// A part of a device, as a device.
#[derive(Debug)]
struct Part {
    whole: Arc<dyn Device>,
    name: String,
    start: u64,
    /// Flushes are passed on.
    flushes: bool,
}

impl Part {
    fn place(&self, offset: u64) -> u64 {
        self.start.saturating_add(offset)
    }
}

impl Device for Part {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        DEVICE_BYTES
    }

    fn is_read_only(&self) -> bool {
        self.whole.is_read_only()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> blockdev::Result<()> {
        self.whole.read_at(self.place(offset), buf)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> blockdev::Result<()> {
        self.whole.write_at(self.place(offset), parts)
    }

    fn flush(&self) -> blockdev::Result<()> {
        if self.flushes { self.whole.flush() } else { Ok(()) }
    }

    fn discard(&self, offset: u64, len: u64) -> blockdev::Result<()> {
        self.whole.discard(self.place(offset), len)
    }

    fn grow(&self, size_bytes: u64) -> blockdev::Result<()> {
        let _ = size_bytes;
        Ok(())
    }
}
