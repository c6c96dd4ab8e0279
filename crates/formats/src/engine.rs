//! Defines the traits of a format and of an open volume of it. The formats in `spinney` implement them; `spinney` and
//! the command line call them.

use std::any::Any;
use std::ffi::OsString;
use std::fmt::Debug;
use std::sync::Arc;

use blockdev::Device;
use checking::Watch;
use vfs::{Blame, Errno, Error, FileSystem, Result};

use crate::check::{CheckOptions, CheckReport, Meaning, PassRow};
use crate::magic::Magic;
use crate::options::{MakeOptions, OptionError, VolumeOptions};
use crate::repair::{RepairOptions, RepairPlan};

/// The devices of one volume.
pub type Devices = Vec<Arc<dyn Device>>;

/// A file system format.
pub trait Format: Debug + Send + Sync {
    /// Its name, as `-t` takes it.
    fn name(&self) -> &'static str;

    /// The bytes by which an image of it is recognised.
    fn magic(&self) -> &'static Magic;

    /// Magic numbers of further superblock copies. They are compared only if no format, foreign ones included, has its
    /// primary magic there. Like [`Format::magic`] they must lie within the first [`crate::magic::HEAD_BYTES`] bytes.
    fn copies(&self) -> &'static [Magic] {
        &[]
    }

    /// Files of the format that are no images, and the bytes by which they are recognised.
    fn relatives(&self) -> &'static [(&'static str, Magic)] {
        &[]
    }

    /// Opens the volume on these devices.
    ///
    /// # Errors
    /// `EINVAL` or `EOPNOTSUPP` with an [`OptionError`] for an option that it does not take; damage, I/O.
    fn open(&self, devices: Devices, options: &VolumeOptions) -> Result<Arc<dyn Engine>>;

    /// Makes a volume on these devices, and opens it.
    ///
    /// # Errors
    /// As [`Format::open`]; `ENOSPC` for a device that is too small.
    fn make(&self, devices: Devices, options: &MakeOptions) -> Result<Arc<dyn Engine>>;

    /// Checks the volume on these devices and writes nothing. Damage is in the report, not an error.
    ///
    /// # Errors
    /// If the check cannot be done: `EIO` without a superblock, `EOPNOTSUPP` for an unknown feature.
    /// This default always fails with `EOPNOTSUPP`.
    fn check(&self, devices: Devices, options: &CheckOptions, watch: &dyn Watch) -> Result<CheckReport> {
        let _ = (devices, options, watch);
        Err(unsupported(self.name(), "checked"))
    }

    /// Works out a repair of the volume on these devices and writes nothing.
    ///
    /// # Errors
    /// As [`Format::check`]; `EINVAL` for an unknown step. This default always fails with `EOPNOTSUPP`.
    fn plan_repair(&self, devices: Devices, options: &RepairOptions, watch: &dyn Watch) -> Result<Box<dyn RepairPlan>> {
        let _ = (devices, options, watch);
        Err(unsupported(self.name(), "repaired"))
    }

    /// The passes of its check.
    fn passes(&self) -> Vec<PassRow> {
        Vec::new()
    }

    /// The codes of its check.
    fn codes(&self) -> Vec<Meaning> {
        Vec::new()
    }

    /// Refuses options of [`VolumeOptions::own`] that it does not take.
    ///
    /// # Errors
    /// `EINVAL` or `EOPNOTSUPP` with an [`OptionError`].
    fn check_options(&self, options: &VolumeOptions) -> Result<()> {
        match options.own.first() {
            Some((name, _)) => {
                Err(OptionError::unsupported(format!("the format {} has no option `{name}`", self.name())).into())
            }
            None => Ok(()),
        }
    }

    /// True for the name of an option of [`VolumeOptions::own`] that it has.
    fn is_option(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// The lines of the help on those options; the first words of the lines are their names.
    fn options_help(&self) -> &'static str {
        ""
    }

    /// Remedies to try on a damaged image, each as the end of a message.
    fn remedies(&self, devices: &[Arc<dyn Device>]) -> Vec<String> {
        let _ = devices;
        Vec::new()
    }
}

/// An open volume of a format.
pub trait Engine: Debug + Send + Sync {
    /// The volume, used by paths.
    fn volume(&self) -> vfs::Volume;

    /// The file system for a server, with the options that it was opened with.
    ///
    /// # Errors
    /// Damage, I/O.
    fn serve(&self) -> Result<Arc<dyn FileSystem>>;

    /// The facts that every format has of a volume.
    ///
    /// # Errors
    /// Damage, I/O.
    fn info(&self) -> Result<Info>;

    /// The format's own volume type, which callers downcast to. A format documents it.
    fn own(&self) -> &dyn Any;
}

/// The facts that every format has of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Name of the format.
    pub format: &'static str,
    /// Name of the volume.
    pub label: OsString,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Size of a block of file data in bytes (the sector size, where a format has one).
    pub block_bytes: u32,
    /// Size of the volume in bytes.
    pub total_bytes: u64,
    /// Free bytes, as `df` shows them.
    pub free_bytes: u64,
}

/// The device of a volume that has one; `what` names the volume or the operation in the refusal.
///
/// # Errors
/// `EOPNOTSUPP` with an [`OptionError`] for any other number of devices.
pub fn single(devices: Devices, what: &str) -> Result<Arc<dyn Device>> {
    let count = devices.len();
    let mut devices = devices.into_iter();
    match (devices.next(), devices.next()) {
        (Some(device), None) => Ok(device),
        _ => {
            let text = format!("{what} on several devices are not supported: expected 1 device, found {count}");
            Err(OptionError::unsupported(text).into())
        }
    }
}

/// The refusal of an operation that a format does not have.
fn unsupported(format: &str, what: &str) -> Error {
    let text = OptionError::unsupported(format!("{format} volumes cannot be {what}"));
    Error::new(Errno::EOPNOTSUPP, Blame::Program, text)
}
