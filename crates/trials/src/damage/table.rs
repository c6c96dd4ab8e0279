//! Formats the outcome for an image as a row, all rows as a table, and their totals. Called by `compare`.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// Most codes of a check in the table; JSON has all.
const CODES_SHOWN: usize = 6;
/// The code of a missing device.
const DEVICE_MISSING: &str = "device-missing";

/// The result of a check of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    Clean,
    Errors,
    /// It did not begin, with the reason.
    Refused(String),
    /// It hung, panicked, or was killed by a signal.
    Fault(String),
}

impl State {
    fn word(&self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Errors => "errors",
            Self::Refused(_) => "refused",
            Self::Fault(_) => "FAULT",
        }
    }
}

/// A run of a check.
#[derive(Debug)]
pub(super) struct Check {
    /// Exit status.
    pub(super) code: Option<i32>,
    pub(super) state: State,
    /// Codes, or classes of messages, with their counts.
    pub(super) found: BTreeMap<String, u64>,
    /// Only the first copy of the superblock was ever written, which is left out of `found`.
    pub(super) mirrors_missing: bool,
}

impl Check {
    fn is_clean(&self) -> bool {
        self.state == State::Clean
    }

    fn json(&self) -> Value {
        let why = match &self.state {
            State::Refused(why) | State::Fault(why) => Some(why),
            State::Clean | State::Errors => None,
        };
        let Self { code, found, mirrors_missing, .. } = self;
        json!({ "status": code, "state": self.state.word(), "why": why, "found": found,
            "mirrors_missing": mirrors_missing })
    }

    /// The findings, with counts if `counted`.
    fn found(&self, counted: bool) -> String {
        if self.found.is_empty() {
            return self.state.word().to_owned();
        }
        let shown = self.found.iter().take(CODES_SHOWN);
        let mut words: Vec<String> = match counted {
            true => shown.map(|(code, count)| format!("{code} {count}")).collect(),
            false => shown.map(|(class, _)| class.clone()).collect(),
        };
        if self.found.len() > CODES_SHOWN {
            words.push("...".to_owned());
        }
        if matches!(self.state, State::Fault(_)) {
            words.insert(0, "FAULT".to_owned());
        }
        words.join(", ")
    }
}

/// A run of a repair, and the checks of its result.
#[derive(Debug)]
pub(super) struct Repair {
    pub(super) code: Option<i32>,
    pub(super) fault: Option<String>,
    /// Reasons why ours did not begin.
    pub(super) refusals: Vec<String>,
    pub(super) theirs: Check,
    pub(super) ours: Check,
}

impl Repair {
    fn is_clean_to(&self, judge: Judge) -> bool {
        match judge {
            Judge::Theirs => self.theirs.is_clean(),
            Judge::Both => self.theirs.is_clean() && self.ours.is_clean(),
        }
    }

    fn json(&self) -> Value {
        let Self { code, fault, refusals, .. } = self;
        json!({ "status": code, "fault": fault, "refusals": refusals, "btrfs_check": self.theirs.json(),
            "spinney_check": self.ours.json() })
    }

    fn words(&self) -> String {
        let fault = if self.fault.is_some() { " FAULT" } else { "" };
        format!("{}/{}{fault}", self.theirs.state.word(), self.ours.state.word())
    }
}

/// Result of undoing our repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undo {
    Same,
    /// Nothing was applied, and the image is unchanged.
    Nothing,
    Differs,
    Failed(String),
}

impl Undo {
    fn word(&self) -> &str {
        match self {
            Self::Same => "same",
            Self::Nothing => "-",
            Self::Differs => "DIFFERS",
            Self::Failed(_) => "FAILED",
        }
    }
}

/// The outcome for an image.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) theirs: Check,
    pub(super) ours: Check,
    pub(super) their_repair: Repair,
    pub(super) our_repair: Repair,
    pub(super) undo: Undo,
}

#[derive(Debug, Clone, Copy)]
enum Judge {
    Theirs,
    Both,
}

impl Row {
    pub(super) fn json(&self) -> Value {
        let why = match &self.undo {
            Undo::Failed(why) => Some(why),
            Undo::Same | Undo::Nothing | Undo::Differs => None,
        };
        json!({ "image": self.name, "btrfs_check": self.theirs.json(), "spinney_check": self.ours.json(),
            "after_btrfs_repair": self.their_repair.json(), "after_spinney_repair": self.our_repair.json(),
            "undo": self.undo.word(), "undo_failed": why })
    }

    /// True if the image is one of several devices, and the others are missing.
    fn is_part(&self) -> bool {
        self.ours.found.contains_key(DEVICE_MISSING)
    }

    fn needs_repair(&self, judge: Judge) -> bool {
        match judge {
            Judge::Theirs => !self.theirs.is_clean(),
            Judge::Both => !(self.theirs.is_clean() && self.ours.is_clean()),
        }
    }

    /// Errors that a repair added to an image that a check had found clean.
    fn worse(&self) -> Vec<String> {
        let repairs = [("btrfs check --repair", &self.their_repair), ("spinney repair", &self.our_repair)];
        let mut worse = Vec::new();
        for (name, repair) in repairs {
            let pairs = [("btrfs check", &self.theirs, &repair.theirs), ("spinney check", &self.ours, &repair.ours)];
            for (judge, _, after) in
                pairs.into_iter().filter(|(_, before, after)| before.is_clean() && !after.is_clean())
            {
                worse.push(format!("{name} made it worse, as {judge} says: {}", after.found(true)));
            }
        }
        worse
    }

