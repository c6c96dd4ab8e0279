//! Defines the options and the plan of a repair, the same for every format. `spinney` plans repairs with them for the
//! command `repair`.

use std::any::Any;
use std::fmt::Debug;
use std::io::Write;

use blockdev::Device;
use vfs::Result;

/// The extent of a repair.
#[derive(Debug, Clone, Default)]
pub struct RepairOptions {
    /// Ids of the steps that may be taken; all if there are none.
    pub steps: Vec<String>,
    /// Bytes of memory for the changes, which are kept until they are written; `None`: 2 GiB.
    pub memory: Option<u64>,
    /// Number of threads of each check; `None`: one for each processor.
    pub threads: Option<usize>,
}

/// A repair that was worked out and not written yet.
pub trait RepairPlan: Debug + Send {
    /// True if there is nothing to repair.
    fn is_needless(&self) -> bool;

    /// True if a check finds no errors after the repair.
    fn is_complete(&self) -> bool;

    /// True if the repair loses a whole state, such as the last commits; its caller has to be asked first.
    fn is_lossy(&self) -> bool;

    /// Bytes that the repair writes to the volume; 0 if nothing can be repaired.
    fn bytes(&self) -> u64;

    /// Writes the undo file, which has the old bytes. It has to be durable before [`RepairPlan::apply`].
    ///
    /// # Errors
    /// Those of the file.
    fn write_undo(&self, out: &mut dyn Write) -> Result<()>;

    /// Writes the repair to the device that was planned for.
    ///
    /// # Errors
    /// `ESTALE` if the device was changed since; nothing is written then. Those of the device: the volume is then in
    /// the old or the new state, and the undo file restores the old one.
    fn apply(&self, device: &dyn Device) -> Result<()>;

    /// The plan of the format, which a caller downcasts to.
    fn own(&self) -> &dyn Any;
}
