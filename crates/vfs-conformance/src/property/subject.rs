//! Defines the interface of a format for the property test. `testkit` and the tests of the formats implement it; `run`
//! and `threads` call it.

use anyhow::Result;
use crash_explorer::Random;
use std::path::Path;

use crate::model::Operation;

/// A format whose volumes are compared with the model.
pub trait Subject: Sync {
    /// An open volume with whatever the format wants to keep beside it. Clones share it.
    type Opened: AsRef<vfs::Volume> + Clone + Send;

    /// Makes an image at `path` in one of the ways that the format has, and opens it; says how it was made.
    ///
    /// # Errors
    /// Whatever keeps it from being made.
    fn make(&self, path: &Path, size_bytes: u64, random: &mut Random) -> Result<(Self::Opened, String)>;

    /// Opens it, with one of several sets of options.
    ///
    /// # Errors
    /// Why it cannot be opened.
    fn open(&self, path: &Path, random: &mut Random) -> Result<Self::Opened>;

    /// Whether `ENOSPC` is a right answer to `operation`.
    ///
    /// # Errors
    /// How much room there was.
    fn check_full(&self, opened: &Self::Opened, operation: &Operation) -> Result<()>;

    /// Checks a closed image with another program: false if there is none.
    ///
    /// # Errors
    /// The findings of the program.
    fn check(&self, path: &Path) -> Result<bool>;

    /// False for an operation that the format lacks: another one is drawn then.
    fn can(&self, operation: &Operation) -> bool {
        let _ = operation;
        true
    }
}
