//! Takes the bytes of a conversion: in a file that has places, or in a stream that has none. Called by the writers of
//! all forms.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};

use portable::FileExt;

use super::watch::Watch;
use super::zeros::ZEROS;
use crate::number::{at_most, bytes};
use crate::{Error, Result};

/// Small writes are collected to as many bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// Where a conversion writes.
pub enum Output<'a> {
    /// A file, which is emptied first, is written from its beginning and may get holes. Other files than regular ones
    /// (pipes, devices) are written as streams.
    File(&'a File),
    /// A stream: zeros are written, and some forms read the image twice.
    Stream(&'a mut dyn Write),
}

impl fmt::Debug for Output<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::File(_)) { "File" } else { "Stream" })
    }
}

/// Either kind of output, ready to be written.
pub(super) enum Ready<'a> {
    /// An empty regular file.
    File(&'a File),
    Stream(Stream<'a>),
}

/// Something that is written in order.
pub(super) enum Stream<'a> {
    File(&'a File),
    Writer(&'a mut dyn Write),
}

impl Write for Stream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Writer(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Writer(writer) => writer.flush(),
        }
    }
}

impl<'a> Output<'a> {
    /// Empties a regular file, and takes other files as streams.
    pub(super) fn ready(self) -> Result<Ready<'a>> {
        let failed = |source| Error::Output { at: 0, source };
        match self {
            Self::File(file) if file.metadata().map_err(failed)?.is_file() => {
                file.set_len(0).map_err(failed)?;
                Ok(Ready::File(file))
            }
            Self::File(file) => Ok(Ready::Stream(Stream::File(file))),
            Self::Stream(writer) => Ok(Ready::Stream(Stream::Writer(writer))),
        }
    }
}

/// A file that is written from a place on.
pub(super) struct Positioned<'a> {
    file: &'a File,
    at: u64,
}

impl<'a> Positioned<'a> {
    pub(super) fn new(file: &'a File, at: u64) -> Self {
        Self { file, at }
    }
}

impl Write for Positioned<'_> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        let written = self.file.write_at(part, self.at)?;
        self.at += bytes(written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An output in order, which knows its place. [`Sink::end`] writes what is still collected.
#[must_use = "what is collected is lost without `end`"]
pub(super) struct Sink<'a> {
    writer: BufWriter<&'a mut dyn Write>,
    at: u64,
}

impl<'a> Sink<'a> {
    /// An output whose next byte is at a place.
    pub(super) fn new(writer: &'a mut dyn Write, at: u64) -> Self {
        Self { writer: BufWriter::with_capacity(BUFFER_BYTES, writer), at }
    }

    /// The place of the next byte.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn write(&mut self, part: &[u8]) -> Result<()> {
        let at = self.at;
        self.writer.write_all(part).map_err(|source| Error::Output { at, source })?;
        self.at += bytes(part.len());
        Ok(())
    }

    /// Writes as many zeros.
    pub(super) fn write_zeros(&mut self, len_bytes: u64) -> Result<()> {
        let mut left = len_bytes;
        while left > 0 {
            let len = at_most(left, ZEROS.len());
            self.write(ZEROS.get(..len).unwrap_or_default())?;
            left -= bytes(len);
        }
        Ok(())
    }

    /// Writes zeros up to the next multiple of `unit_bytes`.
    pub(super) fn align(&mut self, unit_bytes: u64) -> Result<()> {
        self.write_zeros((unit_bytes - self.at % unit_bytes) % unit_bytes)
    }

    /// Writes what is still collected; returns the place behind the last byte.
    pub(super) fn end(mut self) -> Result<u64> {
        let at = self.at;
        self.writer.flush().map_err(|source| Error::Output { at, source })?;
        Ok(at)
    }
}

/// Writes a form whose first `head_bytes` bytes tell of all that follows: `body` writes what follows and returns what
/// the head has to tell, from which `head` makes it. In a file the head is written last; for a stream the body is made
/// twice, the first time for nobody. Returns the bytes of the output too.
pub(super) fn write_headed<T: PartialEq>(
    output: Output<'_>,
    head_bytes: u64,
    watch: &Watch<'_>,
    body: impl Fn(&mut Sink<'_>) -> Result<T>,
    head: impl Fn(&T) -> Result<Vec<u8>>,
) -> Result<(T, u64)> {
    let whole = |writer: &mut dyn Write| {
        let mut sink = Sink::new(writer, head_bytes);
        let told = body(&mut sink)?;
        sink.end().map(|end| (told, end))
    };
    match output.ready()? {
        Ready::File(file) => {
            let written = whole(&mut Positioned::new(file, head_bytes))?;
            file.write_all_at(&head(&written.0)?, 0).map_err(|source| Error::Output { at: 0, source })?;
            Ok(written)
        }
        Ready::Stream(mut stream) => {
            watch.first_pass();
            let (told, _) = whole(&mut io::sink())?;
            let mut sink = Sink::new(&mut stream, 0);
            sink.write(&head(&told)?)?;
            sink.end()?;
            watch.second_pass();
            let written = whole(&mut stream)?;
            if written.0 == told { Ok(written) } else { Err(Error::ImageChanged) }
        }
    }
}
