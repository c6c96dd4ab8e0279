//! Runs every read-only command of the `spinney` program on each image: an error is fine, a panic, a hang or unbounded
//! memory is not. Called by `damage`.

use super::process::{self, Ended, Limits};
use super::{Options, images};
use anyhow::Result;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitCode;

/// A command that runs longer hangs.
const SECONDS_MAX: u64 = 20;
/// The caches of a command are bounded well below; the file limit stops `get` from an image that claims petabytes.
const LIMITS: Limits = Limits { seconds: SECONDS_MAX, memory_kib: 2 << 20, file_blocks: Some(2 << 20) };
/// Exit codes of a command that refuses to continue: because of the caller, the image, the program's limits, or the
/// host (which takes no second file of one name). A check ends with 4 if it found errors, and with 8 if it cannot
/// begin.
const REFUSALS: &[i32] = &[1, 3, 4, 6, 8];
const SIGXFSZ: i32 = 25;

/// The commands, with placeholders `IMAGE` and `DEST`.
const COMMANDS: &[&[&str]] = &[
    &["info", "IMAGE"],
    &["info", "--json", "IMAGE"],
    &["ls", "-lR", "IMAGE"],
    &["ls", "-lR", "--subvolume-id", "5", "IMAGE"],
    &["tree", "--json", "IMAGE"],
    &["stat", "IMAGE", "/"],
    &["subvolume", "list", "IMAGE"],
    &["dump", "super", "--all", "IMAGE"],
    &["dump", "chunks", "IMAGE"],
    &["dump", "tree", "IMAGE", "root"],
    &["dump", "tree", "IMAGE", "fs"],
    &["dump", "tree", "IMAGE", "extent"],
    &["dump", "tree", "IMAGE", "chunk"],
    &["dump", "tree", "IMAGE", "csum"],
    &["check", "--quiet", "IMAGE"],
    &["check", "--quiet", "--data", "--json", "IMAGE"],
    &["repair", "--quiet", "IMAGE"],
    &["get", "IMAGE", "/.", "DEST"],
    &["rescue", "roots", "--quiet", "IMAGE"],
    &["rescue", "ls", "-lR", "IMAGE"],
    &["rescue", "get", "--quiet", "--force", "IMAGE", "DEST"],
    &["rescue", "undelete", "--quiet", "--json", "--force", "IMAGE", "*", "DEST"],
];

/// Counts of the outcomes.
#[derive(Debug, Default)]
struct Totals {
    images: usize,
    failures: usize,
    outcomes: BTreeMap<String, usize>,
}

/// Runs all commands on all images.
pub(super) fn run(program: &Path, options: &Options, scratch: &Path) -> Result<ExitCode> {
    let mut totals = Totals::default();
    images::each(options, scratch, |image, name| all(program, (image, name), scratch, &mut totals))?;
    let Totals { images, failures, outcomes } = totals;
    println!("damaged: {images} images, {} commands each, {outcomes:?}, {failures} failures", COMMANDS.len());
    Ok(if failures == 0 && images > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs all commands on an image.
fn all(program: &Path, (image, name): (&Path, &str), scratch: &Path, totals: &mut Totals) -> Result<()> {
    totals.images = totals.images.saturating_add(1);
    for command in COMMANDS {
        let outcome = one(program, command, image, scratch)?;
        if let Err(problem) = &outcome {
            totals.failures = totals.failures.saturating_add(1);
            println!("{name}: {}: {problem}", command.join(" "));
        }
        let word = outcome.unwrap_or_else(|_| "FAILED".to_owned());
        let count = totals.outcomes.entry(word).or_default();
        *count = count.saturating_add(1);
    }
    Ok(())
}

/// Runs one command; returns its outcome, or its fault.
fn one(program: &Path, command: &[&str], image: &Path, scratch: &Path) -> Result<Result<String, String>> {
    let target = scratch.join("out");
    std::fs::create_dir_all(&target)?;
    let words = command.iter().map(|word| match *word {
        "IMAGE" => image.as_os_str(),
        "DEST" => target.as_os_str(),
        word => word.as_ref(),
    });
    let ended = process::run(program, &words.collect::<Vec<_>>(), LIMITS)?;
    std::fs::remove_dir_all(&target)?;
    Ok(judge(&ended))
}

fn judge(ended: &Ended) -> Result<String, String> {
    let last = ended.err.lines().last().unwrap_or_default();
    let Some(status) = ended.status else { return Err(format!("hangs: more than {SECONDS_MAX} s")) };
    if status.signal() == Some(SIGXFSZ) {
        return Ok("stopped at the size limit".to_owned());
    }
    match (ended.fault(), status.code()) {
        (Some(fault), _) => Err(fault),
        (None, Some(0)) => Ok("read".to_owned()),
        (None, Some(code)) if REFUSALS.contains(&code) && !last.is_empty() => Ok("refused with a reason".to_owned()),
        _ => Err(format!("{status}: {last}")),
    }
}
