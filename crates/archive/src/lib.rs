//! Reads archives of tar and cpio into trees of files, and writes trees as archives of tar.
//!
//! ```text
//!  file or stream --decompress--> bytes --> tar, cpio --> members --> transfer::Tree
//!                                   |
//!                       contents stay where they are, or go to a temporary file
//! ```
//!
//! Invariants
//! * Compression and format are recognised by the first bytes, never by a name.
//! * Archives are hostile: memory, time and space are limited by their size and by [`ReadOptions`]; nothing is written
//!   on the host but one temporary file without a name.
//! * A member that is not understood is an error that names it, and never left out. Unknown keywords of PAX records are
//!   passed over, as POSIX wants it.
//!
//! Failure: [`Error`] says what, at which byte and of which member. Callers: programs that make images from archives
//! and layers, and that write archives of them.

mod accounts;
mod acl;
mod base64;
mod bytes;
pub mod cpio;
mod decompress;
mod device;
mod error;
mod input;
mod member;
mod read;
mod spool;
mod stored;
pub mod tar;

pub use accounts::Accounts;
pub use bytes::decompressed;
pub use device::number as device_number;
pub use error::{Error, Result};
pub use input::{Input, ReadOptions};
pub use member::{LinkContents, Member, MemberKind};
pub use read::read_into;
