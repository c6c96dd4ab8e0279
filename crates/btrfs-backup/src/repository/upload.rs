//! Uploads a stream in parts, and continues an upload that was cut short. Called by `repository`.
//!
//! The source writes the same stream again, whose first bytes were uploaded: those parts are only counted into the
//! chain of digests. If the chain differs where the upload goes on, the stream is another one.
//!
//! A run gives its own name to the keys of its parts. So it never meets an object that an earlier run, or one that was
//! taken over and does not know it yet, has put there.

use std::io::{self, Write};

use codec::checksum::{ChecksumType, checksum};

use crate::destination::Sent;
use crate::digest::{DIGEST_BYTES, hex};
use crate::error::{Error, Result};
use crate::repository::catalog::{Head, Part, Pending, Run, Stream, encode_list, parts_between};
use crate::repository::{Repository, part};
use crate::state;
use crate::store::{Condition, Put};

/// The reason why an upload ended, which a writer cannot return.
pub(super) enum Failure {
    /// The stream is not the one whose upload it continues.
    Differs,
    Error(Error),
}

/// A stream that is being uploaded.
pub(super) struct Upload<'a> {
    repository: &'a mut Repository,
    pending: Pending,
    /// Digest of the parts before, then the piece that is collected.
    piece: Vec<u8>,
    piece_bytes_max: usize,
    digest: [u8; DIGEST_BYTES],
    /// Parts that the source has written.
    seen: u64,
    /// Parts that earlier runs have uploaded.
    known: u64,
    /// Parts since the manifest was written.
    unwritten: u64,
    pub(super) failure: Option<Failure>,
}

impl<'a> Upload<'a> {
    /// Continues the pending upload of the state, or begins a new one.
    pub(super) fn begin(repository: &'a mut Repository, sent: &Sent<'_>) -> Result<Self> {
        let writing = repository.writing()?;
        let (run, is_encrypted) = (writing.mark.run.clone(), writing.recipients.is_some());
        let (uuid, parent) = (sent.state.sent_uuid(), sent.parent.map(state::State::sent_uuid));
        let is_same = |pending: &Pending| {
            let Head { uuid: of, parent: from, is_encrypted: sealed, .. } = &pending.head;
            (*of, *from, *sealed) == (uuid, parent, is_encrypted)
        };
        let mut pending = match repository.catalog.pending.take() {
            Some(pending) if is_same(&pending) => {
                // Parts that are there, though the manifest does not tell of them.
                let known = pending.head.part_count();
                if let Some(last) = pending.head.runs.last() {
                    let unknown = parts_between(known).saturating_add(1);
                    let garbage = pending.head.garbage_of(&last.run, known, unknown);
                    repository.catalog.garbage.push(garbage);
                }
                pending
            }
            other => {
                repository.catalog.garbage.extend(other.iter().flat_map(Pending::garbage));
                let (name, stamp) = (repository.name.clone(), sent.state.stamp);
                let head = Head { name, stamp, uuid, parent, is_encrypted, runs: Vec::new() };
                let part_bytes = repository.part_bytes();
                Pending { head, part_bytes, digest: [0; DIGEST_BYTES], parts: Vec::new() }
            }
        };
        pending.head.runs.push(Run { run, parts: 0 });
        repository.catalog.pending = Some(pending.clone());
        repository.commit()?;
        let piece_bytes_max = usize::try_from(pending.part_bytes).unwrap_or(usize::MAX);
        let known = pending.head.part_count();
        Ok(Self {
            repository,
            pending,
            piece: vec![0; DIGEST_BYTES],
            piece_bytes_max,
            digest: [0; DIGEST_BYTES],
            seen: 0,
            known,
            unwritten: 0,
            failure: None,
        })
    }

    /// Takes the piece, uploads it if no earlier run has, and writes the manifest now and then.
    fn end_piece(&mut self) -> Result<(), Failure> {
        self.put_piece()?;
        if self.unwritten >= parts_between(self.seen) {
            self.unwritten = 0;
            self.repository.catalog.pending = Some(self.pending.clone());
            self.repository.commit().map_err(Failure::Error)?;
        }
        Ok(())
    }

