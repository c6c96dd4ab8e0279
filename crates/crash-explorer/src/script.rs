//! Defines scripts: workloads that are functions, for operations that the language of steps lacks because only one
//! format has them. `cargo trials crash-explore` has some.
//!
//! A script works on a recording device, and reports the moments of its promises. Each state that a power cut can leave
//! is shown to it again, with the number of promises made by then. [`explore_script`](crate::explore_script) explores
//! the states.

use super::Form;
use super::history::Floors;
use super::oracle::Oracle;
use super::tape::TapeDevice;
use anyhow::Result;
use blockdev::Device;
use parking_lot::Mutex;
use std::sync::Arc;

/// A workload that is a function.
pub trait Script: Send + Sync {
    /// Its name, of which the names of its states are made.
    fn name(&self) -> &str;

    /// How the volume is made that it begins with.
    fn form(&self) -> Form;

    /// Preparations, which are durable when it returns: no power cut is tried in them.
    ///
    /// # Errors
    /// The first failure.
    fn prepare(&self, device: Arc<dyn Device>) -> Result<()>;

    /// Does it, and says when it has promised something.
    ///
    /// # Errors
    /// Whatever keeps it from being done.
    fn run(&self, device: Arc<dyn Device>, promises: &Promises<'_>) -> Result<()>;

    /// Judges the state of a power cut after this many promises: the script's changes before the last of them are
    /// there, and of those until the next one any part may be. The device can be changed.
    ///
    /// # Errors
    /// The first fault.
    fn judge(&self, device: Arc<dyn Device>, promised: usize) -> Result<()>;
}

/// Records the promises of a script.
#[derive(Debug)]
pub struct Promises<'a> {
    device: &'a TapeDevice,
    oracle: Mutex<Oracle>,
}

impl<'a> Promises<'a> {
    pub(super) fn new(device: &'a TapeDevice) -> Self {
        Self { device, oracle: Mutex::default() }
    }

    /// All that was done until now has to survive from now on.
    pub fn made(&self) {
        self.oracle.lock().promise(self.device.now(), Floors::default());
    }

    pub(super) fn into_oracle(self) -> Oracle {
        self.oracle.into_inner()
    }
}
