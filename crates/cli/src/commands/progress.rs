//! Shows the progress of a long command: counters that its threads add to, and a bar on the terminal. Called by copies,
//! checks, `send`, `receive` and other long commands.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use spinney::checking::Watch;

/// A bar appears only after this time.
const QUIET_TIME: Duration = Duration::from_secs(2);
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// Counters of a copy, without a lock.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Finished names.
    pub(crate) names: AtomicU64,
    /// Copied bytes of file contents.
    pub(crate) bytes: AtomicU64,
    /// Bytes of file contents to copy; 0 if unknown.
    pub(crate) bytes_total: AtomicU64,
}

impl Progress {
    /// Adds bytes to copy.
    pub(crate) fn add_total(&self, count: u64) {
        let before = self.bytes_total.load(Ordering::Relaxed);
        self.bytes_total.store(before.saturating_add(count), Ordering::Relaxed);
    }

    /// Adds a finished name.
    pub(crate) fn add_name(&self) {
        self.names.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds copied bytes.
    pub(crate) fn add_bytes(&self, count: u64) {
        self.bytes.fetch_add(count, Ordering::Relaxed);
    }
}

impl Progress {
    /// The callback for an operation of the library, which shows what it reports.
    pub(crate) fn follow(&self) -> impl FnMut(&spinney::Progress) -> ControlFlow<()> + Send {
        |now| {
            self.show(now);
            ControlFlow::Continue(())
        }
    }

    /// Shows what an operation of the library reports. A total that is known already stays where the library has none.
    pub(crate) fn show(&self, now: &spinney::Progress) {
        self.names.store(now.inodes, Ordering::Relaxed);
        self.bytes.store(now.bytes, Ordering::Relaxed);
        if now.bytes_total > 0 {
            self.bytes_total.store(now.bytes_total, Ordering::Relaxed);
        }
    }
}

impl Watch for Progress {
    fn add_bytes(&self, bytes: u64) {
        Self::add_bytes(self, bytes);
    }

    fn add_inodes(&self, count: u64) {
        self.names.fetch_add(count, Ordering::Relaxed);
    }

    fn set_total(&self, bytes: u64) {
        self.bytes_total.store(bytes, Ordering::Relaxed);
    }
}

/// A bar on the terminal while this value lives, beginning after two seconds.
pub(crate) struct Bar {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Bar {
    /// Watches `progress`, if the standard error is a terminal and the bar is wanted.
    pub(crate) fn new(progress: &Arc<Progress>, is_wanted: bool) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let thread = Self::would_show(is_wanted).then(|| {
            let (progress, ends) = (Arc::clone(progress), Arc::clone(&ends));
            std::thread::spawn(move || draw(&progress, &ends))
        });
        Self { ends, thread }
    }

    /// True if a bar is wanted and the standard error is a terminal.
    pub(crate) fn would_show(is_wanted: bool) -> bool {
        is_wanted && std::io::IsTerminal::is_terminal(&std::io::stderr())
    }

    /// True if the bar is on a terminal, so that computing the total is worth it.
    pub(crate) fn is_shown(&self) -> bool {
        self.thread.is_some()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A failure of the bar does not fail the copy.
            let _ = thread.join();
        }
    }
}

fn draw(progress: &Progress, ends: &AtomicBool) {
    let start = Instant::now();
    // It counts from the start, so that the rate is known when it appears.
    let bar = ProgressBar::hidden();
    set_style(&bar, false);
    while !ends.load(Ordering::Acquire) {
        std::thread::park_timeout(REDRAW_INTERVAL);
        update(&bar, progress);
        if bar.is_hidden() && start.elapsed() >= QUIET_TIME {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
    bar.finish_and_clear();
}

fn update(bar: &ProgressBar, progress: &Progress) {
    let total = progress.bytes_total.load(Ordering::Relaxed);
    if total > 0 && bar.length() != Some(total) {
        bar.set_length(total);
        set_style(bar, true);
    }
    bar.set_message(format!("{} files", progress.names.load(Ordering::Relaxed)));
    bar.set_position(progress.bytes.load(Ordering::Relaxed));
}

fn set_style(bar: &ProgressBar, is_total_known: bool) {
    let template = if is_total_known {
        "{bar:30} {percent:>3} %  {binary_bytes} of {binary_total_bytes}, {msg}, \
         {binary_bytes_per_sec}, {eta} left"
    } else {
        "{spinner} {binary_bytes}, {msg}, {binary_bytes_per_sec}"
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}
