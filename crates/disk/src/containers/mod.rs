//! Converts a finished raw image of a disk to the form in which it is shipped, as a stream.
//!
//! ```text
//!  image --scan--> runs of data, runs of zeros --> raw | qcow2 | android | zstd --> Sink --> file, pipe
//!                                                        \-- ordered (threads) --/
//! ```
//!
//! A form's writer takes the image once from its beginning to its end. Forms whose first bytes tell of all that follows
//! get them written last into a file, and take a second pass over the image for a pipe; the bytes are the same.
//!
//! Invariants
//! * Holes and blocks of zeros are one thing: the output depends on the bytes of the image, not on how it is stored.
//! * The output is the same for every number of threads.
//! * Memory: a few pieces of 2 MiB for each thread, and tables (qcow2: one bit, compressed 4 bytes more for each 64 KiB
//!   of data; zstd: 8 bytes for each 2 MiB).
//!
//! Failure: what was written so far is of no use; the caller removes it. Callers: the commands that build and convert
//! images.

mod android;
mod compressor;
mod form;
mod options;
mod ordered;
mod output;
mod qcow2;
mod raw;
mod running_crc;
mod scan;
mod watch;
mod zeros;
mod zstd;

use std::fs::File;

use crate::{Error, Result};
pub use form::Form;
pub use options::{Compression, Options, ZSTD_LEVELS, Zeros, default_threads};
pub use output::Output;
use scan::Image;
use watch::Watch;

/// The result of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the output, of a sparse file holes included.
    pub output_bytes: u64,
    /// Bytes of the image that are not known to be zero, in whole units of the form.
    pub data_bytes: u64,
}

/// Writes the first `size_bytes` of `image` in a form. Moves the position of `image`'s descriptor, whose value counts
/// for nothing. A regular file as output is emptied first.
///
/// # Errors
/// An image that is shorter, that cannot be read or changes meanwhile; an output that cannot be written; a size or
/// compression that the form does not have; cancellation.
pub fn write(image: &File, size_bytes: u64, form: Form, output: Output<'_>, options: &Options<'_>) -> Result<Written> {
    let found = image.metadata().map_err(|source| Error::Image { at: 0, source })?;
    if found.is_file() && found.len() < size_bytes {
        return Err(Error::ImageShort { expected: size_bytes, found: found.len() });
    }
    let image = Image { file: image, size_bytes };
    let watch = Watch::new(options);
    match form {
        Form::Raw => raw::write(image, output, &watch),
        Form::Qcow2 => qcow2::write(image, output, options, &watch),
        Form::AndroidSparse => android::write(image, output, options, &watch),
        Form::Zstd => zstd::write(image, output, options, &watch),
    }
}
