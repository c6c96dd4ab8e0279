//! `spinney usage` shows how the space of an image or a mount is used, per profile and block group type. Called by
//! `args`.

use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use spinney::btrfs::disk::flags::BlockGroupFlags;
use spinney::btrfs::{DeviceUsage, GroupUsage, SpaceUsage};

use super::server_report::read_reply;
use super::{format, info};
use crate::commands::human;
use crate::commands::image::ReadArgs;
use crate::commands::names;
use crate::commands::output::Output;

/// Show how the space of an image or a mount is used: what `btrfs filesystem usage` shows of a mounted one
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Allocated bytes belong to a block group; used bytes are those of extents in it. If data or metadata is stored\n",
    "twice, the device counts both copies, the block groups one.\n\n",
    "Examples:\n",
    "  spinney usage site.img\n",
    "  spinney usage ./mnt                         of a mount, as it is now\n",
    "  spinney usage --json site.img | jq .free_bytes"
))]
pub(crate) struct Usage {
    #[command(flatten)]
    image: ReadArgs,
    /// Report as JSON: {device_bytes, allocated_bytes, unallocated_bytes, used_bytes, free_bytes, groups: [...],
    /// devices: [...]}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    device_bytes: u64,
    allocated_bytes: u64,
    unallocated_bytes: u64,
    /// Bytes of all copies.
    used_bytes: u64,
    /// Estimated bytes of file data that still fit.
    free_bytes: u64,
    /// The same, if the unallocated space is used with the profile of data or metadata, whichever stores more copies.
    free_min_bytes: u64,
    /// Bytes on the devices per hundred bytes of data.
    data_percent: u64,
    metadata_percent: u64,
    /// Global reserve, so that files of a full volume can still be deleted.
    global_reserve_bytes: u64,
    /// Freed bytes that cannot be used again yet, because open views of earlier states need them.
    held_bytes: u64,
    has_multiple_profiles: bool,
    groups: Vec<Group>,
    devices: Vec<Device>,
}

/// A device.
#[derive(Serialize)]
struct Device {
    id: u64,
    total_bytes: u64,
    allocated_bytes: u64,
    unallocated_bytes: u64,
    groups: Vec<OnDevice>,
}

/// The part of a device that block groups with the same flags have.
#[derive(Serialize)]
struct OnDevice {
    kind: String,
    profile: String,
    bytes: u64,
}

/// The block groups with the same flags.
#[derive(Serialize)]
struct Group {
    kind: String,
    profile: String,
    count: u64,
    /// Logical bytes of such groups.
    total_bytes: u64,
    used_bytes: u64,
    /// Bytes on the devices.
    device_bytes: u64,
}

impl Usage {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let (usage, name) = match self.image.mounted_dir()? {
            Some(dir) => (read_reply(&dir, SpaceUsage::XATTR, "tell what takes the space")?, dir),
            None => (format::open_read_only(&self.image)?.usage(), self.image.image.image.clone()),
        };
        let report = report(&usage);
        if self.json {
            return out.json(&report);
        }
        print(out, &report, &names::escaped(name.as_os_str().as_bytes()))
    }
}

fn report(usage: &SpaceUsage) -> Report {
    let kinds = [BlockGroupFlags::DATA, BlockGroupFlags::METADATA, BlockGroupFlags::SYSTEM];
    let profiles = |kind| usage.groups.iter().filter(|group| group.flags.contains(kind)).count();
    let [data, metadata, _] = kinds.map(|kind| percent_on_devices(&usage.groups, kind));
    let groups: Vec<Group> = usage.groups.iter().map(group).collect();
    let unallocated = usage.unallocated_bytes;
    let more = usage.free_bytes.saturating_add(share(unallocated, data.max(metadata)));
    Report {
        device_bytes: usage.device_bytes,
        allocated_bytes: usage.allocated_bytes,
        unallocated_bytes: unallocated,
        used_bytes: groups.iter().map(Group::used_on_devices).fold(0, u64::saturating_add),
        free_bytes: usage.free_bytes,
        free_min_bytes: more.saturating_sub(share(unallocated, data)),
        data_percent: data,
        metadata_percent: metadata,
        global_reserve_bytes: usage.reserve_bytes,
        held_bytes: usage.held_bytes,
        has_multiple_profiles: kinds.into_iter().any(|kind| profiles(kind) > 1),
        groups,
        devices: usage.devices.iter().map(|device| of_device(usage, device)).collect(),
    }
}

