//! Trees copied between the host and a volume.

use std::ops::ControlFlow;
use std::path::Path;

use transfer::{HostOptions, HostSink, HostSource, Options, Transfer, VolumeOptions, VolumeSink, VolumeSource, Watch};
use vfs::Result;

use crate::progress::{Progress, Reporter, Told};
use crate::volume::Volume;

/// Tells the caller of a copy what the threads of it do.
struct Watched<'a>(Reporter<'a>);

impl Watch for Watched<'_> {
    fn done(&self) {
        self.0.add(0, 1);
    }

    fn copied(&self, bytes: u64) {
        self.0.add(bytes, 0);
    }

    fn shared(&self, bytes: u64) {
        self.0.add(bytes, 0);
    }

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

impl Volume {
    /// Copies everything below a directory of the host into the directory `to` of the volume, which is made where there
    /// is none, with owners, permissions, times, extended attributes, hard links and holes. `watch` is told how far the
    /// copy has come, one call at a time, and ends it by [`ControlFlow::Break`]. The copy is durable after
    /// [`vfs::Volume::sync`]. [`crate::transfer`] has more choices.
    ///
    /// # Errors
    /// The first failure, which ends the copy, with the path; `EEXIST` for a name that is there already; `ECANCELED`.
    pub fn import(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        watch: &mut (dyn FnMut(&Progress) -> ControlFlow<()> + Send),
    ) -> Result<()> {
        let to = to.as_ref();
        self.create_dir_all(to)?;
        let source = HostSource::open(from)?;
        let sink = VolumeSink::new(self, to, VolumeOptions::default());
        Ok(Transfer::new(&source, &sink, &Options::default(), &watched(watch)).contents()?)
    }

    /// Copies everything below the directory `from` of the volume into a directory of the host, which is made where
    /// there is none. Owners are kept where the process may set them. Nothing is written outside that directory,
    /// whatever the image says. `watch` as in [`Volume::import`].
    ///
    /// # Errors
    /// As [`Volume::import`].
    pub fn export(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        watch: &mut (dyn FnMut(&Progress) -> ControlFlow<()> + Send),
    ) -> Result<()> {
        let source = VolumeSource::new(self, from.as_ref());
        let sink = HostSink::create(to, HostOptions::default())?;
        Ok(Transfer::new(&source, &sink, &Options::default(), &watched(watch)).contents()?)
    }
}

fn watched(told: Told<'_>) -> Watched<'_> {
    Watched(Reporter::new(told))
}
