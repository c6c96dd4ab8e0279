//! A deliberate bug, which the crash tests have to find; only in builds with the feature `ablation`.

use std::sync::atomic::{AtomicBool, Ordering};

static SKIPS_FLUSH_AFTER_SUPERBLOCK: AtomicBool = AtomicBool::new(false);

/// Whether the primary superblock is written without the flush behind it, from now on.
pub fn set_skips_flush_after_superblock(skips: bool) {
    SKIPS_FLUSH_AFTER_SUPERBLOCK.store(skips, Ordering::SeqCst);
}

pub(crate) fn skips_flush_after_superblock() -> bool {
    SKIPS_FLUSH_AFTER_SUPERBLOCK.load(Ordering::Relaxed)
}
