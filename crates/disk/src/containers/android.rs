//! Writes the sparse form of Android's flashing tools: a header, and chunks that are data, a repeated word, or nothing.
//! Called by `write`.
//!
//! The layout is that of `sparse_format.h` in Android's libsparse. Our own writer: the form is two small headers, and
//! the crates for it read and write whole images in memory.

use super::Written;
use super::options::{Options, Zeros};
use super::output::{Output, Sink, write_headed};
use super::running_crc::RunningCrc;
use super::scan::{Image, Run, Scan};
use super::watch::Watch;
use crate::number::bytes;
use crate::{Error, Result};

/// The name in messages.
const FORM: &str = "simg";
/// Bytes of a block: the only size that all tools take.
const BLOCK_BYTES: usize = 4096;
/// Bytes of the header of the file.
const HEAD_BYTES: u16 = 28;
/// Bytes of the header of a chunk.
const CHUNK_HEAD_BYTES: u16 = 12;
/// Blocks of data in one chunk at most, which are collected in memory: 4 MiB.
const DATA_BLOCKS_MAX: usize = 1024;
/// Marks the file.
const MAGIC: u32 = 0xed26_ff3a;

/// The kind of a chunk.
#[derive(Clone, Copy)]
enum Kind {
    Raw,
    Fill,
    DontCare,
    Crc32,
}

impl Kind {
    const fn code(self) -> u16 {
        match self {
            Self::Raw => 0xcac1,
            Self::Fill => 0xcac2,
            Self::DontCare => 0xcac3,
            Self::Crc32 => 0xcac4,
        }
    }
}

pub(super) fn write(image: Image<'_>, output: Output<'_>, options: &Options<'_>, watch: &Watch<'_>) -> Result<Written> {
    options.compression.refuse()?;
    let size_bytes = image.size_bytes;
    let block_bytes = bytes(BLOCK_BYTES);
    if !size_bytes.is_multiple_of(block_bytes) {
        return Err(Error::PartialBlock { form: FORM, block_bytes, size_bytes });
    }
    let max_bytes = u64::from(u32::MAX) * block_bytes;
    let Ok(block_count) = u32::try_from(size_bytes / block_bytes) else {
        return Err(Error::TooLarge { form: FORM, max_bytes, size_bytes });
    };
    let (totals, output_bytes) = write_headed(
        output,
        u64::from(HEAD_BYTES),
        watch,
        |sink| write_chunks(Scan::new(image, BLOCK_BYTES, watch), options, sink),
        |totals| Ok(head(block_count, totals.chunk_count)),
    )?;
    Ok(Written { output_bytes, data_bytes: totals.data_bytes })
}

/// Counts for the header, and for the caller.
#[derive(PartialEq)]
struct Totals {
    chunk_count: u32,
    data_bytes: u64,
}

fn head(block_count: u32, chunk_count: u32) -> Vec<u8> {
    let mut head = Vec::with_capacity(usize::from(HEAD_BYTES));
    head.extend(MAGIC.to_le_bytes());
    // Version 1.0, and the sizes of both kinds of header.
    for short in [1, 0, HEAD_BYTES, CHUNK_HEAD_BYTES] {
        head.extend(short.to_le_bytes());
    }
    // The last word would be a checksum, which no tool reads here; the chunk at the end is for it.
    for word in [4096, block_count, chunk_count, 0_u32] {
        head.extend(word.to_le_bytes());
    }
    head
}

fn write_chunks(mut scan: Scan<'_>, options: &Options<'_>, sink: &mut Sink<'_>) -> Result<Totals> {
    let crc = options.has_checksum.then(RunningCrc::new);
    let totals = Totals { chunk_count: 0, data_bytes: 0 };
    let mut chunks = Chunks { sink, zeros: options.zeros, crc, totals, open: Open::Nothing };
    while let Some(run) = scan.next()? {
        match run {
            Run::Zeros(len) => chunks.zeros(len)?,
            Run::Data(data) => {
                chunks.totals.data_bytes += bytes(data.len());
                for block in data.chunks(BLOCK_BYTES) {
                    chunks.block(block)?;
                }
            }
        }
    }
    chunks.end()
}

