//! Parses the compression of data, as options and a file's property specify it. Used by options, xattrs and writeback.

use btrfs_disk::flags::Incompat;
use codec::CompressionType;

/// Attribute that specifies a file's compression.
pub(crate) const COMPRESSION_NAME: &[u8] = b"btrfs.compression";

/// How new data is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// The algorithm.
    pub kind: CompressionType,
    /// Its level; 0 for the algorithm's default.
    pub level: i32,
    /// Compresses also data that does not look compressible, and files with the flag against it; data that does not
    /// become smaller is stored uncompressed all the same.
    pub is_forced: bool,
}

impl Compression {
    /// The algorithm and level in the syntax of the kernel's mount options: `zstd`, `zlib:9`. `None` for an unknown
    /// algorithm or level.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, level) = text.split_once(':').unwrap_or((text, "0"));
        let kind = CompressionType::from_name(name)?;
        Self::new(kind, level.parse().ok()?)
    }

    /// An algorithm and one of its levels, 0 for its default; `None` for an unknown level.
    pub(crate) fn new(kind: CompressionType, level: i32) -> Option<Self> {
        let is_level = level == 0 || kind.levels().contains(&level);
        is_level.then_some(Self { kind, level, is_forced: false })
    }
}

/// The feature that a reader of data compressed so has to know.
pub(crate) fn feature_of(kind: CompressionType) -> Option<Incompat> {
    match kind {
        CompressionType::Zlib => None,
        CompressionType::Lzo => Some(Incompat::COMPRESS_LZO),
        CompressionType::Zstd => Some(Incompat::COMPRESS_ZSTD),
    }
}

/// The value of a file's compression property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompressionProperty {
    Unset,
    Never,
    As(Compression),
}

impl CompressionProperty {
    /// `None` for a value that the kernel refuses. The kernel accepts any text after the three names; after `zlib` or
    /// `zstd` it is the level if it is a number.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let of = |kind| Self::As(Compression { kind, level: 0, is_forced: false });
        Some(match value {
            b"" => Self::Unset,
            b"no" | b"none" => Self::Never,
            value => {
                let known = [
                    (&b"zlib"[..], CompressionType::Zlib),
                    (b"lzo", CompressionType::Lzo),
                    (b"zstd", CompressionType::Zstd),
                ];
                let (_, kind) = known.into_iter().find(|(name, _)| value.starts_with(name))?;
                let said = std::str::from_utf8(value).ok().and_then(Compression::parse);
                said.map_or_else(|| of(kind), Self::As)
            }
        })
    }

    /// Whether the inode is to be compressed, and whether it never is.
    pub(crate) fn flags(self) -> (bool, bool) {
        match self {
            Self::Unset => (false, false),
            Self::Never => (false, true),
            Self::As(_) => (true, false),
        }
    }

    /// The feature that a reader has to know.
    pub(crate) fn feature(self) -> Option<Incompat> {
        match self {
            Self::As(compression) => feature_of(compression.kind),
            Self::Unset | Self::Never => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_properties_are_read_as_the_kernel_reads_them() {
        let of = |kind, level| Compression { kind, level, is_forced: false };
        assert_eq!(Compression::parse("zstd"), Some(of(CompressionType::Zstd, 0)));
        assert_eq!(Compression::parse("zlib:9"), Some(of(CompressionType::Zlib, 9)));
        assert_eq!(Compression::parse("zstd:-7"), Some(of(CompressionType::Zstd, -7)));
        assert_eq!(Compression::parse("lzo"), Some(of(CompressionType::Lzo, 0)));
        for wrong in ["", "zip", "zlib:10", "zstd:16", "zstd:x", "lzo:1", "zstd:"] {
            assert_eq!(Compression::parse(wrong), None, "{wrong}");
        }
        let property = CompressionProperty::parse;
        assert_eq!(property(b"zstd:5"), Some(CompressionProperty::As(of(CompressionType::Zstd, 5))));
        assert_eq!(property(b"zlibfoo"), Some(CompressionProperty::As(of(CompressionType::Zlib, 0))));
        assert_eq!(property(b"none"), Some(CompressionProperty::Never));
        for value in [&b"lzo"[..], b"lzo:3", b"lzo:", b"lzo:x", b"lzo2", b"lzo\0"] {
            assert_eq!(property(value), Some(CompressionProperty::As(of(CompressionType::Lzo, 0))), "{value:?}");
        }
        for value in [&b"gzip"[..], b"ZLIB", b"zst", b"none:1", b"no\0", b"non", b" lzo", b"\0"] {
            assert_eq!(property(value), None, "{value:?}");
        }
    }
}
