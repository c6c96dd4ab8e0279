//! The texts in which a mount's server tells something: lines of a name and numbers.

/// The name and the numbers of a line; `None` where a word is no number.
pub(super) fn words_of(line: &str) -> Option<(&str, Vec<u64>)> {
    let mut words = line.split(' ');
    let name = words.next().unwrap_or_default();
    let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
    Some((name, numbers?))
}
