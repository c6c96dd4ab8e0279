//! Defines the errors of decompression and compression. `compress` returns them; file reads and receipts pass them on.

use crate::kind::CompressionType;

/// The result of a compression or decompression.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure of a codec. All but [`Error::OutOfMemory`] are caused by the input.
///
/// To do: run `spinney check IMAGE`; the page on rescue says how to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The compressed bytes are not a valid stream.
    #[error("{codec}: {what} at byte {at} of the compressed data")]
    Invalid {
        /// The codec.
        codec: CompressionType,
        /// The problem.
        what: &'static str,
        /// Its position, as far as the codec reports it.
        at: usize,
    },
    /// A length inside the framing is impossible.
    #[error("{codec}: {what} at byte {at}: expected at most {expected}, found {found}")]
    Length {
        /// The codec.
        codec: CompressionType,
        /// Name of the length.
        what: &'static str,
        /// Its position in the compressed data.
        at: usize,
        /// The largest legal value.
        expected: usize,
        /// The value.
        found: usize,
    },
    /// The stream is valid but has fewer bytes than the extent.
    #[error("{codec}: expected {expected} bytes of output, found {found}")]
    ShortOutput {
        /// The codec.
        codec: CompressionType,
        /// Bytes asked for.
        expected: usize,
        /// Bytes in the stream.
        found: usize,
    },
    /// The stream has more bytes than the extent.
    #[error("{codec}: more than the expected {expected} bytes of output")]
    LongOutput {
        /// The codec.
        codec: CompressionType,
        /// Bytes asked for.
        expected: usize,
    },
    /// The codec could not get its working memory.
    ///
    /// To do: give the program more memory.
    #[error("{codec}: out of memory")]
    OutOfMemory {
        /// The codec.
        codec: CompressionType,
    },
}
