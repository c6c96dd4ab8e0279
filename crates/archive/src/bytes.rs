//! Reads the bytes of an archive in order, decompressed: headers into memory, contents to where they are kept. Readers
//! of both formats call it.
//!
//! Invariants: no more than the allowed bytes are read; nothing is buffered but one piece of 64 KiB; contents of an
//! uncompressed regular file are not read at all.

use std::io::{self, BufReader, Read};
use std::sync::Arc;

use portable::FileExt as _;
use transfer::Observer;

use crate::accounts::Accounts;
use crate::decompress::{Compressed, Compression, Decompressor, MAGIC_BYTES, fill};
use crate::error::{Error, Place, Result};
use crate::input::{FilePart, Input, Kind, ReadOptions};
use crate::spool::{Keeping, Spool};
use crate::stored::{Run, StoredRuns};

/// Bytes that are read at once, a multiple of the smallest hole.
const PIECE_BYTES: usize = 64 << 10;

/// Where decompressed bytes come from.
enum Origin {
    File(FilePart),
    Stream(Box<dyn Read + Send>),
}

/// A part of a file, as a stream.
struct FileStream(FilePart);

impl Read for FileStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = read_part(&self.0, 0, buffer)?;
        self.0.begin = self.0.begin.saturating_add(number(count));
        Ok(count)
    }
}

/// The bytes of an archive.
pub(crate) struct Bytes<'a> {
    origin: Origin,
    compression: Option<Compression>,
    /// Offset of the next byte that is handed out.
    at: u64,
    buffer: Vec<u8>,
    /// The part of `buffer` that was read and not handed out.
    begin: usize,
    end: usize,
    max: u64,
    spool: Spool,
    watch: &'a dyn Observer,
    accounts: Accounts,
}

/// Contents that are kept: `size` bytes, of which the runs have data.
pub(crate) struct Kept {
    pub(crate) runs: Vec<Run>,
}

/// The decompressed bytes of an archive or of anything else, as a stream. The compression is recognised by its first
/// bytes; what is not compressed is passed on.
///
/// # Errors
/// [`Error::Read`], [`Error::Compressed`]; [`Error::Empty`].
pub fn decompressed(input: Input) -> Result<Box<dyn Read + Send>> {
    let (origin, _) = open(input)?;
    Ok(match origin {
        Origin::File(part) => Box::new(FileStream(part)),
        Origin::Stream(stream) => stream,
    })
}

fn open(input: Input) -> Result<(Origin, Option<Compression>)> {
    let failed = |source| Error::Read { at: 0, source };
    let mut magic = [0; MAGIC_BYTES];
    let (count, kind) = match input.0 {
        Kind::File(part) => (fill(&mut FileStream(part.clone()), &mut magic).map_err(failed)?, Kind::File(part)),
        Kind::Stream(mut stream) => (fill(&mut stream, &mut magic).map_err(failed)?, Kind::Stream(stream)),
    };
    let magic = magic.get(..count).unwrap_or_default();
    if magic.is_empty() {
        return Err(Error::Empty);
    }
    let compression = Compression::of(magic);
    let data = match kind {
        Kind::File(part) if compression.is_none() => return Ok((Origin::File(part), None)),
        Kind::File(part) => {
            Compressed::new(Vec::new(), Box::new(BufReader::with_capacity(PIECE_BYTES, FileStream(part))))
        }
        Kind::Stream(stream) => {
            Compressed::new(magic.to_vec(), Box::new(BufReader::with_capacity(PIECE_BYTES, stream)))
        }
    };
    let Some(compression) = compression else { return Ok((Origin::Stream(Box::new(data)), None)) };
    let failed = |source| Error::Compressed { at: 0, compression: compression.name(), source };
    let stream = Decompressor::new(compression, data).map_err(failed)?;
    Ok((Origin::Stream(Box::new(stream)), Some(compression)))
}

impl<'a> Bytes<'a> {
    pub(crate) fn open(input: Input, options: &ReadOptions) -> Result<Self> {
        let (origin, compression) = open(input)?;
        Ok(Self {
            origin,
            compression,
            at: 0,
            buffer: vec![0; PIECE_BYTES],
            begin: 0,
            end: 0,
            max: options.max_bytes,
            spool: Spool::new(&options.temp_dir),
            watch: &(),
            accounts: options.accounts.clone(),
        })
    }

