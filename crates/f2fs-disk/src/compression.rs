//! Parses compressed clusters of a file, and names the algorithms. `f2fs` reads clusters with it (`cluster`).
//!
//! A cluster is a power of two of blocks. Where it is compressed, its first address is [`BlockAddr::COMPRESS`], the
//! addresses behind it are those of the compressed bytes, and the rest are none or reserved.
//!
//! [`BlockAddr::COMPRESS`]: crate::BlockAddr::COMPRESS

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::OnDisk;
use crate::convert::{to_u64, usize_from};
use crate::error::{Corrupt, Detail, within};

/// The header of a compressed cluster.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct CompressHeader {
    /// Bytes behind the header.
    pub clen: U32,
    /// Their checksum, where the file has them.
    pub chksum: U32,
    /// Zeros.
    pub reserved: [U32; 4],
}

const _: () = assert!(size_of::<CompressHeader>() == 24);

impl OnDisk for CompressHeader {
    const NAME: &'static str = "compressed cluster size";
}

/// The compressed bytes of a cluster, given its blocks one after the other.
///
/// # Errors
/// [`Corrupt`] for a length that does not fit them, and a wrong checksum where there is one.
pub fn stream(blocks: &[u8], has_checksum: bool) -> Result<&[u8], Corrupt> {
    let header = CompressHeader::parse(blocks)?;
    let room = blocks.split_at_checked(size_of::<CompressHeader>()).map_or(&[][..], |(_, room)| room);
    let len = usize_from(header.clen.get());
    let too_long = Corrupt::new("compressed cluster clen", Detail::Range(1, to_u64(room.len())), Detail::size(len));
    let stream = room.get(..len).filter(|stream| !stream.is_empty()).ok_or(too_long)?;
    if has_checksum {
        let (expected, found) = (crate::hash::crc32(stream), header.chksum.get());
        if expected != found {
            let (expected, found) = (Detail::Hex(u64::from(expected)), Detail::Hex(u64::from(found)));
            return Err(Corrupt::new("compressed cluster chksum", expected, found));
        }
    }
    Ok(stream)
}

/// The compression algorithm of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// LZO1X.
    Lzo = 0,
    /// LZ4.
    Lz4 = 1,
    /// Zstandard.
    Zstd = 2,
    /// LZO1X with run lengths.
    LzoRle = 3,
}

impl Algorithm {
    /// The algorithm with this number.
    ///
    /// # Errors
    /// [`Corrupt`] for a number without one.
    pub fn from_raw(raw: u8) -> Result<Self, Corrupt> {
        Ok(match raw {
            0 => Self::Lzo,
            1 => Self::Lz4,
            2 => Self::Zstd,
            3 => Self::LzoRle,
            _ => {
                return Err(Corrupt::new(
                    "inode i_compress_algorithm",
                    Detail::AtMost(3),
                    Detail::Number(u64::from(raw)),
                ));
            }
        })
    }

    /// The name that mount options have for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lzo => "lzo",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::LzoRle => "lzo-rle",
        }
    }
}

/// Blocks of a cluster: 4 to 256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterSize(u32);

impl ClusterSize {
    /// From its logarithm.
    ///
    /// # Errors
    /// [`Corrupt`] for less than 2 and more than 8.
    pub fn from_log(log: u8) -> Result<Self, Corrupt> {
        within("inode i_log_cluster_size", u64::from(log), 2, 8)?;
        Ok(Self(1_u32.checked_shl(u32::from(log)).unwrap_or(4)))
    }

    /// Blocks.
    #[must_use]
    pub const fn blocks(self) -> u32 {
        self.0
    }

    /// The start of the cluster that a block of a file is in.
    #[must_use]
    pub fn first_of(self, index: u64) -> u64 {
        index & !u64::from(self.0.saturating_sub(1))
    }

    /// The most whole clusters in so many addresses.
    #[must_use]
    pub const fn round_down(self, count: u32) -> u32 {
        count & !self.0.saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_the_length_of_its_header() {
        let mut blocks = vec![0; 4096];
        blocks[0] = 3;
        blocks[24..27].copy_from_slice(b"abc");
        assert_eq!(stream(&blocks, false).unwrap(), b"abc");
        assert_eq!(stream(&blocks, true).unwrap_err().what, "compressed cluster chksum");
        blocks[4..8].copy_from_slice(&crate::hash::crc32(b"abc").to_le_bytes());
        assert_eq!(stream(&blocks, true).unwrap(), b"abc");
        blocks[1] = 0x10;
        assert!(stream(&blocks, false).unwrap_err().to_string().ends_with("expected 1 to 4072, found 4099"));
        assert!(stream(&[0; 4096], false).is_err() && stream(&[0; 8], false).is_err());
    }

    #[test]
    fn clusters_are_powers_of_two() {
        let cluster = ClusterSize::from_log(2).unwrap();
        assert_eq!((cluster.blocks(), cluster.first_of(7), cluster.round_down(1018)), (4, 4, 1016));
        assert!(
            ClusterSize::from_log(1).is_err()
                && ClusterSize::from_log(9).is_err()
                && ClusterSize::from_log(255).is_err()
        );
        assert_eq!(Algorithm::from_raw(3).unwrap().name(), "lzo-rle");
        assert!(Algorithm::from_raw(4).is_err());
    }
}
