//! How images of btrfs are opened, and what its errors mean.

use std::error::Error as StdError;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Error, Result};
use blockdev::Device;
use btrfs_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, UncheckedSuperblock};
use btrfs_disk::{Generation, TreeId};
use btrfs_pool::supers::read_mirrors;
use btrfs_store::Error as StoreError;
use spinney::{CallerError, Error as VolumeError, Volume, VolumeOptions};

use super::{compression, info};
use commands::failure::{Failure, Status, of_device};
use commands::format::{About, OpenRequest, Opened, known, recognise};
use commands::image::{ImageArgs, ImagePath, ReadArgs, explain, maker, open_device};
use commands::output::{Output, warn};

#[derive(Debug)]
struct Btrfs(Volume);

impl About for Btrfs {
    fn report(&self, json: bool, out: &mut Output) -> Result<()> {
        report(&self.0, json, out)
    }
}

/// What `info` shows of a volume.
pub(super) fn report(volume: &Volume, json: bool, out: &mut Output) -> Result<()> {
    let info = volume.info()?;
    if json { out.json(&info::report(&info)) } else { info::print(out, &info) }
}

pub(super) fn open(device: Arc<dyn Device>, request: &OpenRequest) -> Result<Opened> {
    let volume = options(request)?.open_device(device)?;
    tell_of_cut(&volume)?;
    Ok(Opened { volume: volume.by_paths().clone(), about: Box::new(Btrfs(volume)) })
}

fn options(request: &OpenRequest) -> Result<VolumeOptions> {
    let (uid, gid) = maker();
    let mut options = Volume::options().read_only(request.read_only).replay_log(!request.skips_log).owner(uid, gid);
    if let Some(path) = &request.subvolume {
        options = options.subvolume(path);
    }
    if let Some(id) = request.subvolume_id {
        options = options.subvolume_id(TreeId(id));
    }
    if let Some(copy) = request.superblock {
        options = options.superblock(copy);
    }
    options = options.generation(request.generation.map(Generation));
    if let Some(text) = &request.compression {
        options = options.compress(Some(compression::parse(text).map_err(Failure::usage)?));
    }
    Ok(options)
}

/// The first copy of the superblock, not verified; of a volume in use perhaps in the middle of being written.
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
    open_with(image, &image.request(), |options| options.writes_ahead(true))
}

/// Opens an image for a command that only btrfs has; nothing in it changes.
pub(super) fn open_read_only(image: &ReadArgs) -> Result<Volume> {
    open_as(&image.image, &image.request())
}

/// Opens an image for a command that reads it as well as others that write.
pub(super) fn open_image_as(image: &ImageArgs, read_only: bool) -> Result<Volume> {
    open_as(image, &OpenRequest { read_only, ..image.request() })
}

/// Opens an image for a command that only btrfs has, as it asks for.
pub(super) fn open_as(image: &ImageArgs, request: &OpenRequest) -> Result<Volume> {
    open_with(image, request, |options| options)
}

fn open_with(
    image: &ImageArgs,
    request: &OpenRequest,
    change: impl FnOnce(VolumeOptions) -> VolumeOptions,
) -> Result<Volume> {
    let opened = open_device(&image.image, request).and_then(|device| {
        let volume = change(options(request)?).open_device(device)?;
        tell_of_cut(&volume)?;
        Ok(volume)
    });
    opened.map_err(|error| of_another(&image.image).unwrap_or_else(|| explain(&image.image, error)))
}

/// Opens an image, which may be truncated, to change its size.
pub(super) fn open_to_resize(image: &ImageArgs) -> Result<Volume> {
    open_with(image, &image.request(), |options| options.cut_to_device(true))
}

/// Warns if a read-only volume is truncated.
fn tell_of_cut(volume: &Volume) -> Result<()> {
    let (expected, found) = (volume.info()?.total_bytes, volume.device_bytes());
    if volume.is_read_only() && found < expected {
        let missing = expected - found;
        warn(&format!("warning: {missing} bytes are missing at the end of the image; {SHRINKS}"));
    }
    Ok(())
}

