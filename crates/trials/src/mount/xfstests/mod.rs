//! Runs the kernel developers' suite (xfstests) on a mount.
//!
//! * [`run`] runs tests on one system: images in a directory in memory, the suite's `check` in mount and process
//!   namespaces of its own (`namespace.sh`), a time limit for each test;
//! * [`outcome`] parses the output of `check`;
//! * [`compare`] judges: a failure of Spinney that neither libfuse's passthrough nor the kernel's btrfs has, and for
//!   which `docs/mount-exclusions.md` has no reason (suite `xfstests`), is ours.
//!
//! The suite is an outside program, built in a directory that the caller names. It sees the mount as type `fuse`:
//! mount(8) calls `mount_helper.sh`, and `stand_in.sh` gives df, findmnt and umount the names that the suite expects.
//! Nothing stays on the machine: mounts, helper and accounts exist in the namespaces only.
//!
//! Fails if failures are ours, or if the output of `check` cannot be parsed. Needs root. Called by `cargo trials
//! xfstests`.

mod compare;
mod outcome;
mod run;

use super::checks::Mode;
use super::exclusions;
use crate::formats::Kind;
use crate::system;
use anyhow::{Context, Result, ensure};
use compare::{OURS, Table, Verdict};
use outcome::Outcomes;
use run::{Setting, System};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Name of the suite in the table of exclusions.
const SUITE: &str = "xfstests";
/// The tests that concern no particular file system.
const GROUP_FILE: &str = "tests/generic/group.list";

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Unless --all is given, the other systems run only what Spinney fails and the table of exclusions does not explain. \
passthrough_ll is an example of libfuse; without it in PATH (or --passthrough) that system is left out.\n\n\
Examples:\n  cargo trials xfstests ~/xfstests\n  \
    cargo trials xfstests ~/xfstests --test generic/391 --test generic/604 --mode writeback\n  \
    cargo trials xfstests ~/xfstests --system btrfs --all --save btrfs.json\n  \
    cargo trials xfstests ~/xfstests --system spinney --against btrfs.json")]
pub(crate) struct Options {
    /// A built copy of xfstests.
    suite: PathBuf,
    /// Systems to run on; all three if none is given
    #[arg(long)]
    system: Vec<System>,
    /// Mount mode of Spinney
    #[arg(long, default_value = "default")]
    mode: Mode,
    /// Group of the generic tests to run.
    #[arg(long, default_value = "quick")]
    group: String,
    /// Only these tests of any group, for instance generic/001
    #[arg(long)]
    test: Vec<String>,
    /// Run everything on every system.
    #[arg(long)]
    all: bool,
    /// Write all outcomes to this file.
    #[arg(long)]
    save: Option<PathBuf>,
    /// Take outcomes of the other systems from files of --save
    #[arg(long)]
    against: Vec<PathBuf>,
    /// Print outcomes and verdicts as JSON.
    #[arg(long)]
    json: bool,
    /// Seconds after which a test counts as hung.
    #[arg(long, default_value_t = 300)]
    limit: u64,
    /// Bytes of each of the two images of a system.
    #[arg(long, default_value_t = 6 << 30)]
    bytes: u64,
    /// Directory that keeps the files of the tests, by system
    #[arg(long)]
    results: Option<PathBuf>,
    /// Directory for images and mounts, removed at the end; must not exist
    #[arg(long, default_value = "/dev/shm/spinney-xfstests")]
    dir: PathBuf,
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
    /// libfuse's example passthrough_ll.
    #[arg(long)]
    passthrough: Option<PathBuf>,
}

/// Runs the tests and judges.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<ExitCode> {
    ensure!(system::is_root(), "xfstests needs root");
    let tests = tests(options)?;
    let excluded: Vec<String> = exclusions::read(root)?
        .into_iter()
        .filter(|row| row.is_of(SUITE, options.mode.name(), Kind::Btrfs))
        .map(|row| row.test)
        .collect();
    let is_excluded = |test: &str| excluded.iter().any(|row| row == test);
    let mut table = saved(&options.against)?;
    run_all(options, &tests, &is_excluded, &mut table)?;
    if let Some(path) = &options.save {
        std::fs::write(path, serde_json::to_string_pretty(&table_json(&table))?)
            .with_context(|| path.display().to_string())?;
    }
    // Saved outcomes of other tests are ignored.
    for outcomes in table.values_mut() {
        outcomes.retain(|test, _| tests.contains(test));
    }
    let verdicts = compare::judge(&table, is_excluded);
    let ours = verdicts.values().filter(|verdict| **verdict == Verdict::Ours);
    let ours = ours.count();
    if options.json {
        let rows = verdicts.iter().map(|(test, verdict)| (test.clone(), verdict_json(verdict)));
        let verdicts = Value::Object(rows.collect());
        println!("{}", json!({"systems": table_json(&table), "failures": verdicts, "ours": ours}));
    } else {
        print(&table, &verdicts, &excluded);
    }
    Ok(if ours == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The selected tests, each known to the suite.
fn tests(options: &Options) -> Result<Vec<String>> {
    let file = options.suite.join(GROUP_FILE);
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("{}: a built copy of xfstests is needed", file.display()))?;
    if options.test.is_empty() {
        let tests = of_group(&text, &options.group);
        ensure!(!tests.is_empty(), "no test is in group {}", options.group);
        return Ok(tests);
    }
    for test in &options.test {
        ensure!(options.suite.join("tests").join(test).is_file(), "{test}: no such test");
    }
    Ok(options.test.clone())
}

