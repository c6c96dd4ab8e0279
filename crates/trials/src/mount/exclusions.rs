//! Reads the tests of the suites that are left out, with the reasons, from a table in `docs/mount-exclusions.md`.
//! Called by `checks` and `xfstests`.

use crate::formats::Kind;
use anyhow::{Context, Result};
use std::path::Path;

/// The file with the table.
const FILE: &str = "docs/mount-exclusions.md";

/// A row: suite, test, reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exclusion {
    /// Name of the suite's script without its ending; `NAME (MODE)` for one mode only, `NAME (FORMAT)` for one format.
    pub(super) suite: String,
    /// Name of the test in the suite.
    pub(super) test: String,
}

impl Exclusion {
    /// True if it concerns a suite in a mode on a format.
    pub(super) fn is_of(&self, suite: &str, mode: &str, kind: Kind) -> bool {
        match self.suite.strip_prefix(suite) {
            Some("") => true,
            Some(rest) => rest == format!(" ({mode})") || rest == format!(" ({})", kind.name()),
            None => false,
        }
    }
}

/// All rows of the table.
pub(super) fn read(root: &Path) -> Result<Vec<Exclusion>> {
    let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
    Ok(parse(&text))
}

/// `| suite | test | reason |`; a row without a reason does not count.
fn parse(text: &str) -> Vec<Exclusion> {
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        match cells.as_slice() {
            [suite, test, reason] if !reason.is_empty() && !suite.starts_with('-') => {
                Some(Exclusion { suite: (*suite).to_owned(), test: test.trim_matches('`').to_owned() })
            }
            _ => None,
        }
    });
    rows.filter(|row| row.suite != "suite").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_concerns_all_modes_and_formats_or_one() {
        let of = |suite: &str| Exclusion { suite: suite.to_owned(), test: String::new() };
        assert!(of("tree").is_of("tree", "default", Kind::F2fs));
        assert!(of("tree (default)").is_of("tree", "default", Kind::F2fs));
        assert!(!of("tree (btrfs)").is_of("tree", "default", Kind::F2fs));
        assert!(of("tree (f2fs)").is_of("tree", "writeback", Kind::F2fs));
        assert!(!of("trees").is_of("tree", "default", Kind::Btrfs));
    }

    #[test]
    fn rows_with_a_reason_count() {
        let text = "# Title\n| suite | test | reason |\n|---|---|---|\n\
            | pjdfstest | `a::b` | because |\n| fsx | copy | |\n";
        let wanted = Exclusion { suite: "pjdfstest".to_owned(), test: "a::b".to_owned() };
        assert_eq!(parse(text), [wanted]);
    }
}
