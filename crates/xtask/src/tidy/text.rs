//! Checks lines: length, trailing blanks, notes left behind. Called by `tidy::run`.

use super::Problem;
use super::source::TextFile;

const LINE_LEN_MAX: usize = 120;

/// Notes that must not be left behind. Written in halves so that this file does not break its own rule.
const LEFT_BEHIND: &[&str] =
    &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("to", "do!("), concat!("unimple", "mented!(")];

/// Checks every line of a file. Long lines are legal in Markdown (tables) and data only.
pub(super) fn check(file: &TextFile) -> Vec<Problem> {
    let limit_length = [".rs", ".toml", ".sh"].iter().any(|end| file.path.ends_with(end));
    let mut problems = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let mut problem = |text: String| {
            problems.push(Problem { path: file.path.clone(), line: index.saturating_add(1), text });
        };
        let len = line.chars().count();
        if limit_length && len > LINE_LEN_MAX {
            problem(format!("{len} characters, more than {LINE_LEN_MAX}"));
        }
        if line.ends_with([' ', '\t', '\r']) {
            problem("ends in a blank".to_owned());
        }
        if let Some(word) = LEFT_BEHIND.iter().find(|word| line.contains(**word)) {
            problem(format!("`{word}` left behind: do it, or name it in SHORTCOMINGS.md"));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        let line = file.text.lines().count();
        problems.push(Problem { path: file.path.clone(), line, text: "no newline at the end".to_owned() });
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let file = TextFile { path: path.to_owned(), text: text.to_owned() };
        check(&file).into_iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn long_lines_fail_in_code_only() {
        let long = format!("short\n{}\n", "x".repeat(121));
        assert_eq!(lines("a.rs", &long), [2]);
        assert_eq!(lines("a.md", &long), Vec::<usize>::new());
        assert_eq!(lines("a.rs", &format!("{}\n", "é".repeat(120))), Vec::<usize>::new());
    }

    #[test]
    fn trailing_blanks_and_missing_newlines_fail() {
        assert_eq!(lines("a.md", "ok\nbad \nbad\t\n"), [2, 3]);
        assert_eq!(lines("a.rs", "ok\nno newline"), [2]);
    }

    #[test]
    fn notes_left_behind_fail() {
        for word in LEFT_BEHIND {
            assert_eq!(lines("a.rs", &format!("ok\n// {word}: later\n")), [2], "{word}");
        }
    }
}