/// Tests of a group: lines `001 auto quick`.
fn of_group(list: &str, group: &str) -> Vec<String> {
    let rows = list.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let number = words.next()?;
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && words.any(|word| word == group)).then(|| format!("generic/{number}"))
    });
    rows.collect()
}

fn run_all(options: &Options, tests: &[String], is_excluded: &impl Fn(&str) -> bool, table: &mut Table) -> Result<()> {
    let find = |path: &Path| {
        let found = path.canonicalize();
        found.with_context(|| path.display().to_string())
    };
    let passthrough = match &options.passthrough {
        Some(path) => Some(find(path)?),
        None => in_path("passthrough_ll"),
    };
    ensure!(!options.dir.exists(), "{}: is there already; remove it, or give another --dir", options.dir.display());
    let suite = find(&options.suite)?;
    let program = find(&options.program)?;
    let mode_options = options.mode.options();
    let setting = Setting {
        suite: &suite,
        work: &options.dir,
        program: &program,
        passthrough: passthrough.as_deref(),
        options: &mode_options,
        image_bytes: options.bytes,
        limit: Duration::from_secs(options.limit),
        results: options.results.as_deref(),
    };
    let ran = systems(options, setting.passthrough.is_some()).into_iter().try_for_each(|system| {
        let wanted: Vec<String> = if system == System::Spinney || options.all {
            tests.to_vec()
        } else {
            unexplained(table, tests, is_excluded)
        };
        eprintln!("{}: {} tests", system.name(), wanted.len());
        let outcomes = setting.outcomes(system, &wanted)?;
        table.entry(system.name().to_owned()).or_default().extend(outcomes);
        anyhow::Ok(())
    });
    // Absent when no test ran.
    let _ = std::fs::remove_dir_all(&options.dir);
    ran
}

/// The systems to run on, Spinney first, because the others run only the tests that it fails.
fn systems(options: &Options, has_passthrough: bool) -> Vec<System> {
    let mut systems = options.system.clone();
    if systems.is_empty() {
        systems = vec![System::Spinney, System::Btrfs];
        if has_passthrough {
            systems.push(System::Passthrough);
        } else {
            eprintln!("passthrough: SKIPPED: no passthrough_ll");
        }
    }
    systems.sort();
    systems.dedup();
    systems
}

/// Failures of Spinney without an explanation; all tests if Spinney did not run.
fn unexplained(table: &Table, tests: &[String], is_excluded: &impl Fn(&str) -> bool) -> Vec<String> {
    if !table.contains_key(OURS) {
        return tests.to_vec();
    }
    let verdicts = compare::judge(table, is_excluded);
    let is_ours = |test: &&String| verdicts.get(*test) == Some(&Verdict::Ours);
    tests.iter().filter(is_ours).cloned().collect()
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Outcomes from files; of a test in several files the last one counts.
fn saved(files: &[PathBuf]) -> Result<Table> {
    let mut table = Table::new();
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let value: Value = serde_json::from_str(&text)?;
        let systems = value.as_object().context("an object of systems")?;
        for (system, outcomes) in systems {
            let outcomes: Outcomes = outcome::from_json(outcomes)?;
            table.entry(system.clone()).or_default().extend(outcomes);
        }
    }
    Ok(table)
}

fn table_json(table: &Table) -> Value {
    let rows = table.iter().map(|(system, outcomes)| (system.clone(), outcome::to_json(outcomes)));
    Value::Object(rows.collect())
}

fn verdict_json(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Ours => json!("ours"),
        Verdict::Excluded => json!("excluded"),
        Verdict::Shared(others) => json!({"shared with": others}),
    }
}

fn print(table: &Table, verdicts: &std::collections::BTreeMap<String, Verdict>, excluded: &[String]) {
    for (system, outcomes) in table {
        println!("{system}: {}", compare::counts(outcomes));
    }
    for (test, verdict) in verdicts {
        match verdict {
            Verdict::Shared(others) => println!("{test}: fails as on {}", others.join(", ")),
            Verdict::Excluded => println!("{test}: fails, excluded"),
            Verdict::Ours => {
                let outcome = table.get(OURS).and_then(|outcomes| outcomes.get(test));
                let (name, text) = outcome.map_or(("", ""), |outcome| (outcome.name(), outcome.text()));
                println!("{test}: OURS: {name}\n{text}");
            }
        }
    }
    let passed = |test: &&String| {
        let outcome = table.get(OURS).and_then(|outcomes| outcomes.get(*test));
        outcome == Some(&outcome::Outcome::Passed)
    };
    for test in excluded.iter().filter(passed) {
        println!("{test}: passes, though it is excluded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_a_word_of_its_own() {
        let list = "# QA groups\n\n001 rw dir auto quick\n002 auto quick_io\n1003 quick\n";
        assert_eq!(of_group(list, "quick"), ["generic/001", "generic/1003"]);
    }

    #[test]
    fn saved_outcomes_are_read_again() {
        let outcomes = outcome::parse("generic/001   1s\n").unwrap().outcomes;
        let table = Table::from([("btrfs".to_owned(), outcomes)]);
        let folder = std::env::temp_dir().join(format!("spinney-saved-{}", std::process::id()));
        std::fs::write(&folder, table_json(&table).to_string()).unwrap();
        let again = saved(std::slice::from_ref(&folder));
        std::fs::remove_file(&folder).unwrap();
        assert_eq!(again.unwrap(), table);
    }
}
