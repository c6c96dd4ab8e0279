//! Parses the text attributes of a mount's server: lines of a name and numbers. Called by the parsers of `quotas`,
//! `sharing` and `usage`.

/// The name and the numbers of a line; `None` where a word is not a number.
pub(super) fn words_of(line: &str) -> Option<(&str, Vec<u64>)> {
    let mut words = line.split(' ');
    let name = words.next().unwrap_or_default();
    let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
    Some((name, numbers?))
}
