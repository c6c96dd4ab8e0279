//! Opening, making and checking a volume of any format.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use blockdev::{Access, Device, Locator};
use formats::{CheckOptions, CheckReport, Devices, Format, MakeOptions, OptionError, VolumeOptions};
use vfs::{Blame, Errno, Error, Result};

use crate::formats::{format_named, format_names, recognise};
use crate::progress::{Cancellable, Progress, Reporter};
use crate::volume::Volume;

/// Opens the volume in an image file or on an unmounted block device; `IMAGE?offset=N` is the part from byte N on, and
/// `A,B` a volume on several devices, which is only read. Its format is recognised.
///
/// # Errors
/// `ENOENT`, `EACCES`; `EBUSY` where another program has it open for writing; `EIO` where it holds no volume of a known
/// format, or a damaged one; `EINVAL` or `EOPNOTSUPP` with an [`OptionError`].
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
    open_as(recognise(first(&devices)?)?, devices, options)
}

/// Opens the volume on these devices as one of a format, also where it is not recognised.
///
/// # Errors
/// As [`open`].
pub fn open_as(format: &'static dyn Format, devices: Devices, options: &VolumeOptions) -> Result<Volume> {
    Ok(Volume::new(format, format.open(devices, options)?))
}

/// Makes a volume of the format with the name `format` in an image file, which is created where a size is given, or on
/// an unmounted block device. The contents are lost.
///
/// # Errors
/// `EINVAL` for an unknown format or option; as [`open`]; `ENOSPC` for a size that is too small.
pub fn make(image: impl AsRef<Path>, format: &str, options: &MakeOptions) -> Result<Volume> {
    let image = image.as_ref();
    let access = Access { create: options.size.is_some(), ..Access::WRITE };
    let part = Locator::parse(image).map(|part| part.with_size(options.size));
    let device = part.and_then(|part| blockdev::open(&part, access)).map_err(of_device)?;
    make_devices(vec![device], format, options).map_err(|error| error.during("make").at(image))
}

/// Makes a volume on these devices. Their contents are lost.
///
/// # Errors
/// As [`make`].
pub fn make_devices(devices: Devices, format: &str, options: &MakeOptions) -> Result<Volume> {
    let unknown = || OptionError::wrong(format!("`{format}` is no format; there are {}", format_names()));
    let format = format_named(format).ok_or_else(unknown)?;
    Ok(Volume::new(format, format.make(devices, options)?))
}

/// Checks the volume in an image file or on an unmounted block device. Nothing is written. `watch` is told how far the
/// check has come, from several threads, one at a time; it ends the check by [`ControlFlow::Break`].
///
/// # Errors
/// As [`open`]; `ECANCELED` once `watch` has ended the check. What is wrong with the volume is in the report.
pub fn check(
    image: impl AsRef<Path>,
    options: &CheckOptions,
    watch: &mut (dyn FnMut(&Progress) -> ControlFlow<()> + Send),
) -> Result<CheckReport> {
    let image = image.as_ref();
    check_devices(devices(image, Access::READ)?, options, watch).map_err(|error| error.during("check").at(image))
}

/// Checks the volume on these devices, as [`check`].
///
/// # Errors
/// As [`check`].
pub fn check_devices(
    devices: Devices,
    options: &CheckOptions,
    watch: &mut (dyn FnMut(&Progress) -> ControlFlow<()> + Send),
) -> Result<CheckReport> {
    let format = recognise(first(&devices)?)?;
    let reporter = Reporter::new(watch);
    // Once it is cancelled no device answers any more, so that the check comes to its end.
    let devices = devices.into_iter().map(|device| Cancellable::over(device, reporter.cancelled())).collect();
    let report = format.check(devices, options, &reporter);
    if reporter.is_cancelled() { Err(Errno::ECANCELED.into()) } else { report }
}

/// Opens the devices of a list.
fn devices(list: &Path, access: Access) -> Result<Devices> {
    let found = Locator::parse_list(list);
    found.and_then(|list| list.iter().map(|device| blockdev::open(device, access)).collect()).map_err(of_device)
}

fn first(devices: &[Arc<dyn Device>]) -> Result<&dyn Device> {
    let none = || OptionError::wrong("devices of a volume: expected 1 or more, found none");
    Ok(&**devices.first().ok_or_else(none)?)
}

fn of_device(error: blockdev::Error) -> Error {
    Error::new(Errno(error.errno()), Blame::Device, error)
}
