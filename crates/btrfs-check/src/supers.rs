//! Chooses a superblock copy, and compares it with the others and its backup roots: the super pass. Called by `run`;
//! `btrfs-repair` opens devices with it.

use std::sync::Arc;

use blockdev::Device;
use btrfs_disk::convert::to_u64;
use btrfs_disk::flags::SuperFlags;
use btrfs_disk::items::OnDisk as _;
use btrfs_disk::superblock::{DiskSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use btrfs_disk::verify::Format;
use btrfs_disk::{DevId, Logical, Uuid};
use btrfs_pool::{Chunk, Member, MemberError, Members};

use crate::code::Code;
use crate::error::Error;
use crate::finding::{Findings, Place};
use crate::media::{Disk, Media};

/// Flags of a file system without a running conversion. The older way of changing its UUID sets its flag until it is
/// done; the newer one is finished by the kernel, with the flag on a device.
const FLAGS_AT_REST: SuperFlags = SuperFlags::WRITTEN
    .union(SuperFlags::RELOC)
    .union(SuperFlags::ERROR)
    .union(SuperFlags::SEEDING)
    .union(SuperFlags::METADUMP)
    .union(SuperFlags::METADUMP_V2)
    .union(SuperFlags::CHANGING_FSID_V2);

/// The starting point of a check.
#[derive(Debug)]
pub struct Opened {
    /// The devices, and the system chunks in the superblock.
    pub media: Media,
    /// The chosen superblock.
    pub fields: Box<DiskSuperblock>,
}

/// Reads the superblocks as a check does, without reporting: for repairs.
///
/// # Errors
/// When there is none, or its checksums are of an unknown type.
pub fn open_media(devices: &[Arc<dyn Device>]) -> Result<Opened, Error> {
    open(devices, &Findings::default())
}

/// Reads all superblocks; the first good one of the newest member is chosen.
///
/// # Errors
/// When a device has none, or its checksums are of an unknown type; for devices that cannot be used together.
pub(crate) fn open(devices: &[Arc<dyn Device>], findings: &Findings) -> Result<Opened, Error> {
    let members = Members::salvage(devices)?;
    let mut disks: Vec<Disk> = Vec::new();
    for member in members.iter() {
        disks.push(disk_of(member, findings)?);
    }
    let (_, superblock) = members.counting().ok_or(MemberError::None)?;
    let newest = superblock.generation();
    for (disk, found) in disks.iter().zip(members.iter().filter_map(Member::superblock)) {
        let is_seed = found.fields().fsid != superblock.fields().fsid;
        if found.generation() != newest && !is_seed {
            let place = Place::device(disk.id.0, SUPERBLOCK_OFFSET);
            findings.add_what(Code::SuperMirror, "generation", place, newest, found.generation());
        }
    }
    opened(disks, superblock, &members.seed_fsids(), findings)
}

/// A committed state of a volume on one device in use: its superblock, without a log, comes from the program that holds
/// the state, since the copies on the device change with later states.
#[derive(Debug)]
pub struct Held {
    /// The superblock of the state.
    pub superblock: Superblock,
    /// Bad copies on the device: byte on the device, and the defect.
    pub bad_copies: Vec<(u64, String)>,
}

/// As [`open`], of a held state.
///
/// # Errors
/// When its checksums are of an unknown type.
pub(crate) fn open_held(device: &Arc<dyn Device>, held: &Held, findings: &Findings) -> Result<Opened, Error> {
    let disk = disk(device, &held.superblock, findings);
    for (offset, problem) in &held.bad_copies {
        findings.add(Code::SuperCopy, Place::device(disk.id.0, *offset), "a superblock", problem);
    }
    opened(vec![disk], &held.superblock, &[], findings)
}

/// The device that a superblock describes.
fn disk(device: &Arc<dyn Device>, superblock: &Superblock, findings: &Findings) -> Disk {
    let item = &superblock.fields().dev_item;
    let (id, total_bytes) = (DevId(item.devid.get()), item.total_bytes.get());
    if device.size_bytes() < total_bytes {
        findings.add(Code::DeviceSmall, Place::device(id.0, 0), total_bytes, device.size_bytes());
    }
    Disk { id, uuid: item.uuid, total_bytes, device: Arc::clone(device) }
}

/// Devices, and the system chunks in the superblock.
fn opened(disks: Vec<Disk>, superblock: &Superblock, seeds: &[Uuid], findings: &Findings) -> Result<Opened, Error> {
    let fields = Box::new(*superblock.fields());
    let format = Format::of(&fields).ok_or_else(|| Error::Unsupported("this checksum type".to_owned()))?;
    let mut media = Media::new(disks, format.with_seeds(seeds), superblock.generation().0);
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

/// The device of a member; reports defects of its superblock copies.
fn disk_of(member: &Member, findings: &Findings) -> Result<Disk, Error> {
    let copies = member.copies();
    let Some(chosen) = member.superblock() else {
        let first = copies.iter().find_map(|(_, copy)| copy.as_ref().err());
        let why = first.map_or_else(|| "too small".to_owned(), ToString::to_string);
        return Err(Error::NoSuperblock(format!("{}: {why}", member.device().name())));
    };
    let id = chosen.fields().dev_item.devid.get();
    // A mirror beyond the used part of the device does not belong to it.
    let used = chosen.fields().dev_item.total_bytes.get();
    let is_ours = |offset: u64| offset.saturating_add(to_u64(SUPERBLOCK_SIZE)) < used || offset == SUPERBLOCK_OFFSET;
    for (offset, copy) in copies.iter().filter(|(offset, _)| is_ours(*offset)) {
        let place = Place::device(id, *offset);
        match copy.as_ref().map(|copy| difference(chosen.fields(), copy.fields())) {
            Err(error) => findings.add(Code::SuperCopy, place, "a superblock", error),
            Ok(Some((what, expected, found))) => findings.add_what(Code::SuperMirror, what, place, expected, found),
            Ok(None) => {}
        }
    }
    Ok(disk(member.device(), chosen, findings))
}

/// The first difference of a mirror from the copy in use. Only the primary has the log: an fsync does not write
/// mirrors.
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

/// Compares the backup root of the last commit, if it is there, with the superblock.
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
