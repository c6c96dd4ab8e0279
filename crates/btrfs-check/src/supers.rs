//! Superblocks: which copy counts, whether the others agree, and what the newest backup root says.

use std::sync::Arc;

use blockdev::Device;
use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::SuperFlags;
use btrfs_disk::items::OnDisk as _;
use btrfs_disk::superblock::{DiskSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, mirror_offsets};
use btrfs_disk::verify::Format;
use btrfs_disk::{DevId, Logical};
use btrfs_pool::Chunk;
use btrfs_pool::supers::read_copy;

use crate::code::Code;
use crate::error::Error;
use crate::finding::{Findings, Place};
use crate::media::{Disk, Media};

/// Flags of a file system that nothing is converting. The older way of changing its UUID leaves its flag until it is
/// done; the newer one is finished by the kernel, with the device that has the flag.
const FLAGS_AT_REST: SuperFlags = SuperFlags::WRITTEN
    .union(SuperFlags::RELOC)
    .union(SuperFlags::ERROR)
    .union(SuperFlags::SEEDING)
    .union(SuperFlags::METADUMP)
    .union(SuperFlags::METADUMP_V2)
    .union(SuperFlags::CHANGING_FSID_V2);

/// What a check starts from.
#[derive(Debug)]
pub struct Opened {
    /// The devices, and the chunks that the superblock names.
    pub media: Media,
    /// The superblock that counts.
    pub fields: Box<DiskSuperblock>,
}

/// Reads the superblocks as a check does, and reports nothing: for who repairs what a check found.
///
/// # Errors
/// When there is none, or its checksums are of an unknown type.
pub fn open_media(devices: &[Arc<dyn Device>]) -> Result<Opened, Error> {
    open(devices, &Findings::default())
}

/// Reads all superblocks; the first device's first good one counts.
///
/// # Errors
/// When there is none, or its checksums are of an unknown type.
pub(crate) fn open(devices: &[Arc<dyn Device>], findings: &Findings) -> Result<Opened, Error> {
    let mut disks: Vec<Disk> = Vec::new();
    let mut chosen: Option<Superblock> = None;
    for device in devices {
        let superblock = of_device(&**device, findings)?;
        let fields = superblock.fields();
        if let Some(chosen) = &chosen
            && chosen.fields().fsid != fields.fsid
        {
            return Err(Error::NoSuperblock(format!("{} belongs to another file system", device.name())));
        }
        let item = &fields.dev_item;
        let (id, total_bytes) = (DevId(item.devid.get()), item.total_bytes.get());
        if device.size_bytes() < total_bytes {
            findings.add(Code::DeviceSmall, Place::device(id.0, 0), total_bytes, device.size_bytes());
        }
        disks.push(Disk { id, uuid: item.uuid, total_bytes, device: Arc::clone(device) });
        if chosen.as_ref().is_none_or(|chosen| chosen.generation() < superblock.generation()) {
            chosen = Some(superblock);
        }
    }
    let superblock = chosen.ok_or_else(|| Error::NoSuperblock("no device".to_owned()))?;
    opened(disks, &superblock, findings)
}

/// A committed state of a volume on one device that others use: its superblock, which leads to no log, comes from who
/// keeps the state from being written over, since the copies on the device go on to later states.
#[derive(Debug)]
pub struct Held {
    /// The superblock of the state.
    pub superblock: Superblock,
    /// Copies on the device that are not what was written last: byte on the device, and what is wrong.
    pub bad_copies: Vec<(u64, String)>,
}

/// As [`open`], of a state that somebody holds.
///
/// # Errors
/// When its checksums are of an unknown type.
pub(crate) fn open_held(device: &Arc<dyn Device>, held: &Held, findings: &Findings) -> Result<Opened, Error> {
    let item = &held.superblock.fields().dev_item;
    let (id, total_bytes) = (DevId(item.devid.get()), item.total_bytes.get());
    if device.size_bytes() < total_bytes {
        findings.add(Code::DeviceSmall, Place::device(id.0, 0), total_bytes, device.size_bytes());
    }
    for (offset, problem) in &held.bad_copies {
        findings.add(Code::SuperCopy, Place::device(id.0, *offset), "a superblock", problem);
    }
    let disk = Disk { id, uuid: item.uuid, total_bytes, device: Arc::clone(device) };
    opened(vec![disk], &held.superblock, findings)
}

/// Devices, and the chunks that the superblock names.
fn opened(disks: Vec<Disk>, superblock: &Superblock, findings: &Findings) -> Result<Opened, Error> {
    let fields = Box::new(*superblock.fields());
    let format = Format::of(&fields).ok_or_else(|| Error::Unsupported("this checksum type".to_owned()))?;
    let mut media = Media::new(disks, format, superblock.generation().0);
    for chunk in superblock.system_chunks() {
        let chunk = chunk.map_err(|error| error.to_string());
        let chunk = chunk
            .and_then(|(key, item)| Chunk::from_item(Logical(key.offset), &item).map_err(|error| error.to_string()));
        match chunk {
            Ok(chunk) => drop(media.add_chunk(chunk)),
            Err(error) => findings.add(Code::ChunkInvalid, Place::default(), "a system chunk", error),
        }
    }
    backup(&fields, findings);
    if let Some(flags) = fields.super_flags().beyond(FLAGS_AT_REST) {
        findings.add(Code::SuperFlags, Place::default(), "no conversion under way", flags);
    }
    Ok(Opened { media, fields })
}

