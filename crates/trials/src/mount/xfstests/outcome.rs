//! Parses the outcomes of tests from the output of `check`. Called by `run`.
//!
//! A test passed if its line has only its duration. Any unexpected line is a failure, and the summary at the end must
//! name the same failures: a failure mistaken for a success is worse than none.

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Most lines that are kept of the output of a failed test.
const SHOWN_LINES: usize = 14;

/// The outcome of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// The suite left it out, with the reason.
    NotRun(String),
    /// Its output.
    Failed(String),
    /// It exceeded its time limit.
    Hung,
}

impl Outcome {
    pub(super) fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Hung)
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::NotRun(_) => "not run",
            Self::Failed(_) => "failed",
            Self::Hung => "hung",
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::NotRun(text) | Self::Failed(text) => text,
            Self::Passed | Self::Hung => "",
        }
    }
}

/// Outcomes by the name of the test.
pub(super) type Outcomes = BTreeMap<String, Outcome>;

/// The tests of an output, and the one that was running when it ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) outcomes: Outcomes,
    pub(super) running: Option<String>,
}

/// The test that is running after this much output.
pub(super) fn running(text: &str) -> Option<&str> {
    let last = text.split('\n').next_back()?;
    test_of(last).map(|(name, _)| name)
}

/// Parses the output of a finished suite.
///
/// # Errors
/// The summary contradicts the lines.
pub(super) fn parse(text: &str) -> Result<Report> {
    let running = running(text).map(str::to_owned);
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let mut blocks: Vec<(String, Vec<&str>)> = Vec::new();
    let mut summary: Option<Summary> = None;
    for line in whole.lines() {
        if let Some(names) = line.strip_prefix("Ran: ") {
            summary = Some(Summary::new(names));
        } else if let Some(summary) = &mut summary {
            summary.read(line);
        } else if let Some((name, rest)) = test_of(line) {
            blocks.push((name.to_owned(), vec![rest]));
        } else if let Some((_, lines)) = blocks.last_mut() {
            lines.push(line);
        }
    }
    let outcomes: Outcomes = blocks.into_iter().map(|(name, lines)| (name, outcome_of(&lines))).collect();
    if let Some(summary) = summary {
        summary.compare(&outcomes)?;
    }
    Ok(Report { outcomes, running })
}

/// `generic/001 ...`: the name, and the rest of the line.
fn test_of(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.split_at(line.find(char::is_whitespace).unwrap_or(line.len()));
    let (group, number) = name.split_once('/')?;
    let is_test = !group.is_empty()
        && group.bytes().all(|byte| byte.is_ascii_lowercase())
        && number.len() >= 3
        && number.bytes().all(|byte| byte.is_ascii_digit());
    is_test.then_some((name, rest.trim()))
}

fn outcome_of(lines: &[&str]) -> Outcome {
    let first = lines.first().copied().unwrap_or_default();
    if let Some(reason) = first.strip_prefix("[not run]") {
        return Outcome::NotRun(reason.trim().to_owned());
    }
    if first == "[expunged]" {
        return Outcome::NotRun("expunged".to_owned());
    }
    let is_quiet = lines.iter().skip(1).all(|line| line.trim().is_empty());
    if is_quiet && is_duration(first) {
        return Outcome::Passed;
    }
    let mut kept: Vec<&str> = lines.iter().take(SHOWN_LINES).copied().collect();
    while kept.last().is_some_and(|line| line.trim().is_empty()) {
        kept.pop();
    }
    Outcome::Failed(kept.join("\n"))
}

