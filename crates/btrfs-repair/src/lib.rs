//! Repairs a btrfs file system that is not mounted, and undoes it.
//!
//! ```text
//! check --> steps --> [ round on an overlay --> check ]* --> Plan --> undo file --> image
//!            survey: all references    mend: items to change
//!            edit: trees changed by copy on write    derive: extents, block groups, free space written anew
//! ```
//!
//! [`plan`] works a repair out in memory, to the last byte, and checks the result; so the defects that stay are known
//! before anything is written. [`Plan::write_undo`] saves the bytes that will be overwritten, [`Plan::apply`] writes.
//!
//! Invariants:
//! - nothing of the old state is overwritten, but superblocks and bad copies of tree blocks; the primary superblock
//!   decides between the two states, and is written alone between two flushes;
//! - a repair keeps the generation of the last commit, so that log, quotas, UUID tree and caches stay valid;
//! - the extent tree, block groups and the free-space tree are never repaired item by item: whenever a tree changes,
//!   they are rebuilt from the references of all trees, so references are right after every repair;
//! - a block that the verifier of `btrfs-disk` would refuse is never written.
//!
//! Failure: [`Error`], with the image unchanged. Damage that cannot be repaired is part of the [`Plan`], not an error.
//! File systems on several devices are refused. Extents, and the names of a subvolume under repair, are kept in memory.
//!
//! Callers: the command line.

mod backup_roots;
mod derive;
mod edit;
mod error;
mod extents;
mod image;
mod items;
mod mend;
mod pack;
mod plan;
mod round;
mod space;
mod step;
mod survey;
mod undo;

pub use backup_roots::Older;
pub use error::{Error, Result};
pub use plan::{Options, Plan, plan};
pub use step::{Step, StepInfo};
pub use undo::{Source, Undo};
