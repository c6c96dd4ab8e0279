//! Compares `btrfs check` and `spinney check` on each image, and after a repair by either program. Called by `damage`
//! for `--compare`.
//!
//! Both checks run on the result of both repairs. The undo of our repair has to restore the copy to the last byte, and
//! if nothing was repaired the copy must not have changed. Missing mirrors of the superblock are no damage: many images
//! were made without them. A file system with missing devices is in the table but not in the totals.

use super::process::{self, Ended, Limits};
use super::table::{self, Check, Repair, Row, State, Totals, Undo};
use super::{Options, images};
use anyhow::Result;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Most address space of each program, in KiB. `btrfs check` has to fit too, which keeps all extents in memory.
const MEMORY_KIB_MAX: u64 = 4 << 20;
/// The code with which `spinney check` reports a mirror of the superblock that cannot be used.
const SUPER_COPY: &str = "super-copy";
/// Messages of `btrfs check`, each with the name of its class of errors in the table.
const CLASSES: &[(&str, &str)] = &[
    ("cannot open file system", "cannot open"),
    ("No valid Btrfs found", "no superblock"),
    ("verify failed on", "blocks"),
    ("bad tree block", "blocks"),
    ("corrupt leaf", "blocks"),
    ("corrupt node", "blocks"),
    ("errors found in extent allocation tree", "extents"),
    ("has no corresponding block group", "free space"),
    ("free space info recorded", "free space"),
    ("errors found in fs roots", "files"),
    ("unaligned total_bytes", "device sizes"),
    ("errors found in csum tree", "checksums"),
    ("errors found in root refs", "root refs"),
    ("errors found in log", "log"),
    ("Counts for qgroup id", "quota"),
];

