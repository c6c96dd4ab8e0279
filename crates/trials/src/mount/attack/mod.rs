//! Tests permissions: attempts to circumvent them, on a mount of ours and on the kernel's btrfs.
//!
//! [`sides`] makes a fresh volume of each kind, mounts it as a system would (`suid`, `dev`, every user), and runs the
//! scripts of `script/` there: each attempt prepares a scene as root, becomes another user (a stranger, a member of a
//! group, an owner, root without capabilities, root of a user namespace) and acts. Its outcome is the result of each
//! step, the users as whom programs ran, and all files in the scene afterwards. [`outcome`] compares the two;
//! [`exceptions`] lists the accepted differences, each with its reason. Any other difference is a failure. After a run
//! the kernel mounts our image and must see the same as the mount showed.
//!
//! `--self-test` shows that the comparison can fail: it weakens one side on purpose and expects that to be found.
//!
//! Needs root, python3 and the `spinney` program built. Called by `cargo trials attack`.

mod exceptions;
mod outcome;
mod sides;

use super::checks::Mode;
use crate::system;
use anyhow::{Result, ensure};
use exceptions::Verdict;
use outcome::{Compared, Difference, Outcome};
use serde_json::json;
use sides::{Phase, Plan};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Most differing lines that are shown of an attempt.
const SHOWN: usize = 40;

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo trials attack\n  \
    cargo trials attack --only 'set-user' --mode writeback,io-uring\n  cargo trials attack --self-test")]
pub(crate) struct Options {
    /// Only attempts with this in their name or identity (`change-owners cap:chown`); may be given several times.
    #[arg(long)]
    only: Vec<String>,
    /// Ways to mount.
    #[arg(long, value_delimiter = ',', default_values = ["default"])]
    mode: Vec<Mode>,
    /// A line of JSON for each attempt instead of the table.
    #[arg(long)]
    json: bool,
    /// The run of `test.sh`: the default mode without attempts that resemble others, and the self-test
    #[arg(long)]
    ci: bool,
    /// Weaken one side on purpose; passes if that is found.
    #[arg(long)]
    self_test: bool,
    /// Directory for images and mounts
    #[arg(long, default_value = "/dev/shm/spinney-attack")]
    dir: PathBuf,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
}

/// Number of attempts by verdict.
#[derive(Debug, Default)]
struct Totals {
    verdicts: BTreeMap<Verdict, u64>,
}

impl Totals {
    fn count(&self, verdict: Verdict) -> u64 {
        self.verdicts.get(&verdict).copied().unwrap_or_default()
    }

    fn add(&mut self, verdict: Verdict) {
        let count = self.verdicts.entry(verdict).or_default();
        *count = count.saturating_add(1);
    }
}

/// Makes the attempts and prints their verdicts.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    ensure!(system::is_root(), "becoming others and mounting needs root");
    std::fs::create_dir_all(&options.dir)?;
    let start = Instant::now();
    let mut failed = 0;
    if !options.self_test {
        for mode in &options.mode {
            failed += attack(options, *mode)?;
        }
    }
    if options.self_test || options.ci {
        failed += self_test(options)?;
    }
    std::fs::remove_dir_all(&options.dir)?;
    eprintln!("attack: {failed} failed, {} s", start.elapsed().as_secs());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes all attempts in one mode; returns the number of failures.
fn attack(options: &Options, mode: Mode) -> Result<u64> {
    let mut totals = Totals::default();
    for phase in [Phase::Always, Phase::Subvolumes] {
        let plan = Plan::new(options, mode, phase);
        let (kernel, ours) = plan.run()?;
        ensure!(kernel.len() == ours.outcomes.len(), "the two sides made different attempts");
        for (kernel, ours) in kernel.iter().zip(&ours.outcomes) {
            let compared = Compared::new(kernel, ours);
            let (verdict, reason) = exceptions::judge(&compared, phase, mode);
            totals.add(verdict);
            print(options, mode, &compared, verdict, reason);
            if verdict == Verdict::Failed && !options.json {
                let unlisted = |each: &&Difference| exceptions::one(&compared, each, phase, mode).0 == Verdict::Failed;
                for difference in compared.differences.iter().filter(unlisted).take(SHOWN) {
                    println!("    {difference}");
                }
            }
        }
        let may_differ =
            |each: &sides::OnDisk| exceptions::may_differ_on_disk(&each.attempt, each.difference.what(), mode);
        for found in ours.on_disk.iter().filter(|each| !may_differ(each)) {
            totals.add(Verdict::Failed);
            println!("FAILED: {}: the kernel sees in the image: {}: {}", mode.name(), found.folder, found.difference);
        }
    }
    let attempts: u64 = totals.verdicts.values().sum();
    eprintln!(
        "attack -o {}: {attempts} attempts: {} equal, {} stricter, {} refused with another error, {} given away by an \
         option, {} decided by the kernel's FUSE, {} failed",
        mode.name(),
        totals.count(Verdict::Equal),
        totals.count(Verdict::Stricter),
        totals.count(Verdict::OtherError),
        totals.count(Verdict::GivenAway),
        totals.count(Verdict::Fuse),
        totals.count(Verdict::Failed),
    );
    Ok(totals.count(Verdict::Failed))
}

fn print(options: &Options, mode: Mode, compared: &Compared<'_>, verdict: Verdict, reason: &str) {
    let (kernel, ours) = (compared.kernel, compared.ours);
    if options.json {
        let differences: Vec<String> = compared.differences.iter().map(ToString::to_string).collect();
        let steps = |outcome: &Outcome| outcome.steps.iter().map(outcome::Step::to_json).collect::<Vec<_>>();
        let line = json!({
            "attempt": kernel.attempt, "identity": kernel.identity, "mode": mode.name(), "verdict": verdict.name(),
            "reason": reason,
            "kernel": steps(kernel), "spinney": steps(ours), "differences": differences,
        });
        println!("{line}");
        return;
    }
    let (kernel_ends, our_ends) = (ends(kernel), ends(ours));
    println!(
        "{:<44} {:<18} kernel {kernel_ends:<24} spinney {our_ends:<24} {}",
        kernel.attempt,
        kernel.identity,
        verdict.name()
    );
}

/// Numbers of allowed and refused steps of an attempt.
fn ends(outcome: &Outcome) -> String {
    let refused = outcome.steps.iter().filter(|step| step.is_refused()).count();
    format!("{} done, {refused} refused", outcome.steps.len().saturating_sub(refused))
}

/// Weakens one side in several ways; returns the number of those not found.
fn self_test(options: &Options) -> Result<u64> {
    let mut missed = 0;
    for weakness in sides::WEAKNESSES {
        let plan = Plan::weakened(options, weakness);
        let (kernel, ours) = plan.run()?;
        let found = kernel.iter().zip(&ours.outcomes).filter(|(kernel, ours)| {
            let compared = Compared::new(kernel, ours);
            exceptions::judge(&compared, plan.phase(), Mode::Default).0 == Verdict::Failed
        });
        let count = found.count();
        println!("self-test: {}: found by {count} of {} attempts", weakness.name, kernel.len());
        if count == 0 {
            println!("FAILED: the self-test's weakness was not found: {}", weakness.name);
            missed += 1;
        }
    }
    Ok(missed)
}
