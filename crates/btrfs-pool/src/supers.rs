//! Chooses the authoritative copy of the superblock, checks features, and writes the copies.
//!
//! The primary copy, at 64 KiB, is authoritative, as for the kernel: a mirror may be left from an earlier file system.
//! If the primary is damaged, a read-only open takes the newest mirror that verifies. A writable open takes it only if
//! a power cut during a write of the primary explains the damage (`is_torn`: its checksum is wrong); otherwise it
//! fails, because its first commit would make the choice final. Once the trees are found, the open rewrites the primary
//! from the mirror, so that programs that read only the primary, such as the kernel, find the file system again.
//!
//! Mirrors are written once the primaries of all members are durable, so at any time at least one copy is complete.
//! `Pool` and `members` call this module.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use blockdev::{Device, Kind, Tag, tagged};
use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::{CompatRo, Incompat, SuperFlags};
use btrfs_disk::items::{DevItem, OnDisk as _};
use btrfs_disk::node::CSUM_FIELD_SIZE;
use btrfs_disk::superblock::{
    DiskSuperblock, MIRRORS_MAX, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, UncheckedSuperblock, mirror_offset,
};
use btrfs_disk::{At, Corrupt, Detail, DevId, Uuid};
use codec::ChecksumType;

use super::devices::{Devices, Event, PoolDevice};
use crate::error::{Error, Result};

/// The only supported sector size, in bytes.
pub const SECTOR_BYTES: u32 = 4096;

/// Features that the store reads and writes.
const INCOMPAT_SUPPORTED: Incompat = Incompat::MIXED_BACKREF
    .union(Incompat::DEFAULT_SUBVOL)
    .union(Incompat::MIXED_GROUPS)
    .union(Incompat::COMPRESS_LZO)
    .union(Incompat::COMPRESS_ZSTD)
    .union(Incompat::BIG_METADATA)
    .union(Incompat::EXTENDED_IREF)
    .union(Incompat::SKINNY_METADATA)
    .union(Incompat::NO_HOLES)
    .union(Incompat::METADATA_UUID)
    .union(Incompat::RAID1C34)
    // Block groups with parity are refused one by one when writing: the bit stays when the last one is gone.
    .union(Incompat::RAID56)
    .union(Incompat::SIMPLE_QUOTA);

/// Read-only-compatible features that the store keeps when it writes.
const COMPAT_RO_WRITABLE: CompatRo = CompatRo::FREE_SPACE_TREE
    .union(CompatRo::FREE_SPACE_TREE_VALID)
    .union(CompatRo::VERITY)
    .union(CompatRo::BLOCK_GROUP_TREE);

/// States of the file system in which it may be read.
const STATE_READABLE: SuperFlags = SuperFlags::WRITTEN
    .union(SuperFlags::RELOC)
    .union(SuperFlags::ERROR)
    .union(SuperFlags::SEEDING)
    .union(SuperFlags::METADUMP)
    .union(SuperFlags::METADUMP_V2);

/// States of the file system in which it may be written.
const STATE_WRITABLE: SuperFlags = SuperFlags::WRITTEN.union(SuperFlags::RELOC).union(SuperFlags::ERROR);

/// The requested access to a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Read-only.
    ReadOnly,
    /// Read and write.
    ReadWrite,
}

/// The superblock of a file system on one or several devices: the fields that all members share, and the device item of
/// each member.
#[derive(Clone, Debug)]
pub struct FsSuper {
    /// Its device item is that of the member it was read from.
    shared: Superblock,
    items: Vec<DevItem>,
}

impl FsSuper {
    /// The superblock of a file system on the device in `shared` and further devices.
    #[must_use]
    pub fn new(shared: Superblock, further: impl IntoIterator<Item = DevItem>) -> Self {
        let own = shared.fields().dev_item;
        let items = std::iter::once(own).chain(further.into_iter().filter(|item| item.devid != own.devid)).collect();
        Self { shared, items }
    }

    /// The device items of the members.
    #[must_use]
    pub fn items(&self) -> &[DevItem] {
        &self.items
    }

