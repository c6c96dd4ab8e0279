//! `spinney usage`

use std::io::Write as _;

use anyhow::Result;
use btrfs_disk::flags::BlockGroupFlags;
use clap::Args;
use serde::Serialize;
use spinney::{ChunkInfo, ProfileSpace, VolumeInfo};

use super::{format, info};
use commands::human;
use commands::image::ReadArgs;
use commands::names;
use commands::output::Output;

/// Show what takes the space of an image: what `btrfs filesystem usage` shows of a mounted one
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Allocated is what belongs to a block group, whether or not anything lies there; used is what does. Of data and\n",
    "metadata that are stored twice each copy counts for the device, and one of them for the block groups.\n\n",
    "Examples:\n",
    "  spinney usage site.img\n",
    "  spinney usage --json site.img | jq .free_bytes"
))]
pub(crate) struct Usage {
    #[command(flatten)]
    image: ReadArgs,
    /// Report as JSON: {device_bytes, allocated_bytes, unallocated_bytes, used_bytes, free_bytes, groups: [...]}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    device_bytes: u64,
    allocated_bytes: u64,
    unallocated_bytes: u64,
    /// Each copy counted.
    used_bytes: u64,
    /// How much more file data fits, estimated.
    free_bytes: u64,
    /// The same, if what no block group has is to be stored as often as anything is.
    free_min_bytes: u64,
    /// Bytes on the devices for a hundred bytes of data.
    data_percent: u64,
    metadata_percent: u64,
    /// Kept back so that a full volume can still be emptied.
    global_reserve_bytes: u64,
    has_multiple_profiles: bool,
    groups: Vec<Group>,
}

/// The block groups with the same flags.
#[derive(Serialize)]
struct Group {
    kind: String,
    profile: String,
    count: usize,
    /// In such groups, each copy once.
    total_bytes: u64,
    used_bytes: u64,
    /// What they take on the devices.
    device_bytes: u64,
}

impl Usage {
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        let volume = format::open_read_only(&self.image)?;
        let info = volume.info()?;
        let report = report(&info, &volume.chunks());
        if self.json {
            return out.json(&report);
        }
        let name = info.devices.first().map_or("", |device| device.name.as_str());
        print(out, &report, &names::escaped(name.as_bytes()))
    }
}

fn report(info: &VolumeInfo, chunks: &[ChunkInfo]) -> Report {
    let groups: Vec<Group> = info.space.profiles.iter().map(|profile| group(profile, chunks)).collect();
    let kinds = [BlockGroupFlags::DATA, BlockGroupFlags::METADATA, BlockGroupFlags::SYSTEM];
    let profiles = |kind| info.space.profiles.iter().filter(|profile| profile.flags.contains(kind)).count();
    let [data, metadata, _] = kinds.map(|kind| percent_on_devices(chunks, kind));
    let unallocated = info.space.unallocated;
    let as_data = share(unallocated, data);
    Report {
        device_bytes: info.total_bytes,
        allocated_bytes: info.devices.iter().map(|device| device.allocated_bytes).sum(),
        unallocated_bytes: unallocated,
        used_bytes: groups.iter().map(Group::used_on_devices).sum(),
        free_bytes: info.space.free,
        free_min_bytes: (info.space.free + share(unallocated, data.max(metadata))).saturating_sub(as_data),
        data_percent: data,
        metadata_percent: metadata,
        global_reserve_bytes: info.space.global_reserve.1,
        has_multiple_profiles: kinds.into_iter().any(|kind| profiles(kind) > 1),
        groups,
    }
}

fn group(profile: &ProfileSpace, chunks: &[ChunkInfo]) -> Group {
    let same = || chunks.iter().filter(|chunk| chunk.flags == profile.flags);
    let stored = profile.flags & BlockGroupFlags::PROFILE_MASK;
    Group {
        kind: (profile.flags & !BlockGroupFlags::PROFILE_MASK).to_string(),
        profile: if stored.is_empty() { "single".to_owned() } else { stored.to_string() },
        count: same().count(),
        total_bytes: same().map(|chunk| chunk.bytes).sum(),
        used_bytes: profile.used,
        device_bytes: same().map(device_bytes).sum(),
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

/// What a chunk takes on the devices: with those profiles that are read and written here, all of it on each.
fn device_bytes(chunk: &ChunkInfo) -> u64 {
    let copies = u64::try_from(chunk.stripes.len()).unwrap_or(u64::MAX);
    chunk.bytes.saturating_mul(copies)
}

/// Bytes on the devices for a hundred bytes of this kind.
fn percent_on_devices(chunks: &[ChunkInfo], kind: BlockGroupFlags) -> u64 {
    let same = || chunks.iter().filter(|chunk| chunk.flags.contains(kind));
    let (on_devices, all): (u64, u64) = (same().map(device_bytes).sum(), same().map(|chunk| chunk.bytes).sum());
    on_devices.saturating_mul(100).checked_div(all).unwrap_or(100)
}

/// How much fits so many bytes of a device, where a hundred take `percent`.
fn share(bytes: u64, percent: u64) -> u64 {
    let fits = u128::from(bytes) * 100 / u128::from(percent.max(1));
    u64::try_from(fits).unwrap_or(u64::MAX)
}

/// Columns of what a line is about.
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
    line("Multiple profiles", if report.has_multiple_profiles { "yes" } else { "no" }.to_owned())?;
    for group in &report.groups {
        writeln!(out)?;
        info::print_use(out, &format!("{}, {}", group.kind, group.profile), group.used_bytes, group.total_bytes)?;
        let groups = if group.count == 1 { "group" } else { "groups" };
        writeln!(out, "   {device}: {} in {} {groups}", human::bytes(group.device_bytes), group.count)?;
    }
    writeln!(out, "\nUnallocated:\n   {device}: {}", human::bytes(report.unallocated_bytes))?;
    Ok(())
}

fn ratio(percent: u64) -> String {
    format!("{}.{:02}", percent / 100, percent % 100)
}
