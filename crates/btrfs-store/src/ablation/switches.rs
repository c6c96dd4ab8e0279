//! Switches older ways of doing things on and off. Benchmarks and mount options (`spinney`) set the switches to
//! compare; `log/edit`, `extent/csum_tree` and the crate `btrfs` read them.

#[cfg(feature = "ablation")]
mod state {
    use std::sync::atomic::{AtomicBool, Ordering};

    static IN_LEAF: AtomicBool = AtomicBool::new(false);
    static COMMITS: AtomicBool = AtomicBool::new(false);
    static APART: AtomicBool = AtomicBool::new(false);
    static COLLECTS: AtomicBool = AtomicBool::new(false);

    /// True when file extent items of the log are made in the locked leaf.
    pub fn makes_items_in_leaf() -> bool {
        IN_LEAF.load(Ordering::Relaxed)
    }

    /// Switches to making file extent items in the locked leaf, or back.
    pub fn set_makes_items_in_leaf(is_on: bool) {
        IN_LEAF.store(is_on, Ordering::Relaxed);
    }

    /// True when every fsync commits.
    pub fn commits_each_sync() -> bool {
        COMMITS.load(Ordering::Relaxed)
    }

    /// Switches to a commit for each fsync, or back.
    pub fn set_commits_each_sync(is_on: bool) {
        COMMITS.store(is_on, Ordering::Relaxed);
    }

    /// True when several flushes allocate at once, extent by extent.
    pub fn allocates_apart() -> bool {
        APART.load(Ordering::Relaxed)
    }

    /// Switches to flushes that allocate at once, or back.
    pub fn set_allocates_apart(is_on: bool) {
        APART.store(is_on, Ordering::Relaxed);
    }

    /// True when the check whether a range has any checksum collects all that it has.
    pub fn collects_csums() -> bool {
        COLLECTS.load(Ordering::Relaxed)
    }

    /// Switches to collecting checksums, or back.
    pub fn set_collects_csums(is_on: bool) {
        COLLECTS.store(is_on, Ordering::Relaxed);
    }
}

#[cfg(not(feature = "ablation"))]
mod state {
    /// Never.
    #[inline]
    #[must_use]
    pub const fn makes_items_in_leaf() -> bool {
        false
    }

    /// Nothing to switch.
    pub const fn set_makes_items_in_leaf(_is_on: bool) {}

    /// Never.
    #[inline]
    #[must_use]
    pub const fn commits_each_sync() -> bool {
        false
    }

    /// Nothing to switch.
    pub const fn set_commits_each_sync(_is_on: bool) {}

    /// Never.
    #[inline]
    #[must_use]
    pub const fn allocates_apart() -> bool {
        false
    }

    /// Nothing to switch.
    pub const fn set_allocates_apart(_is_on: bool) {}

    /// Never.
    #[inline]
    #[must_use]
    pub const fn collects_csums() -> bool {
        false
    }

    /// Nothing to switch.
    pub const fn set_collects_csums(_is_on: bool) {}
}

pub use state::{
    allocates_apart, collects_csums, commits_each_sync, makes_items_in_leaf, set_allocates_apart, set_collects_csums,
    set_commits_each_sync, set_makes_items_in_leaf,
};
