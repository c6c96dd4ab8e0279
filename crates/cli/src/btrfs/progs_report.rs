//! Prints the report of `mkfs.btrfs` 6.19 about a file system that was made, for programs that read it. `btrfs::mkfs`
//! calls it when this program is called by that name.

use std::io::Write as _;

use anyhow::Result;
use spinney::btrfs::VolumeInfo;
use spinney::btrfs::disk::flags::BlockGroupFlags;
use spinney::btrfs::pool::Profile;

use crate::commands::names;
use crate::commands::output::Output;
use crate::other_names::PROGS_VERSION;

/// The features that `mkfs.btrfs` lists, by our names and by its own.
const FEATURES: &[(&str, &str)] = &[
    ("mixed_groups", "mixed-bg"),
    ("extended_iref", "extref"),
    ("skinny_metadata", "skinny-metadata"),
    ("no_holes", "no-holes"),
    ("free_space_tree", "free-space-tree"),
    ("block_group_tree", "block-group-tree"),
];

/// The report.
pub(super) fn print(out: &mut Output, info: &VolumeInfo) -> Result<()> {
    writeln!(out, "spinney {} as btrfs-progs v{PROGS_VERSION}\n", env!("CARGO_PKG_VERSION"))?;
    let label = info.label.to_string_lossy();
    writeln!(out, "Label:              {}", if label.is_empty() { "(null)" } else { &label })?;
    writeln!(out, "UUID:               {}", names::uuid(&info.uuid))?;
    writeln!(out, "Node size:          {}", info.node_bytes)?;
    writeln!(out, "Sector size:        {}\t(CPU page size: {})", info.sector_bytes, rustix::param::page_size())?;
    writeln!(out, "Filesystem size:    {}", size(info.total_bytes))?;
    writeln!(out, "Block group profiles:")?;
    for profile in &info.space.profiles {
        let kind = match profile.flags {
            flags if flags.contains(BlockGroupFlags::DATA | BlockGroupFlags::METADATA) => "Data+Metadata:",
            flags if flags.contains(BlockGroupFlags::DATA) => "Data:",
            flags if flags.contains(BlockGroupFlags::METADATA) => "Metadata:",
            _ => "System:",
        };
        let name = Profile::from_flags(profile.flags)?.to_string();
        writeln!(out, "  {kind:<17} {name:<8} {:>15}", size(profile.total))?;
    }
    writeln!(out, "SSD detected:       no\nZoned device:       no")?;
    let known = |name: &str| FEATURES.iter().find(|(ours, _)| *ours == name.to_ascii_lowercase()).map(|(_, own)| *own);
    let features: Vec<&str> = info.features.iter().filter_map(|name| known(name)).collect();
    writeln!(out, "Features:           {}", features.join(", "))?;
    writeln!(out, "Checksum:           {}", info.csum)?;
    writeln!(out, "Number of devices:  {}\nDevices:\n   ID        SIZE  PATH", info.devices.len())?;
    for device in &info.devices {
        writeln!(out, "{:>5} {:>11}  {}", device.id, size(device.total_bytes), device.name)?;
    }
    Ok(writeln!(out)?)
}

/// Bytes as btrfs-progs shows them.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut unit, mut scale) = (0, 1_u64);
    while bytes / scale >= 1024 && unit + 1 < UNITS.len() {
        (unit, scale) = (unit + 1, scale << 10);
    }
    let hundredths = u128::from(bytes) * 100 / u128::from(scale);
    format!("{}.{:02}{}", hundredths / 100, hundredths % 100, UNITS.get(unit).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_two_places() {
        for (bytes, expected) in [(0, "0.00B"), (4096, "4.00KiB"), (200 << 20, "200.00MiB"), (1 << 30, "1.00GiB")] {
            assert_eq!(size(bytes), expected);
        }
        assert_eq!(size((51 << 20) + (190 << 10)), "51.18MiB");
    }
}
