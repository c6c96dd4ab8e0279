//! Stores items and extents over block devices: a transactional, checksummed copy-on-write store. Caller: the crate
//! `btrfs`.
//!
//! It knows trees, transactions, space and references, and has never heard of a file: that
//! is the crate above. The way in is [`Store`]: reserve room, begin a transaction, edit
//! trees, commit.

// An index outside its array is a panic, which no bytes of a disk and no caller may cause (STYLE 30).
#![deny(clippy::indexing_slicing)]

pub mod ablation;
mod accounting;
mod bootstrap;
pub mod error;
pub mod extent;
pub mod hash;
pub mod locks;
mod log;
pub mod make;
pub mod options;
pub mod quota;
mod relocate;
pub mod space;
pub mod store;
pub mod tree;
pub mod txn;

pub use btrfs_pool::{DataRun, Stripe, TooShort};
pub use error::{Error, QuotaError, Result, SpaceKind};
pub use extent::{CsumRange, DataHolder, RefChange};
pub use host::Env;
pub use log::{FoundLog, LogEdit, LogJoin, LogSync, LogTicket};
pub use make::MakeOptions;
pub use options::{NewProfiles, StoreOptions};
pub use quota::{QgroupReport, QuotaReport};
pub use relocate::Emptying;
pub use space::{ProfileSpace, Reservation, SpaceReport};
pub use store::{
    BadSuperblock, BadUnit, Copied, DataExtent, DeviceState, Expect, Fate, GroupState, Hint, Moved, Need, QuotaChange,
    QuotaKind, Rebuild, RebuildStep, Scrub, ScrubStep, Sizes, Still, Store, view::HeldState,
};
pub use tree::{Compare, Difference, EditItem, Scan, Tree};
pub use txn::{DropProgress, Txn};
