//! Measures the use of a volume's space, and formats it as the text in which a mount's server reports it. Called by
//! `volume/info` and `vfs_impl/xattr`; the commands `usage` and `resize` parse the text.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use btrfs_disk::flags::BlockGroupFlags;
use btrfs_pool::Chunk;

use super::OpenVolume;
use super::lines::words_of;

/// Most lines that a text may have: there are three uses and a dozen profiles, and devices.
const LINES_MAX: usize = 4000;

/// The use of the space of a volume, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpaceUsage {
    /// Of all devices.
    pub device_bytes: u64,
    /// Of all devices, in block groups; each copy counted.
    pub allocated_bytes: u64,
    /// Of all devices, in no block group. The first MiB of each is counted, as by the kernel, though no block group may
    /// have it.
    pub unallocated_bytes: u64,
    /// How much more file data fits, estimated.
    pub free_bytes: u64,
    /// The intended size of the global reserve, with which a full volume can still be emptied.
    pub reserve_bytes: u64,
    /// Freed and held for views of an earlier state ([`crate::Volume::committed_view`]).
    pub held_bytes: u64,
    /// Block groups, those with the same flags together.
    pub groups: Vec<GroupUsage>,
    /// The devices.
    pub devices: Vec<DeviceUsage>,
    /// The bytes of block groups on each device, by device and flags.
    pub shares: Vec<DeviceShare>,
}

/// A device, and how much of it is in no block group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceUsage {
    /// Its number.
    pub id: u64,
    /// Bytes of it that the volume uses.
    pub total_bytes: u64,
    /// Bytes of it in block groups.
    pub allocated_bytes: u64,
}

/// The part of a device that block groups with the same flags have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceShare {
    /// Number of the device.
    pub id: u64,
    /// Use and profile.
    pub flags: BlockGroupFlags,
    /// Bytes on the device.
    pub bytes: u64,
}

/// The block groups with the same flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupUsage {
    /// Use and profile.
    pub flags: BlockGroupFlags,
    /// How many there are.
    pub count: u64,
    /// Bytes in them, each copy once.
    pub total_bytes: u64,
    /// Of these, in extents, on disk or about to be.
    pub used_bytes: u64,
    /// Bytes that they use on the devices.
    pub device_bytes: u64,
}

/// Not the text of a [`SpaceUsage`].
///
/// To do: use the same version of the program as the server of the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected lines of a name and numbers")]
pub struct NotUsage;

impl SpaceUsage {
    /// The extended attribute of any file in which a mount's server reports this text. It is stored nowhere.
    pub const XATTR: &str = "btrfs.usage";

    /// The attribute by which a mount's server receives a new size of the volume: a number of bytes, `min` or `max`,
    /// of a device with its number and a colon before it.
    pub const RESIZE_XATTR: &str = "btrfs.resize";
}

impl OpenVolume {
    pub(crate) fn usage(&self) -> SpaceUsage {
        let store = &self.core().store;
        let (report, chunks) = (store.space(), store.chunks());
        let groups = report.profiles.iter().map(|profile| {
            let same = || chunks.iter().filter(|chunk| chunk.flags() == profile.flags);
            GroupUsage {
                flags: profile.flags,
                count: same().map(|_| 1).sum(),
                total_bytes: same().map(|chunk| chunk.len_bytes()).sum(),
                used_bytes: profile.used,
                device_bytes: same().flat_map(|chunk| chunk.stripes().iter().map(|_| chunk.stripe_bytes())).sum(),
            }
        });
        let groups: Vec<GroupUsage> = groups.collect();
        let allocated_bytes = groups.iter().map(|group| group.device_bytes).sum();
        SpaceUsage {
            device_bytes: report.device_total,
            allocated_bytes,
            unallocated_bytes: report.device_total.saturating_sub(allocated_bytes),
            free_bytes: report.free,
            reserve_bytes: report.global_reserve.1,
            held_bytes: report.held,
            groups,
            devices: self.device_usage(),
            shares: shares_of(&chunks),
        }
    }

    fn device_usage(&self) -> Vec<DeviceUsage> {
        let devices = self.core().store.devices().into_iter();
        let mut devices: Vec<DeviceUsage> = devices
            .map(|device| DeviceUsage {
                id: device.id.0,
                total_bytes: device.total_bytes,
                allocated_bytes: device.used_bytes,
            })
            .collect();
        devices.sort_by_key(|device| device.id);
        devices
    }
}

