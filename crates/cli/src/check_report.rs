//! Prints the report of a check, of any format, and decides the exit status of a check or repair. Callers: `check` and
//! `repair`.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Error, Result};
use serde::Serialize;
use serde_json::{Map, Value};
use spinney::{CheckReport, Finding};

use crate::commands::human;
use crate::commands::names::escaped_text;
use crate::commands::output::Output;

/// Findings of one code that are shown unless all are asked for.
const SHOWN_PER_CODE: usize = 8;

/// A check, or a repair, that ended with a status of fsck(8).
#[derive(Debug)]
pub(crate) struct Ended {
    status: u8,
    text: String,
}

impl Ended {
    /// Errors were found, and repaired.
    pub(crate) const REPAIRED: u8 = 1;
    /// Errors were found, and are left.
    pub(crate) const ERRORS: u8 = 4;
    /// The check could not be done.
    pub(crate) const FAILED: u8 = 8;
    /// The arguments make no sense.
    pub(crate) const USAGE: u8 = 16;

    pub(crate) fn status(&self) -> u8 {
        self.status
    }

    pub(crate) fn with(status: u8, text: String) -> Error {
        Error::new(Self { status, text })
    }

    /// The check, or the repair, could not be done.
    pub(crate) fn failed(text: String) -> Error {
        Self::with(Self::FAILED, text)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Ended {}

/// How a report is to be shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) json: bool,
    pub(crate) all: bool,
}

/// A finding, as JSON.
fn json_of(finding: &Finding) -> Value {
    let whole = match finding.what.as_str() {
        "" => finding.about.to_owned(),
        what => format!("{}: {what}", finding.about),
    };
    let mut row = Map::new();
    let mut add = |name: &str, value: Value| drop(row.insert(name.to_owned(), value));
    add("code", finding.code.into());
    add("pass", finding.pass.into());
    add("what", whole.into());
    add("path", finding.path.clone().into());
    for part in &finding.place {
        add(
            part.name,
            match part.numbers.as_slice() {
                [] => Value::Null,
                [number] => (*number).into(),
                numbers => numbers.to_vec().into(),
            },
        );
    }
    add("expected", finding.expected.clone().into());
    add("found", finding.found.clone().into());
    row.into()
}

#[derive(Serialize)]
struct JsonReport<'a> {
    is_clean: bool,
    passes: &'a [&'static str],
    counts: BTreeMap<&'static str, u64>,
    findings: Vec<Value>,
    notes: &'a [String],
    inodes: u64,
    bytes_read: u64,
}

/// The report of a check, which this module shows.
pub(crate) struct Checked(pub(crate) CheckReport);

impl Checked {
    /// Prints the report, and fails if it has errors.
    pub(crate) fn report(&self, image: &Path, wanted: Wanted, out: &mut Output) -> Result<()> {
        let report = &self.0;
        if wanted.json {
            out.json(&JsonReport {
                is_clean: report.is_clean(),
                passes: &report.passes,
                counts: report.counts.iter().map(|(meaning, count)| (meaning.code, *count)).collect(),
                findings: report.findings.iter().map(json_of).collect(),
                notes: &report.notes,
                inodes: report.inodes,
                bytes_read: report.bytes,
            })?;
        } else {
            self.print(image, wanted.all, out)?;
        }
        out.finish()?;
        match report.errors() {
            0 => Ok(()),
            errors => {
                let errors = human::count(errors, "error", "errors");
                let text = format!("{}: {errors}; nothing was changed", image.display());
                Err(Ended::with(Ended::ERRORS, text))
            }
        }
    }

    fn print(&self, image: &Path, shows_all: bool, out: &mut Output) -> Result<()> {
        let report = &self.0;
        for (meaning, count) in &report.counts {
            writeln!(out, "{} ({count}): {}", meaning.code, meaning.what)?;
            let findings = report.findings.iter().filter(|finding| finding.code == meaning.code);
            let limit = if shows_all { usize::MAX } else { SHOWN_PER_CODE };
            let mut shown = 0u64;
            for finding in findings.take(limit) {
                shown += 1;
                print_finding(finding, out)?;
            }
            if *count > shown {
                writeln!(out, "  and {} more", count - shown)?;
            }
            writeln!(out, "  Meaning: {}\n  To do:   {}\n", meaning.means, meaning.advice)?;
        }
        for note in &report.notes {
            writeln!(out, "{}: {note}", report.note_word)?;
        }
        let (bytes, inodes, errors) = (human::bytes(report.bytes), report.inodes, report.errors());
        writeln!(out, "{}: read {bytes}, {inodes} inodes; passes: {}", image.display(), report.passes.join(", "))?;
        if errors == 0 {
            writeln!(out, "No errors found.")?;
        } else {
            let kinds = match (errors, report.counts.len()) {
                (1, _) => String::new(),
                (_, 1) => " of one kind".to_owned(),
                (_, kinds) => format!(" of {kinds} kinds"),
            };
            let errors = human::count(errors, "error", "errors");
            writeln!(out, "{errors}{kinds} found. Nothing was changed.")?;
        }
        Ok(())
    }
}

fn print_finding(finding: &Finding, out: &mut Output) -> Result<()> {
    let mut words: Vec<String> = Vec::new();
    words.extend(finding.path.as_ref().map(|path| escaped_text(path).into_owned()));
    words.extend(finding.place.iter().map(|part| part.text.clone()).filter(|text| !text.is_empty()));
    let place = if words.is_empty() { "the file system".to_owned() } else { words.join(", ") };
    let what = if finding.what.is_empty() { String::new() } else { format!("{}: ", finding.what) };
    let (expected, found) = (escaped_text(&finding.expected), escaped_text(&finding.found));
    writeln!(out, "  {place}\n    {what}expected {expected}; found {found}")?;
    Ok(())
}
