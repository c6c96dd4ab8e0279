//! A transactional, checksummed copy-on-write store of items and extents.

pub mod env;
pub mod error;
pub mod locks;
pub mod tree;

pub use env::Env;
pub use error::{Error, Result};
pub use tree::{Scan, Tree};
