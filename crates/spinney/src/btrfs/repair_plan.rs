//! Fits the repair of btrfs to the interface that every format has. Called by `format`.

use std::any::Any;
use std::io::Write;

use blockdev::Device;
use btrfs_repair::{Error as Cause, Options, Plan, Step};
use checking::Watch;
use formats::{Devices, OptionError, RepairOptions, RepairPlan};
use vfs::{Blame, Errno, Error, Result};

use crate::device_errors::device_error;

/// Memory for the changes, unless the caller says how much.
const CHANGES_BYTES_MAX: u64 = 2 << 30;
/// Memory of each check.
const CHECK_MEMORY_BYTES: usize = 256 << 20;

/// The plan of a repair.
#[derive(Debug)]
struct BtrfsPlan(Plan);

/// Works out a repair of the volume on a device.
pub(super) fn plan(devices: Devices, options: &RepairOptions, watch: &dyn Watch) -> Result<Box<dyn RepairPlan>> {
    let step = |id: &String| Step::from_id(id).ok_or_else(|| OptionError::wrong(format!("`{id}` is no repair step")));
    let own = Options {
        steps: options.steps.iter().map(step).collect::<Result<_, _>>()?,
        changes_bytes_max: usize::try_from(options.memory.unwrap_or(CHANGES_BYTES_MAX)).unwrap_or(usize::MAX),
        check_memory_bytes: CHECK_MEMORY_BYTES,
        folder: std::env::temp_dir(),
        threads: options.threads.unwrap_or_default(),
    };
    let count = u64::try_from(devices.len()).unwrap_or(u64::MAX);
    let [device] = &devices[..] else { return Err(of_repair(Cause::SeveralDevices(count))) };
    Ok(Box::new(BtrfsPlan(btrfs_repair::plan(device, &own, watch).map_err(of_repair)?)))
}

impl RepairPlan for BtrfsPlan {
    fn is_needless(&self) -> bool {
        self.0.is_needless()
    }

    fn is_complete(&self) -> bool {
        self.0.is_complete()
    }

    fn is_lossy(&self) -> bool {
        self.0.older.is_some()
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn write_undo(&self, out: &mut dyn Write) -> Result<()> {
        self.0.write_undo(out).map_err(of_repair)
    }

    fn apply(&self, device: &dyn Device) -> Result<()> {
        self.0.apply(device).map_err(of_repair)
    }

    fn own(&self) -> &dyn Any {
        &self.0
    }
}

/// The error of a repair that could not be planned or written.
fn of_repair(error: Cause) -> Error {
    let (errno, blame) = match error {
        Cause::Check(error) => return of_check(error),
        Cause::Device(error) => return device_error(error),
        Cause::Beyond(_) | Cause::SeveralDevices(_) => (Errno::EOPNOTSUPP, Blame::Program),
        Cause::NoSpace { .. } => (Errno::ENOSPC, Blame::Space),
        Cause::Refused(_) => (Errno::EIO, Blame::Bug),
        Cause::UndoFile(_) | Cause::BadUndo(_) => (Errno::EIO, Blame::Device),
        Cause::Changed(_) => (Errno::ESTALE, Blame::Caller),
    };
    Error::new(errno, blame, error)
}

/// The error of a check that could not be done.
pub(super) fn of_check(error: btrfs_check::Error) -> Error {
    let (errno, blame) = match &error {
        btrfs_check::Error::NoSuperblock(_) => (Errno::EIO, Blame::Image),
        btrfs_check::Error::Members(_) => (Errno::EINVAL, Blame::Caller),
        btrfs_check::Error::Unsupported(_) => (Errno::EOPNOTSUPP, Blame::Program),
        btrfs_check::Error::Sorting(_) => (Errno::EIO, Blame::Device),
    };
    Error::new(errno, blame, error)
}
