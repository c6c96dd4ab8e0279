//! Reads a stream from a repository, part by part, each compared with the list before any byte of it is used. Called by
//! `restore` and `inspect`.

use std::io::{self, Read};

use codec::checksum::{ChecksumType, checksum};

use crate::digest::{DIGEST_BYTES, hex};
use crate::error::{Error, Result};
use crate::repository::catalog::{CATALOG_BYTES_MAX, Part, Stream, decode_list};
use crate::repository::{Identities, Repository, part};

impl Repository {
    /// The parts of a stream.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a list that is missing or another one than the manifest says.
    pub(super) fn list(&self, stream: &Stream) -> Result<Vec<Part>> {
        let key = stream.head.list_key();
        let found = self.store.get(&key, CATALOG_BYTES_MAX).map_err(|error| self.failed(&key, error))?;
        let bytes = found.ok_or_else(|| self.corrupt(&key, "is missing"))?.bytes;
        let sum: [u8; DIGEST_BYTES] = checksum(ChecksumType::Sha256, &bytes);
        if sum != stream.list {
            let (expected, found) = (hex(&stream.list), hex(&sum));
            return Err(self.corrupt(&key, format!("its digest: expected {expected}, found {found}")));
        }
        decode_list(&bytes, stream).map_err(|what| self.corrupt(&key, what))
    }

    /// The object of a part, compared with its digest.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Store`].
    pub(super) fn object(&self, key: &str, part: &Part) -> Result<Vec<u8>> {
        let found = self.store.get(key, part.stored).map_err(|error| self.failed(key, error))?;
        let bytes = found.ok_or_else(|| self.corrupt(key, "is missing"))?.bytes;
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if len != part.stored {
            return Err(self.corrupt(key, format!("its length: expected {} bytes, found {len}", part.stored)));
        }
        let sum: [u8; DIGEST_BYTES] = checksum(ChecksumType::Sha256, &bytes);
        if Some(sum) != part.digest() {
            let (expected, found) = (&part.sha256, hex(&sum));
            return Err(self.corrupt(key, format!("its digest: expected {expected}, found {found}")));
        }
        Ok(bytes)
    }

    /// Reads a stream. An error of the reader is an [`Error`].
    ///
    /// # Errors
    /// [`Error::NeedsIdentity`]; [`Error::Corrupt`], [`Error::Store`].
    pub(crate) fn stream<'a>(&'a self, stream: &'a Stream, identities: Option<&'a Identities>) -> Result<Download<'a>> {
        if stream.head.is_encrypted && identities.is_none() {
            return Err(Error::NeedsIdentity(stream.head.state()));
        }
        let parts = self.list(stream)?;
        let keys: Vec<String> = stream.head.part_keys().collect();
        let identities = identities.filter(|_| stream.head.is_encrypted);
        let rest = keys.into_iter().zip(parts).collect::<Vec<_>>().into_iter();
        Ok(Download {
            repository: self,
            stream,
            identities,
            rest,
            piece: vec![0; DIGEST_BYTES],
            at: DIGEST_BYTES,
            digest: [0; DIGEST_BYTES],
        })
    }
}

/// A reader of a stream.
pub(crate) struct Download<'a> {
    repository: &'a Repository,
    stream: &'a Stream,
    identities: Option<&'a Identities>,
    /// Keys and parts that were not read yet.
    rest: std::vec::IntoIter<(String, Part)>,
    /// Digest of the parts before, then the piece that is read from.
    piece: Vec<u8>,
    at: usize,
    digest: [u8; DIGEST_BYTES],
}

impl Download<'_> {
    /// Fetches the next part; false at the end.
    fn next(&mut self) -> Result<bool> {
        let Some((key, part)) = self.rest.next() else { return Ok(false) };
        let object = self.repository.object(&key, &part)?;
        // Limited by what a manifest may say of a part.
        let len = usize::try_from(part.bytes).unwrap_or(usize::MAX);
        let piece = part::decode(&object, len, self.identities).map_err(|what| self.repository.corrupt(&key, what))?;
        self.piece.clear();
        self.piece.extend_from_slice(&self.digest);
        self.piece.extend_from_slice(&piece);
        self.at = DIGEST_BYTES;
        self.digest = checksum(ChecksumType::Sha256, &self.piece);
        if self.rest.len() == 0 && self.digest != self.stream.digest {
            let (expected, found) = (hex(&self.stream.digest), hex(&self.digest));
            return Err(self
                .repository
                .corrupt(&key, format!("digest of the stream: expected {expected}, found {found}")));
        }
        Ok(true)
    }
}

impl Read for Download<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at >= self.piece.len() {
            if !self.next().map_err(io::Error::other)? {
                return Ok(0);
            }
        }
        let from = self.piece.get(self.at..).unwrap_or_default();
        let count = from.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(from) {
            *to = *from;
        }
        self.at = self.at.saturating_add(count);
        Ok(count)
    }
}
