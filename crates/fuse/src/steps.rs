//! Does the periodic work of a file system (commits, deletions, a balance) on a thread of its own.
//!
//! The file system says after each step when it wants the next one; a request that begins such work wants one at once.
//! A step that panics ends the thread, and [`Steps::stop`] tells. Called by the server, and by transports that use a
//! [`Session`](crate::Session) of their own.

use crate::error::{Error, Result};
use crate::shutdown::Ending;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vfs::FileSystem;

/// Longest interval between two steps.
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// The thread of the steps, and the flag that ends it.
#[derive(Debug)]
#[must_use = "the thread runs until it is stopped"]
pub struct Steps {
    thread: JoinHandle<()>,
    ending: Arc<Ending>,
}

impl Steps {
    pub(crate) fn start(fs: Arc<dyn FileSystem>, ending: Arc<Ending>) -> Result<Self> {
        let asked = Arc::clone(&ending);
        let work = move || {
            let mut wait = Duration::ZERO;
            while asked.wait_for_step(wait) {
                wait = fs.step().min(INTERVAL_MAX);
            }
        };
        let thread = thread::Builder::new().name("fuse-step".to_owned()).spawn(work).map_err(Error::Thread)?;
        Ok(Self { thread, ending })
    }

    /// Waits for the end of the present step; true if the thread ended without a panic.
    pub fn stop(self) -> bool {
        self.ending.end_steps();
        self.thread.join().is_ok()
    }
}
