//! Merges and compares texts by lines. `merge` merges files with it, `patch` shows their differences.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// A changed range of lines: those before and those after.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    before: Range<usize>,
    after: Range<usize>,
}

/// Lines with their ends; the last may have none.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

fn changes(before: &[&[u8]], after: &[&[u8]]) -> Vec<Change> {
    let mut input = InternedInput::default();
    input.update_before(before.iter().copied());
    input.update_after(after.iter().copied());
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_no_heuristic(&input);
    let range = |range: Range<u32>| to_usize(range.start)..to_usize(range.end);
    diff.hunks().map(|hunk| Change { before: range(hunk.before), after: range(hunk.after) }).collect()
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Merges the changes of two texts since `base`, by lines. `None` where both changed the same lines, or adjoining ones,
/// in different ways.
#[must_use]
pub fn merge_lines(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let (base, ours, theirs) = (lines(base), lines(ours), lines(theirs));
    let (our_changes, their_changes) = (changes(&base, &ours), changes(&base, &theirs));
    let (mut left, mut right) = (our_changes.as_slice(), their_changes.as_slice());
    let mut merged: Vec<&[u8]> = Vec::new();
    let mut done = 0;
    while let Some(start) = [left.first(), right.first()].into_iter().flatten().map(|one| one.before.start).min() {
        let (taken_left, taken_right, end) = group(left, right, start);
        let place = start..end;
        merged.extend(base.get(done..start)?);
        let our = side(&ours, taken_left, &base, &place)?;
        let their = side(&theirs, taken_right, &base, &place)?;
        match (taken_left.is_empty(), taken_right.is_empty()) {
            (true, _) => merged.extend(their),
            (_, true) => merged.extend(our),
            _ if our == their => merged.extend(our),
            _ => return None,
        }
        done = end;
        left = left.get(taken_left.len()..)?;
        right = right.get(taken_right.len()..)?;
    }
    merged.extend(base.get(done..)?);
    Some(merged.concat())
}

/// The changes of both sides that overlap or touch each other, beginning with the one at `start`, and where they end.
fn group<'a>(left: &'a [Change], right: &'a [Change], start: usize) -> (&'a [Change], &'a [Change], usize) {
    let (mut taken_left, mut taken_right) = (0, 0);
    let mut end = start;
    loop {
        let more = |list: &[Change], taken: usize| list.get(taken).filter(|one| one.before.start <= end).cloned();
        if let Some(one) = more(left, taken_left) {
            taken_left += 1;
            end = end.max(one.before.end);
        } else if let Some(one) = more(right, taken_right) {
            taken_right += 1;
            end = end.max(one.before.end);
        } else {
            let (left, right) = (left.get(..taken_left), right.get(..taken_right));
            return (left.unwrap_or_default(), right.unwrap_or_default(), end);
        }
    }
}

/// The lines that one side has in place of the lines `place` of the base.
fn side<'a>(text: &[&'a [u8]], changes: &[Change], base: &[&'a [u8]], place: &Range<usize>) -> Option<Vec<&'a [u8]>> {
    let mut found = Vec::new();
    let mut done = place.start;
    for change in changes {
        found.extend(base.get(done..change.before.start)?);
        found.extend(text.get(change.after.clone())?);
        done = change.before.end;
    }
    found.extend(base.get(done..place.end)?);
    Some(found)
}

/// The changed places of two texts in the unified format, each with its title line and three lines around it.
#[must_use]
pub fn unified(before: &[u8], after: &[u8]) -> Vec<u8> {
    let (before, after) = (lines(before), lines(after));
    let changes = changes(&before, &after);
    let mut text = Vec::new();
    let mut rest = changes.as_slice();
    while !rest.is_empty() {
        let near = |pair: &[Change]| match pair {
            [one, next] => next.before.start - one.before.end <= 2 * CONTEXT_LINES,
            _ => false,
        };
        let count = 1 + rest.windows(2).take_while(|pair| near(pair)).count();
        let (hunk, behind) = rest.split_at(count);
        write_hunk(&mut text, &before, &after, hunk);
        rest = behind;
    }
    text
}

fn write_hunk(text: &mut Vec<u8>, before: &[&[u8]], after: &[&[u8]], hunk: &[Change]) {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { return };
    let above = first.before.start.min(CONTEXT_LINES);
    let below = (before.len() - last.before.end).min(CONTEXT_LINES);
    let old = first.before.start - above..last.before.end + below;
    let new = first.after.start - above..last.after.end + below;
    text.extend_from_slice(format!("@@ -{} +{} @@\n", span(&old), span(&new)).as_bytes());
    let mut at = old.start;
    for change in hunk {
        put(text, b' ', before.get(at..change.before.start));
        put(text, b'-', before.get(change.before.clone()));
        put(text, b'+', after.get(change.after.clone()));
        at = change.before.end;
    }
    put(text, b' ', before.get(at..old.end));
}

/// First line and count of a range, as the title of a hunk has them.
fn span(range: &Range<usize>) -> String {
    let first = if range.is_empty() { range.start } else { range.start + 1 };
    if range.len() == 1 { first.to_string() } else { format!("{first},{}", range.len()) }
}

fn put(text: &mut Vec<u8>, mark: u8, lines: Option<&[&[u8]]>) {
    for line in lines.unwrap_or_default() {
        text.push(mark);
        text.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            text.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(base: &str, ours: &str, theirs: &str) -> Option<String> {
        let lines = |text: &str| text.replace(' ', "\n");
        let done = merge_lines(lines(base).as_bytes(), lines(ours).as_bytes(), lines(theirs).as_bytes());
        done.map(|text| String::from_utf8(text).unwrap().replace('\n', " "))
    }

    #[test]
    fn changes_at_different_places_are_merged() {
        for (base, ours, theirs, wanted) in [
            ("a b c d e", "A b c d e", "a b c d E", Some("A b c d E")),
            ("a b c", "a b c", "a x c", Some("a x c")),
            ("a b c", "a x c", "a x c", Some("a x c")),
            ("a b c", "a x c", "a y c", None),
            ("a b c d", "a x c d", "a b y d", None),
            ("a b c d e", "a c d e", "a b c d", Some("a c d")),
            ("a b", "a b", "", Some("")),
            ("", "x", "y", None),
            ("", "x", "", Some("x")),
        ] {
            assert_eq!(merged(base, ours, theirs).as_deref(), wanted, "{base}: {ours}, {theirs}");
            assert_eq!(merged(base, theirs, ours).as_deref(), wanted, "{base}: {theirs}, {ours}");
        }
    }

    #[test]
    fn a_unified_difference_has_titles_and_marks() {
        let text = unified(b"1\n2\n3\n4\n5\n6\n7\n8\n9\n", b"1\n2\n3\n4\nfive\n6\n7\n8\n9\nten");
        let wanted = "@@ -2,8 +2,9 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n 9\n+ten\n\\ No newline at end of file\n";
        assert_eq!(String::from_utf8(text).unwrap(), wanted);
        assert_eq!(unified(b"", b"a\n"), b"@@ -0,0 +1 @@\n+a\n");
        assert_eq!(unified(b"same\n", b"same\n"), b"");
    }
}
