//! Registers the file system in memory that is kept on a device as a format among others: the smallest one there can
//! be. The example `with_memory` of `cli` adds it to the program.

use std::any::Any;
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use blockdev::Device;
use checking::Watch;
use formats::magic::{Magic, magic};
use formats::{CheckOptions, CheckReport, Devices, Engine, Format, Info, MakeOptions, VolumeOptions, single};
use vfs::file_system::Answer;
use vfs::{FileSystem, Volume};

use crate::{MemoryFs, MemoryOptions};

const NAME: &str = "memory";
const MAGIC: Magic = magic(0, b"MemTree\x01");

/// The format.
#[derive(Debug)]
pub struct MemoryFormat;

/// An open volume.
struct MemoryEngine {
    fs: Arc<MemoryFs>,
    owner: (u32, u32),
}

impl fmt::Debug for MemoryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEngine").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// Of a device of which a quarter can be filled by files: a sync has room for a second tree.
fn options(device: &dyn Device, read_only: bool) -> MemoryOptions {
    MemoryOptions { capacity_bytes: device.size_bytes() / 4, read_only, ..MemoryOptions::default() }
}

impl Format for MemoryFormat {
    fn name(&self) -> &'static str {
        NAME
    }

    fn magic(&self) -> &'static Magic {
        &MAGIC
    }

    fn open(&self, devices: Devices, wanted: &VolumeOptions) -> Answer<Arc<dyn Engine>> {
        self.check_options(wanted)?;
        let device = single(devices, "memory volumes")?;
        let options = MemoryOptions { atime: wanted.atime, ..options(&*device, wanted.read_only) };
        let fs = Arc::new(MemoryFs::open_on(device, &options)?);
        Ok(Arc::new(MemoryEngine { fs, owner: wanted.owner }))
    }

    fn make(&self, devices: Devices, wanted: &MakeOptions) -> Answer<Arc<dyn Engine>> {
        let device = single(devices, "memory volumes")?;
        let options = options(&*device, false);
        let fs = Arc::new(MemoryFs::make_on(device, &options)?);
        Ok(Arc::new(MemoryEngine { fs, owner: wanted.owner }))
    }

    /// A tree with a right checksum is consistent, so opening it is the check.
    fn check(&self, devices: Devices, _: &CheckOptions, watch: &dyn Watch) -> Answer<CheckReport> {
        let device = single(devices, "memory volumes")?;
        watch.set_total(device.size_bytes());
        let fs = MemoryFs::open_on(Arc::clone(&device), &options(&*device, true))?;
        let inodes = fs.status()?;
        let inodes = inodes.nodes.saturating_sub(inodes.nodes_free);
        watch.add_inodes(inodes);
        Ok(CheckReport { inodes, ..CheckReport::default() })
    }
}

impl Engine for MemoryEngine {
    fn volume(&self) -> Volume {
        let (uid, gid) = self.owner;
        Volume::new(Arc::<MemoryFs>::clone(&self.fs)).owner(uid, gid)
    }

    fn serve(&self) -> Answer<Arc<dyn FileSystem>> {
        Ok(Arc::<MemoryFs>::clone(&self.fs))
    }

    fn info(&self) -> Answer<Info> {
        let status = self.fs.status()?;
        let block = u64::from(status.block_bytes);
        Ok(Info {
            format: NAME,
            label: OsString::new(),
            uuid: [0; 16],
            block_bytes: status.block_bytes,
            total_bytes: status.blocks.saturating_mul(block),
            free_bytes: status.blocks_free.saturating_mul(block),
        })
    }

    fn own(&self) -> &dyn Any {
        &self.fs
    }
}
