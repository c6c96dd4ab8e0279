//! Changes a volume: nodes and pages in memory, and how these are written. `vfs_impl` calls it for each request that
//! changes something. Bottom to top:
//!
//! - `addresses`: addresses of the blocks of a file; `pages`: dirty pages
//! - `in_place_updates`, `flush`: pages are written to the logs of data, or in place
//! - `quotas`: updates of the quota files; `discard`: discards of free blocks
//! - `commit`: nodes, tables and a checkpoint; `clean`: frees sections
//! - `room`: finds space for a change
//! - `preparation`: the part of a write without the volume's lock
//! - `data`: contents; `size_and_holes`: sizes, holes and reserved blocks; `xattrs`
//! - `names`: names of directories; `inodes`: new and removed inodes
//! - `fsync`: nodes of files instead of a checkpoint; `background`: cleaning ahead of need
//! - `open`: reads the state that writing needs; `replay`: replays fsynced nodes
//!
//! One thread at a time makes changes, with the volume's lock, except for the preparation of writes (`preparation`); an
//! fsync releases the lock while the device works (`batch`). The pages of a file get their blocks and are submitted as
//! one run, so that requests of different files are never mixed.
//!
//! Every change finds space for itself first ([`room::make`]); a later failure is the device's, or the image is
//! damaged, and then all later writes are refused. A checkpoint comes only between two operations, or at a point where
//! one may be interrupted (`WriteVolume::settle`): between pieces of a large write, or of the blocks that a file frees.

mod addresses;
pub(crate) mod background;
mod clean;
pub(crate) mod commit;
pub(crate) mod data;
pub(crate) mod discard;
pub(crate) mod flush;
pub(crate) mod fsync;
mod in_place_updates;
pub(crate) mod inodes;
pub(crate) mod names;
pub(crate) mod open;
mod pages;
pub(crate) mod preparation;
mod quotas;
pub(crate) mod replay;
pub(crate) mod room;
pub(crate) mod size_and_holes;
pub(crate) mod xattrs;

pub(crate) use in_place_updates::Rewrite;
