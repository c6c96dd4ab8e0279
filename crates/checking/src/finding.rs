//! Collects the findings of a check, with a bounded number kept per code. Each checker wraps [`Collection`].

use std::collections::BTreeMap;

/// Findings kept per code; further ones are only counted.
const KEPT_PER_CODE: usize = 200;

/// A defect found in the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<C, P> {
    /// Its code.
    pub code: C,
    /// The exact object, if the code covers several.
    pub what: String,
    /// Its place.
    pub place: P,
    /// The expected value.
    pub expected: String,
    /// The value found.
    pub found: String,
}

/// Results of a check.
#[derive(Clone, Debug)]
pub struct Report<C, P, S> {
    /// Findings by code, a bounded number of each.
    pub findings: Vec<Finding<C, P>>,
    /// Number of findings of each code.
    pub counts: Vec<(C, u64)>,
    /// The passes that ran.
    pub passes: Vec<S>,
    /// Remarks: passes or objects that were skipped and why, and facts that are not errors.
    pub notes: Vec<String>,
    /// Inodes checked.
    pub inodes: u64,
    /// Bytes read.
    pub bytes: u64,
}

impl<C, P, S> Default for Report<C, P, S> {
    fn default() -> Self {
        Self { findings: Vec::new(), counts: Vec::new(), passes: Vec::new(), notes: Vec::new(), inodes: 0, bytes: 0 }
    }
}

/// Collects findings by code.
#[derive(Debug)]
pub struct Collection<C, P>(BTreeMap<C, Kept<C, P>>);

#[derive(Debug)]
struct Kept<C, P> {
    count: u64,
    findings: Vec<Finding<C, P>>,
}

impl<C, P> Default for Collection<C, P> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<C: Copy + Ord, P> Collection<C, P> {
    /// Adds a finding about a named object.
    pub fn add(&mut self, code: C, what: impl Into<String>, place: P, expected: impl ToString, found: impl ToString) {
        let kept = self.0.entry(code).or_insert_with(|| Kept { count: 0, findings: Vec::new() });
        kept.count = kept.count.saturating_add(1);
        if kept.findings.len() < KEPT_PER_CODE {
            let (expected, found) = (expected.to_string(), found.to_string());
            kept.findings.push(Finding { code, what: what.into(), place, expected, found });
        }
    }

    /// Turns the collection into a report: kept findings by code, and the number of each code.
    #[must_use]
    pub fn report<S>(self, passes: Vec<S>) -> Report<C, P, S> {
        let counts = self.0.iter().map(|(code, kept)| (*code, kept.count)).collect();
        let findings = self.0.into_values().flat_map(|kept| kept.findings).collect();
        Report { findings, counts, passes, ..Report::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_findings_some_are_kept_and_all_are_counted() {
        let mut all = Collection::default();
        for place in 0..1000 {
            all.add('b', "", place, "this", "that");
        }
        all.add('a', "of something", 7, 1, 2);
        let report: Report<char, usize, ()> = all.report(Vec::new());
        assert_eq!(report.counts, [('a', 1), ('b', 1000)]);
        assert_eq!(report.findings.len(), KEPT_PER_CODE + 1);
        let first = report.findings.first().map(|found| (found.place, found.expected.as_str(), found.found.as_str()));
        assert_eq!(first, Some((7, "1", "2")));
    }
}
