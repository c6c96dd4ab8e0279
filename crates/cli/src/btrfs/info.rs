//! Prints the report of a btrfs image, for `info` and `mkfs`; `usage` and `map` print bars with [`print_use`].

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Result;
use serde::Serialize;
use spinney::btrfs::VolumeInfo;
use spinney::btrfs::disk::flags::BlockGroupFlags;

use crate::commands::output::Output;
use crate::commands::{human, names};

/// A volume in JSON; `mkfs` reports the same.
#[derive(Serialize)]
pub(crate) struct Report {
    label: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_hex: Option<String>,
    uuid: String,
    generation: u64,
    node_bytes: u32,
    sector_bytes: u32,
    csum: &'static str,
    total_bytes: u64,
    used_bytes: u64,
    features: Vec<String>,
    /// Bytes on the devices that belong to no chunk.
    unallocated_bytes: u64,
    /// Estimated bytes of file data that still fit.
    free_bytes: u64,
    space: Vec<Space>,
    devices: Vec<Device>,
}

/// Use of the block groups with the same flags; copies do not count.
#[derive(Serialize)]
struct Space {
    flags: String,
    total_bytes: u64,
    used_bytes: u64,
    pinned_bytes: u64,
    reserved_bytes: u64,
}

#[derive(Serialize)]
struct Device {
    id: u64,
    name: String,
    total_bytes: u64,
    allocated_bytes: u64,
}

/// Cells of a bar.
const BAR_CELLS: u32 = 40;

/// The report for JSON.
pub(crate) fn report(info: &VolumeInfo) -> Report {
    let label = info.label.as_bytes();
    Report {
        label: info.label.to_string_lossy().into_owned(),
        label_hex: std::str::from_utf8(label).is_err().then(|| names::hex(label)),
        uuid: names::uuid(&info.uuid),
        generation: info.generation.0,
        node_bytes: info.node_bytes,
        sector_bytes: info.sector_bytes,
        csum: info.csum,
        total_bytes: info.total_bytes,
        used_bytes: info.used_bytes,
        features: info.features.clone(),
        unallocated_bytes: info.space.unallocated,
        free_bytes: info.space.free,
        space: info
            .space
            .profiles
            .iter()
            .map(|profile| Space {
                flags: profile.flags.to_string(),
                total_bytes: profile.total,
                used_bytes: profile.used,
                pinned_bytes: profile.pinned,
                reserved_bytes: profile.reserved,
            })
            .collect(),
        devices: info
            .devices
            .iter()
            .map(|device| Device {
                id: device.id,
                name: device.name.clone(),
                total_bytes: device.total_bytes,
                allocated_bytes: device.allocated_bytes,
            })
            .collect(),
    }
}

/// The report for people.
pub(crate) fn print(out: &mut Output, info: &VolumeInfo) -> Result<()> {
    let label = names::escaped(info.label.as_bytes());
    let label = if label.is_empty() { "(none)".into() } else { label };
    writeln!(out, "Label:       {label}")?;
    writeln!(out, "UUID:        {}", names::uuid(&info.uuid))?;
    writeln!(out, "Generation:  {}", info.generation)?;
    writeln!(out, "Node size:   {}", info.node_bytes)?;
    writeln!(out, "Sector size: {}", info.sector_bytes)?;
    writeln!(out, "Checksum:    {}", info.csum)?;
    writeln!(out, "Features:    {}", info.features.join(", "))?;
    writeln!(out, "Size:        {}", human::bytes(info.total_bytes))?;
    writeln!(out, "Free:        {} for files, about", human::bytes(info.space.free))?;
    for profile in &info.space.profiles {
        let name = profile_name(profile.flags);
        print_use(out, &name, profile.used, profile.total)?;
    }
    for device in &info.devices {
        let name = names::escaped(device.name.as_bytes());
        writeln!(out, "\nDevice {}:    {name}", device.id)?;
        print_use(out, "Allocated", device.allocated_bytes, device.total_bytes)?;
    }
    Ok(())
}

/// Use and profile of block groups: `data, single`.
fn profile_name(flags: BlockGroupFlags) -> String {
    let is_single = (flags & BlockGroupFlags::PROFILE_MASK).is_empty();
    let text = flags.to_string();
    if is_single { format!("{text}, single") } else { text }
}

/// `part` of `whole` in numbers, and as a bar on a terminal.
pub(crate) fn print_use(out: &mut Output, what: &str, part: u64, whole: u64) -> Result<()> {
    let title = format!("{what}:");
    let (a, b, share) = (human::bytes(part), human::bytes(whole), human::percent(part, whole));
    write!(out, "{title:<20} {a} of {b} ({share})")?;
    if out.is_terminal() {
        write!(out, "\n                     {}", human::bar(part, whole, BAR_CELLS))?;
    }
    Ok(out.write_all(b"\n")?)
}
