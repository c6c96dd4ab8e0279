//! Implements the format btrfs for the library: opening, making, checking and repairing, and an open volume.
//! `spinney::formats` lists it.

use std::any::Any;
use std::sync::Arc;

use ::btrfs::{FsOptions, MakeOptions as Own, Volume};
use blockdev::Device;
use btrfs_check::{Code, Options, Pass, PassTable as _};
use btrfs_disk::Uuid;
use btrfs_disk::flags::BlockGroupFlags;
use btrfs_pool::supers::Copies;
use checking::Watch;
use codec::checksum::ChecksumType;
use formats::magic::{Magic, magic};
use formats::options::{size, unknown};
use formats::{
    CheckOptions, CheckReport, Devices, Engine, Format, Info, MakeOptions, Meaning, OptionError, PassRow, PlacePart,
    RepairOptions, RepairPlan, VolumeOptions,
};
use vfs::{FileSystem, Result};

use super::{options, repair_plan};

/// The name of the format.
const NAME: &str = "btrfs";
/// The magic number of the superblock.
const MAGIC: Magic = magic(0x10040, b"_BHRfS_M");
/// Send streams, which people take for images.
const RELATIVES: &[(&str, Magic)] = &[("a btrfs send stream", magic(0, b"btrfs-stream\0"))];
/// The remedy for a truncated image, as the end of a message.
pub const SHRINKS: &str = "`spinney repair IMAGE` shrinks the file system if no chunk lies beyond the end";

/// The format btrfs.
#[derive(Debug)]
pub(crate) struct Btrfs;

/// An open volume, and how it is served.
#[derive(Debug)]
pub(crate) struct BtrfsEngine {
    pub(crate) volume: Volume,
    served: FsOptions,
}

impl Format for Btrfs {
    fn name(&self) -> &'static str {
        NAME
    }

    fn magic(&self) -> &'static Magic {
        &MAGIC
    }

    fn relatives(&self) -> &'static [(&'static str, Magic)] {
        RELATIVES
    }

    fn open(&self, devices: Devices, options: &VolumeOptions) -> Result<Arc<dyn Engine>> {
        let (volume, served) = options::open(devices, options)?;
        Ok(Arc::new(BtrfsEngine { volume, served }))
    }

    fn make(&self, devices: Devices, options: &MakeOptions) -> Result<Arc<dyn Engine>> {
        let mut own = Own {
            metadata_profile: default_metadata_profile(devices.len()),
            label: options.label.clone().into_bytes(),
            fsid: options.uuid.map(Uuid),
            size: options.size,
            ..Own::default()
        };
        for (name, value) in &options.own {
            match name.as_str() {
                "csum" => own.csum = checksum(value)?,
                "nodesize" => own.nodesize = nodesize(value)?,
                "data" => own.data_profile = profile(value)?,
                "metadata" => own.metadata_profile = profile(value)?,
                _ => return Err(unknown(name)),
            }
        }
        let (uid, gid) = options.owner;
        let volume = Volume::options().owner(uid, gid).make_devices(devices, &own)?;
        Ok(Arc::new(BtrfsEngine { volume, served: FsOptions::default() }))
    }

    fn check(&self, devices: Devices, options: &CheckOptions, watch: &dyn Watch) -> Result<CheckReport> {
        let own = check_options(options);
        Ok(report_of(btrfs_check::check(&devices, &own, watch).map_err(repair_plan::of_check)?))
    }

    fn plan_repair(&self, devices: Devices, options: &RepairOptions, watch: &dyn Watch) -> Result<Box<dyn RepairPlan>> {
        repair_plan::plan(devices, options, watch)
    }

    fn passes(&self) -> Vec<PassRow> {
        formats::passes::<Pass>(NAME).collect()
    }

    fn codes(&self) -> Vec<Meaning> {
        formats::codes::<Code>(NAME).collect()
    }

    fn is_option(&self, name: &str) -> bool {
        options::is_option(name)
    }

    fn check_options(&self, options: &VolumeOptions) -> Result<()> {
        options::check_options(options)
    }

    fn options_help(&self) -> &'static str {
        options::OPTIONS_HELP
    }

    fn remedies(&self, devices: &[Arc<dyn Device>]) -> Vec<String> {
        devices.first().map(|device| remedies(&**device)).unwrap_or_default()
    }
}

impl Engine for BtrfsEngine {
    fn volume(&self) -> vfs::Volume {
        self.volume.by_paths().clone()
    }

    fn serve(&self) -> Result<Arc<dyn FileSystem>> {
        self.volume.serve(self.served.clone())
    }

    fn info(&self) -> Result<Info> {
        let info = self.volume.info()?;
        let status = self.volume.status()?;
        Ok(Info {
            format: NAME,
            label: info.label,
            uuid: info.uuid,
            block_bytes: info.sector_bytes,
            total_bytes: info.total_bytes,
            free_bytes: status.blocks_free.saturating_mul(u64::from(status.block_bytes)),
        })
    }

    fn own(&self) -> &dyn Any {
        &self.volume
    }
}

