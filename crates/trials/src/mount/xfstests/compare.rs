//! Finds the failures to blame on Spinney: those that no other system has and that no exclusion explains. Called by
//! `xfstests`.

use super::outcome::{Outcome, Outcomes};
use std::collections::BTreeMap;

/// Outcomes of each system by its name.
pub(super) type Table = BTreeMap<String, Outcomes>;

/// The judged system.
pub(super) const OURS: &str = "spinney";

/// The verdict on a failure of Spinney.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The table of exclusions has a reason.
    Excluded,
    /// These systems fail, too.
    Shared(Vec<String>),
    /// No other system fails.
    Ours,
}

/// The failures of Spinney by test.
pub(super) fn judge(table: &Table, is_excluded: impl Fn(&str) -> bool) -> BTreeMap<String, Verdict> {
    let ours = table.get(OURS).into_iter().flatten();
    let failures = ours.filter(|(_, outcome)| outcome.is_failure());
    let verdicts = failures.map(|(test, _)| {
        let others: Vec<String> = table
            .iter()
            .filter(|(system, outcomes)| *system != OURS && outcomes.get(test).is_some_and(Outcome::is_failure))
            .map(|(system, _)| system.clone())
            .collect();
        let verdict = if !others.is_empty() {
            Verdict::Shared(others)
        } else if is_excluded(test) {
            Verdict::Excluded
        } else {
            Verdict::Ours
        };
        (test.clone(), verdict)
    });
    verdicts.collect()
}

/// `passed 3, not run 1, failed 2, hung 0`.
pub(super) fn counts(outcomes: &Outcomes) -> String {
    let names = ["passed", "not run", "failed", "hung"];
    let parts = names.map(|name| {
        let count = outcomes.values().filter(|outcome| outcome.name() == name).count();
        format!("{count} {name}")
    });
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(rows: &[(&str, Outcome)]) -> Outcomes {
        let rows = rows.iter().map(|(name, outcome)| ((*name).to_owned(), outcome.clone()));
        rows.collect()
    }

    #[test]
    fn a_failure_is_ours_unless_another_system_has_it_or_a_reason_stands_there() {
        let failed = || Outcome::Failed("x".to_owned());
        let left_out = || Outcome::NotRun("x".to_owned());
        let table = Table::from([
            (
                OURS.to_owned(),
                outcomes(&[
                    ("generic/001", failed()),
                    ("generic/002", Outcome::Hung),
                    ("generic/003", failed()),
                    ("generic/004", failed()),
                    ("generic/005", failed()),
                    ("generic/006", Outcome::Passed),
                ]),
            ),
            (
                "btrfs".to_owned(),
                outcomes(&[
                    ("generic/001", Outcome::Passed),
                    ("generic/002", left_out()),
                    ("generic/003", failed()),
                    ("generic/006", failed()),
                ]),
            ),
            ("passthrough".to_owned(), outcomes(&[("generic/004", Outcome::Hung)])),
        ]);
        let verdicts = judge(&table, |test| test == "generic/005");
        let wanted = [
            ("generic/001", Verdict::Ours),
            ("generic/002", Verdict::Ours),
            ("generic/003", Verdict::Shared(vec!["btrfs".to_owned()])),
            ("generic/004", Verdict::Shared(vec!["passthrough".to_owned()])),
            ("generic/005", Verdict::Excluded),
        ];
        let wanted = wanted.map(|(test, verdict)| (test.to_owned(), verdict));
        assert_eq!(verdicts, BTreeMap::from(wanted));
    }
}
