//! Reads extended headers of POSIX.1-2001: records of a keyword and a value, for one member or for all that follow.
//! `members` keeps them, `attributes` and `sparse` interpret them.

use std::collections::BTreeMap;

use vfs::file_system::Time;

use crate::bytes::number;
use crate::error::{Place, Result, shown};

/// Most bytes of one extended header.
pub(super) const PAX_BYTES_MAX: u64 = 1 << 20;
/// Digits of the length of a record: more would be longer than a header may be.
const LENGTH_DIGITS_MAX: usize = 7;

/// Records of keywords and values. A later record of a keyword replaces an earlier one.
#[derive(Debug, Clone, Default)]
pub(super) struct Records {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Values of `GNU.sparse.offset` and `GNU.sparse.numbytes` in their order: the only keywords that are repeated.
    pub(super) sparse: Vec<(bool, Vec<u8>)>,
    bytes: u64,
}

impl Records {
    /// Adds the records of a header's body.
    pub(super) fn add(&mut self, mut body: &[u8], place: &Place) -> Result<()> {
        while !body.is_empty() {
            // Some programs fill the rest with zeros.
            if body.iter().all(|byte| *byte == 0) {
                break;
            }
            let (record, rest) = split(body).ok_or_else(|| {
                let start = body.get(..body.len().min(60)).unwrap_or_default();
                place.field("PAX record", "`LENGTH KEYWORD=VALUE` and a line end", shown(start))
            })?;
            body = rest;
            self.add_record(record.0, record.1);
        }
        Ok(())
    }

    fn add_record(&mut self, key: &[u8], value: &[u8]) {
        self.bytes = self.bytes.saturating_add(number(key.len())).saturating_add(number(value.len()));
        match key {
            b"GNU.sparse.offset" => self.sparse.push((true, value.to_vec())),
            b"GNU.sparse.numbytes" => self.sparse.push((false, value.to_vec())),
            _ => {
                self.values.insert(key.to_vec(), value.to_vec());
            }
        }
    }

    fn below(&self, prefix: &'static str) -> impl Iterator<Item = (&[u8], &[u8])> {
        let from = self.values.range(prefix.as_bytes().to_vec()..);
        let part = from.take_while(move |(key, _)| key.starts_with(prefix.as_bytes()));
        part.map(|(key, value)| (key.as_slice(), value.as_slice())).filter(|(key, _)| key.len() > prefix.len())
    }

    /// Bytes of all keywords and values.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The records of a member over those for all members, which are not copied: they may be many, and members too.
#[derive(Clone, Copy)]
pub(super) struct Merged<'a> {
    pub(super) own: &'a Records,
    pub(super) global: &'a Records,
}

impl<'a> Merged<'a> {
    /// A value. One that is empty takes away that of all members.
    pub(super) fn get(self, key: &str) -> Option<&'a [u8]> {
        let own = self.own.values.get(key.as_bytes());
        let value = own.or_else(|| self.global.values.get(key.as_bytes()));
        value.map(Vec::as_slice).filter(|value| !value.is_empty())
    }

    /// The records of which the keyword begins with `prefix`: the rest of the keyword, and the value.
    pub(super) fn below(self, prefix: &'static str) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let Self { own, global } = self;
        let global = global.below(prefix).filter(move |(key, _)| !own.values.contains_key(*key));
        let all = own.below(prefix).chain(global);
        all.filter_map(move |(key, value)| Some((key.strip_prefix(prefix.as_bytes())?, value)))
    }

    /// A decimal number.
    pub(super) fn number<N: std::str::FromStr>(self, key: &str, place: &Place) -> Result<Option<N>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let parsed = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        parsed.map(Some).ok_or_else(|| place.field(key, "a number", shown(value)))
    }

    /// A time in seconds since 1970, with a fraction.
    pub(super) fn time(self, key: &str, place: &Place) -> Result<Option<Time>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        time(value).map(Some).ok_or_else(|| place.field(key, "seconds since 1970", shown(value)))
    }
}

/// Keyword and value.
type Record<'a> = (&'a [u8], &'a [u8]);

/// The first record, and what follows it.
fn split(body: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let space = body.iter().take(LENGTH_DIGITS_MAX + 1).position(|byte| *byte == b' ')?;
    let digits = body.get(..space).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let length: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let (record, rest) = body.split_at_checked(length)?;
    let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
    let (key, value) = record.split_at_checked(equals)?;
    Some(((key, value.get(1..)?), rest))
}

/// A time as a decimal fraction. Digits behind the ninth are cut off.
fn time(value: &[u8]) -> Option<Time> {
    let text = std::str::from_utf8(value).ok()?;
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let sec: i64 = whole.parse().ok()?;
    let nsec: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    if !is_negative {
        return Some(Time::new(sec, nsec));
    }
    // Nanoseconds count upwards from the second, also before 1970.
    let sec = -sec;
    Some(if nsec == 0 { Time::new(sec, 0) } else { Time::new(sec.checked_sub(1)?, 1_000_000_000 - nsec) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970() {
        assert_eq!(time(b"12.5"), Some(Time::new(12, 500_000_000)));
        assert_eq!(time(b"-1.25"), Some(Time::new(-2, 750_000_000)));
        assert_eq!(time(b"-3"), Some(Time::new(-3, 0)));
        assert_eq!(time(b"1.0123456789"), Some(Time::new(1, 12_345_678)));
        for wrong in [&b""[..], b"-", b".5", b"1.x", b"99999999999999999999", b"1e3"] {
            assert_eq!(time(wrong), None);
        }
    }

    #[test]
    fn records_that_lie_are_refused() {
        let place = Place::default();
        let add = |body: &[u8]| {
            let mut records = Records::default();
            records.add(body, &place).map(|()| records)
        };
        let records = add(b"11 path=ab\n9 path=c\n\0\0").unwrap();
        let merged = Merged { own: &records, global: &Records::default() };
        assert_eq!(merged.get("path").unwrap(), b"c");
        for wrong in ["12 path=ab\n", "11 path=abc", "99999999 a=\n", "5 ab\n", "6 =ab\n", "x", "0 a=b\n", "3 \n"] {
            let error = add(wrong.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("PAX record: expected"), "{error}");
        }
    }
}