/// The checksum of this name (`crc32c`, `xxhash64` or `xxhash`, `sha256`, `blake2b` or `blake2`).
///
/// # Errors
/// Another name.
pub fn checksum(text: &str) -> Result<ChecksumType, OptionError> {
    let name = match text {
        "xxhash" => "xxhash64",
        "blake2" => "blake2b",
        name => name,
    };
    ChecksumType::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = ChecksumType::ALL.iter().map(|kind| kind.name()).collect();
        OptionError::wrong(format!("`{text}` is no checksum; there are {}", known.join(", ")))
    })
}

/// The profiles by the names that `mkfs.btrfs` gives them, in any case.
const PROFILES: &[(&str, BlockGroupFlags)] = &[
    ("single", BlockGroupFlags::empty()),
    ("dup", BlockGroupFlags::DUP),
    ("raid0", BlockGroupFlags::RAID0),
    ("raid1", BlockGroupFlags::RAID1),
    ("raid1c3", BlockGroupFlags::RAID1C3),
    ("raid1c4", BlockGroupFlags::RAID1C4),
    ("raid10", BlockGroupFlags::RAID10),
];

/// The profile of this name.
///
/// # Errors
/// Another name; `EOPNOTSUPP` for RAID5 and RAID6.
pub fn profile(text: &str) -> Result<BlockGroupFlags, OptionError> {
    let name = text.to_ascii_lowercase();
    if matches!(name.as_str(), "raid5" | "raid6") {
        return Err(OptionError::unsupported(format!("the profile {name} is not written")));
    }
    PROFILES.iter().find(|(known, _)| *known == name).map(|(_, flags)| *flags).ok_or_else(|| {
        let known: Vec<&str> = PROFILES.iter().map(|(known, _)| *known).collect();
        OptionError::wrong(format!("`{text}` is no profile; there are {}", known.join(", ")))
    })
}

/// The profile of metadata where none is asked for: two copies, on two devices if there are.
#[must_use]
pub fn default_metadata_profile(device_count: usize) -> BlockGroupFlags {
    if device_count > 1 { BlockGroupFlags::RAID1 } else { BlockGroupFlags::DUP }
}

/// Bytes of a tree block, from a text such as `16K`.
fn nodesize(text: &str) -> Result<u32> {
    let bytes = size("nodesize", text, 4096..=65_536)?;
    let wrong = || OptionError::wrong(format!("option `nodesize={text}`: expected a power of two"));
    Ok(u32::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).ok_or_else(wrong)?)
}

/// The options of `btrfs-check` for a check that is asked for as of any format.
#[must_use]
pub fn check_options(options: &CheckOptions) -> Options {
    let mut passes: Vec<Pass> = options.passes.iter().filter_map(|id| Pass::from_id(id)).collect();
    if options.data {
        if passes.is_empty() {
            passes = Pass::all().iter().map(|info| info.pass).collect();
        }
        passes.push(Pass::Data);
    }
    let memory_bytes = options.memory.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    Options { passes, memory_bytes, threads: options.threads.unwrap_or_default(), ..Options::default() }
}

/// The report of `btrfs-check` in the form that it has for every format.
#[must_use]
pub fn report_of(report: btrfs_check::Report) -> CheckReport {
    CheckReport::of(NAME, report, "Not looked at", |place| {
        let key = place.key.map(|key| [key.objectid, key.item_type.into(), key.offset]);
        let tree = PlacePart {
            name: "tree",
            numbers: place.tree.into_iter().collect(),
            text: place.tree.map(|tree| format!("tree {}", tree_name(tree))).unwrap_or_default(),
        };
        let key = PlacePart {
            name: "key",
            numbers: key.into_iter().flatten().collect(),
            text: place.key.map(|key| format!("key {key}")).unwrap_or_default(),
        };
        let on = place.device;
        let device = PlacePart {
            name: "device",
            numbers: on.iter().map(|(device, _)| *device).collect(),
            text: on.map(|(device, at)| format!("device {device} byte {at}")).unwrap_or_default(),
        };
        let parts = vec![
            tree,
            PlacePart::number("inode", "inode", place.inode),
            key,
            PlacePart::number("logical", "address", place.logical),
            device,
            PlacePart::unshown("device_offset", on.map(|(_, at)| at)),
        ];
        (place.path, parts)
    })
}

/// Trees with negative numbers are known by those.
fn tree_name(tree: u64) -> String {
    match i64::from_le_bytes(tree.to_le_bytes()) {
        number if number < 0 => number.to_string(),
        _ => tree.to_string(),
    }
}

/// Which copies of the superblock are right, where the primary is not.
fn remedies(device: &dyn Device) -> Vec<String> {
    let copies = Copies::read(device);
    if let Some(primary) = copies.primary() {
        let is_cut = device.size_bytes() < primary.fields().dev_item.total_bytes.get();
        return if is_cut { vec![SHRINKS.to_owned()] } else { Vec::new() };
    }
    let right = copies.iter().enumerate().filter(|(_, (_, copy))| copy.is_ok());
    right
        .map(|(number, (offset, _))| format!("--super {number} uses the copy at byte {offset}, which is valid"))
        .collect()
}
