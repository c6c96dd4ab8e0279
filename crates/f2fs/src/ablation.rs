//! Switches back to the older allocation of write-back, for benchmarks: files that are written together get blocks in
//! turn. Only with the feature `ablation`. `change/flush` reads the switch; `spinney` sets it for `-o older=apart`.

#[cfg(feature = "ablation")]
mod kept {
    use std::sync::atomic::{AtomicBool, Ordering};

    static IN_TURN: AtomicBool = AtomicBool::new(false);

    /// True when files that are written together get their blocks in turn, one page each.
    pub(crate) fn places_in_turn() -> bool {
        IN_TURN.load(Ordering::Relaxed)
    }

    /// Sets whether files that are written together get their blocks in turn.
    pub fn set_places_in_turn(is_on: bool) {
        IN_TURN.store(is_on, Ordering::Relaxed);
    }
}

#[cfg(not(feature = "ablation"))]
mod kept {
    /// Always false without the feature.
    #[inline]
    pub(crate) const fn places_in_turn() -> bool {
        false
    }
}

pub(crate) use kept::places_in_turn;
#[cfg(feature = "ablation")]
pub use kept::set_places_in_turn;
