//! README, COMPAT and SHORTCOMINGS denied commands that exist.

use std::path::Path;

use crate::harness::Bench;

/// Names of all commands, as the help groups them: the words before the second column.
fn commands() -> Vec<String> {
    let help = Bench::new().ok("--help");
    let rows = help.lines().filter(|line| line.starts_with("  ") && !line.trim_start().starts_with(['-', 's']));
    let with_s = help.lines().filter(|line| line.starts_with("  s") && !line.starts_with("  spinney "));
    let names = rows.chain(with_s).filter_map(|line| line.trim_start().split("  ").next());
    names.flat_map(|names| names.split(", ")).map(ToOwned::to_owned).collect()
}

/// True for words of denial.
fn denies(text: &str) -> bool {
    let text = text.trim().to_lowercase();
    text == "no" || text == "-" || text.contains("not yet") || text.contains("not implemented")
}

#[test]
fn no_document_denies_a_command_that_there_is() {
    let commands = commands();
    assert!(commands.iter().any(|name| name == "scrub") && commands.len() > 35, "{commands:?}");
    for name in ["README.md", "COMPAT.md", "SHORTCOMINGS.md"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
        let text = std::fs::read_to_string(path).unwrap();
        for line in text.lines() {
            let words = |text: &str| -> Vec<String> {
                text.to_lowercase().split(|c: char| !c.is_alphanumeric() && c != '-').map(ToOwned::to_owned).collect()
            };
            let found = match line.strip_prefix('|') {
                // A row of a table: the feature, and Spinney's column.
                Some(row) => {
                    let cells: Vec<&str> = row.split('|').collect();
                    let is_denied = cells.get(1).is_some_and(|cell| denies(cell));
                    words(if is_denied { cells[0] } else { "" })
                }
                None if line.to_lowercase().contains("not yet") => words(line),
                None => Vec::new(),
            };
            for command in &commands {
                assert!(!found.contains(command), "{name} denies `{command}`: {line}");
            }
        }
    }
}
