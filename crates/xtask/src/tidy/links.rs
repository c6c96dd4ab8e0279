//! Checks that links between documents lead to files that are there, and that the summary of the guide has each of its
//! pages. Called by `tidy`.

use std::path::{Component, Path, PathBuf};

use super::Problem;
use super::source::TextFile;

/// The list of the guide's pages.
const SUMMARY: &str = "docs/guide/src/SUMMARY.md";
/// The folder of the guide's pages.
const GUIDE: &str = "docs/guide/src/";

/// Checks the documents.
pub(super) fn check(root: &Path, texts: &[TextFile]) -> Vec<Problem> {
    let documents = || texts.iter().filter(|file| file.path.ends_with(".md"));
    let mut problems = Vec::new();
    for file in documents() {
        for (number, target) in links(&file.text) {
            let path = resolved(&file.path, &target);
            if !path.as_ref().is_some_and(|path| root.join(path).exists()) {
                let text = format!("a link leads to `{target}`, which is not there");
                problems.push(Problem { path: file.path.clone(), line: number, text });
            }
        }
    }
    let listed: Vec<PathBuf> = documents()
        .filter(|file| file.path == SUMMARY)
        .flat_map(|file| links(&file.text))
        .filter_map(|(_, target)| resolved(SUMMARY, &target))
        .collect();
    for file in documents().filter(|file| file.path.starts_with(GUIDE) && file.path != SUMMARY) {
        if !listed.contains(&PathBuf::from(&file.path)) {
            let text = format!("{SUMMARY} does not list this page");
            problems.push(Problem { path: file.path.clone(), line: 0, text });
        }
    }
    problems
}

/// The links to files of the project, by their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        is_code ^= line.trim_start().starts_with("```");
        let quoted = line.split('`').step_by(2).collect::<String>();
        for part in quoted.split("](").skip(1).filter(|_| !is_code) {
            let target = part.split([')', '#']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((number, target.to_owned()));
            }
        }
    }
    found
}

/// The path from the root of the project that a link of a file leads to.
fn resolved(file: &str, target: &str) -> Option<PathBuf> {
    let mut path = Path::new(file).parent()?.to_owned();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code() {
        let text = "see [a](b.md#c) and [d](https://e.f)\n```\n[no](no.md)\n```\n`[no](no.md)` [e](../g.md)\n";
        assert_eq!(links(text), [(1, "b.md".to_owned()), (5, "../g.md".to_owned())]);
        assert_eq!(resolved("docs/guide/src/a.md", "../../b.md"), Some(PathBuf::from("docs/b.md")));
    }
}
