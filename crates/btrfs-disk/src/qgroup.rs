//! Defines the ids of quota groups: a level, and a number within it. Used by the store's quotas, by check and by the
//! command `qgroup`.

use std::fmt;
use std::str::FromStr;

use crate::ids::TreeId;

/// Bits of a quota group's number below its level.
const LEVEL_SHIFT: u32 = 48;

/// Number of a quota group: `level << 48 | number`. At level 0 the number is that of a subvolume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QgroupId(pub u64);

impl QgroupId {
    /// The group of one subvolume.
    #[must_use]
    pub const fn of(subvolume: TreeId) -> Self {
        Self(subvolume.0)
    }

    /// Height above the groups of subvolumes: a group has members of lower levels only.
    #[must_use]
    pub const fn level(self) -> u64 {
        self.0 >> LEVEL_SHIFT
    }

    /// Number within its level.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & ((1 << LEVEL_SHIFT) - 1)
    }
}

impl fmt::Display for QgroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.level(), self.number())
    }
}

/// Error for a text that is not a quota group id such as `1/100`.
///
/// To do: write it as in `0/257`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a quota group: it is written LEVEL/NUMBER, as in 0/257 or 1/100")]
pub struct NotAQgroup;

impl FromStr for QgroupId {
    type Err = NotAQgroup;

    fn from_str(text: &str) -> Result<Self, NotAQgroup> {
        let (level, number) = text.split_once('/').ok_or(NotAQgroup)?;
        let level = u64::from(level.parse::<u16>().map_err(|_| NotAQgroup)?);
        let number = number.parse::<u64>().map_err(|_| NotAQgroup)?;
        if number >> LEVEL_SHIFT != 0 {
            return Err(NotAQgroup);
        }
        Ok(Self(level << LEVEL_SHIFT | number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_reads_as_it_is_written() {
        for text in ["0/5", "0/257", "1/100", "65535/281474976710655"] {
            assert_eq!(text.parse::<QgroupId>().unwrap().to_string(), text);
        }
        for text in ["", "5", "1/", "/1", "65536/1", "1/281474976710656", "-1/2", "1/2/3"] {
            assert_eq!(text.parse::<QgroupId>(), Err(NotAQgroup), "{text}");
        }
    }
}
