//! Makes, lists and deletes subvolumes, and makes snapshots.

use std::ffi::{CString, c_char, c_int};
use std::mem::size_of;

use spinney::btrfs::{self, SubvolumeInfo};
use spinney::{Result, SnapshotMode, Time, Volume};

use crate::failure::Misuse;
use crate::handle::{Handle, SpinneySubvolumes, SpinneyVolume, on};
use crate::list::{List, c_text};
use crate::metadata::{SpinneyTime, time_of};
use crate::pointer::{HandlePlace, Struct, StructPlace, check_flags, path};
use crate::volume::SPINNEY_READ_ONLY;

/// `spinney_subvolume`: a subvolume of a list.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SpinneySubvolume {
    pub struct_size: usize,
    pub id: u64,
    pub parent: u64,
    pub generation: u64,
    pub path: *const c_char,
    pub uuid: [u8; 16],
    pub parent_uuid: [u8; 16],
    pub received_uuid: [u8; 16],
    pub created: SpinneyTime,
    pub flags: u32,
    pub reserved: u32,
}

// SAFETY: it begins with its size; all fields are numbers and pointers.
unsafe impl Struct for SpinneySubvolume {
    const NAME: &'static str = "spinney_subvolume";
}

impl Handle for SpinneySubvolumes {
    type Object = List<(SubvolumeInfo, CString)>;
    const NAME: &'static str = "a list of subvolumes";
}

/// The volume with the operations that only btrfs has.
///
/// # Errors
/// `EOPNOTSUPP` for another format.
pub(crate) fn own(volume: &Volume) -> Result<&btrfs::Volume> {
    volume.btrfs().ok_or_else(|| Misuse::OtherFormat(volume.format().name()).error())
}

/// Makes a subvolume; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_subvolume_create(volume: *mut SpinneyVolume, path: *const c_char) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let path = unsafe { self::path(path, "path") };
    on(volume, |volume| volume.create_subvolume(path?).map(|()| 0))
}

/// Deletes a subvolume; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_subvolume_delete(volume: *mut SpinneyVolume, path: *const c_char) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let path = unsafe { self::path(path, "path") };
    on(volume, |volume| volume.delete_subvolume(path?).map(|()| 0))
}

/// Makes a subvolume read-only, or writable; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_subvolume_set_flags(
    volume: *mut SpinneyVolume,
    path: *const c_char,
    flags: u32,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let path = unsafe { self::path(path, "path") };
    on(volume, |volume| volume.set_subvolume_mode(path?, mode(flags)?).map(|()| 0))
}

/// Makes a snapshot; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_snapshot(
    volume: *mut SpinneyVolume,
    source: *const c_char,
    target: *const c_char,
    flags: u32,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (source, target) = unsafe { (path(source, "source"), path(target, "target")) };
    on(volume, |volume| volume.snapshot(source?, target?, mode(flags)?).map(|()| 0))
}

fn mode(flags: u32) -> Result<SnapshotMode> {
    check_flags(flags, SPINNEY_READ_ONLY)?;
    Ok(if flags == SPINNEY_READ_ONLY { SnapshotMode::ReadOnly } else { SnapshotMode::ReadWrite })
}

/// Lists the subvolumes; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_subvolumes_open(
    volume: *mut SpinneyVolume,
    list: *mut *mut SpinneySubvolumes,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let place = unsafe { HandlePlace::new(list, "list") };
    on(volume, |volume| {
        let place = place?;
        let found = own(volume)?.subvolumes()?;
        let with_path = |info: SubvolumeInfo| {
            let path = c_text(&info.path, "the path of a subvolume")?;
            Ok((info, path))
        };
        place.fill(volume.child(List::new(found.into_iter().map(with_path).collect::<Result<Vec<_>>>()?)));
        Ok(0)
    })
}

/// Tells the next subvolume; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_subvolumes_next(
    list: *mut SpinneySubvolumes,
    subvolume: *mut SpinneySubvolume,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let place = unsafe { StructPlace::new(subvolume) };
    on(list, |list| {
        let place = place?;
        let Some((info, path)) = list.next() else { return Ok(0) };
        place.fill(&SpinneySubvolume {
            struct_size: size_of::<SpinneySubvolume>(),
            id: info.id.0,
            parent: info.parent.map_or(0, |parent| parent.0),
            generation: info.generation.0,
            path: path.as_ptr(),
            uuid: info.uuid,
            parent_uuid: info.parent_uuid,
            received_uuid: info.received_uuid,
            created: time_of(Time::new(info.otime.sec, info.otime.nsec)),
            flags: if info.read_only { SPINNEY_READ_ONLY } else { 0 },
            reserved: 0,
        });
        Ok(1)
    })
}
