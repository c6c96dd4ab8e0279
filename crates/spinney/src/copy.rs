//! Copies trees between the host and a volume, by the methods `import` and `export` of `Volume`, which programs call.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use checking::Watch as _;
use transfer::{
    HostOptions, HostSink, HostSource, Observer, Options, Rules, Sink, Source, Transfer, VolumeSink, VolumeSinkOptions,
    VolumeSource, measure,
};
use vfs::Result;

use crate::contents::{Contents, ContentsOptions};
use crate::progress::{INTERVAL, ProgressFn, Reporter};
use crate::volume::Volume;

impl Volume {
    /// Copies everything below the host directory `from` into the directory `to` of the volume, which is created with
    /// its parents if missing. Owners, permissions, times, extended attributes, hard links, device nodes and holes are
    /// kept; `to` itself gets those of `from`. Existing directories are merged. The copy is durable after
    /// [`vfs::Volume::sync`]. [`crate::transfer`] has more choices. If `watch` cancels it, files that are complete
    /// stay, the one being copied is removed.
    ///
    /// # Errors
    /// The first failure ends the copy and names the path: `EEXIST` for a file whose name is taken, `ENOSPC`, the
    /// errors of the host and the volume. `ECANCELED` after `watch` returned [`std::ops::ControlFlow::Break`].
    pub fn import(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, watch: ProgressFn<'_>) -> Result<()> {
        let to = to.as_ref();
        self.create_dir_all(to)?;
        let source = HostSource::open(from)?;
        let sink = VolumeSink::new(self, to, VolumeSinkOptions::default());
        copy(&source, &sink, &Options::default(), watch)
    }

    /// Copies what `sources` hold into the directory `to` of the volume, which is created with its parents if missing:
    /// directories, archives of tar and cpio, container images, other images, as [`Contents::read`] names them.
    /// `watch` is as in [`Volume::import`].
    ///
    /// # Errors
    /// As [`Contents::read`] and [`Volume::import`].
    pub fn import_contents(
        &self,
        sources: &[OsString],
        to: impl AsRef<Path>,
        options: &ContentsOptions,
        watch: ProgressFn<'_>,
    ) -> Result<()> {
        let to = to.as_ref();
        let reporter = Reporter::new(watch);
        let copied = Contents::read(sources, options, &reporter).and_then(|contents| {
            self.create_dir_all(to)?;
            let sink = VolumeSink::new(self, to, VolumeSinkOptions::default());
            Ok(contents.copy(&sink, &Options::default(), &reporter)?)
        });
        reporter.end(copied)
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
    pub fn export(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, watch: ProgressFn<'_>) -> Result<()> {
        let source = VolumeSource::new(self, from.as_ref());
        let sink = HostSink::create(to, HostOptions::default())?;
        copy(&source, &sink, &Options { rules: Rules::untrusted(), ..Options::default() }, watch)
    }
}

/// Ends the estimate when the copy has ended.
struct Estimate<'a>(&'a AtomicBool);

impl Observer for Estimate<'_> {
    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Copies, and meanwhile counts the bytes to copy. A copy that ends before its first report is not worth the counting.
fn copy<S: Source, K: Sink>(source: &S, sink: &K, options: &Options, watch: ProgressFn<'_>) -> Result<()> {
    let (reporter, has_ended) = (Reporter::new(watch), AtomicBool::new(false));
    let one_thread = Options { thread_count: 1, ..options.clone() };
    thread::scope(|scope| {
        let counting = scope.spawn(|| {
            thread::park_timeout(INTERVAL);
            if has_ended.load(Ordering::Relaxed) {
                return;
            }
            // A source that cannot be read fails the copy, which says where.
            if let Ok(totals) = measure(source, &one_thread, &Estimate(&has_ended)) {
                reporter.set_total(totals.bytes);
            }
        });
        let copied = Transfer::new(source, sink, options, &reporter).contents();
        has_ended.store(true, Ordering::Relaxed);
        counting.thread().unpark();
        copied
    })?;
    reporter.finish();
    Ok(())
}
