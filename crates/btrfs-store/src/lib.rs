//! A transactional, checksummed copy-on-write store of items and extents.

pub mod env;
pub mod error;
pub mod extent;
pub mod locks;
pub mod pool;
pub mod space;
pub mod store;
pub mod tree;

pub use env::Env;
pub use error::{Error, Result};
pub use extent::RefChange;
pub use store::{CsumRange, DataExtent, DropProgress, Expect, MakeOptions, Need, Reservation, Sizes, Store, StoreOptions, Txn};
pub use tree::{EditItem, Scan, Tree};
