//! Holds the choices of a conversion. Called by `write` and everyone who calls it.

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::{Error, Result};

/// Levels of zstd, from fast to small.
pub const ZSTD_LEVELS: RangeInclusive<i32> = 1..=22;
/// Level of zstd where none is named: that of the program `zstd`.
const ZSTD_LEVEL: i32 = 3;
/// More threads than this wait for one reader and one writer.
pub(super) const THREADS_MAX: usize = 32;

/// How data is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// As the form usually has it: zstd level 3 for [`Form::Zstd`](super::Form::Zstd), else none.
    #[default]
    Usual,
    /// Not at all.
    None,
    /// Zstandard with a level of [`ZSTD_LEVELS`]. QEMU reads it in qcow2 since version 5.1.
    Zstd(i32),
}

/// How an Android sparse image describes blocks of zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zeros {
    /// That they are filled with zeros: right on every medium.
    #[default]
    Fill,
    /// That their contents do not matter: smaller and faster, and right only on a medium that was erased, since old
    /// bytes stay where file systems expect zeros.
    DontCare,
}

/// The choices of a conversion.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// How data is compressed.
    pub compression: Compression,
    /// Threads that compress, at most 32. The output does not depend on it.
    pub threads: NonZeroUsize,
    /// How an Android sparse image describes zeros.
    pub zeros: Zeros,
    /// An Android sparse image ends with a checksum of all bytes.
    pub has_checksum: bool,
    /// Called again and again with the bytes of the image that are done, on the thread that called.
    pub progress: &'a dyn Fn(u64),
    /// Asked again and again: true ends the conversion with [`Error::Cancelled`].
    pub is_cancelled: &'a dyn Fn() -> bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            compression: Compression::Usual,
            threads: default_threads(),
            zeros: Zeros::Fill,
            has_checksum: false,
            progress: &|_| {},
            is_cancelled: &|| false,
        }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("compression", &self.compression)
            .field("threads", &self.threads)
            .field("zeros", &self.zeros)
            .field("has_checksum", &self.has_checksum)
            .finish_non_exhaustive()
    }
}

/// As many threads as there are processors, at most 32.
#[must_use]
pub fn default_threads() -> NonZeroUsize {
    let max = NonZeroUsize::new(THREADS_MAX).unwrap_or(NonZeroUsize::MIN);
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN).min(max)
}

impl Compression {
    /// The level of zstd for a form that usually is not compressed, or nothing.
    pub(super) fn level_if_any(self) -> Result<Option<i32>> {
        match self {
            Self::Usual | Self::None => Ok(None),
            Self::Zstd(level) => checked(level).map(Some),
        }
    }

    /// The level of zstd for a form that always is compressed.
    pub(super) fn level(self) -> Result<i32> {
        match self {
            Self::Usual => Ok(ZSTD_LEVEL),
            Self::Zstd(level) => checked(level),
            Self::None => Err(Error::Compression { expected: "zstd, for this form", found: "none".to_owned() }),
        }
    }

    /// Refuses a choice for a form that is never compressed.
    pub(super) fn refuse(self) -> Result<()> {
        match self {
            Self::Usual | Self::None => Ok(()),
            Self::Zstd(_) => Err(Error::Compression { expected: "none, for this form", found: self.to_string() }),
        }
    }
}

fn checked(level: i32) -> Result<i32> {
    let found = || Error::Compression { expected: "a level of 1 to 22", found: format!("zstd:{level}") };
    if ZSTD_LEVELS.contains(&level) { Ok(level) } else { Err(found()) }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usual => f.write_str("usual"),
            Self::None => f.write_str("none"),
            Self::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

impl FromStr for Compression {
    type Err = Error;

    /// `none`, `zstd` or `zstd:LEVEL`.
    fn from_str(text: &str) -> Result<Self> {
        let refused = || Error::Compression { expected: "none, zstd or zstd:1 to zstd:22", found: text.to_owned() };
        match text.split_once(':') {
            None if text == "none" => Ok(Self::None),
            None if text == "zstd" => Ok(Self::Zstd(ZSTD_LEVEL)),
            Some(("zstd", level)) => {
                let level = level.parse().ok().filter(|level| ZSTD_LEVELS.contains(level));
                level.map(Self::Zstd).ok_or_else(refused)
            }
            _ => Err(refused()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressions_are_read_as_they_are_printed() {
        for text in ["none", "zstd:1", "zstd:22"] {
            assert_eq!(text.parse::<Compression>().unwrap().to_string(), text);
        }
        assert_eq!("zstd".parse::<Compression>().unwrap(), Compression::Zstd(3));
        for text in ["", "zstd:", "zstd:0", "zstd:23", "zlib", "zstd:9:9", "none:1"] {
            assert!(text.parse::<Compression>().is_err(), "{text}");
        }
    }
}
