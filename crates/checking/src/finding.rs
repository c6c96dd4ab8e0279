//! What a check finds, and how much of it is kept.

use std::collections::BTreeMap;

/// Findings of one code that are kept; of the others the number is.
const KEPT_PER_CODE: usize = 200;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<C, P> {
    /// What kind of thing.
    pub code: C,
    /// What exactly, where the code stands for several things.
    pub what: String,
    /// Where.
    pub place: P,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// What a check found.
#[derive(Clone, Debug)]
pub struct Report<C, P, S> {
    /// Findings by code; of each code a bounded number.
    pub findings: Vec<Finding<C, P>>,
    /// How many there were of each code.
    pub counts: Vec<(C, u64)>,
    /// The passes that ran.
    pub passes: Vec<S>,
    /// What was not looked at, and why; what is no error and worth knowing.
    pub notes: Vec<String>,
    /// Inodes that were looked at.
    pub inodes: u64,
    /// Bytes that were read.
    pub bytes: u64,
}

impl<C, P, S> Default for Report<C, P, S> {
    fn default() -> Self {
        Self { findings: Vec::new(), counts: Vec::new(), passes: Vec::new(), notes: Vec::new(), inodes: 0, bytes: 0 }
    }
}

/// Collects findings.
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
    /// Adds one that names what it is about.
    pub fn add(&mut self, code: C, what: impl Into<String>, place: P, expected: impl ToString, found: impl ToString) {
        let kept = self.0.entry(code).or_insert_with(|| Kept { count: 0, findings: Vec::new() });
        kept.count = kept.count.saturating_add(1);
        if kept.findings.len() < KEPT_PER_CODE {
            let (expected, found) = (expected.to_string(), found.to_string());
            kept.findings.push(Finding { code, what: what.into(), place, expected, found });
        }
    }

    /// A report with all that were kept, by code, and the number of each code.
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
