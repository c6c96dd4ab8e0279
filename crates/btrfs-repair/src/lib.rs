//! Repairs a btrfs file system that is not mounted, and undoes it.
//!
//! ```text
//! check --> steps --> [ round on an overlay --> check ]* --> Plan --> undo file --> image
//!            survey: what refers to what    mend: items to change
//!            edit: trees changed by copy on write    derive: extents, block groups, free space written anew
//! ```
//!
//! [`plan`] works a repair out in memory, to the last byte, and checks what would come of it; so a plan says what stays
//! broken before anything is touched. [`Plan::write_undo`] saves what will be overwritten, [`Plan::apply`] writes.
//!
//! Invariants:
//! - nothing that the state before refers to is overwritten, but superblocks and copies of tree blocks that were bad;
//!   the primary superblock decides between the two states, and is written alone between two flushes;
//! - a repair keeps the generation of the last commit. Log, quotas, UUID tree and caches go by it, and stay valid;
//! - the extent tree, block groups and the free-space tree are never mended item by item: whenever a tree changes, they
//!   are rebuilt from what all trees refer to. So references are right whatever was done before;
//! - a block that the verifier of `btrfs-disk` would refuse is never written.
//!
//! How it fails: [`Error`], with the image as it was. What cannot be mended is part of the [`Plan`], not an error.
//! File systems on several devices are refused. All that is known of extents and of the names of a subvolume that is
//! mended is kept in memory.
//!
//! Callers: the command line.

mod derive;
mod edit;
mod error;
mod extents;
mod image;
mod items;
mod mend;
mod older;
mod pack;
mod plan;
mod round;
mod space;
mod step;
mod survey;
mod undo;

pub use error::{Error, Result};
pub use older::Older;
pub use plan::{Options, Plan, plan};
pub use step::{Step, StepInfo};
pub use undo::{Source, Undo};
