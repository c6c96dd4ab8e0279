//! Decides when reading changes the time of the last access. The engines ask it at each read; the `mount`
//! command sets the mode.

use crate::file_system::Time;

/// How far access times are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AtimeMode {
    /// Never (`noatime`).
    No,
    /// When the last access is not newer than the last change, or a day old (`relatime`).
    #[default]
    Relative,
    /// At every access (`strictatime`).
    Strict,
}

/// An access time is renewed when it is this old.
const RELATIVE_AGE_MAX_S: i64 = 24 * 60 * 60;

/// True when an access at `now` is to be noted on a node with these times.
#[must_use]
pub fn should_update_atime(mode: AtimeMode, now: Time, atime: Time, mtime: Time, ctime: Time) -> bool {
    match mode {
        AtimeMode::No => false,
        AtimeMode::Strict => now != atime,
        AtimeMode::Relative => {
            atime <= mtime || atime <= ctime || now.sec.saturating_sub(atime.sec) >= RELATIVE_AGE_MAX_S
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = RELATIVE_AGE_MAX_S;

    fn at(sec: i64) -> Time {
        Time { sec, nsec: 5 }
    }

    fn is_due(mode: AtimeMode, now: i64, atime: i64, changed: i64) -> bool {
        should_update_atime(mode, at(now), at(atime), at(changed), at(changed))
    }

    #[test]
    fn relative_notes_the_first_access_after_a_change() {
        assert!(is_due(AtimeMode::Relative, 100, 50, 50));
        assert!(is_due(AtimeMode::Relative, 100, 50, 60));
        assert!(!is_due(AtimeMode::Relative, 100, 51, 50));
        assert!(should_update_atime(AtimeMode::Relative, at(100), at(51), at(50), at(60)));
    }

    #[test]
    fn relative_notes_an_access_a_day() {
        assert!(!is_due(AtimeMode::Relative, 51 + DAY - 1, 51, 50));
        assert!(is_due(AtimeMode::Relative, 51 + DAY, 51, 50));
    }

    #[test]
    fn strict_and_none() {
        assert!(is_due(AtimeMode::Strict, 52, 51, 50));
        assert!(!is_due(AtimeMode::Strict, 51, 51, 50));
        assert!(!is_due(AtimeMode::No, 50 + 2 * DAY, 49, 50));
    }
}
