//! Finds types with methods in many files: each is divided, or listed in `ARCHITECTURE.md` with the reason. Called by
//! `tidy::run`.
//!
//! The files with an `impl Type` block are counted; implementations of traits and tests are not.

use super::Problem;
use super::source::{SourceFile, is_test};
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENT: &str = "ARCHITECTURE.md";
const HEADING: &str = "## 8 Types in more than three files";
/// Files in which a type may have methods without a reason.
const FILES_MAX: usize = 3;

/// Files by crate and type.
type Spread<'a> = BTreeMap<String, BTreeSet<&'a str>>;

/// Fails on a type in many files that the document does not list, and on a listed one that need not be.
pub(super) fn check(document: &str, files: &[SourceFile]) -> Vec<Problem> {
    let spread = spread(files);
    let listed = listed(document);
    let problem = |line, text: String| Problem { path: DOCUMENT.to_owned(), line, text };
    let mut problems = Vec::new();
    for (name, files) in spread.iter().filter(|(_, files)| files.len() > FILES_MAX) {
        if !listed.contains_key(name.as_str()) {
            let count = files.len();
            problems.push(problem(1, format!("`{name}` has methods in {count} files, and no line under `{HEADING}`")));
        }
    }
    for (name, (line, reason)) in listed {
        let count = spread.get(name).map_or(0, BTreeSet::len);
        if count <= FILES_MAX {
            problems.push(problem(line, format!("`{name}` has methods in {count} files: its line is not needed")));
        }
        if reason.len() < 20 {
            problems.push(problem(line, format!("`{name}`: expected a reason")));
        }
    }
    problems
}

fn spread(files: &[SourceFile]) -> Spread<'_> {
    let mut definitions: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for file in files {
        for name in file.syntax.items.iter().filter_map(defined) {
            *definitions.entry((file.crate_name.as_str(), name)).or_default() += 1;
        }
    }
    let mut spread = Spread::new();
    for file in files {
        let own: BTreeSet<String> = file.syntax.items.iter().filter_map(defined).collect();
        for name in file.syntax.items.iter().filter_map(owner) {
            // Several modules may each have a type of the same name.
            let count = definitions.get(&(file.crate_name.as_str(), name.clone())).copied().unwrap_or_default();
            let is_apart = count > 1 && own.contains(&name);
            let key = if is_apart { format!("{}::{name}", file.path) } else { format!("{}::{name}", file.crate_name) };
            spread.entry(key).or_default().insert(file.path.as_str());
        }
    }
    spread
}

/// The type that an item defines.
fn defined(item: &syn::Item) -> Option<String> {
    match item {
        syn::Item::Struct(item) => Some(item.ident.to_string()),
        syn::Item::Enum(item) => Some(item.ident.to_string()),
        _ => None,
    }
}

/// The type that an item adds methods to.
fn owner(item: &syn::Item) -> Option<String> {
    let syn::Item::Impl(block) = item else { return None };
    if block.trait_.is_some() || is_test(&block.attrs) {
        return None;
    }
    let syn::Type::Path(path) = &*block.self_ty else { return None };
    Some(path.path.segments.last()?.ident.to_string())
}

/// The types under the heading, each with its line and its reason.
fn listed(document: &str) -> BTreeMap<&str, (usize, &str)> {
    let lines = (1..).zip(document.lines()).skip_while(|(_, line)| *line != HEADING).skip(1);
    let section = lines.take_while(|(_, line)| !line.starts_with("## "));
    let rows = section.filter_map(|(number, line)| {
        let (name, reason) = line.strip_prefix("| `")?.split_once("` | ")?;
        Some((name, (number, reason.trim_end_matches(" |"))))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(count: usize) -> Vec<SourceFile> {
        let file =
            |index| SourceFile::sample(&format!("crates/a/src/part{index}.rs"), "impl<T> Big<T> {}\nimpl Small {}");
        (0..count).map(file).collect()
    }

    #[test]
    fn a_type_in_many_files_needs_its_reason() {
        assert_eq!(check("", &files(3)), []);
        let problems = check("", &files(4));
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].text.contains("`a::Big` has methods in 4 files"), "{problems:?}");
        let reason = "a reason that is long enough to be one";
        let document = format!("{HEADING}\n\n| `a::Big` | {reason} |\n| `a::Small` | {reason} |\n");
        assert_eq!(check(&document, &files(4)), []);
        let problems = check(&document, &files(3));
        assert!(problems[0].text.contains("its line is not needed"), "{problems:?}");
        let short = format!("{HEADING}\n| `a::Big` | so |\n| `a::Small` | {reason} |\n");
        assert!(check(&short, &files(4))[0].text.contains("expected a reason"));
    }

    #[test]
    fn traits_and_tests_do_not_count() {
        let text = "impl Clone for Big {}\n#[cfg(test)]\nimpl Big {}";
        let file = |index| SourceFile::sample(&format!("crates/a/src/part{index}.rs"), text);
        assert_eq!(check("", &(0..9).map(file).collect::<Vec<_>>()), []);
    }
}
