//! Stands in for `host` on systems other than Linux, where no directory of the host can be opened.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use vfs::Metadata;
use vfs::file_system::{KnownNode, Xattrs};

use super::{Found, Name, Source};
use crate::contents::HostContents;
use crate::error::{Cause, Error, Result};

/// A directory of the host, of which there is none here.
#[derive(Debug)]
pub struct HostSource(Infallible);

impl HostSource {
    /// Refuses.
    ///
    /// # Errors
    /// [`Cause::OtherSystem`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Err(Error::from(Cause::OtherSystem).about(path))
    }
}

impl Source for HostSource {
    type Dir = Infallible;
    type Contents = HostContents;

    fn top(&self, _: &Path) -> Result<KnownNode> {
        match self.0 {}
    }

    fn open_dir(&self, _: &Path) -> Result<Infallible> {
        match self.0 {}
    }

    fn names(&self, _: &Infallible, _: &mut dyn FnMut(Error) -> Result<()>) -> Result<Vec<Name>> {
        match self.0 {}
    }

    fn stat(&self, _: &Infallible, _: &Name) -> Result<Metadata> {
        match self.0 {}
    }

    fn look(&self, _: &Infallible, _: &[Name]) -> Vec<Result<Found<HostContents>>> {
        match self.0 {}
    }

    fn complete(&self, _: &mut Found<HostContents>) -> Result<()> {
        match self.0 {}
    }

    fn xattrs(&self, _: &Path) -> Result<Xattrs> {
        match self.0 {}
    }

    fn piece_bytes(&self) -> usize {
        match self.0 {}
    }

    fn is_tree(&self) -> bool {
        match self.0 {}
    }

    fn display(&self, _: &Path) -> Option<PathBuf> {
        match self.0 {}
    }
}
