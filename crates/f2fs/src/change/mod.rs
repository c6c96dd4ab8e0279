//! Changes of a volume: what they do to nodes and pages in memory, and how that goes to the disk.
//!
//! - `open`: what a volume that is open for writing needs to know: segments, logs, numbers, orphans
//! - `room`: whether there is room for a change; `clean`: how there comes to be; `background`: before it is needed
//! - `nodes`: nodes and their numbers; `addresses`: those of the blocks of a file
//! - `data`: contents; `shape`: sizes, holes and reserved blocks; `flush`: pages go to the logs of data, or `in_place`
//! - `names`: names of directories; `xattrs`; `inodes`: inodes that come and go
//! - `commit`: nodes, tables and a checkpoint; `discard`: the device is told what is free then
//! - `quotas`: what changed is added to the quota files
//! - `fsync`: nodes of one file instead of a checkpoint; `replay`: those of before are made part of the volume
//!
//! All of it is done by one thread at a time, who has the volume to itself; an fsync lets it go while the device works
//! (`batch`). A file's pages are given their places and submitted as one run, so that requests of different files
//! are never mixed.
//!
//! Every change finds room for itself first ([`Store::make_room`]); what fails later is the device, or the image is
//! damaged, and then nothing is written any more. A checkpoint comes only between two operations, or where one may be
//! cut short ([`Store::settle`]): between pieces of a large write, or of the blocks that a file gives back.

mod addresses;
mod background;
mod clean;
mod commit;
mod data;
mod discard;
mod flush;
mod fsync;
mod in_place;
mod inodes;
mod names;
mod nodes;
mod open;
mod quotas;
mod replay;
mod room;
mod shape;
mod xattrs;

pub(crate) use discard::Trimmed;
pub(crate) use in_place::Rewrite;
pub(crate) use inodes::NewInode;
pub(crate) use names::check_name;
pub(crate) use room::Urgency;

use f2fs_disk::Nid;

use crate::error::{CallerError, Result};
use crate::store::Store;
use crate::writer::Writer;

impl Store {
    /// What is known of a volume that is open for writing.
    pub(crate) fn writer(&self) -> Result<&Writer> {
        Ok(self.writer.as_deref().ok_or(CallerError::ReadOnly)?)
    }

    /// The same, to change it.
    pub(crate) fn writer_mut(&mut self) -> Result<&mut Writer> {
        Ok(self.writer.as_deref_mut().ok_or(CallerError::ReadOnly)?)
    }

    /// True for an inode that has lost its last name.
    pub(crate) fn is_orphan(&self, ino: Nid) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.orphans.contains(&ino))
    }
}
