//! Defines the interface of a format for the explorer: how a volume is made and opened, and whether it has a log.
//! `btrfs-crash` and `f2fs-crash` implement it.

use anyhow::Result;
use blockdev::Device;
use std::sync::Arc;

use crate::Step;

/// The time of every volume's clock while workloads run and states are judged, in seconds and nanoseconds since 1970: a
/// clock that stands still, so that a workload gives the same bytes each time.
pub const CLOCK: (i64, u32) = (1_700_000_000, 0);

/// How a volume is made and opened. A format that has no such choice makes them all alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// The smallest blocks, in one copy. Freed blocks are discarded, if the format can.
    Small,
    /// The same, and all data outside of the metadata.
    NoInline,
    /// As [`Form::NoInline`], but the device is told nothing, and data is compressed where the format can.
    Compressed,
    /// As users make it: the usual blocks, in as many copies as usual.
    Usual,
}

/// Whether a volume is opened to be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Opening replays a log, and the volume can be changed.
    ReadWrite,
    /// Not a byte is written.
    ReadOnly,
}

/// A format that can be explored. Its volumes take the time from [`CLOCK`] and random numbers from a seed, and work on
/// the calling thread: one workload is one sequence of bytes.
pub trait Format: Send + Sync {
    /// A volume of this form on a device of its own: an empty one, or one with some files.
    ///
    /// # Errors
    /// Whatever keeps it from being made.
    fn make(&self, form: Form) -> Result<Arc<dyn Device>>;

    /// The form of which a volume is made that is used as one of `form`: how data is kept says nothing of an empty one.
    fn base(&self, form: Form) -> Form {
        if matches!(form, Form::NoInline | Form::Compressed) { Form::Small } else { form }
    }

    /// Opens a volume. It is closed when the last handle on it is dropped; the device is not written to after that.
    ///
    /// # Errors
    /// Why it cannot be opened: for a state that a power cut left, a broken promise.
    fn open(&self, form: Form, device: Arc<dyn Device>, access: Access) -> Result<vfs::Volume>;

    /// Opens a volume in a state that a power cut left, as [`Format::open`]. A format with several devices may lose
    /// some of them there.
    ///
    /// # Errors
    /// As [`Format::open`].
    fn open_state(&self, form: Form, device: Arc<dyn Device>, access: Access) -> Result<vfs::Volume> {
        self.open(form, device, access)
    }

    /// True if opening for writing is going to replay a log. True also if that cannot be told: the volume is then read
    /// twice, which does no harm.
    fn has_log(&self, device: &dyn Device) -> bool {
        let _ = device;
        false
    }

    /// How many inodes the last commit of a volume counts, those without names too; `None` where the format does not
    /// count them. After a volume was closed there are as many as names lead to.
    ///
    /// # Errors
    /// Why that cannot be told.
    fn inode_count(&self, device: &dyn Device) -> Result<Option<u64>> {
        let _ = device;
        Ok(None)
    }

    /// Checks the consistency of a state, without opening it.
    ///
    /// # Errors
    /// The first fault.
    fn check(&self, device: &dyn Device) -> Result<()> {
        let _ = device;
        Ok(())
    }

    /// False for a step that the format cannot do: workloads with such steps are left out.
    fn can(&self, step: &Step) -> bool {
        let _ = step;
        true
    }
}
