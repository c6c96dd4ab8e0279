//! Values of a description, read from text and numbers. Called by `document`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::number::{GIB, KIB, MIB, TIB};

/// How large a partition or disk should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// As small as the contents.
    #[default]
    Auto,
    /// A share of what the others leave.
    Rest,
    /// Hundredths of the disk, 1 to 100.
    Percent(u64),
    /// As many bytes.
    Bytes(u64),
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!("size `{text}`: expected bytes, a number with K, M, G or T, a number with %, \"rest\" or \"auto\"")
        };
        match text {
            "auto" => return Ok(Self::Auto),
            "rest" => return Ok(Self::Rest),
            _ => {}
        }
        let digits_end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(digits_end);
        let number: u64 = digits.parse().map_err(|_| refused())?;
        let unit_bytes = match unit {
            "" => 1,
            "%" if (1..=100).contains(&number) => return Ok(Self::Percent(number)),
            "K" | "KiB" => KIB,
            "M" | "MiB" => MIB,
            "G" | "GiB" => GIB,
            "T" | "TiB" => TIB,
            _ => return Err(refused()),
        };
        let bytes = number.checked_mul(unit_bytes).filter(|bytes| *bytes <= i64::MAX.unsigned_abs());
        bytes.map(Self::Bytes).ok_or_else(|| format!("size `{text}`: expected less than 2^63 bytes"))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match OptionValue::deserialize(deserializer)? {
            OptionValue::Text(text) => text.parse().map_err(D::Error::custom),
            OptionValue::Number(number) => u64::try_from(number).map(Self::Bytes).map_err(D::Error::custom),
            OptionValue::Flag(flag) => Err(D::Error::custom(format!("size: expected a text or number, found {flag}"))),
        }
    }
}

/// The value of an option that is handed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// True or false.
    Flag(bool),
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
        }
    }
}

impl Serialize for OptionValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Number(number) => serializer.serialize_i64(*number),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
        }
    }
}

impl<'de> Deserialize<'de> for OptionValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl Visitor<'_> for AnyValue {
    type Value = OptionValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a whole number, true or false")
    }

    fn visit_str<E>(self, text: &str) -> Result<OptionValue, E> {
        Ok(OptionValue::Text(text.to_owned()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<OptionValue, E> {
        Ok(OptionValue::Number(number))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<OptionValue, E> {
        Ok(OptionValue::Flag(flag))
    }
}

/// A value that is written as text.
#[derive(Clone, Debug)]
pub(super) struct Text<T>(pub(super) T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// The owner of files, `USER:GROUP` in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// Number of the user.
    pub user: u32,
    /// Number of the group.
    pub group: u32,
}

impl FromStr for Owner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text
            .split_once(':')
            .and_then(|(user, group)| Some(Self { user: user.parse().ok()?, group: group.parse().ok()? }));
        numbers.ok_or_else(|| format!("owner `{text}`: expected USER:GROUP in numbers"))
    }
}

/// Whether a subvolume may be written to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// It may.
    #[default]
    #[serde(rename = "rw")]
    ReadWrite,
    /// It may not.
    #[serde(rename = "ro")]
    ReadOnly,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_meaning() {
        for (text, size) in [
            ("0", Size::Bytes(0)),
            ("4096", Size::Bytes(4096)),
            ("256M", Size::Bytes(256 * MIB)),
            ("3KiB", Size::Bytes(3 * KIB)),
            ("20%", Size::Percent(20)),
            ("rest", Size::Rest),
            ("auto", Size::Auto),
        ] {
            assert_eq!(text.parse(), Ok(size), "{text}");
        }
        for text in ["", "M", "-1", "1.5G", "0%", "101%", "1KB", "8 G", "8g", "8388608T", "99999999999999999999", "%"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}