fn shares_of(chunks: &[Arc<Chunk>]) -> Vec<DeviceShare> {
    let mut shares: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for chunk in chunks {
        for stripe in chunk.stripes() {
            let bytes = shares.entry((stripe.device.0, chunk.flags().bits())).or_default();
            *bytes = bytes.saturating_add(chunk.stripe_bytes());
        }
    }
    let share = |((id, flags), bytes)| DeviceShare { id, flags: BlockGroupFlags::from_bits_retain(flags), bytes };
    shares.into_iter().map(share).collect()
}

impl fmt::Display for SpaceUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device_bytes, allocated_bytes, unallocated_bytes, free_bytes, reserve_bytes, held_bytes, .. } = self;
        writeln!(f, "space {device_bytes} {allocated_bytes} {unallocated_bytes} {free_bytes} {reserve_bytes}")?;
        writeln!(f, "held {held_bytes}")?;
        for GroupUsage { flags, count, total_bytes, used_bytes, device_bytes } in &self.groups {
            writeln!(f, "groups {} {count} {total_bytes} {used_bytes} {device_bytes}", flags.bits())?;
        }
        for DeviceUsage { id, total_bytes, allocated_bytes } in &self.devices {
            writeln!(f, "device {id} {total_bytes} {allocated_bytes}")?;
        }
        for DeviceShare { id, flags, bytes } in &self.shares {
            writeln!(f, "share {id} {} {bytes}", flags.bits())?;
        }
        Ok(())
    }
}

impl FromStr for SpaceUsage {
    type Err = NotUsage;

    /// Lines with unknown names are skipped: a later version may report more.
    fn from_str(text: &str) -> Result<Self, NotUsage> {
        let mut found = None;
        let (mut groups, mut held_bytes) = (Vec::new(), 0);
        let (mut devices, mut shares) = (Vec::new(), Vec::new());
        for line in text.lines().take(LINES_MAX) {
            let (name, numbers) = words_of(line).ok_or(NotUsage)?;
            match (name, numbers.as_slice()) {
                ("space", &[device_bytes, allocated_bytes, unallocated_bytes, free_bytes, reserve_bytes, ..]) => {
                    found = Some(Self {
                        device_bytes,
                        allocated_bytes,
                        unallocated_bytes,
                        free_bytes,
                        reserve_bytes,
                        ..Self::default()
                    });
                }
                ("groups", &[flags, count, total_bytes, used_bytes, device_bytes, ..]) => {
                    let flags = BlockGroupFlags::from_bits_retain(flags);
                    groups.push(GroupUsage { flags, count, total_bytes, used_bytes, device_bytes });
                }
                ("held", &[bytes, ..]) => held_bytes = bytes,
                ("device", &[id, total_bytes, allocated_bytes, ..]) => {
                    devices.push(DeviceUsage { id, total_bytes, allocated_bytes });
                }
                ("share", &[id, flags, bytes, ..]) => {
                    shares.push(DeviceShare { id, flags: BlockGroupFlags::from_bits_retain(flags), bytes });
                }
                ("space" | "groups" | "held" | "device" | "share", _) => return Err(NotUsage),
                _ => {}
            }
        }
        found.map(|usage| Self { groups, held_bytes, devices, shares, ..usage }).ok_or(NotUsage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_all_of_it() {
        let group = |flags, count| GroupUsage { flags, count, total_bytes: 8, used_bytes: 5, device_bytes: 16 };
        let groups = vec![group(BlockGroupFlags::DATA, 1), group(BlockGroupFlags::METADATA | BlockGroupFlags::DUP, 2)];
        let usage = SpaceUsage {
            device_bytes: 1 << 40,
            free_bytes: 7,
            reserve_bytes: 9,
            held_bytes: 3,
            groups,
            devices: vec![DeviceUsage { id: 2, total_bytes: 1 << 30, allocated_bytes: 16 }],
            shares: vec![DeviceShare { id: 2, flags: BlockGroupFlags::DATA, bytes: 16 }],
            ..SpaceUsage::default()
        };
        assert_eq!(usage.to_string().parse(), Ok(usage.clone()));
        assert_eq!(format!("{usage}news 1 2\n").parse(), Ok(usage));
        for wrong in
            ["", "groups 1 2 3 4 5\n", "space 1 2 3 4\n", "space 1 2 3 4 five\n", "space 1 2 3 4 5\ngroups 1\n"]
        {
            assert_eq!(wrong.parse::<SpaceUsage>(), Err(NotUsage), "{wrong:?}");
        }
    }
}
