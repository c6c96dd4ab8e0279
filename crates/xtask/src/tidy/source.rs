//! Reads the files of the tree: their text, and for Rust files under a `src` folder their syntax tree. Called by
//! `tidy::run` and `metrics`; all rules work on its files.

use super::Problem;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::Path;
use walkdir::WalkDir;

/// A text file of the project.
#[derive(Debug, Clone)]
pub(super) struct TextFile {
    /// Relative to the top of the tree, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

/// A Rust file that takes part in its crate's build (under `crates/NAME/src`, tests excluded).
#[derive(Debug)]
pub(super) struct SourceFile {
    pub(super) path: String,
    pub(super) crate_name: String,
    /// `["tree", "cow"]` for `src/tree/cow.rs`; empty for `lib.rs` and `main.rs`.
    pub(super) module: Vec<String>,
    pub(super) text: String,
    pub(super) syntax: syn::File,
}

/// Folders that hold nothing written by hand.
const SKIPPED_FOLDERS: &[&str] = &["target", ".git", "corpus", "artifacts", "coverage", "history"];
const EXTENSIONS: &[&str] = &["rs", "toml", "md", "sh", "yml", "json", "txt"];

/// Every text file under `root`.
pub(super) fn read_texts(root: &Path) -> Result<Vec<TextFile>> {
    let mut files = Vec::new();
    let walk = WalkDir::new(root).sort_by_file_name().into_iter();
    for entry in walk.filter_entry(|entry| !SKIPPED_FOLDERS.iter().any(|&name| entry.file_name() == name)) {
        let entry = entry?;
        let path = entry.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if !entry.file_type().is_file() || !extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) {
            continue;
        }
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let relative = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        files.push(TextFile { path: relative, text });
    }
    Ok(files)
}

/// Parses the sources of all crates; a file that does not parse is a problem.
pub(super) fn parse_all(texts: &[TextFile]) -> (Vec<SourceFile>, Vec<Problem>) {
    let mut files = Vec::new();
    let mut problems = Vec::new();
    for text in texts {
        match SourceFile::parse(text) {
            Ok(Some(file)) => files.push(file),
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
    }
    let tests: BTreeSet<(String, Vec<String>)> = files.iter().flat_map(test_modules).collect();
    files.retain(|file| {
        let prefixes = 1..=file.module.len();
        !prefixes
            .map(|len| file.module.get(..len).unwrap_or_default().to_vec())
            .any(|prefix| tests.contains(&(file.crate_name.clone(), prefix)))
    });
    (files, problems)
}

impl SourceFile {
    fn parse(file: &TextFile) -> Result<Option<Self>, Problem> {
        let Some((crate_name, inner)) = file.path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"))
        else {
            return Ok(None);
        };
        let Some(inner) = inner.strip_suffix(".rs") else {
            return Ok(None);
        };
        let mut module: Vec<String> = inner.split('/').map(str::to_owned).collect();
        if module.len() == 1 && matches!(inner, "lib" | "main") || module.last().is_some_and(|last| last == "mod") {
            module.pop();
        }
        let syntax = syn::parse_file(&file.text).map_err(|error| Problem {
            path: file.path.clone(),
            line: error.span().start().line,
            text: format!("does not parse: {error}"),
        })?;
        let path = file.path.clone();
        Ok(Some(Self { path, crate_name: crate_name.to_owned(), module, text: file.text.clone(), syntax }))
    }

    /// A file made from a string, for the rules' own tests.
    #[cfg(test)]
    pub(super) fn sample(path: &str, text: &str) -> Self {
        let file = TextFile { path: path.to_owned(), text: text.to_owned() };
        Self::parse(&file).expect("the sample parses").expect("the sample is a source file")
    }
}

/// The modules that `file` declares as `#[cfg(test)] mod name;`, in files of their own.
fn test_modules(file: &SourceFile) -> Vec<(String, Vec<String>)> {
    let declared = file.syntax.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() && is_test(&module.attrs) => Some(module.ident.to_string()),
        _ => None,
    });
    declared
        .map(|name| {
            let mut module = file.module.clone();
            module.push(name);
            (file.crate_name.clone(), module)
        })
        .collect()
}

/// Whether the attributes hold `#[cfg(test)]` or `#[test]`.
pub(super) fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg_test = attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|argument| argument == "test");
        is_cfg_test || attribute.path().is_ident("test")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn paths_become_modules() {
        assert_eq!(SourceFile::sample("crates/a/src/tree/cow.rs", "").module, ["tree", "cow"]);
        assert_eq!(SourceFile::sample("crates/a/src/tree/mod.rs", "").module, ["tree"]);
        assert!(SourceFile::sample("crates/a/src/lib.rs", "").module.is_empty());
    }

    #[test]
    fn a_file_that_does_not_parse_is_a_problem() {
        let (files, problems) = parse_all(&[text("crates/a/src/x.rs", "\nfn {")]);
        assert!(files.is_empty());
        assert_eq!(problems.first().map(|problem| problem.line), Some(2));
    }

    #[test]
    fn test_modules_in_their_own_files_are_left_out() {
        let sources =
            [text("crates/a/src/x/mod.rs", "#[cfg(test)] mod tests;"), text("crates/a/src/x/tests.rs", "fn f() {}")];
        let (files, problems) = parse_all(&sources);
        assert_eq!((files.len(), problems.len()), (1, 0));
    }
}