/// `4s`, or with the time of the last run `3s ...  4s`.
fn is_duration(text: &str) -> bool {
    let is_seconds = |word: &str| {
        word.strip_suffix('s')
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    match text.split_whitespace().collect::<Vec<_>>().as_slice() {
        [now] => is_seconds(now),
        [before, "...", now] => is_seconds(before) && is_seconds(now),
        _ => false,
    }
}

/// The counts at the end of `check`.
#[derive(Debug, Default)]
struct Summary {
    ran: BTreeSet<String>,
    not_run: BTreeSet<String>,
    failed: BTreeSet<String>,
    all_passed: bool,
}

impl Summary {
    fn new(ran: &str) -> Self {
        Self { ran: words(ran), ..Self::default() }
    }

    fn read(&mut self, line: &str) {
        if let Some(names) = line.strip_prefix("Not run: ") {
            self.not_run = words(names);
        } else if let Some(names) = line.strip_prefix("Failures: ") {
            self.failed = words(names);
        } else if line.starts_with("Passed all ") {
            self.all_passed = true;
        }
    }

    fn compare(&self, outcomes: &Outcomes) -> Result<()> {
        ensure!(self.all_passed == self.failed.is_empty(), "the summary lacks its last lines");
        let named = |wanted: fn(&Outcome) -> bool| -> BTreeSet<String> {
            let rows = outcomes.iter().filter(|(_, outcome)| wanted(outcome));
            rows.map(|(name, _)| name.clone()).collect()
        };
        let failed = named(Outcome::is_failure);
        let not_run = named(|outcome| matches!(outcome, Outcome::NotRun(_)));
        let passed = named(|outcome| *outcome == Outcome::Passed);
        let has_passed = |name: &String| !self.failed.contains(name) && !self.not_run.contains(name);
        let summed: BTreeSet<String> = self.ran.iter().filter(|name| has_passed(name)).cloned().collect();
        if failed != self.failed || !self.not_run.is_subset(&not_run) || passed != summed {
            bail!(
                "the summary says failed {:?}, not run {:?}; the lines say failed {failed:?}, not run {not_run:?}",
                self.failed,
                self.not_run
            );
        }
        Ok(())
    }
}

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Outcomes as JSON: `{"generic/001": {"outcome": "failed", "text": "..."}}`.
pub(super) fn to_json(outcomes: &Outcomes) -> Value {
    let rows = outcomes.iter().map(|(name, outcome)| {
        let row = json!({"outcome": outcome.name(), "text": outcome.text()});
        (name.clone(), row)
    });
    Value::Object(rows.collect())
}

/// Reverses [`to_json`].
///
/// # Errors
/// The value was not made by [`to_json`].
pub(super) fn from_json(value: &Value) -> Result<Outcomes> {
    let Some(rows) = value.as_object() else {
        bail!("outcomes are an object of tests");
    };
    let rows = rows.iter().map(|(name, row)| {
        let text = row["text"].as_str().unwrap_or_default().to_owned();
        let outcome = match row["outcome"].as_str() {
            Some("passed") => Outcome::Passed,
            Some("not run") => Outcome::NotRun(text),
            Some("failed") => Outcome::Failed(text),
            Some("hung") => Outcome::Hung,
            other => bail!("{name}: unknown outcome {other:?}"),
        };
        Ok((name.clone(), outcome))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "FSTYP         -- fuse\nMOUNT_OPTIONS -- -o a /x/generic/001 b\n\n";

    fn outcome(rest: &str) -> Outcome {
        let text = format!("{HEAD}generic/003       {rest}");
        let mut report = parse(&text).unwrap();
        assert_eq!(report.outcomes.len(), 1, "{text}");
        report.outcomes.remove("generic/003").unwrap()
    }

    #[test]
    fn only_a_line_with_its_time_alone_is_a_success() {
        for good in [" 4s\n", " 3s ...  12s\n", " 0s\n\n"] {
            assert_eq!(outcome(good), Outcome::Passed, "{good}");
        }
        for bad in [
            "\n",
            "- output mismatch (see /r/generic/003.out.bad)\n    --- a\n    +++ b\n",
            "[failed, exit status 1]\n",
            "[failed, exit status 1]- output mismatch (see x)\n",
            " 3s ... [failed, exit status 1] 4s\n",
            " 3s ... \n",
            "[dumped core] 4s\n",
            "_check_dmesg: something found in dmesg (see x)\n\n",
            " 4s\n_check_generic_filesystem: filesystem on x is inconsistent\n",
            "no qualified output\n",
            " - no such test?\n",
            "s\n",
        ] {
            assert!(outcome(bad).is_failure(), "{bad}");
        }
    }

    #[test]
    fn what_is_not_run_says_why() {
        let reason = "xfs_io fiemap  failed (old kernel/wrong fs?)";
        let wanted = Outcome::NotRun(reason.to_owned());
        assert_eq!(outcome(&format!("[not run] {reason}\n")), wanted);
        assert!(matches!(outcome("       [expunged]\n"), Outcome::NotRun(_)));
    }

    #[test]
    fn the_running_test_is_the_line_that_has_no_end() {
        let report = parse(&format!("{HEAD}generic/001   4s\ngeneric/1002   3s ... ")).unwrap();
        assert_eq!(report.running.as_deref(), Some("generic/1002"));
        assert_eq!(report.outcomes.len(), 1);
        assert_eq!(running("generic/001   4s\n"), None);
        assert_eq!(running("generic/001   "), Some("generic/001"));
        assert_eq!(parse(HEAD).unwrap(), Report::default());
    }

    #[test]
    fn details_belong_to_the_test_above_them() {
        let text = "generic/001  - output mismatch (see y)\n    -a\n    +b\ngeneric/002   1s\n";
        let report = parse(text).unwrap();
        let Outcome::Failed(said) = &report.outcomes["generic/001"] else {
            panic!("{report:?}");
        };
        assert!(said.contains("+b"), "{said}");
        assert_eq!(report.outcomes["generic/002"], Outcome::Passed);
    }

    #[test]
    fn a_summary_has_to_agree() {
        let lines = "generic/001   1s\ngeneric/002  [not run] why\ngeneric/003  - output mismatch\n    -a\n";
        let good = "Ran: generic/001 generic/002 generic/003\nNot run: generic/002\n\
            Failures: generic/003\nFailed 1 of 3 tests\n";
        assert_eq!(parse(&format!("{lines}{good}")).unwrap().outcomes.len(), 3);
        for bad in [
            "Ran: generic/001 generic/002 generic/003\nNot run: generic/002\nPassed all 3 tests\n",
            "Ran: generic/001 generic/002 generic/003\nNot run: generic/002\n\
                Failures: generic/001 generic/003\nFailed 2 of 3 tests\n",
            "Ran: generic/001 generic/003\nNot run: generic/001\nFailures: generic/003\n",
            "Ran: generic/001 generic/002 generic/003 generic/004\nNot run: generic/002\n\
                Failures: generic/003\n",
            "Ran: generic/001 generic/002 generic/003\n",
        ] {
            assert!(parse(&format!("{lines}{bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn outcomes_survive_a_file() {
        let all = [
            ("generic/001", Outcome::Passed),
            ("generic/002", Outcome::NotRun("why".to_owned())),
            ("generic/003", Outcome::Failed("- output mismatch\n    -a".to_owned())),
            ("generic/004", Outcome::Hung),
        ];
        let all: Outcomes = all.map(|(name, outcome)| (name.to_owned(), outcome)).into();
        assert_eq!(from_json(&to_json(&all)).unwrap(), all);
        assert!(from_json(&json!({"generic/001": {"outcome": "fine"}})).is_err());
    }
}
