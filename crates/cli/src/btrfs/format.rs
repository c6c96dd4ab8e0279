//! Opens btrfs images for the commands (read-only, writable, to resize), and explains btrfs errors. The commands of
//! btrfs call it; `row` passes its reports, statuses and advice to the common commands.

use std::error::Error as StdError;
use std::path::Path;

use anyhow::{Error, Result};
use spinney::VolumeOptions;
use spinney::blockdev::{Device, Locator};
use spinney::btrfs::check::Error as CheckError;
use spinney::btrfs::disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, UncheckedSuperblock};
use spinney::btrfs::forks::Error as ForksError;
use spinney::btrfs::store::Error as StoreError;
use spinney::btrfs::{
    CallerError, Error as VolumeError, MemberError, SHRINKS, Volume, VolumeOptions as Own, open_with as open_changed,
};

use super::info;
use crate::commands::failure::{Failure, Status, of_device};
use crate::commands::format::recognise;
use crate::commands::image::{ImageArgs, ReadArgs, explain, open_devices};
use crate::commands::output::{Output, warn};

/// Prints the report of `info`.
pub(super) fn report(volume: &Volume, json: bool, out: &mut Output) -> Result<()> {
    let info = volume.info()?;
    if json { out.json(&info::report(&info)) } else { info::print(out, &info) }
}

/// The volume as a btrfs volume.
///
/// # Errors
/// For a volume of another format.
pub(super) fn own(volume: &spinney::Volume) -> Result<&Volume> {
    let name = volume.format().name();
    Ok(volume.btrfs().ok_or_else(|| Failure::new(Status::Unsupported, format!("a volume of {name}, not of btrfs")))?)
}

/// The first copy of the superblock, not verified; it may be torn if the volume is in use.
///
/// # Errors
/// The device's.
pub(super) fn first_superblock(device: &dyn Device) -> Result<UncheckedSuperblock> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(UncheckedSuperblock::new(&bytes)?)
}

/// Opens an image for a command that only btrfs has, to read and write.
pub(super) fn open_writable(image: &ImageArgs) -> Result<Volume> {
    open_as(image, &image.request())
}

/// As [`open_writable`], for a command that writes much with one thread.
pub(super) fn open_to_fill(image: &ImageArgs) -> Result<Volume> {
    open_with(image, &image.request(), |own| own.writes_ahead(true))
}

/// Opens an image for a command that only btrfs has; nothing in it changes.
pub(super) fn open_read_only(image: &ReadArgs) -> Result<Volume> {
    open_as(&image.image, &image.request())
}

/// Opens an image for a command of which only some uses write.
pub(super) fn open_image_as(image: &ImageArgs, read_only: bool) -> Result<Volume> {
    open_as(image, &image.request().read_only(read_only))
}

/// Opens an image with the given options, for a command that only btrfs has.
pub(super) fn open_as(image: &ImageArgs, options: &VolumeOptions) -> Result<Volume> {
    open_with(image, options, |own| own)
}

pub(super) fn open_with(image: &ImageArgs, options: &VolumeOptions, change: impl FnOnce(Own) -> Own) -> Result<Volume> {
    let opened = open_devices(image, options).and_then(|devices| {
        let volume = open_changed(devices, options, change)?;
        tell_of_cut(&volume)?;
        Ok(volume)
    });
    opened.map_err(|error| of_another(&image.image).unwrap_or_else(|| explain(&image.image, error)))
}

/// Opens an image, which may be truncated, to change its size.
pub(super) fn open_to_resize(image: &ImageArgs) -> Result<Volume> {
    open_with(image, &image.request(), |own| own.cut_to_device(true))
}

/// Warns if a read-only volume is truncated.
pub(super) fn tell_of_cut(volume: &Volume) -> Result<()> {
    let (expected, found) = (volume.info()?.total_bytes, volume.device_bytes());
    if volume.is_read_only() && found < expected {
        let missing = expected - found;
        warn(&format!("warning: {missing} bytes are missing at the end of the image; {SHRINKS}"));
    }
    Ok(())
}

