//! Defines the failure of this crate: what failed, where, what was expected and what was found. Every module returns
//! it.

use std::io;
use std::path::PathBuf;

use crate::number::human;

/// The result of an operation on a disk.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an image was not converted, a table not read or written, or a description refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The image to convert could not be read.
    ///
    /// To do: see the cause behind the colon; check the medium of the image.
    #[error("image: reading at {at}: {source}")]
    Image {
        /// Where in the image, in bytes.
        at: u64,
        /// The host's answer.
        source: io::Error,
    },
    /// The image to convert is shorter than the caller says.
    ///
    /// To do: make the image again; it was cut.
    #[error("image: expected {expected} bytes, found {found}")]
    ImageShort {
        /// Bytes that the image should have.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// The image was written to while it was converted, so that the beginning of the output contradicts its end.
    ///
    /// To do: end the program that writes to the image, and convert again.
    #[error("image: changed while it was converted")]
    ImageChanged,
    /// The output could not be written.
    ///
    /// To do: see the cause behind the colon: make room, or choose another place.
    #[error("output: writing at {at}: {source}")]
    Output {
        /// Where in the output, in bytes.
        at: u64,
        /// The host's answer.
        source: io::Error,
    },
    /// The caller asked for the end.
    ///
    /// To do: nothing; what was written so far is of no use, remove it.
    #[error("cancelled")]
    Cancelled,
    /// A form has images of whole blocks alone.
    ///
    /// To do: make the image larger, to the next multiple, or choose another form.
    #[error("{form}: expected an image of whole blocks of {block_bytes} bytes, found {size_bytes} bytes")]
    PartialBlock {
        /// Name of the form.
        form: &'static str,
        /// Bytes of a block.
        block_bytes: u64,
        /// Bytes of the image.
        size_bytes: u64,
    },
    /// A form cannot hold an image of this size.
    ///
    /// To do: choose another form.
    #[error("{form}: expected an image of at most {max_bytes} bytes, found {size_bytes}")]
    TooLarge {
        /// Name of the form.
        form: &'static str,
        /// Most bytes that it holds.
        max_bytes: u64,
        /// Bytes of the image.
        size_bytes: u64,
    },
    /// A compression or its level that a form does not have.
    ///
    /// To do: use what the message names.
    #[error("compression `{found}`: expected {expected}")]
    Compression {
        /// The possible values.
        expected: &'static str,
        /// The value asked for.
        found: String,
    },
    /// The library that compresses failed.
    ///
    /// To do: report it with `spinney version --verbose`.
    #[error("zstd: {0}")]
    Zstd(&'static str),
    /// The host refused to start a thread.
    ///
    /// To do: raise the limit of threads (`ulimit -u`), or end other programs.
    #[error("starting a thread: {0}")]
    Threads(io::Error),
    /// A disk that holds a partition table could not be read or written.
    ///
    /// To do: see the cause behind the colon; check the medium.
    #[error("partition table: at {at}: {source}")]
    TableIo {
        /// Where on the disk, in bytes.
        at: u64,
        /// The host's answer.
        source: io::Error,
    },
    /// A partition table says what cannot be, or what was asked of one cannot be.
    ///
    /// To do: the disk has no such table or it is damaged: `sgdisk --verify` may mend it.
    #[error("partition table: {what} at {at}: expected {expected}, found {found}")]
    Table {
        /// Name of the field or rule.
        what: &'static str,
        /// Where on the disk, in bytes.
        at: u64,
        /// The values that would be right.
        expected: String,
        /// The value that is there.
        found: String,
    },
    /// A partition that a table to be written cannot hold.
    ///
    /// To do: correct the partition that the message names.
    #[error("partition {number} `{name}`: expected {expected}, found {found}")]
    Partition {
        /// Its number, from 1.
        number: usize,
        /// Its name.
        name: String,
        /// The values that would be right.
        expected: String,
        /// The value asked for.
        found: String,
    },
    /// A swap area that cannot be.
    ///
    /// To do: choose a size or label as the message says.
    #[error("swap area: {what}: expected {expected}, found {found}")]
    Swap {
        /// Size or label.
        what: &'static str,
        /// The values that would be right.
        expected: String,
        /// The value asked for.
        found: String,
    },
    /// A description of a disk could not be read.
    ///
    /// To do: see the cause behind the colon; check the path.
    #[error("{}: {source}", path.display())]
    SpecIo {
        /// Path of the description.
        path: PathBuf,
        /// The host's answer.
        source: io::Error,
    },
    /// A description of a disk is not as it should be.
    ///
    /// To do: correct the line that the message names; the guide lists every key.
    #[error("{}:{line}: {message}", path.display())]
    Spec {
        /// Path of the description.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The mistake in that line.
        message: String,
    },
    /// How much a partition needs could not be found out.
    ///
    /// To do: see the cause behind the colon.
    #[error("partition {number} `{name}`: how much it needs: {source}")]
    Minimum {
        /// Its number, from 1.
        number: usize,
        /// Its name.
        name: String,
        /// The failure of the caller's function.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The partitions of a description do not fit on its disk.
    ///
    /// To do: make the disk larger or a partition smaller, by at least what is missing.
    #[error(
        "partition {number} `{name}`: asks for {asked_bytes} bytes ({}), {free_bytes} bytes ({}) are free, \
         {} bytes ({}) are missing", human(*asked_bytes), human(*free_bytes),
        asked_bytes.saturating_sub(*free_bytes), human(asked_bytes.saturating_sub(*free_bytes))
    )]
    DoesNotFit {
        /// Number of the partition, from 1.
        number: usize,
        /// Its name.
        name: String,
        /// Bytes that it needs.
        asked_bytes: u64,
        /// Bytes that are there for it.
        free_bytes: u64,
    },
    /// A size that a disk cannot have.
    ///
    /// To do: choose a size between those that the message names.
    #[error("disk: expected a size of {min_bytes} to {max_bytes} bytes, found {found_bytes}")]
    DiskSize {
        /// Fewest bytes.
        min_bytes: u64,
        /// Most bytes.
        max_bytes: u64,
        /// Bytes asked for.
        found_bytes: u64,
    },
}

impl Error {
    /// True if the caller asked for the end.
    #[must_use]
    pub const fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled)
    }
}
