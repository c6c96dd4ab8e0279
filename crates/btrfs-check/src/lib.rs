//! Checks the consistency of a btrfs file system without writing to it.
//!
//! ```text
//! devices --super--> Media (chunks) --walk--> tree blocks --collect--> sorted records --sweep--> findings
//!                                                             '--> order: inodes, one after the other
//! ```
//!
//! [`check`] reads every tree block once, on all mirrors, level by level and in the order of addresses, and gives each
//! to `collect`, which turns items into records of fixed size. These are compared once they are sorted: references with
//! extent items, extents with free space, checksums with files. Inodes are read a second time in the order of their
//! keys, since nearly all items of an inode are adjacent in its tree.
//!
//! Invariants:
//! - nothing is written to a device; records beyond the memory of [`Options`] are sorted in unnamed temporary files;
//! - tree blocks are used only as far as the verifier of `btrfs-disk` accepts them. A block that it refuses for one
//!   item, or for a contradiction to its parent, is reported and still read, since views of blocks are safe on any
//!   bytes; one with a wrong checksum is not;
//! - a tree block leads only to blocks of the level below, so that every walk ends.
//!
//! Failure: a defect of the file system is a [`Finding`], never an error. An [`Error`] means that the check itself
//! cannot be done: no superblock, a temporary file that cannot be written.
//!
//! `btrfs-rescue` also uses [`Media`], which reads devices by logical address as far as they are readable.
//!
//! The progress in the data can be kept ([`Marks`]), so that an interrupted check continues.
//!
//! A volume that is in use is checked in a committed state that its server holds ([`check_held`]).
//!
//! Callers: the command line; `btrfs-repair`, which also opens devices as a check does ([`open_media`]).

mod chunks;
mod code;
mod collect;
mod compressed_extents;
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
