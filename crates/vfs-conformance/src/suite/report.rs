//! Collects the results of a run of the suite. `suite::run` fills it; the tests of implementations print it.

use std::fmt;

use super::outcome::Outcome;

/// Outcome of every case that was run.
#[derive(Debug, Clone, Default)]
pub struct Report {
    passed: Vec<&'static str>,
    failures: Vec<Failure>,
}

/// A case that went otherwise than it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Name of the case: group and case, `rename::over_a_file`.
    pub case: &'static str,
    /// The compared value.
    pub what: String,
    /// The expected value.
    pub expected: String,
    /// The found value.
    pub found: String,
}

impl Report {
    /// True when no case failed.
    #[must_use]
    pub const fn is_ok(&self) -> bool {
        self.failures.is_empty()
    }

    /// Count of cases that were run.
    #[must_use]
    pub const fn case_count(&self) -> usize {
        self.passed.len() + self.failures.len()
    }

    /// Names of the cases that went well.
    #[must_use]
    pub fn passed(&self) -> &[&'static str] {
        &self.passed
    }

    /// The cases that did not.
    #[must_use]
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    pub(super) fn note(&mut self, case: &'static str, outcome: Outcome) {
        match outcome {
            Ok(()) => self.passed.push(case),
            Err(mismatch) => self.failures.push(Failure {
                case,
                what: mismatch.what,
                expected: mismatch.expected,
                found: mismatch.found,
            }),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, count) = (self.failures.len(), self.case_count());
        writeln!(f, "{failed} of {count} cases failed")?;
        self.failures.iter().try_for_each(|failure| writeln!(f, "{failure}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, what, expected, found } = self;
        write!(f, "{case}: {what}: expected {expected}, found {found}")
    }
}
