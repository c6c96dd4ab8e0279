//! Keeps the volume open while a guest has it mounted. Called by `device` for the first and the last request.

use fuse::{Session, SessionOptions};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vfs::FileSystem;

/// Opens the volume that a guest mounts. It is called again for each mount, after the volume of the last one is closed.
pub type OpenVolume = dyn Fn() -> io::Result<Arc<dyn FileSystem>> + Send + Sync;

/// Longest pause between two rounds of background work.
const STEP_MAX: Duration = Duration::from_secs(30);

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
        let steps = Steps::start(Arc::clone(&file_system))?;
        Ok(Self { session, file_system, steps })
    }

    /// Makes everything durable, and closes the volume.
    ///
    /// # Errors
    /// Those of the volume.
    pub(crate) fn end(self) -> io::Result<()> {
        self.steps.end();
        self.session.finish().map_err(|error| io::Error::other(error.to_string()))?;
        drop(self.session);
        if Arc::strong_count(&self.file_system) > 1 {
            tracing::warn!("the volume of an earlier mount is still in use");
        }
        Ok(())
    }
}

/// The thread of a volume's background work.
struct Steps {
    ended: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<()>,
}

impl Steps {
    fn start(file_system: Arc<dyn FileSystem>) -> io::Result<Self> {
        let ended = Arc::<(Mutex<bool>, Condvar)>::default();
        let asked = Arc::clone(&ended);
        let work = move || {
            let mut pause = Duration::ZERO;
            loop {
                let mut is_over = asked.0.lock();
                if !*is_over {
                    asked.1.wait_for(&mut is_over, pause);
                }
                if *is_over {
                    return;
                }
                drop(is_over);
                pause = file_system.step().min(STEP_MAX);
            }
        };
        let thread = thread::Builder::new().name("background".to_owned()).spawn(work)?;
        Ok(Self { ended, thread })
    }

    fn end(self) {
        *self.ended.0.lock() = true;
        self.ended.1.notify_all();
        if self.thread.join().is_err() {
            tracing::warn!("the thread of background work has failed");
        }
    }
}
