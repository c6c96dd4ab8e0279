//! Checksums and compression: pure functions on bytes.
//!
//! - [`checksum`]: the four checksums a volume can be made with, and the raw CRC-32C that hashes
//!   directory names.
//! - [`verity`]: the Merkle trees of fs-verity.
//! - [`compress`]: the three compressions of file extents, with the framing they have on disk.
//!
//! Nothing here knows a device, a tree or a file, and nothing allocates more than its caller's
//! stated output length (plus the codec's own fixed working memory). Input comes from the disk
//! and is hostile: every function ends in bytes or an [`Error`], never in a panic.
//!
//! The numbers of [`checksum::ChecksumType`] and [`compress::CompressionType`] are those on disk.
//!
//! Who calls it: the verifier of tree blocks, the store (data checksums), writeback and file
//! reads (compression), send and receive.

// What reads the disk decides with every length and index whether it can be right (STYLE 19 and 30).
#![deny(clippy::indexing_slicing)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

pub mod checksum;
pub mod compress;
mod error;
mod kind;
pub mod verity;

pub use checksum::ChecksumType;
pub use compress::CompressionType;
pub use error::{Error, Result};