fn of_device(device: &dyn Device, findings: &Findings) -> Result<Superblock, Error> {
    let mut chosen: Option<Superblock> = None;
    let mut failed: Vec<(u64, String)> = Vec::new();
    let mut copies: Vec<(u64, Superblock)> = Vec::new();
    for offset in mirror_offsets(device.size_bytes()) {
        match read_copy(device, offset) {
            Ok(copy) => copies.push((offset, copy)),
            Err(error) => failed.push((offset, error.to_string())),
        }
    }
    // The kernel mounts by the first copy alone; of the others the newest is the next best.
    let primary = copies.iter().position(|(offset, _)| *offset == SUPERBLOCK_OFFSET);
    let newest = (0..copies.len()).max_by_key(|index| copies.get(*index).map(|(_, copy)| copy.generation()));
    if let Some((_, copy)) = primary.or(newest).and_then(|index| copies.get(index)) {
        chosen = Some(copy.clone());
    }
    let Some(chosen) = chosen else {
        let why = failed.into_iter().next().map_or_else(|| "too small".to_owned(), |(_, error)| error);
        return Err(Error::NoSuperblock(format!("{}: {why}", device.name())));
    };
    let id = chosen.fields().dev_item.devid.get();
    // A mirror beyond what the file system uses of the device is not its own.
    let used = chosen.fields().dev_item.total_bytes.get();
    let is_ours = |offset: u64| offset.saturating_add(to_u64(SUPERBLOCK_SIZE)) < used || offset == SUPERBLOCK_OFFSET;
    for (offset, error) in failed.into_iter().filter(|(offset, _)| is_ours(*offset)) {
        findings.add(Code::SuperCopy, Place::device(id, offset), "a superblock", error);
    }
    for (offset, copy) in copies.into_iter().filter(|(offset, _)| is_ours(*offset)) {
        if let Some((what, expected, found)) = difference(chosen.fields(), copy.fields()) {
            findings.add_what(Code::SuperMirror, what, Place::device(id, offset), expected, found);
        }
    }
    Ok(chosen)
}

/// What a mirror says otherwise than the copy in use. Only the first has the log: an fsync does not write mirrors.
fn difference(chosen: &DiskSuperblock, copy: &DiskSuperblock) -> Option<(&'static str, u64, u64)> {
    let values = |fields: &DiskSuperblock| {
        [
            ("generation", fields.generation.get()),
            ("address of the root tree", fields.root.get()),
            ("address of the chunk tree", fields.chunk_root.get()),
            ("size", fields.total_bytes.get()),
            ("used bytes", fields.bytes_used.get()),
            ("features", fields.incompat_flags.get()),
            ("read-only features", fields.compat_ro_flags.get()),
            ("number of devices", fields.num_devices.get()),
            ("size of the system chunks", u64::from(fields.sys_chunk_array_size.get())),
        ]
    };
    let pairs = values(chosen).into_iter().zip(values(copy));
    let mut different = pairs.filter(|((_, a), (_, b))| a != b);
    if let Some(((what, expected), (_, found))) = different.next() {
        return Some((what, expected, found));
    }
    let masked = |fields: &DiskSuperblock| {
        let mut fields = *fields;
        fields.csum = [0; 32];
        fields.bytenr = 0.into();
        fields.log_root = 0.into();
        fields.log_root_transid = 0.into();
        fields.log_root_level = 0;
        fields.label = [0; btrfs_disk::superblock::LABEL_SIZE];
        fields
    };
    (masked(chosen).bytes() != masked(copy).bytes()).then_some(("other fields", 0, 1))
}

/// The backup root of the last commit, if it is there, repeats what the superblock says.
fn backup(fields: &DiskSuperblock, findings: &Findings) {
    let generation = fields.generation;
    let Some(backup) = fields.super_roots.iter().find(|backup| backup.tree_root_gen == generation) else { return };
    let compared = [
        ("root tree", fields.root.get(), backup.tree_root.get()),
        ("chunk tree", fields.chunk_root.get(), backup.chunk_root.get()),
        ("generation of the chunk tree", fields.chunk_root_generation.get(), backup.chunk_root_gen.get()),
        ("level of the root tree", fields.root_level.into(), backup.tree_root_level.into()),
        ("level of the chunk tree", fields.chunk_root_level.into(), backup.chunk_root_level.into()),
        ("used bytes", fields.bytes_used.get(), backup.bytes_used.get()),
        ("size", fields.total_bytes.get(), backup.total_bytes.get()),
        ("number of devices", fields.num_devices.get(), backup.num_devices.get()),
    ];
    for (what, expected, found) in compared.into_iter().filter(|(_, expected, found)| expected != found) {
        findings.add_what(Code::SuperBackup, what, Place::default(), expected, found);
    }
}
