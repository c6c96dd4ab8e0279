//! The options of `mkfs` that one format has.

use anyhow::Result;

use crate::commands::output::Output;
use crate::target::Common;

/// The options of one format, and how a file system is made with them.
pub(crate) trait Make {
    /// Name of one of these options, if any was given.
    fn given(&self) -> Option<&'static str>;

    /// Makes the file system.
    fn run(&self, common: &Common, out: &mut Output) -> Result<()>;
}
