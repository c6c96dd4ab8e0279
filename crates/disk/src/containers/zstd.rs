//! Writes an image as zstd frames of 2 MiB, each readable for itself, with a seek table. Called by `write`.
//!
//! The table is that of the "zstd seekable format" in the documentation of zstd (contrib/seekable_format): a skippable
//! frame at the end with the sizes of each frame, so that programs that know it read any place of the image, and all
//! others skip it. Our own writer and not a crate: the crates for this format compress with one thread, and the table
//! is forty lines.

use super::Written;
use super::compressor::Compressor;
use super::options::Options;
use super::ordered;
use super::output::{Output, Ready, Sink, Stream};
use super::scan::{Image, READ_BYTES, Run, Scan};
use super::watch::Watch;
use super::zeros::is_zero;
use crate::number::{at_most, bytes};
use crate::{Error, Result};

/// Bytes of the image in each frame.
const FRAME_BYTES: usize = READ_BYTES;
/// Marks a frame that decoders skip; the format chose this one of sixteen.
const SKIPPABLE_MAGIC: u32 = 0x184d_2a5e;
/// Ends a seek table.
const SEEKABLE_MAGIC: u32 = 0x8f92_eab1;
/// Bytes of the table behind its entries: their number, flags, the mark.
const FOOTER_BYTES: usize = 9;
/// Bytes of an entry: compressed size and size, no checksum (the frames have their own).
const ENTRY_BYTES: usize = 8;
/// Most frames that the format allows.
const FRAMES_MAX: u64 = 0x800_0000;

/// The contents of a frame.
enum Piece {
    Zeros(usize),
    Data(Vec<u8>),
}

/// A frame and how many bytes it holds.
struct Frame {
    compressed: Vec<u8>,
    contents_bytes: usize,
    is_data: bool,
}

/// A thread's compressor, and its last frame of zeros: sparse images have thousands.
struct Worker {
    compressor: Compressor,
    zeros: Option<(usize, Vec<u8>)>,
}

pub(super) fn write(image: Image<'_>, output: Output<'_>, options: &Options<'_>, watch: &Watch<'_>) -> Result<Written> {
    let level = options.compression.level()?;
    let max_bytes = FRAMES_MAX * bytes(FRAME_BYTES);
    if image.size_bytes > max_bytes {
        return Err(Error::TooLarge { form: "zstd", max_bytes, size_bytes: image.size_bytes });
    }
    let mut stream = match output.ready()? {
        Ready::File(file) => Stream::File(file),
        Ready::Stream(stream) => stream,
    };
    let mut sink = Sink::new(&mut stream, 0);
    let mut table = Vec::new();
    let mut data_bytes = 0;
    let mut pieces = Pieces { scan: Scan::new(image, FRAME_BYTES, watch), zeros_left: 0 };
    ordered::run(
        options.threads,
        || Ok(Worker { compressor: Compressor::new(level, true)?, zeros: None }),
        Worker::frame,
        || pieces.next(),
        |frame| {
            table.push([frame.compressed.len(), frame.contents_bytes]);
            data_bytes += if frame.is_data { bytes(frame.contents_bytes) } else { 0 };
            sink.write(&frame.compressed)
        },
    )?;
    sink.write(&seek_table(&table)?)?;
    Ok(Written { output_bytes: sink.end()?, data_bytes })
}

/// The image in pieces of one frame each.
struct Pieces<'a> {
    scan: Scan<'a>,
    zeros_left: u64,
}

impl Pieces<'_> {
    fn next(&mut self) -> Result<Option<Piece>> {
        if self.zeros_left == 0 {
            match self.scan.next()? {
                None => return Ok(None),
                // The scan reads as much as a frame has, and its units are frames: a run of data is one.
                Some(Run::Data(data)) => return Ok(Some(Piece::Data(data.to_vec()))),
                Some(Run::Zeros(len)) => self.zeros_left = len,
            }
        }
        let len = at_most(self.zeros_left, FRAME_BYTES);
        self.zeros_left -= bytes(len);
        Ok(Some(Piece::Zeros(len)))
    }
}

impl Worker {
    fn frame(&mut self, piece: Piece) -> Result<Frame> {
        match piece {
            Piece::Data(data) => {
                debug_assert!(!is_zero(&data), "the scan tells zeros from data");
                let compressed = self.compressor.compress(&data)?;
                Ok(Frame { compressed, contents_bytes: data.len(), is_data: true })
            }
            Piece::Zeros(len) => {
                let known = self.zeros.take().filter(|(known_len, _)| *known_len == len);
                let compressed = match known {
                    Some((_, frame)) => frame,
                    None => self.compressor.compress(&vec![0; len])?,
                };
                self.zeros = Some((len, compressed.clone()));
                Ok(Frame { compressed, contents_bytes: len, is_data: false })
            }
        }
    }
}

fn seek_table(frames: &[[usize; 2]]) -> Result<Vec<u8>> {
    let short = |number: usize| u32::try_from(number).map_err(|_| Error::Zstd("a seek table without bounds"));
    let contents_bytes = frames.len().saturating_mul(ENTRY_BYTES).saturating_add(FOOTER_BYTES);
    let mut table = Vec::with_capacity(contents_bytes.saturating_add(8));
    table.extend(SKIPPABLE_MAGIC.to_le_bytes());
    table.extend(short(contents_bytes)?.to_le_bytes());
    for size in frames.iter().flatten() {
        table.extend(short(*size)?.to_le_bytes());
    }
    table.extend(short(frames.len())?.to_le_bytes());
    // No checksums in the entries.
    table.push(0);
    table.extend(SEEKABLE_MAGIC.to_le_bytes());
    Ok(table)
}