/// The chunk that may still grow.
enum Open {
    Nothing,
    Data(Vec<u8>),
    Fill { word: [u8; 4], block_count: u32 },
    DontCare { block_count: u32 },
}

struct Chunks<'a, 'b> {
    sink: &'a mut Sink<'b>,
    zeros: Zeros,
    crc: Option<RunningCrc>,
    totals: Totals,
    open: Open,
}

impl Chunks<'_, '_> {
    fn zeros(&mut self, len_bytes: u64) -> Result<()> {
        let block_count = count(len_bytes / bytes(BLOCK_BYTES))?;
        if let Some(crc) = &mut self.crc {
            crc.add_zeros(len_bytes);
        }
        match self.zeros {
            Zeros::Fill => self.fill([0; 4], block_count),
            Zeros::DontCare => {
                let before = match self.open {
                    Open::DontCare { block_count } => block_count,
                    _ => 0,
                };
                self.close_unless(before > 0)?;
                self.open = Open::DontCare { block_count: before.saturating_add(block_count) };
                Ok(())
            }
        }
    }

    fn block(&mut self, block: &[u8]) -> Result<()> {
        if let Some(crc) = &mut self.crc {
            crc.add(block);
        }
        let word = block.first_chunk::<4>().filter(|word| block.chunks(4).all(|other| other == *word));
        if let Some(word) = word {
            return self.fill(*word, 1);
        }
        match &mut self.open {
            Open::Data(data) if data.len() < DATA_BLOCKS_MAX * BLOCK_BYTES => data.extend_from_slice(block),
            _ => {
                self.close_unless(false)?;
                self.open = Open::Data(block.to_vec());
            }
        }
        Ok(())
    }

    fn fill(&mut self, word: [u8; 4], more: u32) -> Result<()> {
        let before = match self.open {
            Open::Fill { word: open, block_count } if open == word => block_count,
            _ => 0,
        };
        self.close_unless(before > 0)?;
        self.open = Open::Fill { word, block_count: before.saturating_add(more) };
        Ok(())
    }

    /// Writes the open chunk, unless it goes on.
    fn close_unless(&mut self, goes_on: bool) -> Result<()> {
        if goes_on {
            return Ok(());
        }
        match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::Nothing => Ok(()),
            Open::Data(data) => self.write(Kind::Raw, count(bytes(data.len() / BLOCK_BYTES))?, &data),
            Open::Fill { word, block_count } => self.write(Kind::Fill, block_count, &word),
            Open::DontCare { block_count } => self.write(Kind::DontCare, block_count, &[]),
        }
    }

    fn write(&mut self, kind: Kind, block_count: u32, data: &[u8]) -> Result<()> {
        let len = count(bytes(data.len()))?.saturating_add(u32::from(CHUNK_HEAD_BYTES));
        let mut head = Vec::with_capacity(usize::from(CHUNK_HEAD_BYTES));
        head.extend(kind.code().to_le_bytes());
        head.extend([0; 2]);
        head.extend(block_count.to_le_bytes());
        head.extend(len.to_le_bytes());
        self.totals.chunk_count = count(u64::from(self.totals.chunk_count) + 1)?;
        self.sink.write(&head)?;
        self.sink.write(data)
    }

    fn end(mut self) -> Result<Totals> {
        self.close_unless(false)?;
        if let Some(crc) = self.crc.take() {
            self.write(Kind::Crc32, 0, &crc.value().to_le_bytes())?;
        }
        Ok(self.totals)
    }
}

/// A number of blocks or chunks, which the size of the image keeps below 2^32.
fn count(number: u64) -> Result<u32> {
    let max_bytes = u64::from(u32::MAX);
    u32::try_from(number).map_err(|_| Error::TooLarge { form: FORM, max_bytes, size_bytes: number })
}
