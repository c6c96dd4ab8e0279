//! Watches the threads of `fuzz_images`, which calls it: progress, hangs, memory; prints the report at the end.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::execution::{Execution, Kind};
use super::tally::Tally;
use super::{MEMORY_BYTES_MAX, Shared, TIME_MAX, lock};

/// Polling interval.
const LOOK: Duration = Duration::from_millis(100);

/// Watches until all have ended.
///
/// # Errors
/// An execution that hangs, too much memory: the process ends.
pub(super) fn watch(shared: &Shared<'_>, started: Instant, have_ended: impl Fn() -> bool) -> Result<()> {
    let mut told = Instant::now();
    let mut seen: Vec<(u32, Option<Execution>)> = vec![(0, None); shared.running.len()];
    while !have_ended() {
        std::thread::sleep(LOOK);
        if shared.options.seconds.is_some_and(|seconds| started.elapsed().as_secs() >= seconds) {
            shared.is_over.store(true, Ordering::Relaxed);
        }
        for (running, seen) in shared.running.iter().zip(&mut seen) {
            let now = lock(running).clone();
            let is_same = now.as_ref().map(|one| &one.numbers) == seen.1.as_ref().map(|one| &one.numbers);
            *seen = (if is_same && now.is_some() { seen.0.saturating_add(1) } else { 0 }, now);
            if let (true, Some(execution)) = (LOOK.saturating_mul(seen.0) > TIME_MAX, &seen.1) {
                let again = execution.again();
                println!("fuzz-images: FAILED: {execution} hangs; again with --seed {} {again}", shared.options.seed);
                report(shared, started.elapsed())?;
                // The thread cannot be ended otherwise.
                std::process::exit(1);
            }
        }
        if memory_bytes()? > MEMORY_BYTES_MAX {
            let running: Vec<String> =
                shared.running.iter().filter_map(|one| lock(one).as_ref().map(Execution::again)).collect();
            println!("fuzz-images: FAILED: too much memory, while there ran {}", running.join(" and "));
            report(shared, started.elapsed())?;
            std::process::exit(1);
        }
        if told.elapsed() >= Duration::from_secs(shared.options.progress_s.max(1)) {
            told = Instant::now();
            let (tally, seconds) = (sum(shared), started.elapsed().as_secs().max(1));
            let (count, ways) = (tally.count(), lock(&shared.pool).ways());
            println!(
                "fuzz-images: {count} executions, {} a second, {ways} ways to end, {} failures, {} MiB",
                count / seconds,
                lock(&shared.failures).len(),
                memory_bytes()? >> 20
            );
        }
    }
    Ok(())
}

/// Prints the counts of all threads.
pub(super) fn report(shared: &Shared<'_>, took: Duration) -> Result<()> {
    let tally = sum(shared);
    for kind in Kind::ALL {
        let Some(one) = tally.kinds.get(&kind) else { continue };
        let words: Vec<String> = one.words.iter().map(|(word, count)| format!("{count} {word}")).collect();
        let micros = one.time.as_micros() / u128::from(one.count.max(1));
        println!("{kind:?}: {} executions, {micros} microseconds each: {}", one.count, words.join(", "));
        if let Some((took, execution)) = &one.slowest {
            println!("  slowest: {took:?}: {}", execution.again());
        }
    }
    let (count, seconds) = (tally.count(), took.as_secs_f64());
    let making = tally.making.as_micros() / u128::from(count.max(1));
    println!(
        "fuzz-images: seed {}, {} executions in {seconds:.1} s ({:.0} a second), {making} microseconds for an image, \
         {} ways to end, {} places that failed, {} MiB at most",
        shared.options.seed,
        count,
        f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / seconds.max(0.001),
        lock(&shared.pool).ways(),
        lock(&shared.failures).len(),
        memory_bytes()? >> 20,
    );
    Ok(())
}

fn sum(shared: &Shared<'_>) -> Tally {
    let mut all = Tally::default();
    for tally in &shared.tallies {
        all.merge(&lock(tally));
    }
    all
}

/// Peak memory of the process.
fn memory_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let Some(kib) = line.split_whitespace().next() else { bail!("no number in {line:?}") };
    Ok(kib.parse::<u64>()? << 10)
}