    /// The same bytes; `watch` can end the reading.
    pub(crate) fn watched<'b>(self, watch: &'b dyn Observer) -> Bytes<'b> {
        Bytes { watch, ..self }
    }

    /// Offset of the next byte.
    pub(crate) const fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    pub(crate) fn watch(&self) -> &'a dyn Observer {
        self.watch
    }

    /// The next bytes, which stay the next ones: `count` of them, 64 KiB at most, or fewer at the end.
    pub(crate) fn peek(&mut self, count: usize) -> Result<&[u8]> {
        let count = count.min(PIECE_BYTES);
        if self.end.saturating_sub(self.begin) < count {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end.saturating_sub(self.begin));
            while self.end < count {
                match self.read()? {
                    0 => break,
                    more => self.end = self.end.saturating_add(more),
                }
            }
        }
        let end = self.end.min(self.begin.saturating_add(count));
        Ok(self.buffer.get(self.begin..end).unwrap_or_default())
    }

    /// Reads behind what is buffered.
    fn read(&mut self) -> Result<usize> {
        let at = self.at.saturating_add(number(self.end));
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        loop {
            let count = match &mut self.origin {
                Origin::File(part) => read_part(part, at, room),
                Origin::Stream(stream) => stream.read(room),
            };
            match count {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(failed(self.compression, at, source)),
            }
        }
    }

    /// Hands out bytes that are buffered.
    fn consume(&mut self, count: usize) -> Result<()> {
        self.begin = self.begin.saturating_add(count).min(self.end);
        self.advance(number(count))
    }

    fn advance(&mut self, count: u64) -> Result<()> {
        self.at = self.at.saturating_add(count);
        if self.at > self.max { Err(Error::TooLarge { max: self.max }) } else { Ok(()) }
    }

    /// The next `N` bytes. `None` at the end of the archive.
    pub(crate) fn block<const N: usize>(&mut self, place: &Place, part: &'static str) -> Result<Option<[u8; N]>> {
        let at = self.at;
        let bytes = self.peek(N)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let found = number(bytes.len());
        let block: [u8; N] = bytes.try_into().map_err(|_| truncated(place, at, part, number(N), found))?;
        self.consume(N)?;
        Ok(Some(block))
    }

    /// The next `count` bytes, in memory. The caller limits `count`.
    pub(crate) fn take(&mut self, count: u64, place: &Place, part: &'static str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.each(count, place, part, |_, piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// Passes over `count` bytes.
    pub(crate) fn skip(&mut self, count: u64, place: &Place, part: &'static str) -> Result<()> {
        if matches!(self.origin, Origin::File(_)) {
            return self.pass(count, place, part).map(|_| ());
        }
        self.each(count, place, part, |_, _| Ok(()))
    }

    /// Keeps the next `count` bytes as contents.
    pub(crate) fn keep(&mut self, count: u64, place: &Place, part: &'static str) -> Result<Kept> {
        if matches!(self.origin, Origin::File(_)) {
            let position = self.pass(count, place, part)?;
            let run = Run { at: 0, len: count, position };
            return Ok(Kept { runs: if count > 0 { vec![run] } else { Vec::new() } });
        }
        let mut keeping = Keeping::default();
        self.each(count, place, part, |spool, piece| spool.keep(&mut keeping, piece))?;
        Ok(Kept { runs: keeping.runs })
    }

    /// As [`Bytes::keep`], and the sum of the bytes.
    pub(crate) fn keep_summed(&mut self, count: u64, place: &Place, part: &'static str) -> Result<(Kept, u32)> {
        let position = match &self.origin {
            Origin::File(file) => Some(file.begin.saturating_add(self.at)),
            Origin::Stream(_) => None,
        };
        let (mut keeping, mut sum) = (Keeping::default(), 0_u32);
        self.each(count, place, part, |spool, piece| {
            sum = piece.iter().fold(sum, |sum, byte| sum.wrapping_add(u32::from(*byte)));
            if position.is_none() { spool.keep(&mut keeping, piece) } else { Ok(()) }
        })?;
        let run = position.map(|position| Run { at: 0, len: count, position }).filter(|_| count > 0);
        Ok((Kept { runs: run.map_or(keeping.runs, |run| vec![run]) }, sum))
    }

    /// Contents of `size` bytes, of which the runs have data.
    pub(crate) fn stored(&self, size: u64, runs: Vec<Run>) -> StoredRuns {
        let file = match &self.origin {
            Origin::File(part) => Some(Arc::clone(&part.file)),
            Origin::Stream(_) => self.spool.file(),
        };
        StoredRuns { file, size, runs: runs.into() }
    }

    /// Passes over zeros, and begins to decompress if compressed data follows uncompressed one. Returns the next six
    /// bytes, or what there is of them.
    pub(crate) fn next_part(&mut self) -> Result<Vec<u8>> {
        loop {
            self.watch.check()?;
            let piece = self.peek(PIECE_BYTES)?;
            let zeros = piece.iter().take_while(|byte| **byte == 0).count();
            let is_end = piece.is_empty();
            self.consume(zeros)?;
            if is_end || self.peek(1)?.first().is_some_and(|byte| *byte != 0) {
                break;
            }
        }
        let magic = self.peek(MAGIC_BYTES)?.to_vec();
        if let Some(compression) = Compression::of(&magic).filter(|_| self.compression.is_none()) {
            self.decompress_rest(compression)?;
            return Ok(self.peek(MAGIC_BYTES)?.to_vec());
        }
        Ok(magic)
    }

    fn decompress_rest(&mut self, compression: Compression) -> Result<()> {
        let buffered = self.buffer.get(self.begin..self.end).unwrap_or_default().to_vec();
        let rest: Box<dyn Read + Send> =
            match std::mem::replace(&mut self.origin, Origin::Stream(Box::new(io::empty()))) {
                Origin::File(mut part) => {
                    part.begin = part.begin.saturating_add(self.at).saturating_add(number(buffered.len()));
                    Box::new(FileStream(part))
                }
                Origin::Stream(stream) => stream,
            };
        let data = Compressed::new(buffered, Box::new(BufReader::with_capacity(PIECE_BYTES, rest)));
        let at = self.at;
        let failed = |source| Error::Compressed { at, compression: compression.name(), source };
        self.origin = Origin::Stream(Box::new(Decompressor::new(compression, data).map_err(failed)?));
        (self.begin, self.end, self.compression) = (0, 0, Some(compression));
        Ok(())
    }

    /// Reads to the end, so that checksums of compressed data are verified and the writer of a pipe is not disturbed.
    pub(crate) fn drain(&mut self) -> Result<()> {
        if matches!(self.origin, Origin::File(_)) {
            return Ok(());
        }
        loop {
            self.watch.check()?;
            match self.peek(PIECE_BYTES)?.len() {
                0 => return Ok(()),
                count => self.consume(count)?,
            }
        }
    }

    /// Passes over bytes of a file without reading them. Returns where they lie in it.
    fn pass(&mut self, count: u64, place: &Place, part: &'static str) -> Result<u64> {
        let Origin::File(FilePart { begin, end, .. }) = self.origin else { return Ok(0) };
        let position = begin.saturating_add(self.at);
        let found = end.saturating_sub(position);
        if count > found {
            return Err(truncated(place, self.at, part, count, found));
        }
        let buffered = self.end.saturating_sub(self.begin);
        self.begin = self.begin.saturating_add(usize::try_from(count).unwrap_or(usize::MAX).min(buffered));
        self.advance(count)?;
        Ok(position)
    }

    /// Calls `take` with `count` bytes in pieces.
    fn each(
        &mut self,
        count: u64,
        place: &Place,
        part: &'static str,
        mut take: impl FnMut(&mut Spool, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let (start, mut left) = (self.at, count);
        while left > 0 {
            self.watch.check()?;
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let found = self.peek(want)?.len();
            if found < want {
                let found = count.saturating_sub(left).saturating_add(number(found));
                return Err(truncated(place, start, part, count, found));
            }
            let piece = self.buffer.get(self.begin..self.begin.saturating_add(want)).unwrap_or_default();
            take(&mut self.spool, piece)?;
            self.consume(want)?;
            left = left.saturating_sub(number(want));
        }
        Ok(())
    }
}

/// Reads bytes of a part of a file, from its byte `at` on.
fn read_part(part: &FilePart, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let position = part.begin.saturating_add(at);
    let left = usize::try_from(part.end.saturating_sub(position)).unwrap_or(usize::MAX);
    let count = buffer.len().min(left);
    part.file.read_at(buffer.get_mut(..count).unwrap_or_default(), position)
}

fn failed(compression: Option<Compression>, at: u64, source: io::Error) -> Error {
    match compression {
        // Only the host numbers its errors.
        Some(compression) if source.raw_os_error().is_none() => {
            Error::Compressed { at, compression: compression.name(), source }
        }
        _ => Error::Read { at, source },
    }
}

pub(crate) fn truncated(place: &Place, at: u64, part: &'static str, expected: u64, found: u64) -> Error {
    Error::Truncated { member: place.shown(), at, part, expected, found }
}

/// A length in memory as a length in an archive.
pub(crate) fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