    fn put_piece(&mut self) -> Result<(), Failure> {
        self.digest = checksum(ChecksumType::Sha256, &self.piece);
        let (index, bytes) = (self.seen, self.piece.len().saturating_sub(DIGEST_BYTES));
        self.seen = self.seen.saturating_add(1);
        if self.seen < self.known {
            self.empty();
            return Ok(());
        }
        if self.seen == self.known {
            self.empty();
            return if self.digest == self.pending.digest { Ok(()) } else { Err(Failure::Differs) };
        }
        let part = self.put(index, bytes).map_err(Failure::Error)?;
        self.pending.parts.push(part);
        self.pending.digest = self.digest;
        if let Some(run) = self.pending.head.runs.last_mut() {
            run.parts = run.parts.saturating_add(1);
        }
        self.unwritten = self.unwritten.saturating_add(1);
        self.empty();
        Ok(())
    }

    fn empty(&mut self) {
        self.piece.clear();
        self.piece.extend_from_slice(&self.digest);
    }

    fn put(&self, index: u64, bytes: usize) -> Result<Part> {
        let writing = self.repository.writing()?;
        let piece = self.piece.get(DIGEST_BYTES..).unwrap_or_default();
        let object = part::encode(piece, writing.recipients.as_ref())?;
        self.put_object(&self.pending.head.part_key(&writing.mark.run, index), &object)?;
        let sha256 = hex(&checksum(ChecksumType::Sha256, &object));
        let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        Ok(Part { bytes: count(bytes), stored: count(object.len()), sha256 })
    }

    /// Puts an object that is never changed.
    fn put_object(&self, key: &str, bytes: &[u8]) -> Result<()> {
        let repository = &self.repository;
        let put = repository.store.put(key, bytes, Condition::Absent);
        match put.map_err(|error| repository.failed(key, error))? {
            Put::Done(_) => Ok(()),
            Put::Refused => {
                // An answer was lost, and the second try met the object of the first one.
                let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                let found = repository.store.get(key, len).map_err(|error| repository.failed(key, error))?;
                match found.is_some_and(|found| found.bytes == bytes) {
                    true => Ok(()),
                    false => Err(repository.corrupt(key, "there is another object of this key")),
                }
            }
        }
    }

    /// Puts the last piece and the list of parts, and adds the stream to the manifest. False if the stream is not the
    /// one whose upload it continues.
    pub(super) fn finish(mut self) -> Result<bool> {
        if self.piece.len() > DIGEST_BYTES {
            match self.put_piece() {
                Err(Failure::Differs) => return Ok(false),
                Err(Failure::Error(error)) => return Err(error),
                Ok(()) => {}
            }
        }
        if self.seen < self.known {
            return Ok(false);
        }
        let list = encode_list(&self.pending.parts);
        let Pending { mut head, digest, parts, .. } = self.pending.clone();
        let last = head.runs.last().cloned();
        // The list has the name of this run, also if it uploaded no part.
        head.runs.retain(|run| run.parts > 0 || Some(run) == last.as_ref());
        self.put_object(&head.list_key(), &list)?;
        let sum = |of: fn(&Part) -> u64| parts.iter().fold(0u64, |sum, part| sum.saturating_add(of(part)));
        let list = checksum(ChecksumType::Sha256, &list);
        let (bytes, stored) = (sum(|part| part.bytes), sum(|part| part.stored));
        let repository = self.repository;
        repository.whole.insert(head.uuid);
        repository.catalog.streams.push(Stream { head, bytes, stored, digest, list });
        repository.catalog.pending = None;
        repository.commit()?;
        Ok(true)
    }
}

impl Write for Upload<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failure.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let room = self.piece_bytes_max.saturating_add(DIGEST_BYTES).saturating_sub(self.piece.len());
        let now = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        self.piece.extend_from_slice(now);
        if now.len() == room
            && let Err(failure) = self.end_piece()
        {
            self.failure = Some(failure);
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(now.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
