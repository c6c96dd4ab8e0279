//! Applies the kernel's permission rules to calls of any [`vfs::FileSystem`], for servers whose requests do not pass
//! the kernel.
//!
//! [`Permitted`] is a [`vfs::FileSystem`] itself: it permits what the kernel would permit a [`User`] on a mount, and no
//! more. It checks search permission along the way, permission bits and access control lists, owners, sticky
//! directories and privileged attributes, and for subvolumes the rules for their owners.
//!
//! Invariants
//! * A refused call changes nothing.
//! * Below a base directory `..` of the base is the base itself, and no path leads out of it.
//!
//! Failure: the errno that the kernel would return. Nodes and handles are not checked: a server passes on only those
//! that it gave to this client. Callers: `remote` and the `mount` command, for the clients of a mount's socket, and
//! servers of network protocols.

mod permissions;
mod user;

pub use permissions::{Permitted, Right};
pub use user::User;
