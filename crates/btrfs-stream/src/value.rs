//! Defines attribute values other than numbers: UUIDs, times and compression. Commands have them, the encoder and the
//! decoder convert them.

/// A UUID, in print order.
pub type Uuid = [u8; 16];

/// A time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// Compression of an encoded write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Uncompressed.
    None,
    /// Deflate in a zlib wrapper.
    Zlib,
    /// One Zstandard frame.
    Zstd,
    /// LZO1X in segments of `sector_size` bytes, a power of two from 4096 to 65536.
    Lzo {
        /// Segment size in bytes.
        sector_size: u32,
    },
}

impl Compression {
    /// The compression with this number, one of `BTRFS_ENCODED_IO_COMPRESSION_*`.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::None),
            1 => Some(Self::Zlib),
            2 => Some(Self::Zstd),
            3 => Some(Self::Lzo { sector_size: 4 << 10 }),
            4 => Some(Self::Lzo { sector_size: 8 << 10 }),
            5 => Some(Self::Lzo { sector_size: 16 << 10 }),
            6 => Some(Self::Lzo { sector_size: 32 << 10 }),
            7 => Some(Self::Lzo { sector_size: 64 << 10 }),
            _ => None,
        }
    }

    /// The number in a stream. An invalid sector size becomes 4096.
    #[must_use]
    pub const fn to_raw(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Zlib => 1,
            Self::Zstd => 2,
            Self::Lzo { sector_size: 0x2000 } => 4,
            Self::Lzo { sector_size: 0x4000 } => 5,
            Self::Lzo { sector_size: 0x8000 } => 6,
            Self::Lzo { sector_size: 0x10000 } => 7,
            Self::Lzo { .. } => 3,
        }
    }
}
