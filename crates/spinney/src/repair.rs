//! Plans and applies the repair of a volume of any format, with an undo file. The command `repair` calls it.

use std::any::Any;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blockdev::{Access, Device, Locator};
use formats::{Format, RepairOptions, RepairPlan};
use vfs::{Blame, Errno, Error, Result};

use crate::btrfs::Btrfs;
use crate::device_errors::device_error;
use crate::formats::recognise;
use crate::progress::{Cancellable, ProgressFn, Reporter};

/// A repair that was planned for an image and not written yet. The rest of its interface is that of [`RepairPlan`].
#[derive(Debug)]
pub struct Repair {
    plan: Box<dyn RepairPlan>,
    image: PathBuf,
}

/// Works out a repair of the volume in an image file or on an unmounted block device: a check, the changes in memory,
/// and a check of the result. Nothing is written. A break from `watch` cancels it.
///
/// # Errors
/// As [`crate::check`]; `EOPNOTSUPP` for a format that has no repair (f2fs) and for a volume on several devices;
/// `EINVAL` for an unknown step. Damage that cannot be repaired is in the plan, not an error.
pub fn plan_repair(image: impl AsRef<Path>, options: &RepairOptions, watch: ProgressFn<'_>) -> Result<Repair> {
    let image = image.as_ref();
    let devices = crate::open::devices(image, Access::READ)?;
    // The head of the device may be damaged, or another file system's by mistake; btrfs has further superblocks.
    let format = recognise(crate::open::first(&devices)?).ok().flatten().unwrap_or(&Btrfs);
    plan_repair_as(format, devices, options, watch)
        .map(|plan| Repair { plan, image: image.to_owned() })
        .map_err(|error| error.during("repair").at(image))
}

/// As [`plan_repair`], for devices with a volume of `format`.
///
/// # Errors
/// As [`plan_repair`].
pub fn plan_repair_as(
    format: &'static dyn Format,
    devices: Vec<Arc<dyn Device>>,
    options: &RepairOptions,
    watch: ProgressFn<'_>,
) -> Result<Box<dyn RepairPlan>> {
    let reporter = Reporter::new(watch);
    let devices = devices.into_iter().map(|device| Cancellable::over(device, reporter.cancelled())).collect();
    let plan = format.plan_repair(devices, options, &reporter);
    reporter.end(plan)
}

impl Repair {
    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &dyn RepairPlan {
        &*self.plan
    }

    /// The plan as the type of the format, such as [`crate::btrfs::repair::Plan`].
    #[must_use]
    pub fn own<P: Any>(&self) -> Option<&P> {
        self.plan.own().downcast_ref()
    }

    /// Writes a new undo file, makes it durable, and then writes the repair to the image.
    ///
    /// # Errors
    /// `EEXIST` if there is a file of that name; the errors of the host. If the file cannot be written it is deleted,
    /// and nothing is written to the image. Then as [`RepairPlan::apply`], and as [`crate::open`].
    pub fn apply(&self, undo_file: impl AsRef<Path>) -> Result<()> {
        let path = undo_file.as_ref();
        let locator = Locator::parse(&self.image).map_err(device_error)?;
        let device = blockdev::open(&locator, Access::WRITE).map_err(device_error)?;
        let file = File::options().write(true).create_new(true).open(path).map_err(|error| of_host(path, error))?;
        if let Err(error) = self.write(path, &file) {
            // An incomplete one is useless, and the image is unchanged.
            let _ = std::fs::remove_file(path);
            return Err(error.at(path));
        }
        self.plan.apply(&*device).map_err(|error| error.during("repair").at(&self.image))
    }

    fn write(&self, path: &Path, file: &File) -> Result<()> {
        self.plan.write_undo(&mut BufWriter::new(file))?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        let synced = file.sync_all().and_then(|()| portable::sync_dir(dir));
        synced.map_err(|error| of_host(path, error))
    }
}

/// The error of the host about the undo file.
fn of_host(path: &Path, error: io::Error) -> Error {
    let errno = Errno::of_host(&error);
    Error::new(errno, Blame::Device, io::Error::other(format!("the undo file: {error}"))).at(path)
}