/// The refusal of an image of another known format; `None` for any other file.
pub(super) fn of_another(path: &Path) -> Option<Error> {
    let name = recognise(Locator::parse_list(path).ok()?.first()?).ok()??;
    let is_other = name != "btrfs" && spinney::format_named(name).is_some();
    let text = format!("{}: holds {name}: this command is for btrfs alone", path.display());
    is_other.then(|| Failure::new(Status::Unsupported, text).into())
}

pub(super) fn status(cause: &(dyn StdError + 'static)) -> Option<Status> {
    if let Some(error) = cause.downcast_ref::<VolumeError>() {
        return Some(of_volume(error));
    }
    if let Some(error) = cause.downcast_ref::<StoreError>() {
        return Some(of_store(error));
    }
    match cause.downcast_ref::<ForksError>() {
        None | Some(ForksError::Volume(_)) => {}
        Some(ForksError::Record { .. }) => return Some(Status::Corrupt),
        Some(_) => return Some(Status::Refused),
    }
    cause.is::<spinney::btrfs::disk::Corrupt>().then_some(Status::Corrupt)
}

/// The remedy for an error.
pub(super) fn advice(cause: &(dyn StdError + 'static)) -> Option<&'static str> {
    let member = match (cause.downcast_ref(), cause.downcast_ref()) {
        (Some(VolumeError::Members(member)), _) => Some(&**member),
        (_, Some(CheckError::Members(member))) => Some(member),
        _ => cause.downcast_ref(),
    };
    matches!(member, Some(MemberError::Missing { .. })).then_some("name all of them, with commas (A,B)")
}

fn of_volume(error: &VolumeError) -> Status {
    match error {
        VolumeError::Caller { what: CallerError::NotSupported, .. } | VolumeError::Unsupported(_) => {
            Status::Unsupported
        }
        VolumeError::Caller { .. } | VolumeError::Members(_) => Status::Refused,
        VolumeError::Corrupt { .. } => Status::Corrupt,
        VolumeError::NoSpace(_) => Status::NoSpace,
        VolumeError::Io { source, .. } => of_device(source),
        VolumeError::Poisoned { reason } => of_store(reason),
        _ => Status::Io,
    }
}

fn of_store(error: &StoreError) -> Status {
    match error {
        StoreError::Device(source) => of_device(source),
        StoreError::Unsupported { .. } => Status::Unsupported,
        StoreError::Bug { .. } => Status::Io,
        StoreError::NoSpace { .. } => Status::NoSpace,
        StoreError::Poisoned { reason } => of_store(reason),
        StoreError::ReadOnly | StoreError::NoSuchTree(_) | StoreError::Members(_) => Status::Refused,
        _ => Status::Corrupt,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context as _;

    use super::*;
    use crate::commands::failure::{one_line, status_of};
    use crate::commands::format;
    use crate::formats::FACES;

    #[test]
    fn the_first_known_cause_decides() {
        format::know(FACES);
        let error: anyhow::Error = VolumeError::caller(CallerError::NotFound).into();
        let error = Err::<(), _>(error).context("while looking").unwrap_err();
        assert_eq!(status_of(&error), Status::Refused);
        assert_eq!(one_line(&error), "while looking: no such file or directory");
        assert_eq!(status_of(&VolumeError::NoSpace(None).into()), Status::NoSpace);
    }

    #[test]
    fn a_cause_told_already_is_not_repeated() {
        format::know(FACES);
        let inner = io::Error::new(io::ErrorKind::StorageFull, "disk full");
        let error = spinney::blockdev::Error::io(spinney::blockdev::Op::Write, "a.img", 0, 4096, inner);
        let error: anyhow::Error = VolumeError::from(error).into();
        assert_eq!(one_line(&error), "a.img: cannot write 4096 bytes at 0: disk full");
        assert_eq!(status_of(&error), Status::NoSpace);
    }

    #[test]
    fn a_locked_image_is_busy_and_named_once() {
        format::know(FACES);
        let error: anyhow::Error =
            VolumeError::from(spinney::blockdev::Error::Locked { device: "a.img".into() }).at("a.img").into();
        assert_eq!(one_line(&error), "a.img: in use by another program");
        assert_eq!(status_of(&error), Status::Busy);
    }
}
