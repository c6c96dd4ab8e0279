//! What a check of any format found, how it is shown, and how a check or repair ends: the same for all formats.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Error, Result};
use checking::{CodeInfo, CodeTable, PassTable, Report, Watch};
use serde::Serialize;

use commands::human;
use commands::names::escaped_text;
use commands::output::Output;
use commands::progress::Progress;

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

/// A pass of a format's check.
#[derive(Debug, Serialize)]
pub(crate) struct PassRow {
    pub(crate) format: &'static str,
    pub(crate) id: &'static str,
    pub(crate) about: &'static str,
    pub(crate) needs: Vec<&'static str>,
}

/// A code of a format's check.
#[derive(Debug, Serialize)]
pub(crate) struct Meaning {
    pub(crate) format: &'static str,
    pub(crate) code: &'static str,
    pub(crate) pass: &'static str,
    pub(crate) what: &'static str,
    pub(crate) means: &'static str,
    pub(crate) advice: &'static str,
}

/// All passes of a format.
pub(crate) fn passes<S: PassTable>(format: &'static str) -> impl Iterator<Item = PassRow> {
    S::all().iter().map(move |info| PassRow {
        format,
        id: info.id,
        about: info.about,
        needs: info.needs.iter().map(|pass| pass.id()).collect(),
    })
}

/// All codes of a format.
pub(crate) fn codes<C: CodeTable>(format: &'static str) -> impl Iterator<Item = Meaning> {
    C::all().iter().map(move |info| meaning(format, info))
}

fn meaning<C: CodeTable>(format: &'static str, info: &CodeInfo<C, C::Pass>) -> Meaning {
    let CodeInfo { id, pass, what, means, advice, .. } = *info;
    Meaning { format, code: id, pass: pass.id(), what, means, advice }
}

/// Tells the bar what a check tells.
pub(crate) struct Shown(pub(crate) Arc<Progress>);

impl Watch for Shown {
    fn add_bytes(&self, bytes: u64) {
        self.0.add_bytes(bytes);
    }

    fn add_inodes(&self, count: u64) {
        self.0.names.fetch_add(count, Ordering::Relaxed);
    }

    fn set_total(&self, bytes: u64) {
        self.0.bytes_total.store(bytes, Ordering::Relaxed);
    }
}

/// Where something was found, in the words of its format.
pub(crate) trait Place: Serialize {
    /// What is shown of it, without the path.
    fn words(&self) -> Vec<String>;
}

/// Something that is wrong.
#[derive(Debug, Serialize)]
pub(crate) struct Found<P> {
    pub(crate) code: &'static str,
    pub(crate) pass: &'static str,
    /// What the code stands for, and what exactly.
    #[serde(rename = "what")]
    pub(crate) whole: String,
    /// What exactly, where the code stands for several things.
    #[serde(skip)]
    pub(crate) what: String,
    pub(crate) path: Option<String>,
    #[serde(flatten)]
    pub(crate) place: P,
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// What a check found.
#[derive(Debug)]
pub(crate) struct Checked<P> {
    pub(crate) passes: Vec<&'static str>,
    /// How many there were of each code; of each a bounded number are in `findings`.
    pub(crate) counts: Vec<(Meaning, u64)>,
    pub(crate) findings: Vec<Found<P>>,
    /// What was not looked at, or is no error and worth knowing.
    pub(crate) notes: Vec<String>,
    /// What a note is called.
    pub(crate) note_word: &'static str,
    pub(crate) inodes: u64,
    pub(crate) bytes: u64,
}

/// How a report is to be shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) json: bool,
    pub(crate) all: bool,
}

#[derive(Serialize)]
struct JsonReport<'a, P> {
    is_clean: bool,
    passes: &'a [&'static str],
    counts: BTreeMap<&'static str, u64>,
    findings: &'a [Found<P>],
    notes: &'a [String],
    inodes: u64,
    bytes_read: u64,
}

impl<A: Place> Checked<A> {
    /// What the check of a format reports; `place` gives the path and the rest of each place.
    pub(crate) fn of<C: CodeTable, P>(
        format: &'static str,
        report: Report<C, P, C::Pass>,
        note_word: &'static str,
        place: impl Fn(P) -> (Option<String>, A),
    ) -> Self {
        let findings = report.findings.into_iter().map(|finding| {
            let (path, place) = place(finding.place);
            let (about, pass) = finding.code.info().map_or(("", ""), |info| (info.what, info.pass.id()));
            let what = finding.what;
            let whole = if what.is_empty() { about.to_owned() } else { format!("{about}: {what}") };
            let (expected, found) = (finding.expected, finding.found);
            Found { code: finding.code.id(), pass, whole, what, path, place, expected, found }
        });
        let counts = report.counts.iter().filter_map(|(code, count)| Some((meaning(format, code.info()?), *count)));
        Self {
            findings: findings.collect(),
            counts: counts.collect(),
            passes: report.passes.iter().map(|pass| pass.id()).collect(),
            notes: report.notes,
            note_word,
            inodes: report.inodes,
            bytes: report.bytes,
        }
    }

    /// Shows it; errors that were found are an error.
    pub(crate) fn report(&self, image: &Path, wanted: Wanted, out: &mut Output) -> Result<()> {
        if wanted.json {
            out.json(&JsonReport {
                is_clean: self.counts.is_empty(),
                passes: &self.passes,
                counts: self.counts.iter().map(|(meaning, count)| (meaning.code, *count)).collect(),
                findings: &self.findings,
                notes: &self.notes,
                inodes: self.inodes,
                bytes_read: self.bytes,
            })?;
        } else {
            self.print(image, wanted.all, out)?;
        }
        out.finish()?;
        match self.errors() {
            0 => Ok(()),
            errors => {
                let text = format!("{}: {errors} errors; nothing was changed", image.display());
                Err(Ended::with(Ended::ERRORS, text))
            }
        }
    }

    fn errors(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    fn print(&self, image: &Path, shows_all: bool, out: &mut Output) -> Result<()> {
        for (meaning, count) in &self.counts {
            writeln!(out, "{} ({count}): {}", meaning.code, meaning.what)?;
            let findings = self.findings.iter().filter(|finding| finding.code == meaning.code);
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
        for note in &self.notes {
            writeln!(out, "{}: {note}", self.note_word)?;
        }
        let (bytes, inodes, errors) = (human::bytes(self.bytes), self.inodes, self.errors());
        writeln!(out, "{}: read {bytes}, {inodes} inodes; passes: {}", image.display(), self.passes.join(", "))?;
        if errors == 0 {
            writeln!(out, "No errors found.")?;
        } else {
            writeln!(out, "{errors} errors of {} kinds found. Nothing was changed.", self.counts.len())?;
        }
        Ok(())
    }
}

fn print_finding<P: Place>(finding: &Found<P>, out: &mut Output) -> Result<()> {
    let mut words: Vec<String> = Vec::new();
    words.extend(finding.path.as_ref().map(|path| escaped_text(path).into_owned()));
    words.extend(finding.place.words());
    let place = if words.is_empty() { "the file system".to_owned() } else { words.join(", ") };
    let what = if finding.what.is_empty() { String::new() } else { format!("{}: ", finding.what) };
    let (expected, found) = (escaped_text(&finding.expected), escaped_text(&finding.found));
    writeln!(out, "  {place}\n    {what}expected {expected}; found {found}")?;
    Ok(())
}
