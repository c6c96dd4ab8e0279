//! Reads the changes of a fork from the server's report, and prints them with sizes. Called by `run`.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::btrfs::fork;
use crate::commands::human;
use crate::commands::names;
use crate::commands::on_mount::OnMount;

/// Most lines that are printed; `spinney fork status` prints all.
const LINES_MAX: usize = 100;

/// The report of `fork status`.
pub(super) struct Changes(Vec<Line>);

/// A change of one name, or of contents.
struct Line {
    mark: char,
    text: String,
    bytes: Option<u64>,
}

#[derive(Deserialize)]
struct Row {
    kind: String,
    path: String,
    data: Vec<(u64, u64)>,
    size: Option<(u64, u64)>,
    metadata: bool,
    names: Vec<Names>,
}

#[derive(Deserialize)]
struct Names {
    old: Option<Name>,
    new: Option<Name>,
}

#[derive(Deserialize)]
struct Name {
    path: String,
}

/// Reads the changes of the fork at `path` of the mount, which is the directory `dir` on this machine.
pub(super) fn of(mount: &OnMount, path: &Path, dir: &Path) -> Result<Changes> {
    let words = ["status", "--json", "--", fork::IMAGE, &mount.name(path)?].map(str::to_owned).to_vec();
    let report = mount.report(fork::JOB, words)?;
    let rows: Vec<Row> = serde_json::from_slice(&report).context("the report of the server")?;
    let mut lines: Vec<Line> = rows.iter().flat_map(|row| lines(row, dir)).collect();
    join_replaced(&mut lines);
    Ok(Changes(lines))
}

/// Merges the removal and new creation of a file with the same name into one change of contents.
fn join_replaced(lines: &mut Vec<Line>) {
    let removed: BTreeSet<String> =
        lines.iter().filter(|line| line.mark == '-').map(|line| line.text.clone()).collect();
    let mut replaced = BTreeSet::new();
    for line in lines.iter_mut().filter(|line| line.mark == '+' && removed.contains(&line.text)) {
        line.mark = 'M';
        replaced.insert(line.text.clone());
    }
    lines.retain(|line| line.mark != '-' || !replaced.contains(&line.text));
}

fn lines(row: &Row, dir: &Path) -> Vec<Line> {
    let size = |path: &str| {
        let found = std::fs::symlink_metadata(dir.join(path)).ok()?;
        found.is_file().then_some(found.len())
    };
    let mut lines: Vec<Line> = row
        .names
        .iter()
        .filter_map(|names| match (&names.old, &names.new) {
            (None, Some(new)) => Some(Line { mark: '+', text: new.path.clone(), bytes: size(&new.path) }),
            (Some(old), None) => Some(Line { mark: '-', text: old.path.clone(), bytes: None }),
            (Some(old), Some(new)) => {
                Some(Line { mark: 'R', text: format!("{} -> {}", old.path, new.path), bytes: None })
            }
            (None, None) => None,
        })
        .collect();
    if !row.data.is_empty() || row.size.is_some() {
        let bytes = row.data.iter().map(|(_, len)| len).sum();
        lines.push(Line { mark: 'M', text: row.path.clone(), bytes: Some(bytes) });
    } else if row.metadata && !(row.kind == "directory" && row.path.is_empty()) {
        lines.push(Line { mark: 'm', text: row.path.clone(), bytes: None });
    }
    lines
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Prints the changes to standard error: standard output belongs to the command.
    pub(super) fn print(&self) {
        for line in self.0.iter().take(LINES_MAX) {
            let size = line.bytes.map(|bytes| format!("  {}", human::bytes(bytes))).unwrap_or_default();
            eprintln!("{} {}{size}", line.mark, names::escaped_text(&line.text));
        }
        let all = self.0.len();
        if all > LINES_MAX {
            eprintln!("... and {} more", all - LINES_MAX);
        }
        let bytes = self.0.iter().filter_map(|line| line.bytes).fold(0_u64, u64::saturating_add);
        let count = human::count(u64::try_from(all).unwrap_or(u64::MAX), "change", "changes");
        eprintln!("spinney: {count}, {}", human::bytes(bytes));
    }
}