    /// Changes the item of a member; does nothing for other devices.
    pub fn change_item(&mut self, id: DevId, change: impl FnOnce(&mut DevItem)) {
        let Some(item) = self.items.iter_mut().find(|item| item.devid.get() == id.0) else { return };
        change(item);
        let own = &mut self.shared.fields_mut().dev_item;
        if own.devid == item.devid {
            *own = *item;
        }
    }

    /// Adds the item of a further member; nothing for one that is there.
    pub fn add_item(&mut self, item: DevItem) {
        if !self.has(DevId(item.devid.get())) {
            self.items.push(item);
        }
    }

    /// Removes the item of a member. Where the shared fields are those of this member, they become those of another.
    pub fn remove_item(&mut self, id: DevId) {
        self.items.retain(|item| item.devid.get() != id.0);
        let own = &mut self.shared.fields_mut().dev_item;
        if own.devid.get() == id.0
            && let Some(other) = self.items.first()
        {
            *own = *other;
        }
    }

    /// True for a member whose item is known.
    #[must_use]
    pub fn has(&self, id: DevId) -> bool {
        self.items.iter().any(|item| item.devid.get() == id.0)
    }

    /// The bytes of the copy at `offset` of a member; `None` for other devices.
    fn sealed_for(&self, id: DevId, offset: u64) -> Option<Result<Box<DiskSuperblock>, Corrupt>> {
        let item = self.items.iter().find(|item| item.devid.get() == id.0)?;
        Some(self.shared.sealed_for(item, offset))
    }
}

impl Deref for FsSuper {
    type Target = Superblock;

    fn deref(&self) -> &Superblock {
        &self.shared
    }
}

impl DerefMut for FsSuper {
    fn deref_mut(&mut self) -> &mut Superblock {
        &mut self.shared
    }
}

/// The copies of the superblock on a device: for each its byte offset, and the superblock or the error of reading it.
#[derive(Clone, Debug, Default)]
pub struct Copies(Vec<(u64, Result<Superblock>)>);

impl Copies {
    /// Reads all copies that fit on the device.
    #[must_use]
    pub fn read(device: &dyn Device) -> Self {
        Self::within(device, device.size_bytes())
    }

    /// Reads all copies within the given number of bytes, which the file system uses of the device.
    #[must_use]
    pub fn within(device: &dyn Device, bytes: u64) -> Self {
        Self(mirrors_within(bytes).map(|offset| (offset, read_copy(device, offset))).collect())
    }

    /// The primary, or the newest mirror if the primary is damaged.
    #[must_use]
    pub fn counting(&self) -> Option<&Superblock> {
        self.primary().or_else(|| self.newest_mirror())
    }

    /// The primary, if it is valid.
    #[must_use]
    pub fn primary(&self) -> Option<&Superblock> {
        self.0.first().and_then(|(_, copy)| copy.as_ref().ok())
    }

    fn newest_mirror(&self) -> Option<&Superblock> {
        let mirrors = self.0.iter().skip(1).filter_map(|(_, copy)| copy.as_ref().ok());
        mirrors.max_by_key(|copy| copy.generation())
    }

    /// All copies, the primary first.
    pub fn iter(&self) -> std::slice::Iter<'_, (u64, Result<Superblock>)> {
        self.0.iter()
    }
}

/// Reads the authoritative superblock of a device; see the head of this file.
///
/// # Errors
/// The error of the primary, if no copy is usable.
pub fn read(device: &dyn Device, access: Intent) -> Result<Superblock> {
    let primary = read_copy(device, SUPERBLOCK_OFFSET);
    if primary.is_ok() {
        return primary;
    }
    match Copies::read(device).newest_mirror() {
        Some(mirror) if access == Intent::ReadOnly || is_torn(device, mirror)? => Ok(mirror.clone()),
        _ => primary,
    }
}

/// Reads one copy of the superblock: 0 is the primary at 64 KiB, 1 lies at 64 MiB, 2 at 256 GiB.
///
/// # Errors
/// `Unsupported` if the device is too small to have that copy; `Corrupt` if it does not verify; `Device`.
pub fn read_one(device: &dyn Device, copy: usize) -> Result<Superblock> {
    let offset = mirrors_within(device.size_bytes()).nth(copy);
    let missing = || {
        let count = mirrors_within(device.size_bytes()).count();
        Error::unsupported(format!("superblock copy {copy}: the device has {count} copies, numbered from 0"))
    };
    read_copy(device, offset.ok_or_else(missing)?)
}

