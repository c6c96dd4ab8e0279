//! Reads and writes archives of tar.
//!
//! ```text
//!  bytes --> header, pax, sparse --> attributes --> members --> Tree
//!  Source --> walk --> writer --> block --> out
//! ```
//!
//! Read are v7, ustar, star, GNU and PAX (POSIX.1-2001) with everything that a file system keeps: nanoseconds and
//! times before 1970, ids and sizes of any length, names of any bytes, extended attributes and access lists in the
//! keywords of star and libarchive, all forms of GNU's sparse files, hard links, devices.
//!
//! Invariants
//! * A header counts only with its checksum. A record, number or name that is not understood is an error, never a
//!   guess; unknown keywords of PAX records are passed over, as POSIX wants it. File flags of bsdtar are among them.
//! * Owners are numbers. Names of users and groups in archives are not looked at.
//! * Paths are kept as they stand in the archive; a tree keeps them below its root.
//!
//! * An archive that is written depends on the tree alone: the same tree gives the same bytes.
//!
//! Failure: [`crate::Error`] names the member and the byte. Callers: `read_into`, and readers of layers.

mod attributes;
mod block;
mod header;
mod members;
mod pax;
mod sparse;
mod walk;
mod writer;

pub use members::Members;
pub use walk::write;
pub use writer::{Prefix, TarWriter, WriteOptions};

/// Bytes of a block: headers, and what contents are filled up to.
const BLOCK: u64 = 512;
