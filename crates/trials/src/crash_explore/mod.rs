//! Tests states after power cuts, in great number. Called by `cargo trials crash-explore`.
//!
//! `crash_explorer` runs workloads, makes the states that a power cut can leave of each, and checks them; this module
//! prints its report, and [`kernel`] checks some of the states as well: as root they pass through `btrfs check`, are
//! mounted with the kernel's btrfs, which replays the log with its own code, and walked. The walk has to equal
//! Spinney's.
//!
//! Fails, with the state's name, the broken promise, and an image, if a state is wrong. `--workload` and `--state` of a
//! failure reproduce it.

mod fsck;
mod kernel;
mod scripts;

use crate::formats::Kind;
use crate::system::is_root;
use anyhow::{Context, Result};
use btrfs_pool::Profile;
use crash_explorer::{
    Config, Progress, Report, Step, Witness, current_state, explore_all, explore_steps, parse, shrink, watched,
};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// States of a short run.
const CI_STATES: u64 = 20_000;
/// States of scripts, in addition.
const CI_SCRIPT_STATES: u64 = 600;
const USUAL_STATES: u64 = 20_000;
/// States that the kernel checks in a short run, and by default in others.
const CI_JUDGED: u64 = 60;
const USUAL_JUDGED: u64 = 350;
const PROGRESS: &str = "{bar:30} {pos} of {len} states, {per_sec}, {msg}, {eta}";

/// Options of the trial.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// At least 20,000 states, some of them checked by the kernel
    #[arg(long)]
    ci: bool,
    /// Format of the volumes. Scripts exist for btrfs alone
    #[arg(long, value_enum, default_value_t = Kind::Btrfs)]
    format: Kind,
    /// Volumes on several devices with this profile: raid1, raid1c3, raid1c4 or raid10
    #[arg(long, value_name = "PROFILE")]
    several: Option<String>,
    /// After the power cut this device is lost, counted from 0
    #[arg(long, value_name = "INDEX", requires = "several")]
    lost: Option<usize>,
    /// Number of states, each counted once
    #[arg(long, value_name = "N")]
    states: Option<u64>,
    /// Seed of the random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these workloads: ace1, ace2-, ace2-3-17, ace3-4, random-5, threads-, ...; of subvolumes as such: default-,
    /// receipt-, cleaning-, or scripts for the three of them; of devices, with --several: devices-
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Only this state, as a failure names it after the slash: 3:without-2, drawn-17
    #[arg(long, value_name = "NAME")]
    state: Option<String>,
    /// A workload in the language of `spinney verify-crash`, on an empty volume, instead of all others.
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    file: Option<PathBuf>,
    /// Print the shortest part of FILE that leaves a wrong state
    #[arg(long, requires = "file")]
    shrink: bool,
    /// The kernel and btrfs check every n-th state; 0 for none
    #[arg(long, value_name = "N")]
    judge_every: Option<u64>,
    /// Threads; one per processor by default
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Number of failures after which the trial ends
    #[arg(long, default_value_t = 10)]
    failures: u64,
    /// The btrfs program that checks
    #[arg(long, value_name = "PROGRAM")]
    btrfs: Option<PathBuf>,
    /// Directory for images of failures
    #[arg(long, default_value = "target/crash-explore")]
    keep: PathBuf,
    /// Directory for each checked f2fs state as an image, for `f2fs-guest`
    #[arg(long, value_name = "DIR")]
    keep_states: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// The volumes on several devices that are asked for.
fn several(options: &Options) -> Result<btrfs_crash::Several> {
    let name = options.several.as_deref().unwrap_or_default();
    let known = [Profile::Raid1, Profile::Raid1c3, Profile::Raid1c4, Profile::Raid10];
    let found = known.into_iter().find(|profile| profile.to_string().eq_ignore_ascii_case(name));
    let profile = found.with_context(|| format!("{name}: expected raid1, raid1c3, raid1c4 or raid10"))?;
    let count = if profile == Profile::Raid10 { 4 } else { profile.devices_min() };
    Ok(btrfs_crash::Several { count, profile: profile.flags(), lost: options.lost })
}

