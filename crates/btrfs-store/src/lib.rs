//! A transactional, checksummed copy-on-write store of items and extents.

pub mod env;
pub mod error;
pub mod locks;
pub mod store;
pub mod tree;
#[path = "extent/ref_change.rs"]
mod ref_change;

pub use env::Env;
pub use error::{Error, Result};
pub use ref_change::RefChange;
pub use store::{CsumRange, DataExtent, DropProgress, Expect, MakeOptions, Need, Reservation, Sizes, Store, StoreOptions, Txn};
pub use tree::{EditItem, Scan, Tree};
