//! Workloads that are functions, for what the language of steps cannot say, as what only one format has.
//!
//! A script works on a device that records, and tells at which moments something is promised. Each state that a power
//! cut can leave is shown to it again, with how many promises were made by then. Made into states by
//! [`explore_script`](crate::explore_script).

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

    /// What comes before, and is durable when it returns: no power cut is tried in it.
    ///
    /// # Errors
    /// Whatever keeps it from being done.
    fn prepare(&self, device: Arc<dyn Device>) -> Result<()>;

    /// Does it, and says when it has promised something.
    ///
    /// # Errors
    /// Whatever keeps it from being done.
    fn run(&self, device: Arc<dyn Device>, promises: &Promises<'_>) -> Result<()>;

    /// Judges what a power cut left after so many promises: what the script did before the last of them is there, and
    /// of what it did from then until the next one any part that may be. The device can be changed.
    ///
    /// # Errors
    /// What is wrong with it.
    fn judge(&self, device: Arc<dyn Device>, promised: usize) -> Result<()>;
}

/// To whom a script says what it has promised.
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
