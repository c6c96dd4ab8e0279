//! Gives each test a tree of its own to break: a fixture is prepared once, and each test works on a copy that is made
//! and thrown away in milliseconds, however much is in it.
//!
//! ```
//! use spinney::testing::Fixture;
//!
//! # fn main() -> spinney::Result<()> {
//! let fixture = Fixture::in_memory(256 << 20, |tree| {
//!     tree.create_dir("shelf")?;
//!     tree.write("shelf/book", "page 1")
//! })?;
//! let copy = fixture.copy()?;
//! copy.remove_dir_all("shelf")?;
//! assert_eq!(fixture.copy()?.read("shelf/book")?, b"page 1");
//! assert!(!copy.changes()?.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! Copies are independent of each other: tests in many threads may have one each. For programs that need directories of
//! the host, mount an image and use `spinney fork`; the Python package has a fixture that does so.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blockdev::backends::MemoryDevice;
use vfs::{Result, SnapshotMode};

use crate::btrfs::{Change, MakeOptions, Volume};

/// The state that every copy begins with.
const PREPARED: &str = "prepared";
/// The subvolume in which it is prepared.
const UNFINISHED: &str = "unfinished";

/// A prepared tree.
#[derive(Debug)]
pub struct Fixture {
    volume: Volume,
    copies: AtomicU64,
}

impl Fixture {
    /// Has `prepare` fill a tree in memory, on a volume of `bytes` bytes.
    ///
    /// # Errors
    /// `EINVAL` for too few bytes; those of `prepare`.
    pub fn in_memory(bytes: u64, prepare: impl FnOnce(&Volume) -> Result<()>) -> Result<Self> {
        let make = MakeOptions { size: Some(bytes), ..MakeOptions::default() };
        let device = Arc::new(MemoryDevice::new(bytes));
        Self::on(Volume::options().make_device(device, &make)?, prepare)
    }

    /// Has `prepare` fill a tree on `volume`, which has nothing in it.
    ///
    /// # Errors
    /// `EEXIST` if the volume is in use already; those of `prepare` and of the volume.
    pub fn on(volume: Volume, prepare: impl FnOnce(&Volume) -> Result<()>) -> Result<Self> {
        volume.create_subvolume(UNFINISHED)?;
        prepare(&volume.open_subvolume(UNFINISHED)?)?;
        volume.snapshot(UNFINISHED, PREPARED, SnapshotMode::ReadOnly)?;
        volume.delete_subvolume(UNFINISHED)?;
        Ok(Self { volume, copies: AtomicU64::new(0) })
    }

    /// A copy of the tree, which is deleted when it is dropped. Its paths begin at its root.
    ///
    /// # Errors
    /// As [`Volume::fork`].
    pub fn copy(&self) -> Result<FixtureCopy<'_>> {
        let name = format!("copy-{}", self.copies.fetch_add(1, Ordering::Relaxed));
        let tree = self.volume.fork(PREPARED, &name)?;
        Ok(FixtureCopy { volume: &self.volume, tree, name })
    }
}

/// The copy of a fixture. It derefs to the volume whose root it is.
#[derive(Debug)]
#[must_use = "it is deleted when it is dropped"]
pub struct FixtureCopy<'f> {
    volume: &'f Volume,
    tree: Volume,
    name: String,
}

impl FixtureCopy<'_> {
    /// The files and directories that differ from the prepared tree.
    ///
    /// # Errors
    /// As [`Volume::diff`].
    pub fn changes(&self) -> Result<Vec<Change>> {
        self.volume.diff(PREPARED, &self.name)
    }
}

impl Deref for FixtureCopy<'_> {
    type Target = Volume;

    fn deref(&self) -> &Volume {
        &self.tree
    }
}

impl Drop for FixtureCopy<'_> {
    fn drop(&mut self) {
        // The volume is gone with its fixture; what stays takes only room until then.
        let _ = self.volume.delete_subvolume(&self.name);
    }
}
