//! The btrfs on-disk format as types, and their verification.

pub mod convert;
pub mod ids;
pub mod key;

pub use ids::{DevId, Generation, InodeNo, Logical, TreeId};
pub use key::Key;