fn of_device(usage: &SpaceUsage, device: &DeviceUsage) -> Device {
    let own = usage.shares.iter().filter(|share| share.id == device.id);
    let groups = own.map(|share| OnDevice {
        kind: (share.flags & !BlockGroupFlags::PROFILE_MASK).to_string(),
        profile: profile_name(share.flags),
        bytes: share.bytes,
    });
    Device {
        id: device.id,
        total_bytes: device.total_bytes,
        allocated_bytes: device.allocated_bytes,
        unallocated_bytes: device.total_bytes.saturating_sub(device.allocated_bytes),
        groups: groups.collect(),
    }
}

fn profile_name(flags: BlockGroupFlags) -> String {
    let stored = flags & BlockGroupFlags::PROFILE_MASK;
    if stored.is_empty() { "single".to_owned() } else { stored.to_string() }
}

fn group(group: &GroupUsage) -> Group {
    Group {
        kind: (group.flags & !BlockGroupFlags::PROFILE_MASK).to_string(),
        profile: profile_name(group.flags),
        count: group.count,
        total_bytes: group.total_bytes,
        used_bytes: group.used_bytes,
        device_bytes: group.device_bytes,
    }
}

impl Group {
    fn used_on_devices(&self) -> u64 {
        match self.device_bytes.checked_div(self.total_bytes) {
            Some(copies) => self.used_bytes.saturating_mul(copies),
            None => 0,
        }
    }
}

/// Bytes on the devices per hundred bytes of this kind.
fn percent_on_devices(groups: &[GroupUsage], kind: BlockGroupFlags) -> u64 {
    let sum = |bytes: fn(&GroupUsage) -> u64| {
        groups.iter().filter(|group| group.flags.contains(kind)).map(bytes).fold(0, u64::saturating_add)
    };
    let (on_devices, all) = (sum(|group| group.device_bytes), sum(|group| group.total_bytes));
    on_devices.saturating_mul(100).checked_div(all).unwrap_or(100)
}

/// Logical bytes that fit into `bytes` bytes of a device, if a hundred logical bytes take `percent` bytes there.
fn share(bytes: u64, percent: u64) -> u64 {
    let fits = u128::from(bytes) * 100 / u128::from(percent.max(1));
    u64::try_from(fits).unwrap_or(u64::MAX)
}

/// Width of the first column.
const TITLE_WIDTH: usize = 24;

fn print(out: &mut Output, report: &Report, device: &str) -> Result<()> {
    let mut line = |title: &str, text: String| -> Result<()> {
        let title = format!("{title}:");
        Ok(writeln!(out, "{title:<TITLE_WIDTH$} {text}")?)
    };
    line("Device size", human::bytes(report.device_bytes))?;
    line("Device allocated", human::bytes(report.allocated_bytes))?;
    line("Device unallocated", human::bytes(report.unallocated_bytes))?;
    line("Used", human::bytes(report.used_bytes))?;
    let least = human::bytes(report.free_min_bytes);
    line("Free (estimated)", format!("{} (at least {least})", human::bytes(report.free_bytes)))?;
    line("Data ratio", ratio(report.data_percent))?;
    line("Metadata ratio", ratio(report.metadata_percent))?;
    line("Global reserve", human::bytes(report.global_reserve_bytes))?;
    if report.held_bytes > 0 {
        line("Held for readers", human::bytes(report.held_bytes))?;
    }
    line("Multiple profiles", if report.has_multiple_profiles { "yes" } else { "no" }.to_owned())?;
    for group in &report.groups {
        writeln!(out)?;
        info::print_use(out, &format!("{}, {}", group.kind, group.profile), group.used_bytes, group.total_bytes)?;
        let groups = if group.count == 1 { "group" } else { "groups" };
        writeln!(out, "   {device}: {} in {} {groups}", human::bytes(group.device_bytes), group.count)?;
    }
    writeln!(out, "\nUnallocated:\n   {device}: {}", human::bytes(report.unallocated_bytes))?;
    // Of one device all was said.
    for device in report.devices.iter().filter(|_| report.devices.len() > 1) {
        writeln!(out, "\nDevice {}, {}:", device.id, human::bytes(device.total_bytes))?;
        for OnDevice { kind, profile, bytes } in &device.groups {
            writeln!(out, "   {kind}, {profile}: {}", human::bytes(*bytes))?;
        }
        writeln!(out, "   unallocated: {}", human::bytes(device.unallocated_bytes))?;
    }
    Ok(())
}

fn ratio(percent: u64) -> String {
    format!("{}.{:02}", percent / 100, percent % 100)
}
