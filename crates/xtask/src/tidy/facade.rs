//! Checks that the examples of the library name `spinney` and no other crate of ours, as a user's program does. Called
//! by `tidy::run`.

use super::Problem;
use super::source::TextFile;
use std::collections::BTreeSet;

const EXAMPLES: &str = "crates/spinney/examples/";

/// Fails on the name of another crate in an example. `crates` are the names of the folders.
pub(super) fn check(files: &[TextFile], crates: &BTreeSet<&str>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with(EXAMPLES)) {
        for (number, line) in (1..).zip(file.text.lines()) {
            let others = crates.iter().filter(|name| **name != "spinney").map(|name| name.replace('-', "_"));
            for name in others.filter(|name| names(line, name)) {
                let text = format!("names the crate `{name}`: an example needs `spinney` alone");
                problems.push(Problem { path: file.path.clone(), line: number, text });
            }
        }
    }
    problems
}

/// True where a path begins with the crate.
fn names(line: &str, name: &str) -> bool {
    let path = format!("{name}::");
    line.match_indices(&path).any(|(at, _)| {
        let before = line.get(..at).unwrap_or_default();
        !before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_that_names_a_part_is_refused() {
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let files = [
            file(
                "crates/spinney/examples/a.rs",
                "use spinney::btrfs::Volume;\nuse btrfs_disk::Key;\nlet a: vfs::Errno;",
            ),
            file("crates/cli/src/a.rs", "use vfs::Errno;"),
        ];
        let problems = check(&files, &BTreeSet::from(["spinney", "btrfs", "btrfs-disk", "vfs"]));
        assert_eq!(problems.iter().map(|problem| problem.line).collect::<Vec<_>>(), [2, 3], "{problems:?}");
    }
}