    fn faults_of_theirs(&self) -> Vec<String> {
        let checks = [&self.theirs, &self.their_repair.theirs, &self.our_repair.theirs];
        let checks = checks.into_iter().filter_map(|check| match &check.state {
            State::Fault(fault) => Some(format!("btrfs check: {fault}")),
            _ => None,
        });
        let repair = self.their_repair.fault.iter().map(|fault| format!("btrfs check --repair: {fault}"));
        checks.chain(repair).collect()
    }

    /// Outcomes of our programs that are never acceptable.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let checks = [&self.ours, &self.their_repair.ours, &self.our_repair.ours];
        for check in checks {
            if let State::Fault(fault) = &check.state {
                faults.push(format!("check: {fault}"));
            }
        }
        faults.extend(self.our_repair.fault.iter().map(|fault| format!("repair: {fault}")));
        match &self.undo {
            Undo::Differs => faults.push("after an undo, or where nothing was applied, the image differs".to_owned()),
            Undo::Failed(why) => faults.push(format!("undo: {why}")),
            Undo::Same | Undo::Nothing => {}
        }
        if !self.needs_repair(Judge::Both) && !self.our_repair.is_clean_to(Judge::Both) {
            faults.push("a clean image is not clean after the repair".to_owned());
        }
        faults
    }
}

/// Prints the rows, and the faults of our programs.
pub(super) fn print(rows: &[Row]) {
    let mut lines =
        vec![["image", "btrfs check", "btrfs repair", "spinney repair", "undo", "spinney check"].map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        [
            row.name.clone(),
            row.theirs.found(false),
            row.their_repair.words(),
            row.our_repair.words(),
            row.undo.word().to_owned(),
            row.ours.found(true),
        ]
    }));
    println!("The columns of repairs: results of `btrfs check`/`spinney check` afterwards.\n");
    let mut widths = [0; 6];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    for line in &lines {
        let cells: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        println!("{}", cells.join("  ").trim_end());
    }
    println!();
    for row in rows {
        for said in [row.worse(), row.faults_of_theirs(), row.faults()].concat() {
            println!("{}: {said}", row.name);
        }
    }
}

/// Number of rows in each combination of two outcomes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pairs {
    both: usize,
    only_theirs: usize,
    only_ours: usize,
    neither: usize,
}

impl Pairs {
    fn of(pairs: impl Iterator<Item = (bool, bool)>) -> Self {
        let mut counts = Self::default();
        for pair in pairs {
            let count = match pair {
                (true, true) => &mut counts.both,
                (true, false) => &mut counts.only_theirs,
                (false, true) => &mut counts.only_ours,
                (false, false) => &mut counts.neither,
            };
            *count = count.saturating_add(1);
        }
        counts
    }
}

impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { both, only_theirs, only_ours, neither } = self;
        write!(f, "both {both}, only btrfs-progs {only_theirs}, only spinney {only_ours}, neither {neither}")
    }
}

/// Totals of all rows except those with missing devices.
#[derive(Debug)]
pub(super) struct Totals {
    images: usize,
    parts: usize,
    found: Pairs,
    repaired: [(&'static str, Pairs); 2],
    /// Images that our repair changed, and those of them that the undo restored.
    undone: (usize, usize),
    worse: usize,
    /// Runs of btrfs-progs that hung or were killed by a signal.
    faults_of_theirs: usize,
    /// Unacceptable outcomes.
    pub(super) failures: usize,
}

impl Totals {
    pub(super) fn of(rows: &[Row]) -> Self {
        let whole = || rows.iter().filter(|row| !row.is_part());
        let repaired = |judge: Judge| {
            let wanted = whole().filter(|row| row.needs_repair(judge));
            Pairs::of(wanted.map(|row| (row.their_repair.is_clean_to(judge), row.our_repair.is_clean_to(judge))))
        };
        let changed = rows.iter().filter(|row| row.undo != Undo::Nothing);
        let same = rows.iter().filter(|row| row.undo == Undo::Same);
        Self {
            images: rows.len(),
            parts: rows.iter().filter(|row| row.is_part()).count(),
            found: Pairs::of(whole().map(|row| (!row.theirs.is_clean(), !row.ours.is_clean()))),
            repaired: [("btrfs check", repaired(Judge::Theirs)), ("both checks", repaired(Judge::Both))],
            undone: (changed.count(), same.count()),
            worse: rows.iter().map(|row| row.worse().len()).sum(),
            faults_of_theirs: rows.iter().map(|row| row.faults_of_theirs().len()).sum(),
            failures: rows.iter().map(|row| row.faults().len()).sum(),
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "images: {}, of which {} lack devices and are not counted below", self.images, self.parts)?;
        writeln!(f, "something is found by: {}", self.found)?;
        for (judge, pairs) in &self.repaired {
            writeln!(f, "repaired, as {judge} judge: {pairs}")?;
        }
        let (changed, same) = self.undone;
        writeln!(f, "undone byte for byte: {same} of {changed} that a repair of spinney changed (of all images)")?;
        writeln!(f, "made worse by a repair: {} (named above)", self.worse)?;
        writeln!(f, "hangs and signals of btrfs-progs: {}", self.faults_of_theirs)?;
        write!(f, "failures of spinney: {}", self.failures)
    }
}