/// True if a power cut during a write of the primary explains its damage: its checksum is wrong, and its header has the
/// file system of the mirror, at the mirror's generation or the next.
fn is_torn(device: &dyn Device, mirror: &Superblock) -> Result<bool> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    let torn = UncheckedSuperblock::new(&bytes)?;
    if has_right_checksum(&bytes, torn.fields()) {
        // The primary has a valid checksum, so it is not a torn write, and its other damage must not be overwritten.
        return Ok(false);
    }
    let (torn, whole) = (torn.fields(), mirror.fields());
    let is_same = torn.magic == whole.magic && torn.fsid == whole.fsid && torn.bytenr.get() == SUPERBLOCK_OFFSET;
    let commits = torn.generation.get().checked_sub(whole.generation.get());
    Ok(is_same && commits.is_some_and(|count| count <= 1))
}

fn has_right_checksum(bytes: &[u8], fields: &DiskSuperblock) -> bool {
    let (stored, body) = bytes.split_at(CSUM_FIELD_SIZE);
    ChecksumType::from_raw(fields.csum_type.get()).is_some_and(|kind| codec::checksum::matches(kind, body, stored))
}

/// Refuses features and states that `access` does not support.
///
/// # Errors
/// `Unsupported`.
pub fn check_features(superblock: &Superblock, access: Intent) -> Result<()> {
    let fields = superblock.fields();
    let state = match access {
        Intent::ReadOnly => STATE_READABLE,
        Intent::ReadWrite => STATE_WRITABLE,
    };
    if let Some(beyond) = fields.incompat().beyond(INCOMPAT_SUPPORTED) {
        return Err(refusal(access, false, beyond));
    }
    if let Some(beyond) = fields.super_flags().beyond(state) {
        return Err(refusal(access, STATE_READABLE.contains(beyond), beyond));
    }
    if fields.sectorsize.get() != SECTOR_BYTES {
        return Err(Error::unsupported(format!("sectors of {} bytes", fields.sectorsize)));
    }
    if access == Intent::ReadOnly {
        return Ok(());
    }
    if let Some(beyond) = fields.compat_ro().beyond(COMPAT_RO_WRITABLE) {
        return Err(refusal(access, true, beyond));
    }
    Ok(())
}

/// Writes the mirrors of a member within the range that the file system uses; they become durable with the next flush.
///
/// # Errors
/// `Corrupt` for an invalid superblock, or the device's error.
pub(super) fn write_mirrors(device: &PoolDevice, superblock: &FsSuper) -> Result<()> {
    for (mirror, offset) in (0..).zip(mirrors_within(device.total_bytes())).skip(1) {
        write_copy(device, superblock, (mirror, offset))?;
    }
    Ok(())
}

/// Writes the primary copy of a member, durable with the next flush. The caller flushes before.
///
/// # Errors
/// As [`write_mirrors`].
pub(super) fn write_primary(device: &PoolDevice, superblock: &FsSuper) -> Result<()> {
    write_copy(device, superblock, (0, SUPERBLOCK_OFFSET))
}

/// The devices that get the superblock: those that are there and that the file system has.
pub(super) fn members<'a>(devices: &'a Devices, superblock: &'a FsSuper) -> impl Iterator<Item = &'a PoolDevice> {
    devices.iter().filter(|device| device.is_written() && superblock.has(device.id()))
}

/// Makes a device a member: writes every copy of the superblock with the item of `id`, the primary last and durable on
/// return. All that the superblock refers to on this device has to be there.
///
/// # Errors
/// `Corrupt` for an invalid superblock or a device without an item, or the device's error.
pub fn enlist(device: Arc<dyn Device>, id: DevId, superblock: &FsSuper) -> Result<()> {
    let item = superblock.items().iter().find(|item| item.devid.get() == id.0);
    let (uuid, total_bytes) = item.map(|item| (item.uuid, item.total_bytes.get())).unwrap_or_default();
    let member = PoolDevice::new(id, uuid, device, total_bytes);
    member.flush()?;
    write_mirrors(&member, superblock)?;
    member.flush()?;
    write_copy(&member, superblock, (0, SUPERBLOCK_OFFSET))?;
    Ok(member.flush()?)
}

