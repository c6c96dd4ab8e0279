//! Stores the record of a disk: the requests to it in their order, as bytes that are only ever appended. `disk` writes
//! it, `cuts` reads it.
//!
//! ```text
//!   entry = kind u64 | number u64 | offset u64 | len u64 | len bytes, for a write      (little-endian)
//! ```
//!
//! A request has a number, and two entries: one when the disk executes it, one before the disk answers. A position in
//! the record is a count of bytes: the file's length is the position of the present moment.

use anyhow::{Context as _, Result, bail};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const HEAD_BYTES: usize = 32;

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes were written.
    Write,
    /// A range became zeros.
    Discard,
    /// A flush began.
    Flush,
    /// The request is about to be answered.
    Answer,
}

const KINDS: [(Kind, u64); 4] = [(Kind::Write, 1), (Kind::Discard, 2), (Kind::Flush, 3), (Kind::Answer, 4)];

/// Appends to a record.
#[derive(Debug)]
pub(super) struct Recorder {
    file: File,
    number: u64,
}

impl Recorder {
    /// Begins an empty record.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::create(path)?, number: 0 })
    }

    /// Adds a request; returns its number.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(super) fn add(&mut self, kind: Kind, offset: u64, len: u64, data: &[u8]) -> io::Result<u64> {
        self.number = self.number.saturating_add(1);
        self.put(kind, self.number, offset, len, data)?;
        Ok(self.number)
    }

    /// Notes that a request is about to be answered.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(super) fn answer(&mut self, number: u64) -> io::Result<()> {
        self.put(Kind::Answer, number, 0, 0, &[])
    }

    fn put(&mut self, kind: Kind, number: u64, offset: u64, len: u64, data: &[u8]) -> io::Result<()> {
        let code = KINDS.iter().find(|(known, _)| *known == kind).map_or(0, |(_, code)| *code);
        let mut bytes = Vec::with_capacity(HEAD_BYTES.saturating_add(data.len()));
        for word in [code, number, offset, len] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(data);
        // In one call: the length never includes half an entry.
        self.file.write_all(&bytes)
    }
}

/// A write or a discard of the record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    /// Position behind its entry.
    pub(super) done: u64,
    /// Position behind its answer; `u64::MAX` if there is none.
    pub(super) answered: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
    /// Position of its bytes in the record; a discard has none.
    data: Option<u64>,
}

/// An answered flush.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flush {
    /// Position before it began.
    pub(super) began: u64,
    /// Position behind its answer.
    pub(super) answered: u64,
}

/// A whole record.
#[derive(Debug)]
pub(super) struct Record {
    file: File,
    /// In their order.
    pub(super) changes: Vec<Change>,
    /// In the order of their answers.
    pub(super) flushes: Vec<Flush>,
    /// Positions behind all entries.
    pub(super) places: Vec<u64>,
}

impl Record {
    /// Reads a complete record.
    ///
    /// # Errors
    /// The file cannot be read, or is no record.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path)?;
        let mut reader = BufReader::with_capacity(1 << 16, File::open(path)?);
        let (mut changes, mut flushes, mut places) = (Vec::<Change>::new(), Vec::new(), Vec::new());
        let (mut open_changes, mut open_flushes) = (HashMap::new(), HashMap::new());
        let (end, mut at) = (file.metadata()?.len(), 0_u64);
        while at < end {
            let head = Head::read(&mut reader)?;
            let began = at;
            at = at.saturating_add(u64::try_from(HEAD_BYTES)?);
            match head.kind {
                Kind::Write | Kind::Discard => {
                    let data = (head.kind == Kind::Write).then_some(at);
                    if data.is_some() {
                        at = at.saturating_add(head.len);
                        reader.seek_relative(i64::try_from(head.len)?)?;
                    }
                    open_changes.insert(head.number, changes.len());
                    let (offset, len) = (head.offset, head.len);
                    changes.push(Change { done: at, answered: u64::MAX, offset, len, data });
                }
                Kind::Flush => {
                    open_flushes.insert(head.number, began);
                }
                Kind::Answer => {
                    if let Some(began) = open_flushes.remove(&head.number) {
                        flushes.push(Flush { began, answered: at });
                    } else if let Some(change) =
                        open_changes.remove(&head.number).and_then(|index| changes.get_mut(index))
                    {
                        change.answered = at;
                    }
                }
            }
            places.push(at);
        }
        Ok(Self { file, changes, flushes, places })
    }

    /// The bytes of a change; zeros for a discard.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(super) fn bytes(&self, change: &Change) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(change.len)?];
        if let Some(at) = change.data {
            self.file.read_exact_at(&mut bytes, at).context("the record is shorter than it was")?;
        }
        Ok(bytes)
    }

    /// The record of a disk that skipped one flush of `every` from `place` on, though it answered it.
    pub(super) fn forgetting(mut self, place: u64, every: usize) -> Self {
        let mut number = 0_usize;
        self.flushes.retain(|flush| {
            number = number.saturating_add(1);
            flush.answered <= place || !number.is_multiple_of(every)
        });
        self
    }
}

struct Head {
    kind: Kind,
    number: u64,
    offset: u64,
    len: u64,
}

impl Head {
    fn read(reader: &mut impl io::Read) -> Result<Self> {
        let mut word = || -> io::Result<u64> {
            let mut bytes = [0; 8];
            reader.read_exact(&mut bytes)?;
            Ok(u64::from_le_bytes(bytes))
        };
        let (code, number, offset, len) = (word()?, word()?, word()?, word()?);
        match KINDS.iter().find(|(_, known)| *known == code) {
            Some((kind, _)) => Ok(Self { kind: *kind, number, offset, len }),
            None => bail!("an entry of the unknown kind {code}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_is_read_back() {
        let path = std::env::temp_dir().join(format!("spinney-record-{}", std::process::id()));
        let mut recorder = Recorder::create(&path).unwrap();
        let write = recorder.add(Kind::Write, 4096, 3, b"abc").unwrap();
        let flush = recorder.add(Kind::Flush, 0, 0, &[]).unwrap();
        recorder.answer(write).unwrap();
        recorder.add(Kind::Discard, 8192, 512, &[]).unwrap();
        recorder.answer(flush).unwrap();
        let record = Record::open(&path).unwrap();
        let [write, discard] = record.changes.as_slice() else { panic!("{record:?}") };
        assert_eq!(record.bytes(write).unwrap(), b"abc");
        assert_eq!((write.offset, write.done, write.answered), (4096, 35, 99));
        assert_eq!((discard.offset, discard.answered), (8192, u64::MAX));
        assert_eq!(record.bytes(discard).unwrap(), [0; 512]);
        let flushes: Vec<_> = record.flushes.iter().map(|flush| (flush.began, flush.answered)).collect();
        assert_eq!(flushes, [(35, 163)]);
        assert_eq!(record.places, [35, 67, 99, 131, 163]);
        assert!(record.forgetting(100, 1).flushes.is_empty());
        std::fs::remove_file(path).unwrap();
    }
}