/// Explores, and prints the report.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let states = options.states.unwrap_or(if options.ci { CI_STATES } else { USUAL_STATES });
    let states = if options.ci { states.max(CI_STATES) } else { states };
    let judged = if options.ci { CI_JUDGED } else { USUAL_JUDGED };
    let judge_every = options.judge_every.unwrap_or((states / judged).max(1));
    let witness: Option<Arc<dyn Witness>> = match judge_every {
        0 => None,
        _ if options.format == Kind::F2fs => fsck::witness(options.keep_states.as_deref())?,
        _ if !is_root() || options.several.is_some() => None,
        _ => Some(Arc::new(kernel::Kernel::new(options.btrfs.clone())?)),
    };
    let progress = Arc::new(Progress::default());
    let config = Config {
        format: match options.format {
            Kind::Btrfs if options.several.is_some() => Arc::new(several(options)?),
            Kind::Btrfs => Arc::new(btrfs_crash::Btrfs),
            Kind::F2fs => Arc::new(f2fs_crash::F2fs),
        },
        states,
        seed: options.seed,
        threads: options.threads,
        workload: options.workload.clone(),
        state: options.state.clone(),
        witness: witness.clone(),
        judge_every: judge_every.max(1),
        failures_max: options.failures,
        keep: Some(options.keep.clone()),
        progress: Some(Arc::clone(&progress)),
    };
    name_states_of_panics();
    let start = Instant::now();
    let steps = options.file.as_deref().map(steps_of).transpose()?;
    if let Some(steps) = steps.as_ref().filter(|_| options.shrink) {
        shrink(&config, steps)?.iter().for_each(|step| println!("{step}"));
        return Ok(ExitCode::SUCCESS);
    }
    let report = watched(&progress, states, PROGRESS, || match &steps {
        Some(steps) => explore_steps(&config, &[], steps),
        None if options.workload.as_deref().is_some_and(scripts::is_about_devices) => {
            scripts::explore_devices(&config, several(options)?)
        }
        None if options.workload.as_deref().is_some_and(scripts::is_named) => scripts::explore(&config),
        None if options.ci && options.workload.is_none() && options.format == Kind::Btrfs => {
            let mut report = explore_all(&config)?;
            let workload = Some(scripts::ALL.to_owned());
            scripts::add(
                &mut report,
                scripts::explore(&Config { states: CI_SCRIPT_STATES, workload, ..config.clone() })?,
            );
            Ok(report)
        }
        None => explore_all(&config),
    })?;
    let seconds = start.elapsed().as_secs_f64();
    if options.json {
        print_json(&report, options.seed, seconds)?;
    } else {
        print(&report, options.seed, seconds, witness.is_some());
    }
    Ok(if report.failure_count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A panic ends a program built for release, so its message names the state.
fn name_states_of_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if let Some(state) = current_state() {
            eprintln!("crash-explore: a panic in {state}");
        }
        usual(panic);
    }));
}

fn steps_of(file: &Path) -> Result<Vec<Step>> {
    let steps = parse(&std::fs::read(file)?).with_context(|| file.display().to_string())?;
    Ok(steps.into_iter().map(|(_, step)| step).collect())
}

fn print(report: &Report, seed: u64, seconds: f64, has_kernel: bool) {
    for failure in &report.failures {
        println!("FAILED {}: {}", failure.state, failure.reason);
        println!("{}", failure.story);
        if let Some(image) = &failure.image {
            println!("  image: {}", image.display());
        }
    }
    let kernel = match has_kernel {
        true => format!(
            "{} judged by the kernel, {} with a torn first superblock, which it does not mount",
            report.judged, report.skipped
        ),
        false => "none judged by the kernel".to_owned(),
    };
    println!(
        "crash-explore: {} workloads, {} states ({} came up again), {} with a log, {} crashes in a replay, {} changed, \
         {kernel}, {} failures, \
         {:.0} states/s, {seconds:.0} s, seed {seed}",
        report.workloads,
        report.states,
        report.again,
        report.replayed,
        report.replays_cut,
        report.changed,
        report.failure_count,
        rate(report.states, seconds)
    );
}

fn rate(states: u64, seconds: f64) -> f64 {
    f64::from(u32::try_from(states).unwrap_or(u32::MAX)) / seconds.max(0.001)
}

fn print_json(report: &Report, seed: u64, seconds: f64) -> Result<()> {
    let failures: Vec<_> = report
        .failures
        .iter()
        .map(|failure| {
            json!({
                "state": failure.state, "reason": failure.reason, "story": failure.story,
                "image": failure.image.as_ref().map(|path| path.display().to_string()),
            })
        })
        .collect();
    let report = json!({
        "workloads": report.workloads, "states": report.states, "again": report.again,
        "with_log": report.replayed, "crashes_in_replay": report.replays_cut, "changed": report.changed,
        "judged_by_kernel": report.judged,
        "kernel_cannot_mount": report.skipped, "failure_count": report.failure_count, "failures": failures,
        "states_per_second": rate(report.states, seconds).round(), "seconds": seconds, "seed": seed,
    });
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}
