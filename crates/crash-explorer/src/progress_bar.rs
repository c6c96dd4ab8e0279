//! Shows how far an exploration has come, to a person at a terminal. Called by `spinney verify-crash` and
//! `cargo trials crash-explore`.

use super::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const REDRAW_INTERVAL: Duration = Duration::from_millis(200);

/// Does `work`, which counts in `progress`, and draws a bar of so many states meanwhile, if the standard error is a
/// terminal. The message of `template`, in the language of `indicatif`, has the workloads and failures.
pub fn watched<R>(progress: &Progress, states: u64, template: &str, work: impl FnOnce() -> R) -> R {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let bar = ProgressBar::new(states);
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            while !is_over.load(Ordering::Acquire) {
                let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
                bar.set_position(count(&progress.states));
                let (workloads, failures) = (count(&progress.workloads), count(&progress.failures));
                bar.set_message(format!("{workloads} workloads, {failures} failures"));
                std::thread::park_timeout(REDRAW_INTERVAL);
            }
            bar.finish_and_clear();
        });
        let result = work();
        is_over.store(true, Ordering::Release);
        result
    })
}
