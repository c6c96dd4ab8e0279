//! Keeps extents and their references: extent items, back references and checksums of data.
//!
//! Every tree block and data extent has an item in the extent tree that counts its
//! references and names their holders. Changes are not made there at once: they are values
//! ([`RefChange`]) pushed into the [`RefQueue`], where they merge by extent, and the commit
//! applies the rest, in order of address ([`Apply`]). Until then a lookup adds the queue to the tree ([`lookup`]).
//!
//! Invariants:
//! - The number of references in an extent item is the sum of those named, inside the item
//!   and in items of their own; none stands in both places.
//! - Extents whose references reach zero lose their item, data loses its checksums, and
//!   the space is pinned: the last committed state may still point there.
//! - An extent allocated and freed within one transaction never reaches the extent tree.
//! - Only the commit changes the extent tree, and only while no handle is open: the result of a handle's lookup stays
//!   true until that handle pushes a change itself.
//!
//! Failures: a reference that is to be dropped and is not there, an extent without an item,
//! or trees that disagree about an extent's length are `Corrupt`, naming the extent and the
//! reference; the transaction cannot be committed then. Callers: the transaction pushes changes when it copies blocks,
//! and the commit applies them.

mod apply;
mod backrefs;
mod cow_rules;
mod csum_tree;
mod extent_scan;
mod free_check;
mod item;
mod lookup;
mod ref_change;
mod ref_queue;
mod touched_extents;
mod tree_refs;

pub use apply::{Apply, Counted, SpaceSink};
pub use backrefs::{Backref, DataHolder, backrefs, is_held_only_by};
pub(crate) use backrefs::{Known, known};
pub use cow_rules::{BlockState, Counting, CowPlan, DropPlan, Shareability, may_be_shared, on_cow, on_drop, unshared};
pub use csum_tree::{CsumRange, CsumSizes, CsumTree};
pub(crate) use extent_scan::each_extent;
pub use free_check::{check_no_csums, check_unused};
pub use item::ExtentSizes;
pub use lookup::{ExtentInfo, lookup};
pub use ref_change::{ExtentKind, RefChange, RefKey};
pub use ref_queue::{Delta, Head, Pushed, QUEUE_ENTRIES_MAX, RefQueue};
pub(crate) use touched_extents::TouchedExtents;
pub use tree_refs::{Sign, child_changes, convert_changes, cow_changes};

#[cfg(test)]
mod csum_tests;
#[cfg(test)]
mod settling_tests;
#[cfg(test)]
mod sharing_tests;
#[cfg(test)]
mod test_blocks;
#[cfg(test)]
mod tests;
