//! Checksums and compression: pure functions on bytes.
//!
//! - [`checksum`]: the four checksums a volume can be made with, and the raw CRC-32C that hashes
//!   directory names.
//! - [`verity`]: the Merkle trees of fs-verity.
//! - [`compress`]: the three compressions of file extents, with the framing they have on disk.
//!
//! This crate knows no devices, trees or files, and allocates no more than the output length that the caller states,
//! plus the codec's fixed working memory. Input comes from the disk and is hostile: every function returns bytes or an
//! [`Error`] and never panics.
//!
//! The numbers of [`checksum::ChecksumType`] and [`compress::CompressionType`] are those on disk.
//!
//! Callers: the verifier of tree blocks, the store (data checksums), writeback and file reads (compression), send and
//! receive.

// Disk data is untrusted: code that reads it must check every length and index (STYLE 19 and 30).
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
