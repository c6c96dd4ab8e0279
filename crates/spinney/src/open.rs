//! Opens, makes and checks a volume of any format. The commands and programs call it.

use std::path::Path;
use std::sync::Arc;

use blockdev::{Access, Device, Locator};
use formats::{CheckOptions, CheckReport, Devices, Format, MakeOptions, OptionError, VolumeOptions};
use vfs::Result;

use crate::device_errors::device_error;
use crate::formats::{assume, format_named, format_names};
use crate::progress::{Cancellable, ProgressFn, Reporter};
use crate::remote_devices::add_remote_devices;
use crate::volume::Volume;

/// Opens the volume in an image file or on an unmounted block device, and recognises its format.
///
/// `IMAGE?offset=N&size=M` names `M` bytes from byte `N` on (either may be left out); `A,B` names the devices of
/// one volume. [`crate::blockdev::Locator::parse`] has the whole syntax.
///
/// # Errors
/// `ENOENT`, `EACCES`: the host refuses the path. `EBUSY`: open in another program, unless both only read; for writing
/// also mounted or attached to a loop device. `ENOTBLK`: neither a regular file nor a block device. `EIO`: no volume of
/// a known format, a damaged one, a failed read, or a name with a wrong `offset` or `size`. `EINVAL`, `EOPNOTSUPP`: a
/// wrong or unsupported option, with an [`OptionError`] as the cause.
pub fn open(image: impl AsRef<Path>, options: &VolumeOptions) -> Result<Volume> {
    let image = image.as_ref();
    let devices = devices(image, Access { read_only: options.read_only, ..Access::WRITE })?;
    open_devices(devices, options).map_err(|error| error.during("open").at(image))
}

/// Opens the volume on these devices. Its format is recognised by the first one.
///
/// # Errors
/// As [`open`].
pub fn open_devices(devices: Devices, options: &VolumeOptions) -> Result<Volume> {
    open_as(assume(first(&devices)?)?, devices, options)
}

/// Opens the volume on these devices as `format`, without recognising it first: for a volume whose primary superblock
/// is damaged. [`crate::format_named`] finds a format.
///
/// # Errors
/// As [`open`].
pub fn open_as(format: &'static dyn Format, devices: Devices, options: &VolumeOptions) -> Result<Volume> {
    Ok(Volume::new(format, format.open(devices, options)?))
}

/// Makes a volume of the format named `format` (`"btrfs"`, `"f2fs"`) and opens it for writing. `image` is an unmounted
/// block device or an image file, which [`MakeOptions::size()`] creates if there is none. Everything in it is
/// overwritten, without asking whether it holds a file system. Options by name ([`MakeOptions::option`]): btrfs has
/// `csum` (`crc32c`, `xxhash64`, `sha256`, `blake2b`) `nodesize` (`4K` to `64K`), `data` and
/// `metadata` (profiles: `single`, `dup`, `raid0`, `raid1`, `raid1c3`, `raid1c4`, `raid10`); f2fs has none.
///
/// # Errors
/// `EINVAL` for an unknown format or option; `ENOSPC` for a size that is too small for the format; else as [`open`].
pub fn make(image: impl AsRef<Path>, format: &str, options: &MakeOptions) -> Result<Volume> {
    let image = image.as_ref();
    let access = Access { create: options.size.is_some(), ..Access::WRITE };
    add_remote_devices();
    let part = Locator::parse(image).map(|part| part.with_size(options.size));
    let device = part.and_then(|part| blockdev::open(&part, access)).map_err(device_error)?;
    make_devices(vec![device], format, options).map_err(|error| error.during("make").at(image))
}

/// Makes a volume of the format named `format` on these devices (f2fs: on one), and opens it for writing. Their
/// contents are lost.
///
/// # Errors
/// As [`make`].
pub fn make_devices(devices: Devices, format: &str, options: &MakeOptions) -> Result<Volume> {
    let unknown = || OptionError::wrong(format!("unknown format `{format}`: expected {}", format_names()));
    let format = format_named(format).ok_or_else(unknown)?;
    Ok(Volume::new(format, format.make(devices, options)?))
}

/// Checks the volume in an image file or on an unmounted block device, and writes nothing. The last call of `watch`
/// need not be the end: a short check may call it only once.
///
/// A damaged volume is no error: the damage is in the report.
///
/// # Errors
/// As [`open`]; `ECANCELED` after `watch` returned [`std::ops::ControlFlow::Break`].
pub fn check(image: impl AsRef<Path>, options: &CheckOptions, watch: ProgressFn<'_>) -> Result<CheckReport> {
    let image = image.as_ref();
    check_devices(devices(image, Access::READ)?, options, watch).map_err(|error| error.during("check").at(image))
}

/// Checks the volume on these devices, as [`check`].
///
/// # Errors
/// As [`check`].
pub fn check_devices(devices: Devices, options: &CheckOptions, watch: ProgressFn<'_>) -> Result<CheckReport> {
    let format = assume(first(&devices)?)?;
    let passes = format.passes();
    if let Some(unknown) = options.passes.iter().find(|id| !passes.iter().any(|pass| pass.id == **id)) {
        return Err(OptionError::wrong(format!("`{unknown}` is no pass of the check of {}", format.name())).into());
    }
    let reporter = Reporter::new(watch);
    // Once it is cancelled no device answers any more, so that the check comes to its end.
    let devices = devices.into_iter().map(|device| Cancellable::over(device, reporter.cancelled())).collect();
    let report = format.check(devices, options, &reporter);
    reporter.end(report)
}

/// Opens the devices of a list.
pub(crate) fn devices(list: &Path, access: Access) -> Result<Devices> {
    add_remote_devices();
    let found = Locator::parse_list(list);
    found.and_then(|list| list.iter().map(|device| blockdev::open(device, access)).collect()).map_err(device_error)
}

pub(crate) fn first(devices: &[Arc<dyn Device>]) -> Result<&dyn Device> {
    let none = || OptionError::wrong("devices of a volume: expected 1 or more, found none");
    Ok(&**devices.first().ok_or_else(none)?)
}
