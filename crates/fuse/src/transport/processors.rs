//! Counts processors as the kernel does for its queues, and binds a thread to one. Called by `ring` and by the
//! near thread of `device`.

use rustix::thread::CpuSet;
use std::fs;

/// Largest possible number of processors of this machine; the kernel requires a queue for each.
pub(super) fn possible_count() -> Option<u16> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    count(text.trim())
}

/// Members of a list like `0-3,8`.
fn count(list: &str) -> Option<u16> {
    let mut count = 0_u16;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        let members = last.checked_sub(first)?.checked_add(1)?;
        count = count.checked_add(members)?;
    }
    Some(count)
}

/// Keeps this thread on one processor, if that exists and is allowed.
pub(super) fn stay_on(processor: usize) {
    if processor >= CpuSet::MAX_CPU {
        return;
    }
    let mut set = CpuSet::new();
    set.set(processor);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::debug!(%error, processor, "a thread runs anywhere");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-1"), Some(2));
        assert_eq!(count("0-3,8,10-11"), Some(7));
        assert_eq!(count("3-1"), None);
        assert_eq!(count(""), None);
        assert_eq!(count("0-65535,1"), None);
    }
}
