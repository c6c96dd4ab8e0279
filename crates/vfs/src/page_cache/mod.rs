//! Holds dirty file bytes in memory: pages, the runs they form, and the budget they share.
//!
//! A [`PageCache`] belongs to one file and holds whole pages (one sector each) that are
//! newer than the disk. It is passive: it copies bytes in and out and hands pages over
//! for writing; it never reads, writes, evicts or locks. The owner brings the lock.
//!
//! Invariants
//! * every page is complete: the owner merges a partial write into the page's old bytes before or while it is put here,
//!   so a page may be written out at any time;
//! * every page is charged to the [`Budget`] from the moment it is put until it is dropped, also while it is being
//!   written to the device. The budget counts and does not refuse: the writer that exceeds it writes back, so memory is
//!   bounded by the limit plus the size of running writes.
//!
//! Nothing here fails. Callers: the write path (puts), the read path (overlays) and the writeback (takes) of an engine.

mod budget;
mod pages;

pub use budget::Budget;
pub use pages::{PageCache, Piece, Run};
