//! Finds code that stands in several places: identical runs of lines, whatever their indentation. Called by `rows`.

use super::super::Problem;
use super::super::source::SourceFile;
use super::code::{Code, is_code};
use std::collections::HashMap;

/// Runs of fewer lines of code are not counted.
const RUN_LINES_MIN: usize = 8;

/// The lines of a file that are compared: number and text with its blanks made alike.
type Lines = Vec<(usize, String)>;

/// Every place that another place repeats, in the order of the files; the copies of one run count once each.
pub(super) fn find(files: &[(&SourceFile, &Code<'_>)]) -> Vec<Problem> {
    let all: Vec<Lines> = files.iter().map(|(file, code)| lines(file, code)).collect();
    let mut seen: HashMap<Vec<&str>, usize> = HashMap::new();
    for window in all.iter().flat_map(|lines| lines.windows(RUN_LINES_MIN)) {
        let count = seen.entry(texts(window)).or_default();
        *count = count.saturating_add(1);
    }
    let mut found = Vec::new();
    for ((file, _), lines) in files.iter().zip(&all) {
        let mut was_repeated = false;
        for window in lines.windows(RUN_LINES_MIN) {
            let is_repeated = seen.get(&texts(window)).is_some_and(|count| *count > 1);
            if let (true, false, Some((line, text))) = (is_repeated, was_repeated, window.first()) {
                found.push(Problem { path: file.path.clone(), line: *line, text: format!("from `{text}`") });
            }
            was_repeated = is_repeated;
        }
    }
    found
}

fn texts(window: &[(usize, String)]) -> Vec<&str> {
    window.iter().map(|(_, text)| text.as_str()).collect()
}

fn lines(file: &SourceFile, code: &Code<'_>) -> Lines {
    let left_out = |line: usize| code.tests.iter().chain(&code.imports).any(|range| range.contains(&line));
    let numbered = file.text.lines().enumerate().map(|(index, text)| (index.saturating_add(1), text));
    numbered
        .filter(|(line, text)| is_code(text) && !left_out(*line))
        .map(|(line, text)| (line, text.split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(texts: &[&str]) -> usize {
        let files: Vec<SourceFile> = texts.iter().map(|text| SourceFile::sample("crates/a/src/x.rs", text)).collect();
        let codes: Vec<Code<'_>> = files.iter().map(Code::of).collect();
        find(&files.iter().zip(&codes).collect::<Vec<_>>()).len()
    }

    #[test]
    fn runs_count_once_for_each_copy() {
        let body: String = (0..9).map(|index| format!("    call({index});\n")).collect();
        let indented = body.replace("    ", "        // why\n\n        ");
        assert_eq!(count(&[&format!("fn a() {{\n{body}}}\n"), &format!("fn b() {{\n{indented}}}\n")]), 2);
        assert_eq!(count(&[&format!("fn a() {{\n{body}}}\n"), "fn b() {\n    call(0);\n}\n"]), 0);
    }
}
