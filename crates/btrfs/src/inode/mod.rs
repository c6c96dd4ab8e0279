//! Keeps inodes in memory: the fields of the inode item, and state that is not in the item.
//!
//! An [`Inode`] stands for one inode of one subvolume and exists at most once per volume: the
//! `InodeTable` maps (tree, number) to it. Its [`InodeState`] is newer than the tree: a change
//! is *staged* (`Txn::defer`), and the store writes the item when it commits, so that many writes
//! to one file change its item in the tree once per commit.
//!
//! Invariants
//! * An inode whose staged item may not be in the tree yet stays in the table until the transaction it was staged in
//!   has been committed.
//! * Only clean, unused inodes leave the table: they can be read back from the tree.
//! * `state.nlink == 0` means that no name leads to the inode. It lives on while a program has it
//!   open (`dir::OpenInode`), named by an orphan item; it is removed when the last one closes.
//! * Inode numbers are never given out twice while a volume is open.
//!
//! Failure: an item that cannot be read is `Corrupt` or `Io`, and nothing enters the table.
//!
//! Callers: the other modules of the crate work on `Arc<Inode>`: `file` and `writeback` on its data, `dir` on its
//! names, `vfs_impl` for a mount.

mod absence_cache;
mod attr;
mod compression;
mod compression_rules;
mod core;
mod data;
mod flush_schedule;
mod handle;
mod item;
mod name_locks;
mod readers;
mod root;
mod staging;
mod stream;
mod sync_rate;
mod table;
mod usage;
mod users;
mod volume_data;

pub(crate) use attr::{
    FileType, MODE_PERMISSION_MASK, MODE_SET_GROUP, MODE_TYPE_MASK, Metadata, NewTimes, Timestamp, kind_of,
    kind_on_disk,
};
pub(crate) use btrfs_disk::flags::InodeFlags;
pub(crate) use handle::Inode;
pub(crate) use item::{InodeState, orphan_key};
pub(crate) use item::{time_from_disk, time_to_disk};

pub(crate) use absence_cache::Absent;
pub(crate) use attr::inherited_flags;
pub use compression::Compression;
pub(crate) use compression::{COMPRESSION_NAME, CompressionProperty, feature_of};
pub(crate) use compression_rules::keeps_plain;
pub(crate) use core::{Core, Settings};
pub(crate) use data::{DataLayers, DataState, Flight, Pending, Receipt, position, slice_mut};
pub(crate) use flush_schedule::Step;
pub(crate) use handle::{Change, DirState, Move};
pub(crate) use name_locks::{NameLocks, lock_all};
pub(crate) use root::{EMPTY_SUBVOL_INO, ROOT_DIR_INO, Root};
pub(crate) use table::InodeTable;
pub(crate) use volume_data::{Reshaping, VolumeData};
