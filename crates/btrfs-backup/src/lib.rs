//! Backups of a btrfs subvolume: read-only snapshots that are sent elsewhere, each as the difference to an earlier one.
//!
//! ```text
//! snapshot in the source -> sent as a difference from the newest state that both sides have -> read back and compared
//!                        -> states that the rule drops are deleted on both sides
//! ```
//!
//! A [`Backup`] runs between a [`Source`] (a volume) and a [`Destination`]: another volume ([`VolumeDestination`]), a
//! directory of streams with a manifest ([`Directory`]), objects in a [`Store`] ([`Repository`]), or one stream
//! ([`StreamDestination`]). A [`Restore`] makes a
//! state of an [`Origin`] a subvolume of a [`Target`] again. Source and target are traits because a program may reach
//! the volume through the server of a mount.
//!
//! Invariants
//! * A destination has a state only when all of it is there: in a volume it has a received UUID; a directory or a
//!   repository lists it in its manifest, which is replaced in one step after the stream is durable.
//! * An interrupted backup is found by the names that it left: the next backup sends a state that the destination
//!   lacks, and resumes or deletes incomplete ones.
//! * Only subvolumes and files whose names are those of the same backup are deleted. The newest state that both sides
//!   have stays, and so does a stream that another one builds on.
//!
//! Failure: an [`Error`] names the path. A copy that differs from its source is deleted. A backup that is cancelled
//! ([`Watch::is_cancelled`](checking::Watch::is_cancelled)) leaves what an interrupted one leaves.
//!
//! Callers: the library `spinney`, and through it the commands `backup` and `restore`.

#![deny(clippy::indexing_slicing)]

mod backup;
mod compare;
mod destination;
mod digest;
mod directory;
mod error;
mod host_file;
mod image;
mod name;
mod repository;
mod restore;
mod rule;
mod source;
mod stamp;
mod state;
mod store;
mod stream;
mod target;
mod transfer;

pub use backup::{Action, ActionKind, Backup, Party, Report};
pub use destination::{Destination, Sent};
pub use digest::{from_hex, hex};
pub use directory::Directory;
pub use error::{Error, Result, SideError};
pub use image::VolumeDestination;
pub use name::{Name, NotName};
#[doc(hidden)]
pub use repository::rewrite_manifest;
pub use repository::{Identities, Inspection, Mark, NotKey, Recipients, Repository, Writing};
pub use restore::{Chosen, Origin, Restore};
pub use rule::{NotRule, Rule};
pub use source::{SEND_OPTIONS, Source};
pub use stamp::Stamp;
pub use state::{Found, State};
pub use store::{Condition, FileStore, Object, Put, Store, StoreResult};
pub use stream::StreamDestination;
pub use target::Target;
pub use transfer::pipe;
