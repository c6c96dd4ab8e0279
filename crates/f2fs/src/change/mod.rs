//! Changes of a volume: what they do to nodes and pages in memory, and how that goes to the disk. Bottom to top:
//!
//! - `addresses`: those of the blocks of a file; `pages`: pages that change
//! - `in_place`, `flush`: pages go to the logs of data, or over their old blocks
//! - `quotas`: what changed is added to the quota files; `discard`: the device is told what is free
//! - `commit`: nodes, tables and a checkpoint; `clean`: sections come free
//! - `room`: whether there is room for a change, and how there comes to be
//! - `prepare`: what a write does before it takes the volume's lock
//! - `data`: contents; `shape`: sizes, holes and reserved blocks; `xattrs`
//! - `names`: names of directories; `inodes`: inodes that come and go
//! - `fsync`: nodes of one file instead of a checkpoint; `background`: cleaning before it is needed
//! - `open`: what a volume that is open for writing needs to know; `replay`: fsynced nodes become part of the volume
//!
//! All of it is done by one thread at a time, with the volume's lock, but for what a write can prepare (`prepare`); an
//! fsync releases the lock while the device works (`batch`). A file's pages are given their places and submitted as one
//! run, so that requests of different files are never mixed.
//!
//! Every change finds room for itself first ([`room::make`]); a later failure is the device's, or the image is damaged,
//! and then nothing is written any more. A checkpoint comes only between two operations, or where one may be cut short
//! (`WriteVolume::settle`): between pieces of a large write, or of the blocks that a file gives back.

mod addresses;
pub(crate) mod background;
mod clean;
pub(crate) mod commit;
pub(crate) mod data;
pub(crate) mod discard;
pub(crate) mod flush;
pub(crate) mod fsync;
mod in_place;
pub(crate) mod inodes;
pub(crate) mod names;
pub(crate) mod open;
mod pages;
pub(crate) mod prepare;
mod quotas;
pub(crate) mod replay;
pub(crate) mod room;
pub(crate) mod shape;
pub(crate) mod xattrs;

pub(crate) use in_place::Rewrite;
