//! Work that several threads do at once.

/// Runs `work` in so many threads, and returns when all have ended. One needs no thread of its own: small images, of
/// which there may be many, would be checked no faster than threads begin.
pub(crate) fn in_threads(count: usize, work: impl Fn() + Sync) {
    if count <= 1 {
        return work();
    }
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(&work);
        }
    });
}
