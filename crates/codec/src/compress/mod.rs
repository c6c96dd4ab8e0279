//! Compression.

use std::fmt;

/// How an extent is compressed; the numbers are those of the extent item.
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
    /// The name mount options and properties use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Lzo => "lzo",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for CompressionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
