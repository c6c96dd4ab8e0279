//! Defines the options and the report of a check, the same for every format. Each format fills the report; the
//! `spinney` library and the command `check` show it.

use checking::{CodeInfo, CodeTable, PassTable, Report};
use serde::Serialize;

/// The extent of a check.
#[derive(Debug, Clone, Default)]
pub struct CheckOptions {
    /// Ids of the passes to run ([`PassRow::id`]); those that they need run too. Empty: all, that over the data only
    /// with `data`. Unknown ids are ignored.
    pub passes: Vec<String>,
    /// Read all file data too, and verify its checksums where the format has them.
    pub data: bool,
    /// Bytes of memory for the check's records, beyond which they go to temporary files; `None`: the default of the
    /// format. A format that keeps all records in memory ignores it.
    pub memory: Option<u64>,
    /// Number of threads; `None`: one for each processor. A check of one thread ignores it.
    pub threads: Option<usize>,
}

/// A pass of a format's check.
#[derive(Debug, Clone, Serialize)]
pub struct PassRow {
    /// Name of the format.
    pub format: &'static str,
    /// Name of the pass, which does not change.
    pub id: &'static str,
    /// The structures that it checks, in one line.
    pub about: &'static str,
    /// The passes that it needs.
    pub needs: Vec<&'static str>,
}

/// A code of a format's check.
#[derive(Debug, Clone, Serialize)]
pub struct Meaning {
    /// Name of the format.
    pub format: &'static str,
    /// The code, which does not change.
    pub code: &'static str,
    /// The pass that finds it.
    pub pass: &'static str,
    /// The damage, in one line.
    pub what: &'static str,
    /// The consequence for the data.
    pub means: &'static str,
    /// The advised remedy.
    pub advice: &'static str,
}

/// Something that is wrong with a volume.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The code.
    pub code: &'static str,
    /// The pass that found it.
    pub pass: &'static str,
    /// The damage that the code stands for.
    pub about: &'static str,
    /// The exact damage, where the code stands for several; else empty.
    pub what: String,
    /// The path of the file, where one is known.
    pub path: Option<String>,
    /// Where it is, in the numbers of the format.
    pub place: Vec<PlacePart>,
    /// The value that would be consistent.
    pub expected: String,
    /// The value on the device.
    pub found: String,
}

/// A part of a place in a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacePart {
    /// Its name, which does not change: `inode`, `device_offset`.
    pub name: &'static str,
    /// Its numbers: three of a key, none where the finding has no such part.
    pub numbers: Vec<u64>,
    /// The same for people; empty where another part says it.
    pub text: String,
}

impl PlacePart {
    /// A part that is one number, shown behind `word`.
    #[must_use]
    pub fn number(name: &'static str, word: &str, number: Option<u64>) -> Self {
        let text = number.map(|number| format!("{word} {number}")).unwrap_or_default();
        Self { name, numbers: number.into_iter().collect(), text }
    }

    /// A part that is shown by another one.
    #[must_use]
    pub fn unshown(name: &'static str, number: Option<u64>) -> Self {
        Self { name, numbers: number.into_iter().collect(), text: String::new() }
    }
}

/// The findings of a check, and how much it read.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// The passes that ran.
    pub passes: Vec<&'static str>,
    /// The number of findings of each code, including those that `findings` leaves out.
    pub counts: Vec<(Meaning, u64)>,
    /// The findings in detail; of a code with very many, only the first ones.
    pub findings: Vec<Finding>,
    /// Remarks that are no errors: parts that were not checked, or facts worth knowing.
    pub notes: Vec<String>,
    /// Heading for `notes` in a report for people, such as `Not looked at`.
    pub note_word: &'static str,
    /// Inodes that were checked.
    pub inodes: u64,
    /// Bytes that were read from the devices.
    pub bytes: u64,
}

impl CheckReport {
    /// The report of a format's check; `place` takes a place apart into its path and its numbers.
    pub fn of<C: CodeTable, P>(
        format: &'static str,
        report: Report<C, P, C::Pass>,
        note_word: &'static str,
        place: impl Fn(P) -> (Option<String>, Vec<PlacePart>),
    ) -> Self {
        let findings = report.findings.into_iter().map(|finding| {
            let (path, place) = place(finding.place);
            let (about, pass) = finding.code.info().map_or(("", ""), |info| (info.what, info.pass.id()));
            let (what, expected, found) = (finding.what, finding.expected, finding.found);
            Finding { code: finding.code.id(), pass, about, what, path, place, expected, found }
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

    /// True when nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.counts.is_empty()
    }

    /// How many findings there were.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }
}

/// All passes of a format.
pub fn passes<S: PassTable>(format: &'static str) -> impl Iterator<Item = PassRow> {
    S::all().iter().map(move |info| PassRow {
        format,
        id: info.id,
        about: info.about,
        needs: info.needs.iter().map(|pass| pass.id()).collect(),
    })
}

/// All codes of a format.
pub fn codes<C: CodeTable>(format: &'static str) -> impl Iterator<Item = Meaning> {
    C::all().iter().map(move |info| meaning(format, info))
}

fn meaning<C: CodeTable>(format: &'static str, info: &CodeInfo<C, C::Pass>) -> Meaning {
    let CodeInfo { id, pass, what, means, advice, .. } = *info;
    Meaning { format, code: id, pass: pass.id(), what, means, advice }
}
