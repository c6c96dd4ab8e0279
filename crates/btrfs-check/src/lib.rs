//! Checks the consistency of a btrfs file system without writing to it.
//!
//! ```text
//! devices --super--> Media (chunks) --walk--> tree blocks --collect--> sorted records --sweep--> findings
//!                                                             '--> order: inodes, one after the other
//! ```
//!
//! [`check`] reads every tree block once, on all mirrors, level by level and in the order of addresses, and gives each
//! to `collect`, which turns items into records of fixed size. What has to agree is compared once they are sorted:
//! references with extent items, extents with free space, checksums with files. Inodes are read a second time in the
//! order of their keys, since nearly all that has to agree about an inode lies side by side in its tree.
//!
//! Invariants:
//! - nothing is written to a device; what does not fit into the memory that [`Options`] allow is sorted in files that
//!   have no name;
//! - tree blocks are believed only as far as the verifier of `btrfs-disk` accepts them. A block that it refuses for one
//!   item, or for what its parent says, is reported and still read, since views of blocks are safe on any bytes; one
//!   with a wrong checksum is not;
//! - a tree block leads only to blocks of the level below, so that every walk ends.
//!
//! How it fails: what is wrong with the file system is a [`Finding`], never an error. [`Error`] is left for what keeps
//! the check itself from being done: no superblock, a file for sorting that cannot be written.
//!
//! [`Media`], devices read by logical address as far as they can be read, is also what `btrfs-rescue` reads.
//!
//! How far the data was read can be kept ([`Marks`]), so that a check that was ended goes on.
//!
//! A volume that is in use is checked in a committed state that its server holds ([`check_held`]).
//!
//! Callers: the command line; `btrfs-repair`, which also opens devices as a check does ([`open_media`]).

mod chunks;
mod code;
mod collect;
mod context;
mod csums;
mod data;
mod error;
mod extents;
mod files;
mod finding;
mod log;
mod marks;
mod media;
mod names;
mod order;
mod pass;
mod pointer;
mod quota;
mod records;
mod roots;
mod run;
mod sort;
mod space;
mod streams;
mod supers;
mod sweep;
mod threads;
mod walk;

pub use checking::{CodeTable, PassTable, Watch};
pub use code::Code;
pub use error::Error;
pub use finding::{Finding, Place, Report};
pub use marks::{BadRun, Mark, Marks, StateId};
pub use media::{Disk, Media};
pub use pass::Pass;
pub use run::{Options, check, check_held};
pub use supers::{Held, Opened, open_media};
