//! Writes statistics of the server's locks at the end of a mount that asked for them (`-o lock_statistics=FILE`, in
//! builds with the feature `lock-statistics`). Caller: `server`.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context as _, Result};
use spinney::host::statistics::{JSON_BEGINS, MARKDOWN_BEGINS, json, markdown, measure, rows};

use crate::commands::output::replace;

struct Table {
    file: File,
    is_json: bool,
}

static TABLE: OnceLock<Table> = OnceLock::new();

/// Measures locks of these classes from now on, or all if none are given. The file is created, or emptied if it has
/// such a table: JSON if its name ends so, else Markdown.
///
/// # Errors
/// If the file cannot be written, or has other contents.
pub(super) fn begin(path: &Path, classes: &[String]) -> Result<()> {
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    let file = replace(path, if is_json { JSON_BEGINS } else { MARKDOWN_BEGINS }.as_bytes())?;
    // A process serves one mount.
    let _ = TABLE.set(Table { file, is_json });
    measure(&classes.iter().map(String::as_str).collect::<Vec<_>>());
    Ok(())
}

/// Writes the table, if one was requested.
///
/// # Errors
/// If it cannot be written.
pub(super) fn finish() -> Result<()> {
    let Some(Table { file, is_json }) = TABLE.get() else { return Ok(()) };
    let rows = rows();
    let text = if *is_json { json(&rows) } else { markdown(&rows) };
    (&*file).write_all(text.as_bytes()).context("the table of locks is incomplete")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_written_where_one_was_and_nowhere_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let (table, other) = (dir.path().join("locks.json"), dir.path().join("notes.json"));
        std::fs::write(&table, format!("{JSON_BEGINS}]}}\n and more")).expect("written");
        std::fs::write(&other, "my notes").expect("written");
        assert!(begin(&other, &[]).is_err());
        begin(&table, &["no such class".to_owned()]).expect("a table is replaced");
        finish().expect("written");
        assert_eq!(std::fs::read_to_string(&table).expect("read"), "{\"locks\":[]}\n");
        assert_eq!(std::fs::read_to_string(&other).expect("read"), "my notes");
    }
}
