//! Runs the same work on several threads at once. Called by `walk`, the file pass and the data pass.

/// Runs `work` in `count` threads, and returns when all have ended. One needs no thread of its own: starting threads
/// would dominate a check of many small images.
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