/// The remedy for a truncated image.
const SHRINKS: &str = "`spinney repair IMAGE` shrinks the file system if no chunk lies there";

/// The refusal of an image that another format of this program can read: nothing is wrong with it.
pub(super) fn of_another(path: &Path) -> Option<Error> {
    let part = ImagePath::parse(path);
    let name = recognise(&part.path, part.offset).ok()??;
    let is_other = name != "btrfs" && known().iter().any(|ours| ours.name == name);
    let text = format!("{}: holds {name}: this command is for btrfs alone", path.display());
    is_other.then(|| Failure::new(Status::Unsupported, text).into())
}

/// Which copies of the superblock are right, where the primary is not.
pub(super) fn remedies(device: &dyn Device) -> Vec<String> {
    let copies = read_mirrors(device);
    if let Some((_, Ok(primary))) = copies.first() {
        let is_cut = device.size_bytes() < primary.fields().dev_item.total_bytes.get();
        return if is_cut { vec![SHRINKS.to_owned()] } else { Vec::new() };
    }
    let right = copies.iter().enumerate().filter(|(_, (_, copy))| copy.is_ok());
    right
        .map(|(number, (offset, _))| format!("--super {number} takes the copy at byte {offset}, which is right"))
        .collect()
}

pub(super) fn status(cause: &(dyn StdError + 'static)) -> Option<Status> {
    if let Some(error) = cause.downcast_ref::<VolumeError>() {
        return Some(of_volume(error));
    }
    if let Some(error) = cause.downcast_ref::<StoreError>() {
        return Some(of_store(error));
    }
    cause.is::<btrfs_disk::Corrupt>().then_some(Status::Corrupt)
}

fn of_volume(error: &VolumeError) -> Status {
    match error {
        VolumeError::Caller { what: CallerError::NotSupported, .. } | VolumeError::Unsupported(_) => {
            Status::Unsupported
        }
        VolumeError::Caller { .. } => Status::Refused,
        VolumeError::Corrupt { .. } => Status::Corrupt,
        VolumeError::NoSpace => Status::NoSpace,
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
        StoreError::ReadOnly | StoreError::NoSuchTree(_) => Status::Refused,
        _ => Status::Corrupt,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context as _;

    use super::*;
    use crate::formats::FORMATS;
    use commands::failure::{one_line, status_of};
    use commands::format;

    #[test]
    fn the_first_known_cause_decides() {
        format::know(FORMATS);
        let error: anyhow::Error = VolumeError::caller(CallerError::NotFound).into();
        let error = Err::<(), _>(error).context("while looking").unwrap_err();
        assert_eq!(status_of(&error), Status::Refused);
        assert_eq!(one_line(&error), "while looking: no such file or directory");
        assert_eq!(status_of(&VolumeError::NoSpace.into()), Status::NoSpace);
    }

    #[test]
    fn a_cause_told_already_is_not_repeated() {
        format::know(FORMATS);
        let inner = io::Error::new(io::ErrorKind::StorageFull, "disk full");
        let error = blockdev::Error::io(blockdev::Op::Write, "a.img", 0, 4096, inner);
        let error: anyhow::Error = VolumeError::from(error).into();
        assert_eq!(one_line(&error), "a.img: cannot write 4096 bytes at 0: disk full");
        assert_eq!(status_of(&error), Status::NoSpace);
    }

    #[test]
    fn a_locked_image_is_busy_and_named_once() {
        format::know(FORMATS);
        let error: anyhow::Error =
            VolumeError::from(blockdev::Error::Locked { device: "a.img".into() }).at("a.img").into();
        assert_eq!(one_line(&error), "a.img: in use by another program");
        assert_eq!(status_of(&error), Status::Busy);
    }
}
