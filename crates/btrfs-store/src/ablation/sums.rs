//! Chooses the form of sums that many threads change (pinned bytes). The benchmark `pinned` sets it; `space/counters`
//! reads it.

/// The way of every counter that is made from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    /// In shards, with the batch that the owner of the counter chose.
    Chosen,
    /// In shards that each hold back less than this. The kernel's counters hold back 32 by default.
    Batch(u32),
    /// One number under a lock, which every addition takes.
    Locked,
}

#[cfg(feature = "ablation")]
mod state {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::Sums;

    const CHOSEN: u64 = u64::MAX;
    const LOCKED: u64 = u64::MAX - 1;

    static SUMS: AtomicU64 = AtomicU64::new(CHOSEN);

    /// How counters that are made now keep their sum.
    #[must_use]
    pub fn sums() -> Sums {
        match SUMS.load(Ordering::Relaxed) {
            LOCKED => Sums::Locked,
            batch => u32::try_from(batch).map_or(Sums::Chosen, Sums::Batch),
        }
    }

    /// Switches the counters that are made from now on; those of an open volume stay as they are.
    pub fn set_sums(way: Sums) {
        let value = match way {
            Sums::Chosen => CHOSEN,
            Sums::Batch(batch) => u64::from(batch),
            Sums::Locked => LOCKED,
        };
        SUMS.store(value, Ordering::Relaxed);
    }
}

#[cfg(not(feature = "ablation"))]
mod state {
    use super::Sums;

    /// As their owners chose.
    #[inline]
    #[must_use]
    pub const fn sums() -> Sums {
        Sums::Chosen
    }

    /// Nothing to switch.
    pub const fn set_sums(_way: Sums) {}
}

pub use state::{set_sums, sums};
