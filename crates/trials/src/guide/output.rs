//! Decides whether the output of a command is the one that a page shows. Called by `guide`.
//!
//! UUIDs and times differ in each run: two lines are equal where only those differ. `[..]` in the page stands for any
//! text of a line, a line `...` for any number of lines.

/// Any text of a line.
const ANY_TEXT: &str = "[..]";
/// Any number of lines.
const ANY_LINES: &str = "...";

/// Forms that differ from run to run; `0` stands for a hexadecimal digit, `1` for a decimal one.
const VARYING: [&str; 4] = [
    "00000000-0000-0000-0000-000000000000",
    "1111-11-11 11:11:11.111111111",
    "1111-11-11 11:11:11",
    "1111-11-11T111111Z",
];

/// True where the page's lines describe the real ones.
pub(super) fn matches(page: &[String], real: &[String]) -> bool {
    match page.split_first() {
        None => real.is_empty(),
        Some((line, rest)) if line == ANY_LINES => {
            (0..=real.len()).any(|skipped| real.get(skipped..).is_some_and(|real| matches(rest, real)))
        }
        Some((line, rest)) => {
            real.split_first().is_some_and(|(first, real)| line_matches(line, first) && matches(rest, real))
        }
    }
}

/// The real lines, as far as possible in the words that the page had for them.
pub(super) fn renewed(page: &[String], real: &[String]) -> Vec<String> {
    let known = |line: &String| page.iter().find(|old| *old != ANY_LINES && line_matches(old, line));
    real.iter().map(|line| known(line).unwrap_or(line).clone()).collect()
}

fn line_matches(page: &str, real: &str) -> bool {
    let (page, real) = (constant(page), constant(real));
    let mut parts = page.split(ANY_TEXT);
    let Some(mut rest) = parts.next().and_then(|first| real.strip_prefix(first)) else { return false };
    let mut parts: Vec<_> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

/// The line with the same text for each varying form, and without blanks at its end.
fn constant(line: &str) -> String {
    let mut rest = line.trim_end();
    let mut text = String::new();
    while let Some(first) = rest.chars().next() {
        match VARYING.iter().find(|form| has_form(rest, form)) {
            Some(form) => {
                text.push_str(form);
                rest = rest.get(form.len()..).unwrap_or_default();
            }
            None => {
                text.push(first);
                rest = rest.get(first.len_utf8()..).unwrap_or_default();
            }
        }
    }
    text
}

fn has_form(text: &str, form: &str) -> bool {
    let mut bytes = text.bytes();
    form.bytes().all(|wanted| {
        bytes.next().is_some_and(|byte| match wanted {
            b'0' => byte.is_ascii_hexdigit(),
            b'1' => byte.is_ascii_digit(),
            _ => byte == wanted,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn only_what_varies_may_differ() {
        let same = |page: &str, real: &str| matches(&lines(page), &lines(real));
        assert!(same("a\nb", "a\nb"));
        assert!(!same("a", "a\nb"));
        assert!(!same("a\nb", "a"));
        assert!(same("at 2026-01-02 03:04:05 x", "at 2027-11-12 13:14:15 x"));
        assert!(!same("at 2026-01-02 03:04:05 x", "at 2027-11-12 13:14:15 y"));
        assert!(same("UUID: 01234567-89ab-cdef-0123-456789abcdef", "UUID: 00000000-1111-2222-3333-444455556666"));
        assert!(same("took [..] s", "took 1.5 s"));
        assert!(!same("took [..] s", "took 1.5 m"));
        assert!(same("a\n...\nz", "a\nb\nc\nz"));
        assert!(!same("a\n...\nz", "a\nb"));
        assert!(!same("", "a"));
    }

    #[test]
    fn renewed_output_keeps_the_words_that_still_match() {
        let page = lines("at 2026-01-02 03:04:05\n[..] bytes\nold");
        let real = lines("at 2027-01-02 03:04:05\n17 bytes\nnew");
        assert_eq!(renewed(&page, &real), ["at 2026-01-02 03:04:05", "[..] bytes", "new"]);
    }
}
