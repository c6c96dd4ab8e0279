//! Defines the trait of the `spinney mkfs` options of a single format. `btrfs::mkfs` and `f2fs::mkfs` implement it, and
//! `mkfs` calls it.

use anyhow::Result;

use crate::commands::output::Output;
use crate::target::Common;

/// The `mkfs` options of one format. It makes a file system with them.
pub(crate) trait Make {
    /// The name of one of these options that the user gave; `None` if the user gave none of them.
    fn given(&self) -> Option<&'static str>;

    /// Makes the file system.
    fn run(&self, common: &Common, out: &mut Output) -> Result<()>;
}
