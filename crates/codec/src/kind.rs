//! [`CompressionType`]: the compressions of file extents, with their names, numbers and levels. `compress` and the
//! options of a volume use it.

use std::fmt;

/// Default level of zlib and zstd.
const DEFAULT_LEVEL: i32 = 3;

/// A compression, numbered as in the extent item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompressionType {
    /// Deflate in a zlib wrapper.
    Zlib = 1,
    /// LZO1X in segments of one sector.
    Lzo = 2,
    /// One Zstandard frame.
    Zstd = 3,
}

impl CompressionType {
    /// Every type, in the order of the numbers.
    pub const ALL: [Self; 3] = [Self::Zlib, Self::Lzo, Self::Zstd];

    /// The type with this number on disk. `None` for 0, which means "not compressed", and for
    /// unknown numbers.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            1 => Some(Self::Zlib),
            2 => Some(Self::Lzo),
            3 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The number on disk.
    #[must_use]
    pub const fn to_raw(self) -> u8 {
        match self {
            Self::Zlib => 1,
            Self::Lzo => 2,
            Self::Zstd => 3,
        }
    }

    /// The type with this name, as given in properties and mount options.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name mount options and properties use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Lzo => "lzo",
            Self::Zstd => "zstd",
        }
    }

    /// Legal levels. Level 0 always means the default.
    #[must_use]
    pub const fn levels(self) -> std::ops::RangeInclusive<i32> {
        match self {
            Self::Zlib => 1..=9,
            Self::Lzo => 0..=0,
            Self::Zstd => -15..=15,
        }
    }

    /// `level` brought into [`CompressionType::levels`], 0 replaced by the default.
    #[must_use]
    pub(crate) fn effective_level(self, level: i32) -> i32 {
        let levels = self.levels();
        match (self, level) {
            (Self::Zlib | Self::Zstd, 0) => DEFAULT_LEVEL,
            _ => level.clamp(*levels.start(), *levels.end()),
        }
    }
}

impl fmt::Display for CompressionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
