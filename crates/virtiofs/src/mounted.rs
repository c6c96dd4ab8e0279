//! Keeps the volume open while a guest has it mounted. Called by `device` for the first and the last request.

use fuse::{Session, SessionOptions, Steps};
use std::io;
use std::sync::Arc;
use vfs::FileSystem;

/// Opens the volume that a guest mounts. It is called again for each mount, after the volume of the last one is closed.
pub type OpenVolume = dyn Fn() -> io::Result<Arc<dyn FileSystem>> + Send + Sync;

/// An open volume, and the session that answers the guest's requests.
pub(crate) struct Mounted {
    pub(crate) session: Session,
    file_system: Arc<dyn FileSystem>,
    steps: Steps,
}

impl Mounted {
    /// Opens the volume for a guest.
    ///
    /// # Errors
    /// Those of `open`, and of the system.
    pub(crate) fn new(open: &OpenVolume, options: &SessionOptions) -> io::Result<Self> {
        let file_system = open()?;
        let session = Session::new(Arc::clone(&file_system), options.clone());
        let steps = session.start_steps().map_err(io::Error::other)?;
        Ok(Self { session, file_system, steps })
    }

    /// Makes everything durable, and closes the volume.
    ///
    /// # Errors
    /// Those of the volume.
    pub(crate) fn end(self) -> io::Result<()> {
        if !self.steps.stop() {
            tracing::warn!("the thread of background work has failed");
        }
        self.session.finish().map_err(|error| io::Error::other(error.to_string()))?;
        drop(self.session);
        if Arc::strong_count(&self.file_system) > 1 {
            tracing::warn!("the volume of an earlier mount is still in use");
        }
        Ok(())
    }
}
