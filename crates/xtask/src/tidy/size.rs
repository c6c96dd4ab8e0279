//! Checks sizes: files, functions, and the opening words of folders. Called by `tidy::run`.

use super::Problem;
use super::source::{SourceFile, TextFile, is_test};
use std::collections::BTreeSet;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const FOLDER_DOC_LINES_MIN: usize = 5;

/// Checks the length of a file and of its functions, tests not counted.
pub(super) fn check(file: &SourceFile) -> Vec<Problem> {
    let mut sizes = Sizes { text: file.text.lines().collect(), test_lines: 0, long: Vec::new() };
    sizes.visit_file(&file.syntax);
    let mut problems: Vec<Problem> = sizes
        .long
        .iter()
        .map(|(line, name, count)| Problem {
            path: file.path.clone(),
            line: *line,
            text: format!("`{name}` has {count} lines, more than {FUNCTION_LINES_MAX}"),
        })
        .collect();
    let line_count = sizes.text.len().saturating_sub(sizes.test_lines);
    if line_count > FILE_LINES_MAX {
        let text = format!("{line_count} lines without tests, more than {FILE_LINES_MAX}");
        problems.push(Problem { path: file.path.clone(), line: 1, text });
    }
    problems
}

struct Sizes<'a> {
    text: Vec<&'a str>,
    test_lines: usize,
    /// First line, name and length of each function over the limit.
    long: Vec<(usize, String, usize)>,
}

impl Sizes<'_> {
    /// Lines of code between the braces: blank lines and comments do not count.
    fn measure(&mut self, name: &syn::Ident, block: &syn::Block) {
        let (first, last) = (block.span().start().line, block.span().end().line);
        let inner = self.text.get(first..last.saturating_sub(1)).unwrap_or_default();
        let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        let count = inner.iter().filter(is_code).count();
        if count > FUNCTION_LINES_MAX {
            self.long.push((name.span().start().line, name.to_string(), count));
        }
    }
}

impl<'ast> Visit<'ast> for Sizes<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if is_test(&module.attrs) {
            let span = module.span();
            let lines = span.end().line.saturating_sub(span.start().line).saturating_add(1);
            self.test_lines = self.test_lines.saturating_add(lines);
        } else {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.measure(&function.sig.ident, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.measure(&function.sig.ident, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.measure(&function.sig.ident, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

/// Every folder under a `src` has a `mod.rs` that opens with a doc of some lines; every crate's root opens with one.
pub(super) fn check_docs(files: &[TextFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let mut folders = BTreeSet::new();
    for file in files {
        let Some((_, inner)) = file.path.strip_prefix("crates/").and_then(|path| path.split_once("/src/")) else {
            continue;
        };
        let doc_lines = file.text.lines().take_while(|line| line.starts_with("//!")).count();
        let needed = match inner {
            "lib.rs" | "main.rs" => 1,
            _ if inner.ends_with("/mod.rs") => FOLDER_DOC_LINES_MIN,
            _ => 0,
        };
        if doc_lines < needed {
            let text = format!("opens with {doc_lines} lines of `//!`, fewer than {needed}");
            problems.push(Problem { path: file.path.clone(), line: 1, text });
        }
        if let (true, Some((folder, _))) = (inner.contains('/'), file.path.rsplit_once('/')) {
            folders.insert(folder);
        }
    }
    for folder in folders {
        if !paths.contains(format!("{folder}/mod.rs").as_str()) && !folder.contains("/src/bin") {
            let text = "a folder without a mod.rs that describes it".to_owned();
            problems.push(Problem { path: folder.to_owned(), line: 1, text });
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(text: &str) -> Vec<Problem> {
        check(&SourceFile::sample("crates/a/src/x.rs", text))
    }

    #[test]
    fn long_functions_fail_wherever_they_stand() {
        let body = "    call();\n".repeat(71);
        assert_eq!(sample(&format!("fn f() {{\n{body}}}\n")).len(), 1);
        assert_eq!(sample(&format!("impl X {{\nfn f() {{\n{body}}}\n}}\n")).len(), 1);
        assert_eq!(sample(&format!("trait X {{\nfn f() {{\n{body}}}\n}}\n")).len(), 1);
        let short = "    call();\n".repeat(70);
        assert_eq!(sample(&format!("fn f() {{\n{short}    // why\n\n}}\n")), []);
    }

    #[test]
    fn long_files_fail_without_their_tests() {
        let lines = "const A: u8 = 0;\n".repeat(601);
        assert_eq!(sample(&lines).len(), 1);
        assert_eq!(sample(&format!("#[cfg(test)]\nmod tests {{\n{lines}}}\n")), []);
    }

    #[test]
    fn folders_open_with_a_doc() {
        let file = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let doc = "//! x\n".repeat(5);
        assert_eq!(check_docs(&[file("crates/a/src/t/mod.rs", &doc), file("crates/a/src/t/x.rs", "")]), []);
        assert_eq!(check_docs(&[file("crates/a/src/t/mod.rs", "//! x\n")]).len(), 1);
        assert_eq!(check_docs(&[file("crates/a/src/t/x.rs", "")]).len(), 1, "no mod.rs");
        assert_eq!(check_docs(&[file("crates/a/src/lib.rs", "mod x;\n")]).len(), 1);
    }
}