/// Begins the block of a device that is being written to take the place of another one.
const TARGET_MAGIC: &[u8; 16] = b"spinney replace\n";

/// Writes in the place of the superblock that the device is being written to take the place of the one with this UUID:
/// if that is cut short, it may be written again.
///
/// # Errors
/// The device's.
pub fn mark_target(device: &dyn Device, old: Uuid) -> Result<()> {
    let mut block = vec![0; SUPERBLOCK_SIZE];
    block.iter_mut().zip(TARGET_MAGIC.iter().chain(&old.0)).for_each(|(byte, mark)| *byte = *mark);
    device.write_at(SUPERBLOCK_OFFSET, &[&block])?;
    Ok(device.flush()?)
}

/// The UUID of the device that this one was to take the place of, if it is marked so.
#[must_use]
pub fn marked_target(device: &dyn Device) -> Option<Uuid> {
    let mut block = vec![0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut block).ok()?;
    let (uuid, rest) = block.strip_prefix(TARGET_MAGIC)?.split_first_chunk::<16>()?;
    rest.iter().all(|byte| *byte == 0).then_some(Uuid(*uuid))
}

/// Empties a device that was to take the place of another one, as far as it can discard what was written. The place of
/// the superblock is overwritten first.
///
/// # Errors
/// The device's.
pub fn clear_target(device: &dyn Device) -> Result<()> {
    retire(device)?;
    Ok(device.discard(0, device.size_bytes())?)
}

/// Overwrites every copy of the superblock on a device that is no member any more, the primary first; durable on
/// return.
///
/// # Errors
/// The device's.
pub fn retire(device: &dyn Device) -> Result<()> {
    let nothing = [0; SUPERBLOCK_SIZE];
    for (mirror, offset) in (0u32..).zip(mirrors_within(device.size_bytes())) {
        tagged(Tag { kind: Kind::Superblock, mirror }, || device.write_at(offset, &[&nothing]))?;
        device.flush()?;
    }
    Ok(())
}

fn write_copy(device: &PoolDevice, superblock: &FsSuper, (mirror, offset): (u32, u64)) -> Result<()> {
    let copy = superblock.sealed_for(device.id(), offset).ok_or_else(|| {
        let (expected, found) = (Detail::Text("a device of this file system"), Detail::Number(device.id().0));
        Corrupt::new("device of the superblock", expected, found).at(At::Superblock(offset))
    })??;
    let tag = Tag { kind: Kind::Superblock, mirror };
    let written = tagged(tag, || device.device().write_at(offset, &[copy.bytes()]));
    Ok(written.inspect_err(|_| device.count(Event::WriteError))?)
}

/// Offsets of the copies on a device of this size. The kernel needs one byte more than the copy (`bytenr +
/// BTRFS_SUPER_INFO_SIZE >= commit_total_bytes` ends its loop).
fn mirrors_within(device_bytes: u64) -> impl Iterator<Item = u64> {
    (0..MIRRORS_MAX).filter_map(mirror_offset).take_while(move |offset| offset + to_u64(SUPERBLOCK_SIZE) < device_bytes)
}

/// Reads the copy at an offset of the device.
///
/// # Errors
/// The verification error, or the device's.
pub fn read_copy(device: &dyn Device, offset: u64) -> Result<Superblock> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at(offset, &mut bytes)?;
    Ok(UncheckedSuperblock::new(&bytes)?.verify(offset)?)
}

fn refusal(access: Intent, is_readable: bool, what: impl std::fmt::Display) -> Error {
    match access {
        Intent::ReadWrite if is_readable => Error::unsupported(format!("writing with {what} (reading is possible)")),
        _ => Error::unsupported(what.to_string()),
    }
}
