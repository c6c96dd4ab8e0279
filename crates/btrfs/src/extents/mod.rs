//! Reads and edits the extents of one inode: `EXTENT_DATA` items as values.
//!
//! [`FileExtent`] is one item. [`ExtentMap`] holds the items of a range. [`edit`] is a pure planner of replacements of
//! file ranges: which items change, which references are gained and lost, and by how much `nbytes` changes. [`apply`]
//! carries such a plan out inside a transaction.
//!
//! Invariants
//! * the items of an inode do not overlap and are sector-aligned; an inline extent stands
//!   at offset 0 and covers the first sector;
//! * an item refers to its disk extent as (tree, inode, start - offset); trimming an item
//!   at either end keeps that reference, a second part of it adds one, and only an item
//!   that goes away drops one;
//! * `nbytes` of the inode item is the sum of the file bytes of all items with disk space,
//!   plus the length of an inline extent.
//!
//! Failure: items that contradict these rules are reported as corrupt before anything is
//! allocated or changed because of them.
//!
//! Callers: `writeback` (inserts written extents), `file` (reads, truncates, punches, clones), `log` and `send`.

mod apply;
mod edit;
mod extent;
mod map;

pub(crate) use apply::{BytesDelta, DROPS_PER_ITEM, Target, drop_items, drops_for, fill_gaps, replace, replace_range};
pub(crate) use edit::NewExtent;
pub(crate) use extent::{COMPRESSED_BYTES_MAX, FILE_BYTES_MAX, FileExtent, Kind};
pub(crate) use map::{ExtentMap, SCAN_ITEMS_MAX, Stretch, read_inline};
