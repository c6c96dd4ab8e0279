//! Runs the conformance suite of every [`FileSystem`], as named cases.
//!
//! [`run`] gives each case a fresh, empty, writable file system of at least 200 MiB whose access times are updated as
//! by `relatime`, and reports expected and found results. The expectations are those of a local file system on Linux,
//! determined there; where formats may differ (as in the size of a directory), no case tests it.
//!
//! Cases call as root, so permission bits decide nothing, as the trait says. They write without opening where the
//! opening does not matter: a server may do the same.
//!
//! Nothing here panics: a case that does, because the file system did, has failed. Callers: the tests of every
//! implementation.

mod acls;
mod attributes;
mod case;
mod concurrency;
mod contents;
mod copying;
mod creation;
mod errno_calls;
mod flags;
mod links;
mod listing;
mod names;
mod outcome;
mod privileges;
mod random;
mod removal;
mod rename;
mod rename_flags;
mod report;
mod sparse;
mod subject;
mod times;
mod unlinked;
mod xattrs;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use vfs::file_system::FileSystem;

use case::Case;
use outcome::{Mismatch, Outcome};
pub use report::{Failure, Report};
use subject::Subject;

const GROUPS: &[&[Case]] = &[
    names::CASES,
    creation::CASES,
    links::CASES,
    removal::CASES,
    rename::CASES,
    rename_flags::CASES,
    unlinked::CASES,
    listing::CASES,
    contents::CASES,
    sparse::CASES,
    copying::CASES,
    attributes::CASES,
    times::CASES,
    xattrs::CASES,
    acls::CASES,
    flags::CASES,
    privileges::CASES,
    concurrency::CASES,
];

/// Runs every case, each on a file system of its own.
pub fn run(make: &dyn Fn() -> Arc<dyn FileSystem>) -> Report {
    let mut report = Report::default();
    for case in GROUPS.iter().copied().flatten() {
        report.note(case.name, run_case(make, case));
    }
    report
}

fn run_case(make: &dyn Fn() -> Arc<dyn FileSystem>, case: &Case) -> Outcome {
    let attempt = catch_unwind(AssertUnwindSafe(|| (case.run)(&Subject::new(make()))));
    attempt.unwrap_or_else(|_| Err(Mismatch::new("the case", "an end", "a panic")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryFs;

    #[test]
    fn the_model_conforms() {
        let report = run(&|| Arc::new(MemoryFs::default()));
        assert!(report.is_ok(), "{report}");
        assert!(report.case_count() >= 120, "{report}");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = GROUPS.iter().copied().flatten().map(|c| c.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
