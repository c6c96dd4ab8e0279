//! btrfs without root: the library.
pub use btrfs::*;
