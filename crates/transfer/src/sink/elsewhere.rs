//! Stands in for `host` on systems other than Linux, where no directory of the host can be opened.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use vfs::Metadata;
use vfs::file_system::Xattrs;

use super::{HostOptions, Item, Made, Sink};
use crate::error::{Cause, Error, Result};
use crate::observer::Observer;

/// A directory of the host, of which there is none here.
#[derive(Debug)]
pub struct HostSink(Infallible);

impl HostSink {
    /// Refuses.
    ///
    /// # Errors
    /// [`Cause::OtherSystem`].
    pub fn open(path: impl AsRef<Path>, _: HostOptions) -> Result<Self> {
        Err(Error::from(Cause::OtherSystem).about(path))
    }

    /// Refuses.
    ///
    /// # Errors
    /// As [`HostSink::open`].
    pub fn create(path: impl AsRef<Path>, options: HostOptions) -> Result<Self> {
        Self::open(path, options)
    }
}

impl Sink for HostSink {
    type Dir = Infallible;

    fn begin(&self, _: &Item<'_>) -> Result<()> {
        match self.0 {}
    }

    fn open_dir(&self, _: &Path) -> Result<Infallible> {
        match self.0 {}
    }

    fn make_dir(&self, _: &Infallible, _: &Item<'_>) -> Result<()> {
        match self.0 {}
    }

    fn make(&self, _: &Infallible, _: &Item<'_>, _: &mut [u8]) -> Result<Made> {
        match self.0 {}
    }

    fn link(&self, _: &Path, _: &Infallible, _: &Item<'_>) -> Result<Made> {
        match self.0 {}
    }

    fn finish_dir(&self, _: &Path, _: &Metadata, _: &dyn Observer) -> Result<()> {
        match self.0 {}
    }

    fn end(&self, _: &dyn Observer, _: &dyn Fn(&Path) -> Result<Xattrs>) -> Result<()> {
        match self.0 {}
    }

    fn display(&self, _: &Path) -> Option<PathBuf> {
        match self.0 {}
    }
}
