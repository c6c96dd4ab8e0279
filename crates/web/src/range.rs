//! Ranges of bytes in HTTP (RFC 9110, section 14): `Content-Range`, which a server answers, and `Range`, which a client
//! asks for. Pure; both texts are the other side's, and hostile.

use crate::number::to_u64;

/// Ranges that are answered in one request; more are answered with the whole file, as RFC 9110 permits.
pub(crate) const RANGES_MAX: usize = 16;

/// A parsed `Content-Range`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentRange {
    /// First and last byte; `None` in the answer that there is no such range.
    pub bytes: Option<(u64, u64)>,
    /// Bytes of the whole file; `None` if the server does not know them.
    pub total: Option<u64>,
}

impl ContentRange {
    /// Parses the value of the header; `None` if it is malformed, or lies about itself.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.trim().strip_prefix("bytes ")?;
        let (bytes, total) = rest.trim().split_once('/')?;
        let total = match total.trim() {
            "*" => None,
            total => Some(number(total)?),
        };
        let bytes = match bytes.trim() {
            "*" => None,
            bytes => {
                let (first, last) = bytes.split_once('-')?;
                let (first, last) = (number(first)?, number(last)?);
                if first > last || total.is_some_and(|total| last >= total) {
                    return None;
                }
                Some((first, last))
            }
        };
        Some(Self { bytes, total })
    }
}

/// The meaning of a `Range` for a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The whole file: no range, or a header that has to be ignored.
    Whole,
    /// These ranges, first byte and length, in the order in which they were asked for.
    Parts(Vec<(u64, u64)>),
    /// None of the ranges lies in the file.
    Nothing,
}

impl Wanted {
    /// Parses the value of the header for a file of `size` bytes.
    #[must_use]
    pub fn parse(text: &str, size: u64) -> Self {
        let Some(list) = text.trim().strip_prefix("bytes=") else { return Self::Whole };
        if list.split(',').count() > RANGES_MAX {
            return Self::Whole;
        }
        let mut parts = Vec::new();
        for one in list.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            match part(one, size) {
                None => return Self::Whole,
                Some((_, 0)) => {}
                Some(part) => parts.push(part),
            }
        }
        let asked: u64 = parts.iter().fold(0, |sum: u64, (_, len)| sum.saturating_add(*len));
        match parts.len() {
            0 if list.trim().is_empty() => Self::Whole,
            0 => Self::Nothing,
            // Overlapping ranges multiply what is sent.
            count if asked > size.saturating_add(to_u64(count)) => Self::Whole,
            _ => Self::Parts(parts),
        }
    }
}

/// First byte and length of one range, cut at the end of the file; 0 bytes for one that lies outside of it. `None` if
/// it is malformed.
fn part(text: &str, size: u64) -> Option<(u64, u64)> {
    let (first, last) = text.split_once('-')?;
    if first.trim().is_empty() {
        let len = number(last)?.min(size);
        return Some((size - len, len));
    }
    let first = number(first)?;
    let end = match last.trim() {
        "" => size,
        last => {
            let last = number(last)?;
            if last < first {
                return None;
            }
            last.saturating_add(1).min(size)
        }
    };
    Some((first, end.saturating_sub(first)))
}

/// Digits alone: no sign, as `parse` would take it.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_servers_are_understood_or_refused() {
        let parse = ContentRange::parse;
        let whole = |bytes, total| Some(ContentRange { bytes, total });
        assert_eq!(parse("bytes 0-9/100"), whole(Some((0, 9)), Some(100)));
        assert_eq!(parse(" bytes 5-5/* "), whole(Some((5, 5)), None));
        assert_eq!(parse("bytes */77"), whole(None, Some(77)));
        for lie in [
            "",
            "bytes",
            "bytes 0-9",
            "bytes 9-0/100",
            "bytes 0-100/100",
            "bytes 0-9/",
            "bytes -1-9/100",
            "items 0-9/100",
            "bytes 0-9/1e3",
            "bytes 0-99999999999999999999/*",
            "bytes +0-9/100",
            "bytes 0--9/100",
        ] {
            assert_eq!(parse(lie), None, "{lie}");
        }
    }

    #[test]
    fn ranges_of_clients_are_cut_at_the_end_of_the_file() {
        let parts = |list: &[(u64, u64)]| Wanted::Parts(list.to_vec());
        for (text, wanted) in [
            ("bytes=0-9", parts(&[(0, 10)])),
            ("bytes=90-", parts(&[(90, 10)])),
            ("bytes=90-1000", parts(&[(90, 10)])),
            ("bytes=-5", parts(&[(95, 5)])),
            ("bytes=-500", parts(&[(0, 100)])),
            ("bytes=0-0, 2-3,-1", parts(&[(0, 1), (2, 2), (99, 1)])),
            ("bytes=100-", Wanted::Nothing),
            ("bytes=-0", Wanted::Nothing),
            ("bytes=100-200,5-6", parts(&[(5, 2)])),
            ("bytes=", Wanted::Whole),
            ("bytes=9-2", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
            ("items=0-9", Wanted::Whole),
            ("bytes=0-,0-", Wanted::Whole),
            ("bytes=0-18446744073709551615", parts(&[(0, 100)])),
        ] {
            assert_eq!(Wanted::parse(text, 100), wanted, "{text}");
        }
        assert_eq!(Wanted::parse(&format!("bytes={}", "0-0,".repeat(20)), 100), Wanted::Whole);
        assert_eq!(Wanted::parse("bytes=0-", 0), Wanted::Nothing);
    }
}
