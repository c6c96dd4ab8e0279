//! Trees copied between the host and a volume.

use std::ops::ControlFlow;
use std::path::Path;

use transfer::{
    HostOptions, HostSink, HostSource, Options, Rules, Transfer, VolumeOptions, VolumeSink, VolumeSource, Watch,
};
use vfs::Result;

use crate::progress::{Progress, Reporter, Told};
use crate::volume::Volume;

/// Reports the progress of the copying threads to the caller.
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
    /// Copies everything below the host directory `from` into the directory `to` of the volume, which is created with
    /// its parents if missing. Owners, permissions, times, extended attributes, hard links, device nodes and holes are
    /// kept; `to` itself gets those of `from`. Existing directories are merged. The copy is durable after
    /// [`vfs::Volume::sync`]. [`crate::transfer`] has more choices.
    ///
    /// `watch` is called with the progress at most every 50 ms, by any thread but never by two at once;
    /// [`ControlFlow::Break`] cancels the copy. Files that are complete stay, the one being copied is removed.
    ///
    /// # Errors
    /// The first failure ends the copy and names the path: `EEXIST` for a file whose name is taken, `ENOSPC`, the
    /// errors of the host and the volume. `ECANCELED` after `watch` returned [`ControlFlow::Break`].
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
        let watched = watched(watch);
        Transfer::new(&source, &sink, &Options::default(), &watched).contents()?;
        watched.0.finish();
        Ok(())
    }

    /// Copies everything below the directory `from` of the volume into the host directory `to`, which is created if
    /// missing; its parent must exist. Nothing is written outside `to`, whatever the image contains. Owners, device
    /// nodes and attributes that the host refuses to this process are left out without an error; a file without its
    /// owner gets no set-user bit. Set-user and set-group bits, capabilities and device nodes of the image are left
    /// out, since the image may be another user's: [`crate::transfer::Rules`] can keep them. `watch` is as in
    /// [`Volume::import`].
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
        let rules = Rules { makes_devices: false, keeps_setid: false, ..Rules::default() };
        let watched = watched(watch);
        Transfer::new(&source, &sink, &Options { rules, ..Options::default() }, &watched).contents()?;
        watched.0.finish();
        Ok(())
    }
}

fn watched(told: Told<'_>) -> Watched<'_> {
    Watched(Reporter::new(told))
}