/// Compares on all images, and prints the table.
pub(super) fn run(program: &Path, options: &Options, scratch: &Path) -> Result<ExitCode> {
    let limits = Limits { seconds: options.seconds, memory_kib: MEMORY_KIB_MAX, file_blocks: None };
    let judges = Judges { program, btrfs: options.btrfs(), limits };
    let mut lines = options.json.as_ref().map(std::fs::File::create).transpose()?;
    let mut rows = Vec::new();
    images::each(options, scratch, |image, name| {
        if !options.as_restored {
            images::complete(image)?;
        }
        let row = judges.row(image, name)?;
        if let Some(lines) = &mut lines {
            writeln!(lines, "{}", row.json())?;
        }
        rows.push(row);
        Ok(())
    })?;
    table::print(&rows);
    let totals = Totals::of(&rows);
    println!("\n{totals}");
    Ok(if totals.failures == 0 && !rows.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Judges<'a> {
    program: &'a Path,
    btrfs: PathBuf,
    limits: Limits,
}

impl Judges<'_> {
    fn row(&self, image: &Path, name: &str) -> Result<Row> {
        let (theirs, ours) = (self.theirs(image)?, self.ours(image)?);
        let their_repair = self.their_repair(image)?;
        let (our_repair, undo) = self.our_repair(image)?;
        Ok(Row { name: name.to_owned(), theirs, ours, their_repair, our_repair, undo })
    }

    fn run(&self, program: &Path, words: &[&str], image: &Path) -> Result<Ended> {
        let mut words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        words.push(image.as_os_str());
        process::run(program, &words, self.limits)
    }

    fn theirs(&self, image: &Path) -> Result<Check> {
        let ended = self.run(&self.btrfs, &["check", "--readonly", "--force"], image)?;
        let state = match (ended.fault(), ended.code()) {
            (Some(fault), _) => State::Fault(fault),
            (None, Some(0)) => State::Clean,
            _ => State::Errors,
        };
        let mut found = BTreeMap::new();
        if state != State::Clean {
            for line in ended.out.lines().chain(ended.err.lines()) {
                for (_, class) in CLASSES.iter().filter(|(said, _)| line.contains(said)) {
                    let count: &mut u64 = found.entry((*class).to_owned()).or_default();
                    *count = count.saturating_add(1);
                }
            }
        }
        Ok(Check { code: ended.code(), state, found, mirrors_missing: false })
    }

    fn ours(&self, image: &Path) -> Result<Check> {
        let ended = self.run(self.program, &["check", "--quiet", "--json"], image)?;
        let mut found = counts(&report(&ended), "counts");
        // Missing mirrors are no damage: the image was made without them.
        let missing = images::missing_mirrors(image)?;
        let mirrors_missing = missing > 0 && found.get(SUPER_COPY) == Some(&missing);
        if mirrors_missing {
            found.remove(SUPER_COPY);
        }
        let state = match (ended.fault(), ended.code()) {
            (Some(fault), _) => State::Fault(fault),
            (None, Some(0)) => State::Clean,
            (None, Some(4)) if found.is_empty() && mirrors_missing => State::Clean,
            (None, Some(4)) => State::Errors,
            (None, Some(8)) => State::Refused(last_line(&ended)),
            (None, code) => State::Fault(format!("exit status {code:?}: {}", last_line(&ended))),
        };
        Ok(Check { code: ended.code(), state, found, mirrors_missing })
    }

    fn judged(&self, image: &Path, ended: &Ended, refusals: Vec<String>) -> Result<Repair> {
        let (code, fault) = (ended.code(), ended.fault());
        Ok(Repair { code, fault, refusals, theirs: self.theirs(image)?, ours: self.ours(image)? })
    }

    fn their_repair(&self, image: &Path) -> Result<Repair> {
        let copy = images::copy(image)?;
        let ended = self.run(&self.btrfs, &["check", "--repair", "--force"], &copy)?;
        let repair = self.judged(&copy, &ended, Vec::new())?;
        std::fs::remove_file(&copy)?;
        Ok(repair)
    }

    fn our_repair(&self, image: &Path) -> Result<(Repair, Undo)> {
        let copy = images::copy(image)?;
        let undo_file = image.with_extension("undo");
        let undo_path = undo_file.to_string_lossy();
        let words = ["repair", "--apply", "--partial", "--quiet", "--json", "--undo-file", &*undo_path];
        let ended = self.run(self.program, &words, &copy)?;
        let refusals = report(&ended).get("refusals").and_then(Value::as_array).cloned().unwrap_or_default();
        let refusals = refusals.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let mut repair = self.judged(&copy, &ended, refusals)?;
        if !matches!(ended.code(), Some(0 | 1 | 4 | 8)) && repair.fault.is_none() {
            repair.fault = Some(format!("exit status {:?}: {}", ended.code(), last_line(&ended)));
        }
        let undo = if undo_file.exists() {
            let undone = self.run(self.program, &["repair", "--undo", &*undo_path], &copy)?;
            std::fs::remove_file(&undo_file)?;
            match undone.code() {
                Some(0) if images::are_same(image, &copy)? => Undo::Same,
                Some(0) => Undo::Differs,
                _ => Undo::Failed(undone.fault().unwrap_or_else(|| last_line(&undone))),
            }
        } else if images::are_same(image, &copy)? {
            Undo::Nothing
        } else {
            Undo::Differs
        };
        std::fs::remove_file(&copy)?;
        Ok((repair, undo))
    }
}

/// The JSON that our command printed; null if its output is not JSON.
fn report(ended: &Ended) -> Value {
    serde_json::from_str(&ended.out).unwrap_or_default()
}

fn counts(report: &Value, name: &str) -> BTreeMap<String, u64> {
    let counts = report.get(name).and_then(Value::as_object).into_iter().flatten();
    counts.map(|(code, count)| (code.clone(), count.as_u64().unwrap_or_default())).collect()
}

fn last_line(ended: &Ended) -> String {
    ended.err.lines().last().unwrap_or_default().to_owned()
}
